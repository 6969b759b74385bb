"""Views of exchanges for filters: the columns of the request event, and the records where frames were kept.

Strategy: a recorded event is read as it is. Of an exchange that was just seen, columns that its header and its times
give are read in place; the request event is made, once, only when another column is asked for. So a filter says the
same of an exchange that passes, of its capture and of its line in the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kproxy.record.exchange import ObservedExchange
from kproxy.record.observer.records import LIVE, FoundRecord, NotKept, RecordLimits, records_of

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

    def records(self) -> Iterable[FoundRecord]:
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
    "answered_by": lambda seen: "kproxy" if seen.answered_by_rule else "broker" if seen.response else None,
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

    __slots__ = ("_data", "_records", "limits", "make", "seen")

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

    def records(self) -> Iterable[FoundRecord]:
        if self._records is None:
            self._records = AskedRecords(self.seen, self.limits)
        return self._records


class AskedRecords:
    """Records of one exchange that are read once, as far as somebody asks, however many claims are about them."""

    def __init__(self, seen: ObservedExchange, limits: RecordLimits) -> None:
        self.rest = records_of(seen, limits)
        self.found: list[FoundRecord] = []
        self.error: NotKept | None = None

    def __iter__(self) -> Iterator[FoundRecord]:
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
