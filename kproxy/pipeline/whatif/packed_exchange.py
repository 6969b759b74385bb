"""Recorded exchange as a rehearsal needs it, and the form in which exchanges travel to where they are rehearsed."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kproxy.rules.facts import Facts


@dataclass(frozen=True, slots=True)
class RecordedClient:
    """Client of a recorded connection; `key` tells the connection from all others."""

    key: str
    facts: Facts
    client_software: str | None = None


class PackedExchange(msgspec.Struct, array_like=True, gc=False, eq=False):
    """Recorded exchange. Frames are whole and without their length; times are seconds since 1970.

    No response: there was none, or it was not recorded.
    """

    number: int
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    request: bytes
    request_time: float
    response: bytes | None = None
    response_time: float | None = None


class ExchangeChunk(msgspec.Struct, array_like=True):
    """Chunk of a connection's exchanges that follow each other, in the order of their requests, and its client."""

    listener: str | None
    cluster: str | None
    client_address: str
    node: int | None
    exchanges: list[PackedExchange]


class CaptureSummary(msgspec.Struct):
    """Summary of a capture.

    `began`: time of its first request. `topics`: names by topic id, as its Metadata responses show them. `opaque`: how
    many exchanges there are that the rules cannot be about; they travel no further. `unfit`: how many cannot be
    rehearsed, by reason.
    """

    began: float = 0.0
    topics: dict[str, str] = {}
    opaque: int = 0
    unfit: dict[str, int] = {}


pack = msgspec.msgpack.Encoder().encode
unpack_chunk = msgspec.msgpack.Decoder(ExchangeChunk).decode
unpack_summary = msgspec.msgpack.Decoder(CaptureSummary).decode
