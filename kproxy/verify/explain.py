"""Explanation of findings by the records of their batches: which are missing, added, changed, reordered or shifted.

Strategy: the record is read a second time, and only the exchanges that findings name are looked into. So the first
reading needs headers alone, and the second one is as short as what was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from kproxy.errors import RecordsError
from kproxy.observe.exchange import ObservedExchange
from kproxy.observe.filter.view import EventView
from kproxy.wire.records import Batch, decode
from kproxy.wire.records.record import least_size
from kproxy.wire.table.api_keys import CREATE_TOPICS, METADATA, PRODUCE

from .broker_names import BrokerNames
from .facts import PartitionPlace
from .finding import BatchInQuestion, Finding, Verdict, number_of
from .read_exchange import ReadExchange
from .reading import FactReader, witness_of
from .verifier import VerifiedExchange

MOST_BATCHES = 32
"""Batches of one finding that are compared."""
MOST_RECORDS = 10_000
"""Records of one batch that are compared."""
MOST_BYTES = 64 << 20
"""Bytes of records that are held for all findings together; what is beyond is not compared."""
MOST_LINES = 8
SHOWN = 24
NAMING = frozenset({METADATA, CREATE_TOPICS})


RecordContent = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Key, value and headers of a record."""


class SeenRecord(NamedTuple):
    """Record at an offset, without its time: brokers may set that."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def content(self) -> RecordContent:
        return self.key, self.value, self.headers


BatchKey = tuple[int, PartitionPlace, int | None]
"""Number of an exchange, partition, and offset of a batch in it; None: all of its batches there."""


class RecordsOfExchanges:
    """Records of the batches that findings are about, at the client and at the broker (`behind`). `left`: bytes that
    may still be held."""

    def __init__(self, findings: Iterable[Finding], names: BrokerNames) -> None:
        self.names = names
        self.wanted: dict[int, set[tuple[PartitionPlace, int | None]]] = {}
        for finding in findings:
            for batch in finding.batches[:MOST_BATCHES]:
                for number, offset in batch.exchanges:
                    self.wanted.setdefault(number, set()).add((batch.place, offset))
        self.front: dict[BatchKey, list[SeenRecord]] = {}
        self.behind: dict[BatchKey, list[SeenRecord]] = {}
        self.left = MOST_BYTES
        self.readers = FactReader(), FactReader()

    def take(self, number: int, front: ObservedExchange | None, behind: ObservedExchange | None) -> None:
        """Keep the records of an exchange, if a finding names it; learn names of topics from others."""
        for seen, reader, kept in ((front, self.readers[0], self.front), (behind, self.readers[1], self.behind)):
            if seen is None or (number not in self.wanted and seen.key not in NAMING):
                continue
            witness = witness_of(seen, number, 0.0, False, seen)
            exchange = reader.read(seen, witness)
            if exchange is None:
                continue
            if front is not None:
                exchange.others = self.names.of(front) if seen is front else None
            if seen.key in NAMING:
                reader.learn(exchange)
            if number in self.wanted:
                self.keep(number, exchange, kept)

    def keep(self, number: int, exchange: ReadExchange, kept: dict[BatchKey, list[SeenRecord]]) -> None:
        """Keep the records of the batches that are wanted of an exchange."""
        wanted = self.wanted[number]
        parts = exchange.asked() if exchange.key == PRODUCE else exchange.answered()
        bases = {}
        if exchange.key == PRODUCE:
            bases = {place: part.fields["base_offset"] for part, place in exchange.answered()}
        for part, place in parts:
            offsets = {offset for other, offset in wanted if other == place}
            if not offsets or part.records is None:
                continue
            base = max(bases.get(place, 0), 0)
            everything: list[SeenRecord] = []
            for entry in part.records.entries:
                if not isinstance(entry, Batch):
                    continue
                moved = base - entry.base_offset if exchange.key == PRODUCE else 0
                base += entry.last_offset_delta + 1
                offset = entry.base_offset + moved
                if offset in offsets or None in offsets:
                    records = self.records(entry, moved)
                    kept[number, place, offset] = records
                    everything += records
            if None in offsets:
                kept[number, place, None] = everything

    def records(self, batch: Batch, moved: int) -> list[SeenRecord]:
        """Return the records of a batch, as far as there is room for them; none of one that cannot be read."""
        if self.left <= 0:
            return []
        try:
            read = list(islice(decode(batch, limit=self.left), MOST_RECORDS))
        except RecordsError:
            return []
        self.left -= sum(100 + least_size(one) for one in read)
        return [SeenRecord(one.offset + moved, one.key, one.value, one.headers) for one in read]

    def of(self, finding: Finding, batch: BatchInQuestion) -> tuple[list[SeenRecord], list[SeenRecord]] | None:
        """Return the records of a batch as they should be and as they are; None if not both are known."""
        found: list[list[SeenRecord] | None] = []
        for number, offset in batch.exchanges:
            key = number, batch.place, offset
            behind = self.behind.get(key)
            found.append(behind if finding.view == "brokers" and behind is not None else self.front.get(key))
        if len(found) == 2 and found[0] is not None and found[1] is not None:
            if batch.exchanges[1][1] is not None:
                return found[0], found[1]
            written = {one.content for one in found[0]}  # a batch that an answer lacks: its records may be elsewhere
            return found[0], [one for one in found[1] if one.content in written]
        if len(found) == 1 and found[0] is not None and finding.view == "clients":
            sent = self.behind.get((batch.exchanges[0][0], batch.place, batch.exchanges[0][1]))
            return None if sent is None else (sent, found[0])
        return None


def explain(verdict: Verdict, exchanges: Iterable[VerifiedExchange]) -> None:
    """Say of each finding what is different in its records, where the record has them: events have none.
    `exchanges`: the same record, from its beginning."""
    held = RecordsOfExchanges(verdict.findings, verdict.names or BrokerNames())
    if not held.wanted:
        return
    last, number = max(held.wanted), 0
    for pair in exchanges:
        if isinstance(pair, EventView):
            number += 1
            continue
        if pair.front is None and pair.behind is None:
            continue
        number += pair.front is not None
        held.take(number if pair.front is not None else 0, pair.front, pair.behind)
        if number >= last:
            break
    for finding in verdict.findings:
        before: list[SeenRecord] = []
        after: list[SeenRecord] = []
        for batch in finding.batches[:MOST_BATCHES]:
            both = held.of(finding, batch)
            if both is not None:
                before += both[0]
                after += both[1]
        if before or after:
            finding.details = list(islice(differences(before, after), MOST_LINES))


def differences(before: Sequence[SeenRecord], after: Sequence[SeenRecord]) -> Iterator[str]:
    """Yield in words what is different in the records `after` those `before`."""
    was, now = [one.content for one in before], [one.content for one in after]
    if was == now:
        yield from moved(before, after)
        return
    counted = Counter(was), Counter(now)
    missing, added = counted[0] - counted[1], counted[1] - counted[0]
    if not missing and not added:
        yield f"reordered: the same {len(was)} records, in another order"
        return
    others = [] if len(was) != len(now) else [pair for pair in zip(before, after, strict=True) if different(*pair)]
    if others and len(others) == missing.total():
        yield from (f"changed at {other.offset}: {changed(one, other)}" for one, other in others)
        return
    yield from listed("missing", before, missing)
    yield from listed("added", after, added)
    shift = shifted(before, after)
    if shift:
        yield f"shifted by {shift:+d}: what is the same in both is at other offsets"


def moved(before: Sequence[SeenRecord], after: Sequence[SeenRecord]) -> Iterator[str]:
    """Yield in words how the same records lie at other offsets, or that they are the same."""
    shift = shifted(before, after)
    if shift:
        yield f"shifted by {shift:+d}: the same {number_of(len(before), 'record')} at other offsets"
    else:
        same = number_of(len(before), "record")
        yield f"the same {same}: their batch was made anew, and what producers wrote is unchanged"


def shifted(before: Sequence[SeenRecord], after: Sequence[SeenRecord]) -> int:
    """Return by how much most records have moved; 0 if most are where they were, or there is no such number."""
    places: dict[RecordContent, list[int]] = {}
    for one in reversed(before):
        places.setdefault(one.content, []).append(one.offset)
    shifts = Counter(one.offset - places[one.content].pop() for one in after if places.get(one.content))
    shift, times = shifts.most_common(1)[0] if shifts else (0, 0)
    return shift if times * 2 > shifts.total() else 0


def listed(what: str, records: Sequence[SeenRecord], counted: Counter[RecordContent]) -> Iterator[str]:
    """Yield in words which of the records are missing or added, the first few of them."""
    total, left = counted.total(), Counter(counted)
    if not total:
        return
    named: list[str] = []
    for one in records:
        if left[one.content] > 0 and len(named) < 3:
            left[one.content] -= 1
            named.append(f"{one.offset} ({shown(one.key)}, {size(one.value)})")
    more = f" and {total - len(named)} more" if total > len(named) else ""
    yield f"{what}: {number_of(total, 'record')}, at {', '.join(named)}{more}"


def different(one: SeenRecord, other: SeenRecord) -> bool:
    """Return True if two records in the same place are not the same."""
    return one.content != other.content


def changed(one: SeenRecord, other: SeenRecord) -> str:
    parts = [
        name
        for name, was, now in (
            ("key", one.key, other.key),
            ("value", one.value, other.value),
            ("headers", one.headers, other.headers),
        )
        if was != now
    ]
    return f"{' and '.join(parts)} of the record with {shown(one.key)}"


def shown(key: bytes | None) -> str:
    if key is None:
        return "no key"
    text = key[:SHOWN].decode("utf-8", "backslashreplace")
    return f'key "{text}{"…" if len(key) > SHOWN else ""}"'


def size(value: bytes | None) -> str:
    """Return a value by its length: what users wrote is not told."""
    return "no value" if value is None else number_of(len(value), "byte")
