"""Connection in a capture: its client, from packets and from kproxy's own notes.

A file may have any origin. So a note counts as empty unless it has these names and types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

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

    `older`: the connection began before the capture. `earlier`: API key of a response to a request before it.
    `who`: news about the client since the connection's first packet. `acks`: of a Produce request, if its kept bytes
    lack them. `withheld`: why the frame is not whole. `sketch`: its bytes are a sketch. `rules`, `responder`,
    `rule_wait`, `other_wait`, `outcome`: of the exchange that ends with the frame. `throttle`: its throttle_time_ms,
    the rule that throttled it, and the seconds of the mute. `failed`: error codes that rules put into the broker's
    response. `errors`, `error_at_top`: those in a response that is not kept completely; the first one is at its top.
    """

    connection: int
    older: bool
    earlier: int
    who: ClientNote
    acks: int
    withheld: str
    sketch: bool
    rules: list[str]
    responder: str
    rule_wait: tuple[float, float]
    other_wait: tuple[float, float]
    throttle: tuple[int, str, float]
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


MOST_TOPICS = 100_000
"""Topic ids with remembered names, about 30 MB."""
LONGEST_TOPIC = 249
"""Characters of a topic's name at Kafka's brokers; longer ones are in damaged captures, or made to take room."""
NO_ID = "00000000-0000-0000-0000-000000000000"
NOTED_FIELDS = ("cluster", "listener", "node", "broker", "principal", "software_name", "software_version")


class TopicIdNames:
    """Names of the topic ids in one capture, as its Metadata responses show them."""

    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: dict[str, str] = {}

    def learn(self, body: Mapping[str, Any] | None) -> None:
        """Take in the names of a Metadata response; None: it could not be read."""
        for topic in (body or {}).get("topics") or ():
            topic_id, name = str(topic.get("topic_id", NO_ID)), topic.get("name")
            if name and len(name) <= LONGEST_TOPIC and topic_id != NO_ID and len(self.by_id) < MOST_TOPICS:
                self.by_id[topic_id] = name


@dataclass(slots=True, eq=False)
class CapturedConnection:
    """Connection in a capture; `number` counts them from 1 on, or is kproxy's own where that wrote the file.

    `interface`: its name, empty if it has none. `server_address`, `server_port`: the client's peer. `exchanges`:
    requests so far. `over`: when it ended, as far as that is in the file. `older`: it began before the capture.
    """

    number: int
    interface: str
    client_address: str
    client_port: int
    server_address: str
    server_port: int
    opened: float
    names: TopicIdNames = field(repr=False)
    over: float | None = None
    exchanges: int = 0
    older: bool = False
    cluster: str | None = None
    listener: str | None = None
    node: int | None = None
    broker: str | None = None
    principal: str | None = None
    software_name: str | None = None
    software_version: str | None = None
    recording: int = 0
    """Number of the recording among several that are read together, or 0."""

    def take_note(self, note: Mapping[str, Any]) -> None:
        self.older = note.get("older", self.older)
        for name in NOTED_FIELDS:
            if name in note:
                setattr(self, name, note[name])

    def broker_topic(self, topic: str) -> str | None:
        """Return None: a capture does not contain the broker's names."""
        return None

    def broker_group(self, group: str) -> str | None:
        """Return None: a capture does not contain the broker's names."""
        return None

    def topic_of(self, topic_id: str) -> str | None:
        """Return the topic's name by its id, as a Metadata response earlier in the capture has shown it."""
        return self.names.by_id.get(topic_id)
