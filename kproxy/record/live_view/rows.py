"""The ring of recent exchanges, and their rows: one value for each column, from the data of the request event.

Each exchange has a number, by which viewers request it, and a place, which changes with each update of it. A viewer
that has all places up to one continues after it. Both count from a first number on and never repeat.

Rows are sent by the thousand, so they are lists. The names of their columns are sent once. Readers use these names:
columns may be added at any position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from kproxy.protocol.table.api_keys import FETCH
from kproxy.record.audit.request_event import request_event
from kproxy.record.exchange import Frame, ObservedExchange
from kproxy.record.filters import errors, software, topics

MOST_KEPT = 20_000
"""Exchanges of a process; a page shows them as 50 screens."""
SMALLEST = 1000
"""Bytes that an exchange counts for at least: the objects that it is made of."""


class KeptExchange:
    """Exchange that is kept. `behind`: as the broker saw it, where its bytes are others. `row`: as JSON, once it was
    made. `over`: it has a response, or will not get one; False: in flight. `again_of`: id of the exchange whose request
    was resent as this one, or empty."""

    __slots__ = ("again_of", "behind", "number", "over", "place", "row", "seen", "size")

    def __init__(
        self, number: int, place: int, seen: ObservedExchange, over: bool, behind: ObservedExchange | None = None
    ) -> None:
        self.number, self.place, self.seen, self.over = number, place, seen, over
        self.behind = behind
        self.row = b""
        self.again_of = ""
        self.size = 0


class ExchangeRing:
    """Ring of at most `most` exchanges and `most_bytes` bytes; the oldest go first. Numbers and places begin at
    `first`."""

    def __init__(self, most_bytes: int, first: int = 1, most: int = MOST_KEPT) -> None:
        self.most, self.most_bytes, self.wanted = most, most_bytes, most_bytes
        self.by_number: dict[int, KeptExchange] = {}
        self.first = self.oldest = self.next = first
        self.place = first - 1
        """Place that was given last."""
        self.gone_place = first - 1
        """The last place of those that are gone."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.by_number)

    def use(self, most_bytes: int) -> Iterator[None]:
        """Keep at most this many bytes; evict one exchange in each step. Exchanges added in the meantime are kept."""
        self.wanted = most_bytes
        while self.wanted == most_bytes and self.bytes > most_bytes and len(self.by_number) > 1:
            self._drop_oldest()
            self.most_bytes = max(most_bytes, min(self.most_bytes, self.bytes))
            yield
        if self.wanted == most_bytes:
            self.most_bytes = most_bytes

    def add(self, seen: ObservedExchange, *, over: bool = True) -> KeptExchange:
        """Keep an exchange, and evict the oldest ones beyond the bounds."""
        self.place += 1
        kept = self.by_number[self.next] = KeptExchange(self.next, self.place, seen, over)
        self.next += 1
        self.measure(kept)
        return kept

    def end(self, kept: KeptExchange) -> None:
        """Mark an exchange in flight as over; its place changes."""
        self.place += 1
        kept.place, kept.over, kept.row = self.place, True, b""
        if kept.number in self.by_number:
            self.measure(kept)

    def put_behind(self, kept: KeptExchange, behind: ObservedExchange) -> None:
        """Keep the broker side of an exchange, which its row then reports."""
        kept.behind, kept.row = behind, b""
        if kept.number in self.by_number:
            self.measure(kept)

    def measure(self, kept: KeptExchange) -> None:
        """Count the bytes of an exchange that is kept, since they have changed."""
        size = SMALLEST + frames_size(kept.seen) + len(kept.row)
        if kept.behind is not None:
            size += frames_size(kept.behind)
        self.bytes += size - kept.size
        kept.size = size
        while len(self.by_number) > self.most or (self.bytes > self.most_bytes and len(self.by_number) > 1):
            self._drop_oldest()

    def put_row(self, kept: KeptExchange, row: bytes) -> None:
        if kept.number in self.by_number:
            kept.row = row
            self.measure(kept)

    def get(self, number: int) -> KeptExchange | None:
        """Return the exchange of this number; None if it is gone, or was never there."""
        return self.by_number.get(number)

    def had(self, number: int) -> bool:
        """Return True if an exchange of this number was kept, and is gone."""
        return self.first <= number < self.oldest

    def newest(self, before: int | None = None) -> Iterator[KeptExchange]:
        """Yield the exchanges with numbers below `before`, newest first; others may be added and evicted in between."""
        last = self.next if before is None else min(before, self.next)
        for number in range(last - 1, self.oldest - 1, -1):
            kept = self.by_number.get(number)
            if kept is not None:
                yield kept

    def behind_place(self, place: int) -> tuple[list[KeptExchange], int]:
        """Return the exchanges that have changed behind this place, in order, and how many such are gone."""
        found = sorted((one for one in self.by_number.values() if one.place > place), key=lambda one: one.place)
        return found, max(0, self.gone_place - place)

    def is_place(self, place: int) -> bool:
        """Return False for a place that this ring has not given yet, as is one of a process that was here before."""
        return self.first - 1 <= place <= self.place

    def clear(self) -> None:
        while self.by_number:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        kept = self.by_number.pop(self.oldest)
        self.oldest += 1
        self.bytes -= kept.size
        self.gone_place = max(self.gone_place, kept.place)


def frames_size(seen: ObservedExchange) -> int:
    """Return the bytes that were kept of the frames of an exchange."""
    return frame_size(seen.request) + frame_size(seen.response)


def frame_size(frame: Frame | None) -> int:
    return 0 if frame is None else len(frame.data) + len(frame.sketch)


COLUMNS = (
    "id", "time", "connection", "client", "api", "version", "about", "records", "request", "response", "latency",
    "broker_ms", "rule_ms", "kproxy_ms", "throttle", "outcome", "errors", "responder", "rules", "kept", "max_wait",
    "listener", "address", "principal", "software", "node", "group", "member", "transactional_id", "producer_id",
    "codec", "topic", "partition", "depth", "correlation", "changed", "again_of",
)  # fmt: skip
"""Columns of a row, in its order."""
MOST_TOLD = 10
"""Topics, partitions and resources of one exchange that its row looks at."""
MOST_PARTITIONS = 6
"""Partitions of a topic that a row names."""
LONGEST_ABOUT = 300
"""Characters of the summary of an exchange."""

Wall = Callable[[float], float]
"""Turns the times of an exchange into seconds since 1970."""

encode = msgspec.json.Encoder().encode


def exchange_id(process: int, number: int) -> str:
    """Return the id of an exchange: that of the process that kept it, and its number there."""
    return f"{process}-{number}"


def row_of(
    kept: KeptExchange, process: int, wall: Wall, columns: Mapping[str, Any] | None = None, *,
    changed: bool | None = None,
) -> list[Any]:  # fmt: skip
    """Return the row of an exchange that is kept. `columns`: the data of its event, made here if they are not given;
    `changed`: whether other bytes passed at the broker, by default what is known here."""
    seen = kept.seen
    data = request_event(seen, wall, MOST_TOLD) if columns is None else columns
    first = seen.request or seen.response
    time = None if first is None else round(wall(first.first), 6)
    other = kept.behind is not None if changed is None else changed
    name, again_of = exchange_id(process, kept.number), kept.again_of
    return event_row(name, time, data, over=kept.over, wait=max_wait(seen), changed=other, again_of=again_of)


def event_row(
    name: str, time: float | None, data: Mapping[str, Any], *, over: bool = True, wait: int | None = None,
    kept: bool = True, changed: bool = False, again_of: str = "",
) -> list[Any]:  # fmt: skip
    """Return the row of an exchange with a known event. `name`: its id. `over`: False while it is under way. `wait`:
    milliseconds that a Fetch may wait at the broker. `kept`: its frames can be asked for. `changed`: other bytes passed
    at the broker. `again_of`: id of the exchange whose request was resent as this one."""
    topic, partition = first_topic(data)
    about = topics(data, MOST_PARTITIONS)
    return [
        name,
        time,
        data.get("connection"),
        data.get("client_id"),
        data.get("api"),
        data.get("version"),
        about if len(about) <= LONGEST_ABOUT else f"{about[: LONGEST_ABOUT - 1]}…",
        data.get("total_records"),
        data.get("request_bytes"),
        data.get("response_bytes"),
        data.get("latency_ms"),
        data.get("broker_ms"),
        data.get("rule_ms"),
        data.get("wait_ms"),
        data.get("throttle_ms"),
        data.get("outcome") if over else None,
        errors(data),
        data.get("responder", ""),
        data.get("rules", []),
        kept,
        wait,
        data.get("listener"),
        f"{data.get('client_address')}:{data.get('client_port')}",
        data.get("principal"),
        software(data),
        data.get("node"),
        data.get("group"),
        data.get("member"),
        data.get("transactional_id"),
        data.get("producer_id", partition.get("producer_id")),
        partition.get("codec"),
        topic.get("topic"),
        partition.get("partition"),
        data.get("depth"),
        data.get("correlation_id"),
        changed,
        again_of or None,
    ]


def first_topic(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the first topic of an event, and its first partition; empty without topics."""
    topic: Mapping[str, Any] = next(iter(data.get("topics") or ()), {})
    return topic, next(iter(topic.get("partitions") or ()), {})


def max_wait(seen: ObservedExchange) -> int | None:
    """Return for how many milliseconds at most a Fetch lets the broker wait for records; None for all others."""
    body = seen.request_body if seen.key == FETCH else None
    return None if body is None else body.get("max_wait_ms")


def joined(rows: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(rows) + b"]"
