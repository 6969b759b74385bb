"""Filters: one language to select exchanges, live, in captures, and in recorded events.

    wanted = Filter('api == Produce and topic ~ "^orders" and latency > 200ms')     # ~k produce ~t ^orders ~lat > 200ms
    wanted.holds(view)

A *view* is the exchange, live or recorded, as a filter reads it. `kproxy.rules.filter` parses the text of a filter. Its
tree is compiled once into a function; text of a user is never executed. Before that, a filter is checked for the APIs
and versions that it can match at all. Frames of others need not be kept for it.

Columns of a live exchange that its header and its times give are read in place. The request event is made once, when
another column is needed. So a filter has the same result for a live exchange, its capture and its line in the audit.
`FilterJudge` evaluates exchanges in flight: values that only the end of an exchange shows, such as its latency, are
absent until the response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from kproxy.protocol.table import schema
from kproxy.record.exchange import Depth, Form, Frame, ObservedExchange, SessionWho, Who
from kproxy.record.observer.credentials import take_out
from kproxy.record.observer.records import LIVE, FoundRecord, NotKept, RecordLimits, records_of
from kproxy.rules.filter.evaluate import Looks, predicate
from kproxy.rules.filter.exchange_fields import EXCHANGES
from kproxy.rules.filter.fields import FieldDepth, View
from kproxy.rules.filter.parse import All, And, FieldTest, FilterNode, Not, Or, claims, parse, written
from kproxy.rules.filter.record_fields import RecordView

if TYPE_CHECKING:
    from kproxy.session.live.evaluation import EvaluatedExchange
    from kproxy.session.session_state import SessionState

MOST_LOOKS = 20_000
"""Values of one exchange that a filter looks at: some tens of milliseconds. Filters come over the network, and each of
a hundred claims may be about each of ten thousand records."""
DEPTHS = {FieldDepth.AT_ONCE: Depth.COUNT, FieldDepth.FIELDS: Depth.SKETCH, FieldDepth.RECORDS: Depth.FULL}


class Filter:
    """Filter of exchanges, compiled from one text. Raises FilterError if the text is wrong.

    `unknown` counts the exchanges that could not be evaluated, since the required bytes were not kept; `why` gives the
    reason for the last one. Such an exchange does not pass the filter.
    """

    def __init__(self, text: str = "") -> None:
        self.tree = parse(text)
        self.unknown, self.why = 0, ""
        self._looks = Looks(MOST_LOOKS, NotKept)
        self._holds = predicate(self.tree, self._looks)
        self._depth = max((DEPTHS[EXCHANGES[claim.field].depth] for claim in self.claims()), default=Depth.COUNT)

    def __str__(self) -> str:
        return written(self.tree)

    def __bool__(self) -> bool:
        """Return False if the filter has no claim, so that every exchange passes."""
        return not isinstance(self.tree, All)

    def claims(self) -> Iterator[FieldTest]:
        return claims(self.tree)

    @property
    def needs_records(self) -> bool:
        """Return True if the filter asks about the content of records."""
        return self._depth is Depth.FULL

    def holds(self, view: View) -> bool:
        """Return True if the exchange passes the filter; False also if that is unknown (see `unknown`)."""
        self._looks.left = MOST_LOOKS
        try:
            return self._holds(view)
        except NotKept as error:
            self.unknown += 1
            self.why = str(error)
            return False

    def possible(self, key: int, version: int) -> bool:
        """Return True if exchanges of this API and version may pass the filter."""
        return _may(self.tree, _of_api(key, version)) is not False

    def possible_topic(self, topic: str) -> bool:
        """Return True if exchanges about this topic, and no other, may pass the filter."""
        named = {"topic": topic, "broker_topic": topic}
        return _may(self.tree, _KnownView({"topics": [named]}, *named)) is not False

    def certain(self, key: int, version: int) -> bool:
        """Return True if all exchanges of this API and version pass the filter."""
        return _may(self.tree, _of_api(key, version)) is True

    def depth(self, key: int, version: int) -> Depth:
        """Return how much of the frames of this API and version must be kept to judge their exchanges."""
        return self._depth if self.possible(key, version) else Depth.COUNT


def _may(node: FilterNode, view: _KnownView) -> bool | None:
    """Return the result for all exchanges that a view is known of, None where it depends on the exchange."""
    match node:
        case All():
            return True
        case FieldTest():
            return predicate(node, Looks(MOST_LOOKS, NotKept))(view) if node.field in view.fields else None
        case Not(inner):
            found = _may(inner, view)
            return None if found is None else not found
        case And(parts):
            answers = [_may(part, view) for part in parts]
            return False if False in answers else None if None in answers else True
        case Or(parts):
            answers = [_may(part, view) for part in parts]
            return True if True in answers else None if None in answers else False


class _KnownView:
    """View of an exchange with only these known columns, and thus known values of these fields of a filter."""

    def __init__(self, known: dict[str, Any], *fields: str) -> None:
        self.known, self.fields = known, fields

    def get(self, column: str) -> object:
        return self.known.get(column)

    def records(self) -> tuple[()]:
        return ()


def _of_api(key: int, version: int) -> _KnownView:
    name = schema.load(key).name if key in schema.paths() else f"unknown({key})"
    return _KnownView({"api": name, "version": version}, "api", "version")


ViewedEvent = Mapping[str, Any]
"""The data of a request event."""
MakeData = Callable[[ObservedExchange], ViewedEvent]


class EventView:
    """View of an exchange through the data of its recorded request event. `recording`: its number among several, or
    0."""

    recording = 0

    def __init__(self, data: ViewedEvent) -> None:
        self.data = data

    def get(self, column: str) -> Any:
        return self.data.get(column)

    def records(self) -> Iterable[RecordView]:
        raise NotKept("events hold no records, captures do")


def _latency(seen: ObservedExchange) -> float | None:
    if seen.request is None or seen.response is None:
        return None
    return round((seen.response.last - seen.request.first) * 1000, 3)


READ_AT_ONCE: Mapping[str, Callable[[ObservedExchange], Any]] = {
    "api": lambda seen: seen.api,
    "api_key": lambda seen: seen.key,
    "version": lambda seen: seen.version,
    "correlation_id": lambda seen: seen.correlation_id,
    "client_id": lambda seen: seen.client_id,
    "acks": lambda seen: seen.acks,
    "outcome": lambda seen: seen.outcome,
    "rules": lambda seen: seen.rules,
    "responder": lambda seen: "kproxy" if seen.answered_by_rule else "broker" if seen.response else None,
    "request_bytes": lambda seen: seen.request and seen.request.size,
    "response_bytes": lambda seen: seen.response and seen.response.size,
    "latency_ms": _latency,
    "connection": lambda seen: seen.who.number,
    "cluster": lambda seen: seen.who.cluster,
    "listener": lambda seen: seen.who.listener,
    "client_address": lambda seen: seen.who.client_address,
    "client_port": lambda seen: seen.who.client_port,
    "node": lambda seen: seen.who.node,
    "broker": lambda seen: seen.who.broker,
    "principal": lambda seen: seen.who.principal,
    "software_name": lambda seen: seen.who.software_name,
    "software_version": lambda seen: seen.who.software_version,
}


class ExchangeView:
    """View of an exchange that an observer saw. `make(seen)`: makes the data of its request event. `limits`: of the
    records that are looked at; who reads files may ask for more."""

    __slots__ = ("__dict__", "_data", "_records", "limits", "make", "seen")

    def __init__(self, seen: ObservedExchange, make: MakeData, limits: RecordLimits = LIVE) -> None:
        self.seen, self.make, self.limits = seen, make, limits
        self._data: ViewedEvent | None = None
        self._records: AskedRecords | None = None

    @property
    def data(self) -> ViewedEvent:
        """Return the request event's data, which is made when it is first asked for."""
        if self._data is None:
            self._data = self.make(self.seen)
        return self._data

    def get(self, column: str) -> Any:
        read = READ_AT_ONCE.get(column)
        return self.data.get(column) if read is None else read(self.seen)

    def records(self) -> Iterable[RecordView]:
        if self._records is None:
            self._records = AskedRecords(self, self.limits)
        return self._records

    @cached_property
    def unix_ms(self) -> float:
        """Return the Unix time of the request in ms; 0 if it is unknown."""
        came = self.data.get("request_in")
        return 0.0 if came is None else datetime.fromisoformat(str(came)).timestamp() * 1000


class SeenRecord(RecordView):
    """Record of an exchange. Its age is measured when the request came."""

    __slots__ = ("view",)

    def __init__(self, view: ExchangeView, found: FoundRecord) -> None:
        super().__init__(found.spans, found.span, decoder=view.seen.decoder)
        self.view = view

    def time(self) -> float:
        return self.view.unix_ms


class AskedRecords:
    """Records of one exchange, read once and lazily for all conditions about them."""

    def __init__(self, view: ExchangeView, limits: RecordLimits) -> None:
        self.rest = (SeenRecord(view, found) for found in records_of(view.seen, limits))
        self.found: list[SeenRecord] = []
        self.error: NotKept | None = None

    def __iter__(self) -> Iterator[SeenRecord]:
        yield from self.found
        while True:
            if self.error is not None:
                raise self.error
            try:
                one = next(self.rest, None)
            except NotKept as error:
                self.error = error
                continue
            if one is None:
                return
            self.found.append(one)
            yield one


MOST_FILTERS = 100
"""Filters that are kept compiled; there is one for each rule that has one."""


class FilterJudge:
    """Judge of filters for rules, as `HeldRegistry.judge`. `make`: an exchange's data for filters. `who`: the best
    known description of a session's connection. `records`: users' records may be read."""

    def __init__(
        self, make: MakeData, who: Callable[[SessionState], Who] = SessionWho, *, records: bool = True
    ) -> None:
        self.make, self.who, self.records = make, who, records
        self.compiled = lru_cache(MOST_FILTERS)(Filter)

    def __call__(
        self, wanted: str, session: SessionState, exchange: EvaluatedExchange, request: bytes, response: bytes | None,
        now: float,
    ) -> bool:  # fmt: skip
        """Return True if the filter with this text holds; `request` and `response` are without their sizes. Raises
        NotKept for one that needs forbidden data."""
        if not self.records and self.compiled(wanted).needs_records:
            raise NotKept("the filter asks about records, and the config has `view: {records: false}`")
        key, version = exchange.api.key, exchange.version
        seen = ObservedExchange(
            self.who(session), 0, key, version, exchange.correlation_id, exchange.client_id,
            whole_frame(request, key, version, "request", exchange.came), acks=exchange.acks, depth="full",
            decoder=session.shared.decoder,
        )  # fmt: skip
        if response is not None:
            seen.response, seen.outcome = whole_frame(response, key, version, "response", now), "answered"
        return self.compiled(wanted).holds(ExchangeView(seen, self.make))


def whole_frame(data: bytes, key: int, version: int, direction: str, when: float) -> Frame:
    """Return a frame that is all here as an observer would keep it: without credentials."""
    kept, withheld = take_out(data, key, version, direction)
    form = Form.WHOLE if len(kept) == len(data) else Form.HEAD
    return Frame(len(data) + 4, when, when, kept, form, withheld)


def topics(data: ViewedEvent, most: int | None = None) -> str:
    """Return the topics and partitions of a request, `orders[0,3] bills[1]`; if it has none, its group or resources.

    These look like `group:billing`. `most`: partitions shown of each topic.
    """
    found = " ".join(_topics(data, most))
    if found:
        return found
    if data.get("group"):
        return f"group:{data['group']}"
    return " ".join(f"{one.get('type')}:{one.get('name')}" for one in data.get("resources") or ())


def _topics(data: ViewedEvent, most: int | None) -> Iterator[str]:
    for topic in data.get("topics") or ():
        numbers = [str(one["partition"]) for one in topic.get("partitions") or () if "partition" in one]
        if most is not None and len(numbers) > most:
            numbers = [*numbers[:most], f"…{len(numbers) - most} more"]
        name = topic.get("topic") or topic.get("topic_id") or "?"
        yield f"{name}[{','.join(numbers)}]" if numbers else name
    if data.get("omitted_topics") or data.get("omitted_partitions"):
        yield "…"


def software(data: ViewedEvent) -> str | None:
    """Return name and version of the client's library, None where it is not known."""
    return " ".join(filter(None, (data.get("software_name"), data.get("software_version")))) or None


def errors(data: ViewedEvent) -> list[str]:
    return list(data.get("errors") or ([data["error"]] if data.get("error") else []))
