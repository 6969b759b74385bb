"""Notes of kproxy's at packets: their fields, and their reader.

Strategy: a file may come from anywhere, so what a note says is taken only when it has these names and types; else the
note counts as empty.
"""

from __future__ import annotations

from typing import Literal, TypedDict

import msgspec

from .pcapng import NOTE


class ClientNote(TypedDict, total=False):
    """Client of a connection, as far as it is known."""

    cluster: str | None
    listener: str | None
    node: int | None
    broker: str | None
    principal: str | None
    software_name: str | None
    software_version: str | None


class Note(ClientNote, total=False):
    """Note at a packet. At the first packet of a connection: its number and client. At the last of a frame: the rest.

    `who`: what has become known of the client since. `acks`: of a Produce request, where the bytes that are kept do not
    have them. `withheld`: why the frame is not whole. `rules`, `answered_by`, `rule_wait`, `other_wait`, `outcome`: of
    the exchange that ends with the frame. `failed`: error codes that rules put into the broker's answer. `errors`,
    `error_at_top`: those in a response of which not all is kept; the first one stands at its top.
    """

    connection: int
    who: ClientNote
    acks: int
    withheld: str
    rules: list[str]
    answered_by: str
    rule_wait: tuple[float, float]
    other_wait: tuple[float, float]
    outcome: Literal["closed"]
    failed: list[int]
    errors: list[int]
    error_at_top: bool


_decode = msgspec.json.Decoder(Note).decode
NOTHING: Note = {}


def packet_note(comment: str) -> Note:
    """Return the note in a packet's comment; an empty one if the comment is not kproxy's."""
    if not comment.startswith(NOTE):
        return NOTHING
    try:
        return _decode(comment[len(NOTE) :])
    except (msgspec.DecodeError, RecursionError):
        return NOTHING
