"""Recording of a capture, ready for a replay: exchanges in order, exchanges that cannot be replayed, and outcomes.

The exchanges have the order of their requests, over all connections. Frames are decoded on demand, and the decoded
message is dropped after the replay of its exchange. `structs` yields the structs of a message with their layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal
from uuid import UUID

from kproxy.base.errors import DecodeError
from kproxy.protocol import Message, decode_request, decode_response
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import CREATE_TOPICS, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kproxy.protocol.table.layout import ZERO_UUID, Slot, Struct
from kproxy.record.exchange import Form, Frame, ObservedExchange, Who
from kproxy.record.observer.credentials import CONFIG_VALUES

ERROR_CODE = "error_code"


def layout_of(message: Message) -> Struct:
    return layout.body(message.api.key, message.version, message.direction)


def structs(struct: Struct, value: dict[str, Any]) -> Iterator[tuple[Struct, dict[str, Any]]]:
    """Yield the struct itself and all that are in it, in wire order, each with its layout."""
    yield struct, value
    for slot in struct.all_slots:
        inner = value.get(slot.name)
        if slot.struct is None or inner is None:
            continue
        for element in inner if slot.array else (inner,):
            yield from structs(slot.struct, element)


def of_kind(struct: Struct, kind: str) -> Iterator[Slot]:
    """Yield the fields of this struct, not of those in it, that hold such a value."""
    return (slot for slot in struct.all_slots if slot.kind == kind)


def codes(message: Message) -> set[int]:
    """Return all error codes of a response but 0."""
    present: set[int] = set()
    for struct, value in structs(layout_of(message), message.body):
        present.update(value[slot.name] for slot in of_kind(struct, ERROR_CODE) if not slot.array)
    return present - {0}


@cache
def carriers(kind: str, direction: str) -> frozenset[int]:
    """Return the keys of all APIs that carry such a value in some version."""
    return frozenset(key for key in schema.paths() if kind in layout.kinds(key, direction))


TOPIC_ID, TOPIC_NAME = "topic_id", "topic_name"
SHOWING = carriers(TOPIC_ID, "response") & carriers(TOPIC_NAME, "response")
"""Keys of the APIs whose responses show names next to ids."""


def pairs(message: Message) -> Iterator[tuple[UUID, str]]:
    for struct, value in structs(layout_of(message), message.body):
        ids = [value[slot.name] for slot in of_kind(struct, TOPIC_ID) if not slot.array]
        names = [value[slot.name] for slot in of_kind(struct, TOPIC_NAME) if not slot.array]
        if len(ids) == len(names) == 1 and ids[0] != ZERO_UUID and names[0]:
            yield ids[0], names[0]


WITHHELD = "something in it was withheld"
AUTHENTICATION = "it is authentication, whose secrets are withheld"
CUT = "the capture has only the beginning of it"
BARE = "the capture has no bytes of it"


@dataclass(slots=True, eq=False)
class RecordedLine:
    """Recorded connection. `number` counts them from 1 in the order of their first request in the recording."""

    number: int
    who: Who
    exchanges: list[RecordedExchange] = field(default_factory=list)


@dataclass(eq=False)
class RecordedExchange:
    """Recorded exchange. `place` is its index among all requests; `unfit`: why it cannot be replayed."""

    seen: ObservedExchange
    line: RecordedLine
    unfit: str = ""
    place: int = 0

    @property
    def key(self) -> int:
        return self.seen.key

    @property
    def version(self) -> int:
        return self.seen.version

    @property
    def api(self) -> str:
        return self.seen.api

    @property
    def sent(self) -> float:
        """Return when the request's first byte came."""
        assert self.seen.request is not None
        return self.seen.request.first

    @property
    def seconds(self) -> float | None:
        """Return the seconds from the request's first byte to the response's first; None without a response."""
        return None if self.seen.response is None else self.seen.response.first - self.sent

    @property
    def silent(self) -> bool:
        """Return True if no response is due: a Produce with acks=0."""
        return self.seen.outcome == "no_answer_due" or (self.key == PRODUCE and self.seen.acks == 0)

    @property
    def request_frame(self) -> bytes:
        """Return the request without its length; call it only if the request is fit."""
        assert self.seen.request is not None
        return self.seen.request.data

    @property
    def response_frame(self) -> bytes | None:
        """Return the response without its length; None if it is missing or incomplete."""
        return whole(self.seen.response)

    def decode_request(self) -> Message | None:
        """Return the request, decoded for each call, so that it may be changed; None if it cannot be read."""
        try:
            return decode_request(self.request_frame, trailing=True)
        except DecodeError:
            return None

    @cached_property
    def request(self) -> Message | None:
        """Return the request, not to be changed; None if it cannot be read."""
        return None if self.unfit else self.decode_request()

    @cached_property
    def response(self) -> Message | None:
        """Return the response, not to be changed; None if it is not all there or cannot be read."""
        return response_of(self.seen)

    def forget(self) -> None:
        self.__dict__.pop("request", None)
        self.__dict__.pop("response", None)


@dataclass(slots=True, eq=False)
class Recording:
    """Recording: exchanges in the order of their requests, and the lines that they came on. `names`: of topic ids."""

    exchanges: list[RecordedExchange]
    lines: list[RecordedLine]
    names: dict[UUID, str]

    @property
    def start(self) -> float:
        """Return the time of the first request; 0 for an empty recording."""
        return self.exchanges[0].sent if self.exchanges else 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds from the first request to the last."""
        return self.exchanges[-1].sent - self.start if self.exchanges else 0.0


def record(seen: Iterable[ObservedExchange], wanted: Callable[[ObservedExchange], bool] | None = None) -> Recording:
    """Return a recording of the requested subset of these exchanges, which may be in any order.

    Names of topic ids come from all of them. Responses without a request are left out.
    """
    lines: dict[int, RecordedLine] = {}
    exchanges: list[RecordedExchange] = []
    kept: list[ObservedExchange] = []
    names: dict[UUID, str] = {}
    for captured in seen:
        if captured.key in SHOWING and (response := response_of(captured)) is not None:
            names.update(pairs(response))
        if captured.request is not None and (wanted is None or wanted(captured)):
            kept.append(captured)
    for captured in sorted(kept, key=came):
        line = lines.get(id(captured.who))
        if line is None:
            line = lines[id(captured.who)] = RecordedLine(len(lines) + 1, captured.who)
        exchange = RecordedExchange(captured, line, unfit(captured), len(exchanges))
        line.exchanges.append(exchange)
        exchanges.append(exchange)
    return Recording(exchanges, list(lines.values()), names)


def whole(frame: Frame | None) -> bytes | None:
    """Return the bytes of a frame if they are all there, config values perhaps excepted."""
    if frame is None or frame.form is not Form.WHOLE or frame.withheld not in ("", CONFIG_VALUES):
        return None
    return frame.data


def response_of(seen: ObservedExchange) -> Message | None:
    """Return the response; None if it is not all there or cannot be read."""
    frame = whole(seen.response)
    try:
        return None if frame is None else decode_response(frame, seen.key, seen.version, trailing=True)
    except DecodeError:
        return None


def came(seen: ObservedExchange) -> tuple[float, int]:
    """Return the sort key of an exchange: by time; on one connection, and at the same time, by number."""
    return seen.request.first if seen.request is not None else 0.0, seen.number


def unfit(seen: ObservedExchange) -> str:
    """Return why this request cannot be sent again; empty if it can."""
    if seen.key in (SASL_HANDSHAKE, SASL_AUTHENTICATE) or seen.key not in schema.paths():
        return AUTHENTICATION if seen.key in (SASL_HANDSHAKE, SASL_AUTHENTICATE) else f"api key {seen.key} is not known"
    frame = seen.request
    assert frame is not None
    if frame.withheld and not (frame.withheld == CONFIG_VALUES and seen.key == CREATE_TOPICS):
        return f"{WITHHELD}: {frame.withheld}"
    return {Form.NONE: BARE, Form.WHOLE: ""}.get(frame.form, CUT)


ReplayStatus = Literal["answered", "silent", "unanswered", "not sent"]
"""silent: sent, and no answer is due."""


@dataclass(slots=True, eq=False)
class ReplayOutcome:
    """Outcome of one exchange.

    `frame`: the new response, without its length; `message`: the same decoded, if it can be read; `seconds`: from the
    sending to it; `reason`: why it was not sent, or not answered; `notes`: differences of the request; `tries`: how
    often it was sent.
    """

    exchange: RecordedExchange
    how: ReplayStatus
    frame: bytes | None = None
    message: Message | None = None
    seconds: float | None = None
    reason: str = ""
    notes: list[str] = field(default_factory=list)
    tries: int = 1
