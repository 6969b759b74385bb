"""One recorded exchange as a rehearsal needs it: a row of the frames table, as Python."""

from __future__ import annotations

from dataclasses import dataclass, field

from kproxy.rules.facts import Facts


@dataclass(frozen=True, slots=True)
class Caller:
    """Who spoke on a connection; `key` tells it from all others."""

    key: str
    facts: Facts
    client_software: str | None = None


@dataclass(slots=True)
class Recorded:
    """Frames are whole and without their length; times are seconds since 1970. No response: there was none, or it was
    not recorded."""

    number: int
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    request: bytes
    request_time: float
    response: bytes | None = None
    response_time: float | None = None
    topics: tuple[str, ...] = field(default=())
