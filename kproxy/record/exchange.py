"""Frames and exchanges that an observer saw, as it hands them out.

Times are seconds of one clock: monotonic while kproxy runs, since 1970 for captures. Nothing here is a copy of more
than was asked for: `Frame.data` may be the whole frame, a sketch of it, or its beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from kproxy.base.errors import DecodeError
from kproxy.protocol.scan.sketch import decode_sketch
from kproxy.protocol.table import schema

if TYPE_CHECKING:
    from kproxy.session.session_state import SessionState


class Depth(IntEnum):
    """Required part of the frames of an API; each value includes those before it."""

    COUNT = 0
    """Only that a frame passed: size, time, API, version, correlation id."""
    ROWS = 1
    """Rows of a summary: records, bytes and errors of partitions for Produce and Fetch; otherwise like COUNT."""
    LINES = 2
    """A line of text for each exchange (see templated_lines.py), else as SKETCH."""
    SKETCH = 3
    """Every field; record batches by their headers."""
    FULL = 4
    """Every byte, up to the observer's limit."""
    RAW = 5
    """Like FULL, with credentials. Only for the single sink of `Fanout.add_alone`, such as a test's tape."""


class Form(IntEnum):
    """Form of the frame in `Frame.data`."""

    NONE = 0
    HEAD = 1
    """The first bytes, since the frame was too long or its structure could not be followed."""
    SKETCH = 2
    """The frame with the inside of its record batches left out (see protocol/scan/sketch.py)."""
    WHOLE = 3


@dataclass(slots=True)
class Frame:
    """Request or response of one exchange, as far as it was kept.

    `size`: bytes with the length field. `data`: bytes without it, header first; credentials are never in it: of APIs
    that carry some, only the header is, or the values are overwritten. `first`, `last`: when its first and its last
    byte came.
    """

    size: int
    first: float
    last: float
    data: bytes = b""
    form: Form = Form.NONE
    withheld: str = ""
    """Why the body is not in `data` although it was asked for; or what in it was overwritten."""
    sketch: bytes = b""
    """Its sketch, where `data` is only the head of a frame with records that is longer than an observer keeps."""


class Parts(NamedTuple):
    """Parts of the time from a request's first byte to its response's last, in seconds; they add up to `latency`.

    `broker` includes the transfer of both frames, without the time that kproxy kept them. It is 0 if kproxy answered.
    """

    latency: float
    kproxy: float
    rule: float
    broker: float


ExchangeOutcome = Literal["answered", "no_answer_due", "unanswered", "closed"]


class Errors(NamedTuple):
    """Error codes of one response, each once, in its order. `top`: the first one is at the top of the response."""

    codes: tuple[int, ...] = ()
    top: bool = False


NO_ERRORS = Errors()


class Who(Protocol):
    """Description of the connection that was watched; None is not known, and may become known while it lives."""

    @property
    def number(self) -> int: ...
    @property
    def cluster(self) -> str | None: ...
    @property
    def listener(self) -> str | None: ...
    @property
    def client_address(self) -> str: ...
    @property
    def client_port(self) -> int: ...
    @property
    def node(self) -> int | None: ...
    @property
    def broker(self) -> str | None: ...
    @property
    def principal(self) -> str | None: ...
    @property
    def software_name(self) -> str | None: ...
    @property
    def software_version(self) -> str | None: ...
    def broker_topic(self, topic: str) -> str | None:
        """Return the topic's name at the broker, None where it is the same."""
        ...

    def broker_group(self, group: str) -> str | None:
        """Return the group's name at the broker, None where it is the same."""
        ...

    def topic_of(self, topic_id: str) -> str | None:
        """Return the client's name of the topic with this id (hex and dashes), None where it is not known."""
        ...


class SessionWho:
    """Connection as its session describes it, read on access. Subclasses add values of a driver or of a tape."""

    __slots__ = ("session",)

    def __init__(self, session: SessionState) -> None:
        self.session = session

    @property
    def number(self) -> int:
        return self.session.number

    @property
    def cluster(self) -> str | None:
        return self.session.facts.cluster

    @property
    def listener(self) -> str | None:
        return self.session.facts.listener

    @property
    def client_address(self) -> str:
        return self.session.facts.client_address

    @property
    def client_port(self) -> int:
        return 0

    @property
    def node(self) -> int | None:
        return self.session.facts.node

    @property
    def broker(self) -> str | None:
        return None

    @property
    def principal(self) -> str | None:
        return self.session.identity.principal

    @property
    def software_name(self) -> str | None:
        software = self.session.identity.software
        return None if software is None else software.partition("/")[0]

    @property
    def software_version(self) -> str | None:
        software = self.session.identity.software
        return None if software is None else software.partition("/")[2]

    def broker_topic(self, topic: str) -> str | None:
        """Return None: a session without a driver does not look up the broker's names."""
        return None

    def broker_group(self, group: str) -> str | None:
        """Return None, as `broker_topic`."""
        return None

    def topic_of(self, topic_id: str) -> str | None:
        """Return None: the name is unknown."""
        return None


@dataclass(slots=True)
class ObservedExchange:
    """Exchange of one connection, as an observer saw it. `number` counts those of the connection from 1 on.

    `rule_wait` and `other_wait` are the seconds that a frame waited in kproxy, each as (request, response). The first
    is for rules, the second for lookups, memory or the rest of a request. Waiting behind another frame counts for the
    cause of that frame.
    `rules`: names of those that fired. `acks`: of Produce.
    """

    who: Who
    number: int
    key: int
    version: int
    correlation_id: int
    client_id: str | None
    request: Frame | None
    response: Frame | None = None
    outcome: ExchangeOutcome = "unanswered"
    acks: int | None = None
    depth: str = ""
    rules: list[str] = field(default_factory=list)
    answered_by_rule: bool = False
    known_errors: Errors = NO_ERRORS
    """Errors in its response that are known without its body."""
    own_errors: frozenset[int] = frozenset()
    """Codes that rules put into the broker's answer: such a code in it counts as kproxy's."""
    rule_wait: tuple[float, float] = (0.0, 0.0)
    other_wait: tuple[float, float] = (0.0, 0.0)
    unread: str = ""
    """Reason why the body of the request or response is unreadable; empty if it is readable or was not read."""
    known_throttle: int = 0
    """throttle_time_ms of its response, as far as the first bytes show it."""
    throttler: str = ""
    """Rule that throttled it; empty if none did. The broker's own quotas show in throttle_time_ms only."""
    mute: float = 0.0
    """Seconds of the mute by its rules after the response."""
    decoder: Any = None
    """Decoder of its records by their schemas, for filters; None: only JSON is decoded."""
    _bodies: list[dict[str, Any] | None] = field(default_factory=lambda: [None, None])

    @property
    def api(self) -> str:
        """Return the API's name; `unknown(123)` for one that the table lacks."""
        return schema.load(self.key).name if self.key in schema.paths() else f"unknown({self.key})"

    @property
    def answer(self) -> Frame | None:
        """Return the response if it was complete; a response that was sent in part does not count."""
        return self.response if self.outcome == "answered" else None

    def add_wait(self, seconds: float, *, response: bool, by_rule: bool) -> None:
        """Add `seconds` that a frame of the exchange waited to its rule waits or to its other waits."""
        request, answer = self.rule_wait if by_rule else self.other_wait
        both = (request, answer + seconds) if response else (request + seconds, answer)
        if by_rule:
            self.rule_wait = both
        else:
            self.other_wait = both

    @property
    def sent(self) -> float | None:
        """Return when the request's first byte left for the broker; None without a request, or if kproxy answered."""
        if self.request is None or self.answered_by_rule:
            return None
        return self.request.first + self.rule_wait[0] + self.other_wait[0]

    @property
    def received(self) -> float | None:
        """Return when the response's last byte came from the broker; None without one, or if kproxy answered."""
        answer = self.answer
        return None if answer is None or self.answered_by_rule else answer.last - self.rule_wait[1] - self.other_wait[1]

    @property
    def kproxy_seconds(self) -> float:
        """Return the time of kproxy itself. An answer of kproxy also waits until the responses before it have left."""
        request, answer = self.request, self.answer
        if self.answered_by_rule and request is not None and answer is not None:
            return max(answer.last - request.first - sum(self.rule_wait), 0.0)
        return sum(self.other_wait)

    @property
    def parts(self) -> Parts | None:
        """Return the latency and its parts; None for an exchange without a request or a complete response."""
        request, answer = self.request, self.answer
        if request is None or answer is None:
            return None
        latency, rule, kproxy = answer.last - request.first, sum(self.rule_wait), self.kproxy_seconds
        return Parts(latency, kproxy, rule, 0.0 if self.answered_by_rule else max(latency - rule - kproxy, 0.0))

    def kproxy_made(self, code: int) -> bool:
        """Return True if this error code in its response is one that a rule of kproxy's put there."""
        return self.answered_by_rule or code in self.own_errors

    @property
    def request_body(self) -> dict[str, Any] | None:
        """Return the request's fields, records as `RecordsDigest`; None if it was not kept or cannot be read."""
        return self._body(0, self.request)

    @property
    def response_body(self) -> dict[str, Any] | None:
        """Return the response's fields; None if the response is missing, was not kept, or is unreadable."""
        return self._body(1, self.response)

    def forget_bodies(self) -> None:
        """Let go of bodies that were decoded: they take many times the room of their frames, and can be had again."""
        self._bodies = [None, None]

    def _body(self, which: int, frame: Frame | None) -> dict[str, Any] | None:
        body = self._bodies[which]
        if body is not None or frame is None or self.unread or (frame.form < Form.SKETCH and not frame.sketch):
            return body
        direction = "response" if which else "request"
        sketched = frame.form is Form.SKETCH or bool(frame.sketch)
        try:
            body = decode_sketch(frame.sketch or frame.data, self.key, self.version, direction, sketched=sketched)
        except DecodeError as error:
            self.unread = str(error)
            return None
        self._bodies[which] = body
        return body


TakeExchange = Callable[[ObservedExchange], None]
"""Takes an exchange that is over."""
