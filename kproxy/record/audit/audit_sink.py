"""The audit: makes events of exchanges at the level that the config sets for each API.

Exchanges with an event of their own become events as they end. Counted exchanges are in the summaries of their
connections. A summary becomes events when its minute or its connection ends. The minutes follow the times of the
requests, not the calls of `tick`.

Similar exchanges share a line template: the constant text, and gaps for numbers. A template is learned from a
`request_event` of an exchange in which a `MarkedNumber` replaces each variable number: marks in the line are gaps. So a
template has no knowledge of columns. It is used only if it reproduces the line of the exchange that it came from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from kproxy.base.cooperative import run_to_end, yielding
from kproxy.protocol.records.entry import OVERHEAD
from kproxy.protocol.scan.sketch import decode_sketch
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kproxy.record.events.schema import CONNECTION_EVENT, REQUEST_EVENT, SUMMARY_EVENT
from kproxy.record.exchange import Depth, Frame, ObservedExchange, Who
from kproxy.record.observer.credentials import REQUEST, RESPONSE
from kproxy.record.observer.number_template import RECORDS_AT, LearntFrame, holders
from kproxy.record.observer.observation import SIZE_BYTES
from kproxy.record.observer.summary import Summary
from kproxy.record.observer.summary_rows import SummaryRow
from kproxy.record.observer.templated_lines import LineEntry
from kproxy.session.sasl.principal import LoginOutcome

from .config import AuditConfig
from .event_sink import EncodedEvent, EventGate
from .lines import byte_stamp, milliseconds
from .request_event import request_event, summary_event
from .state_events import authenticated, closed, opened

if TYPE_CHECKING:
    from kproxy.record.captures.writer import ToWallTime
    from kproxy.record.metrics.label_sink import LabelSink
    from kproxy.runtime.connection_view import ConnectionInfo

SASL = frozenset((SASL_HANDSHAKE, SASL_AUTHENTICATE))
"""SaslHandshake and SaslAuthenticate: after their responses the client may have a principal."""
DEPTHS = {"connections": Depth.COUNT, "summary": Depth.ROWS, "requests": Depth.LINES}


class ConnectionAccount:
    """State of an open connection in the audit: its client, its summary and the last reported values."""

    __slots__ = ("client_id", "outcome", "summary", "unsent_lines", "who")

    def __init__(self, who: ConnectionInfo, summary: Summary) -> None:
        self.who, self.summary = who, summary
        self.outcome: LoginOutcome | None = None
        self.client_id: str | None = None
        self.unsent_lines: deque[SummaryRow] = deque()  # of its summary


class AuditSink:
    """Sink that makes events of exchanges and connections, and puts them through the gate."""

    broker_side = False

    def __init__(
        self, config: AuditConfig, events: EventGate, wall: ToWallTime, labels: LabelSink | None = None
    ) -> None:
        """Begin without connections. `labels`: counts in the same summaries, if there is such a sink."""
        self.config, self.events, self.wall, self.labels = config, events, wall, labels
        self.accounts: dict[int, ConnectionAccount] = {}  # by the connection's number

    # ---- what a Sink does

    def depth(self, key: int, version: int) -> Depth:
        return DEPTHS[self.config.level_of(api_name(key))]

    def take(self, seen: ObservedExchange) -> None:
        account = self.accounts.get(seen.who.number)
        if account is not None:
            account.client_id = seen.client_id
            if seen.key in SASL:
                self.put_authentication(account, seen.request.last if seen.request is not None else 0.0)
        if seen.request is not None and self.config.level_of(seen.api) == "requests":
            event = request_event(seen, self.wall, self.config.partitions)
            self.events.put(REQUEST_EVENT.name, self.wall(seen.request.first), event)

    def take_behind(self, seen: ObservedExchange) -> None:
        """Not called: the audit records the client side."""

    def opened(self, who: Who, now: float) -> None:
        live = cast("ConnectionInfo", who)
        if who.number not in self.accounts:
            self.account(live)
        self.events.put(CONNECTION_EVENT.name, self.wall(now), opened(live))

    def closed(self, who: Who, now: float) -> None:
        account = self.accounts.pop(who.number, None)
        if account is None:
            return
        self.put_authentication(account, now)
        with run_to_end():
            for _ in yielding(self.put_summaries(account, now, everything=True)):
                pass
        self.events.put(CONNECTION_EVENT.name, self.wall(now), closed(account.who, account.client_id))

    # ---- summaries

    def account(self, who: ConnectionInfo) -> ConnectionAccount:
        """Return the connection's account, making it when it is first asked for."""
        account = self.accounts.get(who.number)
        if account is None:
            if self.labels is None:
                summary = Summary(self.counts, self.wall, who=who)
            else:
                summary = self.labels.summary_for(who, self.wall, self.counts)
            account = self.accounts[who.number] = ConnectionAccount(who, summary)
        return account

    def summary_for(self, who: Who) -> Summary:
        """Return the summary in which an observer counts the exchanges of this connection."""
        summary = self.account(cast("ConnectionInfo", who)).summary
        if self.labels is not None:
            self.labels.join(who, summary, self.counts)
        return summary

    def request_lines_for(self, who: Who) -> RequestLines:
        """Return the recorder of this connection's request events that match a template."""
        return RequestLines(self.account(cast("ConnectionInfo", who)), self.events, self.wall, self.config.partitions)

    def counts(self, key: int, version: int) -> bool:
        """Return True if requests of this API are counted in summaries."""
        return self.config.level_of(api_name(key)) == "summary"

    def tick(self, now: float) -> Iterator[None]:
        """Put the summary events of the minutes that are over, one a step; others may run between two of them."""
        for account in list(self.accounts.values()):
            self.put_authentication(account, now)
            yield from self.put_summaries(account, now, everything=False)

    # ---- inside

    def put_summaries(self, account: ConnectionAccount, now: float, *, everything: bool) -> Iterator[None]:
        """Put a connection's summary events, one a step. If the caller stops, the other events come first next time."""
        summary = account.summary
        if self.labels is not None and summary.reader is not None and (everything or now >= summary.until):
            summary.fold()
            yield from self.labels.read_cells(summary)  # else `drain` has all cells read in one step
        account.unsent_lines.extend(summary.drain(now, everything=everything))
        while account.unsent_lines:
            time, event = summary_event(account.unsent_lines.popleft(), account.who)
            self.events.put(SUMMARY_EVENT.name, time, event)
            yield

    def put_authentication(self, account: ConnectionAccount, now: float) -> None:
        """Put an event about an authentication that has come to an end."""
        outcome = account.who.outcome
        if outcome is not account.outcome and outcome is not None:
            account.outcome = outcome
            self.events.put(CONNECTION_EVENT.name, self.wall(now), authenticated(account.who, outcome))


def api_name(key: int) -> str:
    """Return the API's name in the protocol's table, or `unknown`."""
    return schema.load(key).name if key in schema.paths() else "unknown"


_encode = msgspec.json.Encoder().encode

BEGUN, ENDED, LATENCY, REQUEST_SIZE, RESPONSE_SIZE, RECORDS_SIZE, LAST_OFFSET, VALUES = range(8)
"""Indices of the values that fill gaps. Times: start of the request, end of the response, latency in ms. Then the sizes
of both frames and of the batch, and its last offset (0: none). The numbers of both frames start at VALUES."""
SUM = -1
"""Gap, in a template that is being learned, whose value is a base offset plus a number of records."""
TIMES = {"request_in": BEGUN, "request_out": BEGUN, "response_in": ENDED, "response_out": ENDED}
LATENCIES = ("latency_ms", "broker_ms")
FIRST_MARK, BETWEEN_MARKS = 1_000_000_000_000_000_000, 10_000_000_000_000
BASE_OFFSET = "responses[].partition_responses[].base_offset", 0
PLAIN, WRITTEN, READ = range(3)
"""Lines without a batch, with one in the request, and with one in the response."""


class MarkedNumber(int):
    """Number of an exchange that differs from one to the next. `place`: index of the value that fills the gap."""

    place: int

    @classmethod
    def at(cls, place: int) -> MarkedNumber:
        mark = cls(FIRST_MARK + (place + 1) * BETWEEN_MARKS)
        mark.place = place
        return mark

    def __add__(self, other: int) -> int:
        """Add nothing, or the number of records that were written from this offset on."""
        if isinstance(other, MarkedNumber):
            return MarkedNumber.at(SUM)
        return self if other == 0 else int(self) + other

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        return MarkedNumber.at(LAST_OFFSET) if self.place == SUM and other == 1 else int(self) - other


class TextGap(NamedTuple):
    """Value of an event that is not a number of a frame. `form`: how it is written."""

    place: int
    form: bytes


class LineTemplate:
    """Line of the data of request events about exchanges that are alike, as text for `%` with the values of `places`.

    `base`: index of the base offset among the numbers of the response; 0: none.
    """

    __slots__ = ("base", "client_id", "kind", "pick", "text")

    def __init__(self, text: bytes, places: list[int], client_id: str | None, kind: int, base: int) -> None:
        self.text, self.client_id = text, client_id
        self.pick: Callable[[Any], tuple[Any, ...]] = itemgetter(*places)
        self.kind, self.base = kind, base

    def data(
        self, begun: bytes, ended: bytes, latency: float, asked: tuple[int, ...], answered: tuple[int, ...]
    ) -> bytes:
        """Return the data of the exchange with these times and numbers as JSON."""
        size = last = 0
        if self.kind == WRITTEN:  # asked: size, id, length of the batch, records, …
            size = asked[2] + OVERHEAD
            if self.base:
                last = answered[self.base] + asked[3] - 1
        elif self.kind == READ:  # answered: size, id, length of the batch, records, base offset, last offset's delta, …
            size, last = answered[2] + OVERHEAD, answered[4] + answered[5]
        sizes = asked[0] + SIZE_BYTES, answered[0] + SIZE_BYTES
        values = self.pick((begun, ended, latency, *sizes, size, last, *asked, *answered))
        return self.text % values


def line_template(
    seen: ObservedExchange, asked: LearntFrame, answered: LearntFrame, wall: ToWallTime, most: int
) -> LineTemplate | None:
    """Return the template of lines about exchanges like this one; None if its own line would be another."""
    request, response = seen.request, seen.response
    if request is None or response is None:
        return None
    numbers = [one.template.numbers(fields_of(one, frame)) for one, frame in ((asked, request), (answered, response))]
    places = VALUES, VALUES + len(numbers[0])
    marked = replace(
        seen,
        correlation_id=MarkedNumber.at(VALUES + 1),
        request=replace(request, size=MarkedNumber.at(REQUEST_SIZE)),
        response=replace(response, size=MarkedNumber.at(RESPONSE_SIZE)),
        _bodies=[
            marked_body(seen, learnt, frame, direction, place)
            for learnt, frame, direction, place in zip(
                (asked, answered), (request, response), (REQUEST, RESPONSE), places, strict=True
            )
        ],
    )
    event: dict[str, Any] = request_event(marked, wall, most)
    event |= {name: TextGap(place, b'"%b"') for name, place in TIMES.items() if name in event}
    event |= {name: TextGap(LATENCY, b"%a") for name in LATENCIES if name in event}
    gaps: list[int] = []
    text = b"".join(pieces(event, gaps))
    kind = WRITTEN if asked.template.batch else READ if answered.template.batch else PLAIN
    base = 2 + answered.told.index(BASE_OFFSET) if BASE_OFFSET in answered.told else 0
    template = LineTemplate(text, gaps, seen.client_id, kind, base)
    times = byte_stamp(wall(request.first)), byte_stamp(wall(response.last))
    own = template.data(*times, milliseconds(response.last - request.first), *numbers)
    return template if own == _encode(request_event(seen, wall, most)) else None


def fields_of(learnt: LearntFrame, frame: Frame) -> Any:
    return learnt.template.unpack((frame.size - SIZE_BYTES).to_bytes(SIZE_BYTES, "big") + frame.data, 0)


def marked_body(
    seen: ObservedExchange, learnt: LearntFrame, frame: Frame, direction: str, place: int
) -> dict[str, Any]:
    """Return the body of a frame with marks where its template has numbers; the first of them fills gaps at `place`."""
    body = decode_sketch(frame.data, seen.key, seen.version, direction)
    found = [holder[name] for holder, name in holders(body, RECORDS_AT.get((seen.key, direction), ""))]
    digests = [digest for digest in found if digest is not None and digest.size]
    for at, (path, before) in enumerate(learnt.told, place + 2):
        if "." in path or path in body:
            holder, name = list(holders(body, path))[before]
            holder[name] = MarkedNumber.at(at)
        else:
            setattr(digests[0], path, MarkedNumber.at({"size": RECORDS_SIZE, "last_offset": LAST_OFFSET}.get(path, at)))
    return body


def pieces(value: Any, gaps: list[int]) -> Iterator[bytes]:
    """Yield the JSON of a value as text for `%`, and put the places of its gaps into `gaps`."""
    if isinstance(value, MarkedNumber):
        gaps.append(value.place)
        yield b"%d"
    elif isinstance(value, TextGap):
        gaps.append(value.place)
        yield value.form
    elif isinstance(value, dict):
        for number, (name, inside) in enumerate(value.items()):
            yield (b",%b:" if number else b"{%b:") % _encode(name)
            yield from pieces(inside, gaps)
        yield b"}" if value else b"{}"
    elif isinstance(value, list):
        for number, inside in enumerate(value):
            yield b"," if number else b"["
            yield from pieces(inside, gaps)
        yield b"]" if value else b"[]"
    else:
        yield _encode(value).replace(b"%", b"%%")


class RequestLines:
    """Recorder of the exchanges of one connection by their lines. `most`: topics, partitions and resources, each, in an
    event."""

    __slots__ = ("about", "account", "events", "most", "wall", "who")

    def __init__(self, account: ConnectionAccount, events: EventGate, wall: ToWallTime, most: int) -> None:
        """`account`: receives the client id of the last exchange."""
        who = account.who
        self.account, self.who, self.events, self.wall, self.most = account, who, events, wall, most
        self.about = {"connection": who.number}

    @property
    def standing(self) -> object:
        """Return a token; if it is another object, all learned lines are outdated."""
        return self.who.standing

    def learn(self, seen: ObservedExchange, asked: LearntFrame, answered: LearntFrame) -> LineTemplate | None:
        """Return the constant parts of lines of similar exchanges; None if lines cannot have such parts."""
        return line_template(seen, asked, answered, self.wall, self.most)

    def write(self, exchanges: Sequence[LineEntry], now: float) -> None:
        """Make the lines of exchanges with responses sent at `now`."""
        self.account.client_id = exchanges[-1][0].client_id
        self.events.put_lines(self, exchanges, now)

    def encode(self, exchanges: Sequence[LineEntry], now: float) -> list[EncodedEvent]:
        wall, about = self.wall, self.about
        ended, last = byte_stamp(wall(now)), None
        events: list[EncodedEvent] = []
        for line, begun, asked, answered in exchanges:
            if begun != last:
                last, came, latency = begun, byte_stamp(wall(begun)), round((now - begun) * 1000, 3)
                if latency <= 0:  # as `milliseconds` has it
                    latency = 0.0
            events.append((came, line.data(came, ended, latency, asked, answered), about))
        return events
