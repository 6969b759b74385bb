"""What a capture holds, made ready for a replay: exchanges in order, and what cannot be replayed and why.

Strategy: the exchanges are put in the order in which their requests came, over all connections. Frames are decoded
when somebody asks for them, and forgotten when their exchange has been replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from kproxy.errors import DecodeError
from kproxy.watch.credentials import CONFIG_VALUES
from kproxy.watch.seen import Form, Frame, Seen, Who
from kproxy.wire import Message, decode_request, decode_response, schema

from .names import SHOWING, pairs

CREATE_TOPICS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 19, 17, 36

WITHHELD = "something in it was withheld"
AUTHENTICATION = "it is authentication, whose secrets are withheld"
CUT = "the capture has only the beginning of it"
BARE = "the capture has no bytes of it"


@dataclass(slots=True, eq=False)
class Line:
    """A recorded connection. `number` counts them from 1 on in the order in which they come up in the recording."""

    number: int
    who: Who
    exchanges: list[Exchange] = field(default_factory=list)


@dataclass(eq=False)
class Exchange:
    """A recorded exchange. `place` is its place among all requests; `unfit`: why it cannot be replayed."""

    seen: Seen
    line: Line
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
        """When the request's first byte came."""
        assert self.seen.request is not None
        return self.seen.request.first

    @property
    def seconds(self) -> float | None:
        """From the request's first byte to the response's first."""
        return None if self.seen.response is None else self.seen.response.first - self.sent

    @property
    def silent(self) -> bool:
        """No answer is due: a Produce with acks=0."""
        return self.seen.outcome == "no_answer_due" or (self.key == 0 and self.seen.acks == 0)

    @property
    def request_frame(self) -> bytes:
        """The request without its length; to be asked for only if it is fit."""
        assert self.seen.request is not None
        return self.seen.request.data

    @property
    def response_frame(self) -> bytes | None:
        """The response without its length; None if there is none, or if it is not there as a whole."""
        return whole(self.seen.response)

    def decode_request(self) -> Message | None:
        """The request, made anew for each call so that it may be changed; None if it cannot be read."""
        try:
            return decode_request(self.request_frame, trailing=True)
        except DecodeError:
            return None

    @cached_property
    def request(self) -> Message | None:
        """The request, not to be changed; None if it cannot be read."""
        return None if self.unfit else self.decode_request()

    @cached_property
    def response(self) -> Message | None:
        """The response, not to be changed; None if it is not there as a whole or cannot be read."""
        return response_of(self.seen)

    def forget(self) -> None:
        """What was decoded is not needed any more."""
        self.__dict__.pop("request", None)
        self.__dict__.pop("response", None)


@dataclass(slots=True, eq=False)
class Recording:
    """Exchanges in the order of their requests, and the lines that they came on. `names`: of topic ids."""

    exchanges: list[Exchange]
    lines: list[Line]
    names: dict[UUID, str]

    @property
    def start(self) -> float:
        """When the first request came; 0 if there is none."""
        return self.exchanges[0].sent if self.exchanges else 0.0

    @property
    def seconds(self) -> float:
        """From the first request to the last."""
        return self.exchanges[-1].sent - self.start if self.exchanges else 0.0


def record(seen: Iterable[Seen], wanted: Callable[[Seen], bool] | None = None) -> Recording:
    """A recording of these exchanges, in any order, or of those of them that are wanted.

    Names of topic ids come from all of them. Responses without a request are left out.
    """
    lines: dict[int, Line] = {}
    exchanges: list[Exchange] = []
    kept: list[Seen] = []
    names: dict[UUID, str] = {}
    for one in seen:
        if one.key in SHOWING and (response := response_of(one)) is not None:
            names.update(pairs(response))
        if one.request is not None and (wanted is None or wanted(one)):
            kept.append(one)
    for one in sorted(kept, key=came):
        line = lines.get(id(one.who))
        if line is None:
            line = lines[id(one.who)] = Line(len(lines) + 1, one.who)
        exchange = Exchange(one, line, unfit(one), len(exchanges))
        line.exchanges.append(exchange)
        exchanges.append(exchange)
    return Recording(exchanges, list(lines.values()), names)


def whole(frame: Frame | None) -> bytes | None:
    """The bytes of a frame if they are all there, config values perhaps excepted."""
    if frame is None or frame.form is not Form.WHOLE or frame.withheld not in ("", CONFIG_VALUES):
        return None
    return frame.data


def response_of(seen: Seen) -> Message | None:
    """The response; None if it is not there as a whole or cannot be read."""
    frame = whole(seen.response)
    try:
        return None if frame is None else decode_response(frame, seen.key, seen.version, trailing=True)
    except DecodeError:
        return None


def came(seen: Seen) -> tuple[float, int]:
    """By time; on one connection, and at the same time, by number."""
    return seen.request.first if seen.request is not None else 0.0, seen.number


def unfit(seen: Seen) -> str:
    """Why this request cannot be sent again; empty if it can."""
    if seen.key in (SASL_HANDSHAKE, SASL_AUTHENTICATE) or seen.key not in schema.paths():
        return AUTHENTICATION if seen.key in (SASL_HANDSHAKE, SASL_AUTHENTICATE) else f"api key {seen.key} is not known"
    frame = seen.request
    assert frame is not None
    if frame.withheld and not (frame.withheld == CONFIG_VALUES and seen.key == CREATE_TOPICS):
        return f"{WITHHELD}: {frame.withheld}"
    return {Form.NONE: BARE, Form.WHOLE: ""}.get(frame.form, CUT)
