"""Spool of exchanges that were read from a file: written once, by the process that reads it, and read at any place.

Strategy. A capture may hold a million exchanges, and whoever opens it looks at some hundred of them. So they stand one
behind the other in a file without a name, and memory holds no more than where each begins. A record is a msgpack array;
numbers count from 1.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping
from threading import Lock
from typing import Any

import msgspec

from kproxy.record.captures.captured_connection import CapturedConnection, TopicIdNames
from kproxy.record.exchange import Errors, ExchangeOutcome, Form, Frame, ObservedExchange

LONGEST_RECORD = 64 << 20
"""Bytes; a record has two frames of 64 KiB each. What says to be longer is none."""
WHO = (
    "number", "interface", "client_address", "client_port", "server_address", "server_port", "opened",
)  # fmt: skip
KNOWN_LATER = ("cluster", "listener", "node", "broker", "principal", "software_name", "software_version")


class SpooledFrame(msgspec.Struct, array_like=True, gc=False):
    """Frame as a spool has it; see `record.exchange.Frame`."""

    size: int
    first: float
    last: float
    data: bytes
    form: int
    withheld: str
    sketch: bytes


class SpooledExchange(msgspec.Struct, array_like=True, gc=False):
    """Exchange as a spool has it, with its connection as it was known then; see `record.exchange.ObservedExchange`."""

    who: tuple[int, str, str, int, str, int, float]
    later: tuple[str | None, str | None, int | None, str | None, str | None, str | None, str | None]
    number: int
    key: int
    version: int
    correlation_id: int
    client_id: str | None
    request: SpooledFrame | None
    response: SpooledFrame | None
    outcome: ExchangeOutcome
    acks: int | None
    depth: str
    rules: list[str]
    answered_by_rule: bool
    errors: tuple[list[int], bool]
    own_errors: list[int]
    rule_wait: tuple[float, float]
    other_wait: tuple[float, float]
    unread: str
    throttle: tuple[int, str, float]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SpooledExchange).decode


def encoded(seen: ObservedExchange) -> bytes:
    """Return the record of an exchange that a capture's reader has made."""
    who: Any = seen.who
    return _encode(
        SpooledExchange(
            tuple(getattr(who, name) for name in WHO), tuple(getattr(who, name) for name in KNOWN_LATER),
            seen.number, seen.key, seen.version, seen.correlation_id, seen.client_id, _packed(seen.request),
            _packed(seen.response), seen.outcome, seen.acks, seen.depth, seen.rules, seen.answered_by_rule,
            (list(seen.known_errors.codes), seen.known_errors.top), sorted(seen.own_errors), seen.rule_wait,
            seen.other_wait, seen.unread, (seen.known_throttle, seen.throttler, seen.mute),
        )
    )  # fmt: skip


def _packed(frame: Frame | None) -> SpooledFrame | None:
    if frame is None:
        return None
    return SpooledFrame(
        frame.size, frame.first, frame.last, frame.data, frame.form.value, frame.withheld, frame.sketch
    )  # fmt: skip


def decoded(record: bytes, names: TopicIdNames) -> ObservedExchange:
    """Return the exchange of a record. `names`: of topics by their ids. Raises msgspec.DecodeError."""
    kept = _decode(record)
    who = CapturedConnection(*kept.who, names)
    for name, value in zip(KNOWN_LATER, kept.later, strict=True):
        setattr(who, name, value)
    return ObservedExchange(
        who, kept.number, kept.key, kept.version, kept.correlation_id, kept.client_id, _unpacked(kept.request),
        _unpacked(kept.response), kept.outcome, kept.acks, kept.depth, kept.rules, kept.answered_by_rule,
        Errors(tuple(kept.errors[0]), kept.errors[1]), frozenset(kept.own_errors), kept.rule_wait, kept.other_wait,
        kept.unread, *kept.throttle,
    )  # fmt: skip


def _unpacked(frame: SpooledFrame | None) -> Frame | None:
    if frame is None:
        return None
    return Frame(frame.size, frame.first, frame.last, frame.data, Form(frame.form), frame.withheld, frame.sketch)


class Spool:
    """Exchanges in an open file. `places`: of each the offsets of its record and of the record behind it (what passed
    at the broker, where that was something else), -1 for none. `topics`: names by their ids."""

    def __init__(self, number: int, places: array[int], topics: Mapping[str, str]) -> None:
        self.file, self.places = number, places
        self.lock = Lock()  # threads read, and a number that was closed may be another file's at once
        self.names = TopicIdNames()
        self.names.by_id = dict(topics)

    def __len__(self) -> int:
        return len(self.places) // 2

    def exchange(self, number: int) -> ObservedExchange:
        """Return the exchange of this number, from 1 on. Raises IndexError, OSError, and msgspec.DecodeError for a file
        that was damaged."""
        return self._at(self._place(number, 0))

    def behind(self, number: int) -> ObservedExchange | None:
        """Return what passed at the broker; None where it was the same, or is not in the capture."""
        place = self._place(number, 1)
        return None if place < 0 else self._at(place)

    def is_changed(self, number: int) -> bool:
        """Return True if something else than at the client passed at the broker."""
        return self._place(number, 1) >= 0

    def close(self) -> None:
        """Let go of the file, which is gone then. What is asked for afterwards raises OSError."""
        with self.lock:
            if self.file >= 0:
                os.close(self.file)
            self.file = -1

    def _place(self, number: int, which: int) -> int:
        if not 0 < number <= len(self):
            raise IndexError(number)
        return self.places[2 * (number - 1) + which]

    def _at(self, place: int) -> ObservedExchange:
        with self.lock:
            size = int.from_bytes(os.pread(self.file, 4, place), "big")
            record = os.pread(self.file, min(size, LONGEST_RECORD), place + 4)
        return decoded(record, self.names)
