"""Explanation of findings by their records: missing, added, changed, reordered or shifted.

The record is read a second time, and only the exchanges of findings are decoded. So the first reading needs batch
headers only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from kproxy.base.errors import RecordsError, plural
from kproxy.protocol.records import Batch, decode
from kproxy.protocol.records.record import least_size
from kproxy.protocol.table.api_keys import CREATE_TOPICS, METADATA, PRODUCE
from kproxy.record.exchange import ObservedExchange
from kproxy.record.filters import EventView

from .facts import PartitionPlace
from .finding import BatchInQuestion, Finding, Verdict
from .read_exchange import BrokerNames, ReadExchange
from .reading import FactReader, witness_of
from .verifier import VerifiedExchange

MOST_BATCHES = 32  # compared batches of one finding
MOST_RECORDS = 10_000  # compared records of one batch
MOST_BYTES = 64 << 20  # of records of all findings together; the rest is not compared
MOST_LINES = 8
SHOWN = 24
NAMING = frozenset({METADATA, CREATE_TOPICS})


RecordContent = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]  # key, value and headers


class SeenRecord(NamedTuple):
    """Record without its timestamp, which brokers may set."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def content(self) -> RecordContent:
        return self.key, self.value, self.headers


# number of an exchange, partition, batch's offset; None: all batches of the partition
BatchKey = tuple[int, PartitionPlace, int | None]


class RecordsOfExchanges:
    """Records of the findings' batches, at the client and at the broker (`behind`). `left`: free bytes."""

    def __init__(self, findings: Iterable[Finding], names: BrokerNames) -> None:
        self.names = names
        self.wanted: dict[int, dict[PartitionPlace, set[int | None]]] = {}
        for finding in findings:
            for batch in finding.batches[:MOST_BATCHES]:
                for number, offset in batch.exchanges:
                    self.wanted.setdefault(number, {}).setdefault(batch.place, set()).add(offset)
        self.front: dict[BatchKey, list[SeenRecord]] = {}
        self.behind: dict[BatchKey, list[SeenRecord]] = {}
        self.left = MOST_BYTES
        self.readers = FactReader(), FactReader()

    def take(self, number: int, front: ObservedExchange | None, behind: ObservedExchange | None) -> None:
        """Keep an exchange's records if a finding names it; learn topic names from other exchanges."""
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
                reader.facts(seen, witness, exchange, exchange.others)  # stores the names
            if number in self.wanted:
                self.keep(number, exchange, kept)

    def keep(self, number: int, exchange: ReadExchange, kept: dict[BatchKey, list[SeenRecord]]) -> None:
        wanted = self.wanted[number]
        parts = exchange.asked() if exchange.key == PRODUCE else exchange.answered()
        bases = {}
        if exchange.key == PRODUCE:
            bases = {place: part.fields["base_offset"] for part, place in exchange.answered()}
        for part, place in parts:
            offsets = wanted.get(place)
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
        """Return a batch's records within the free bytes; none of an unreadable batch."""
        if self.left <= 0:
            return []
        try:
            read = list(islice(decode(batch, limit=self.left), MOST_RECORDS))
        except RecordsError:
            return []
        self.left -= sum(100 + least_size(one) for one in read)
        return [SeenRecord(one.offset + moved, one.key, one.value, one.headers) for one in read]

    def of(self, finding: Finding, batch: BatchInQuestion) -> tuple[list[SeenRecord], list[SeenRecord]] | None:
        """Return a batch's expected and actual records; None unless both are known."""
        found: list[list[SeenRecord] | None] = []
        for number, offset in batch.exchanges:
            key = number, batch.place, offset
            behind = self.behind.get(key)
            found.append(behind if finding.view == "brokers" and behind is not None else self.front.get(key))
        if len(found) == 2 and found[0] is not None and found[1] is not None:
            if batch.exchanges[1][1] is not None:
                return found[0], found[1]
            # The response lacks the batch; its records may be in others.
            written = {one.content for one in found[0]}
            return found[0], [one for one in found[1] if one.content in written]
        if len(found) == 1 and found[0] is not None and finding.view == "clients":
            sent = self.behind.get((batch.exchanges[0][0], batch.place, batch.exchanges[0][1]))
            return None if sent is None else (sent, found[0])
        return None


def explain(verdict: Verdict, exchanges: Iterable[VerifiedExchange]) -> None:
    """Add the differences of its records to each finding. `exchanges`: the same record from its beginning."""
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
    """Yield the differences between the records `before` and `after`, in words."""
    was, now = [one.content for one in before], [one.content for one in after]
    if was == now:
        same, shift = plural(len(before), "record"), shifted(before, after)
        if shift:
            yield f"shifted by {shift:+d}: the same {same} at other offsets"
        else:
            yield f"the same {same}: their batch was made anew, and what producers wrote is unchanged"
        return
    counted = Counter(was), Counter(now)
    missing, added = counted[0] - counted[1], counted[1] - counted[0]
    if not missing and not added:
        yield f"reordered: the same {plural(len(was), 'record')}, in another order"
        return
    others = []
    if len(was) == len(now):
        others = [(one, other) for one, other in zip(before, after, strict=True) if one.content != other.content]
    if others and len(others) == missing.total():
        yield from (f"changed at {other.offset}: {changed(one, other)}" for one, other in others)
        return
    yield from listed("missing", before, missing)
    yield from listed("added", after, added)
    shift = shifted(before, after)
    if shift:
        yield f"shifted by {shift:+d}: what is the same in both is at other offsets"


def shifted(before: Sequence[SeenRecord], after: Sequence[SeenRecord]) -> int:
    """Return the offset change of most records; 0 if most are unmoved or no change prevails."""
    places: dict[RecordContent, list[int]] = {}
    for one in reversed(before):
        places.setdefault(one.content, []).append(one.offset)
    shifts = Counter(one.offset - places[one.content].pop() for one in after if places.get(one.content))
    shift, times = shifts.most_common(1)[0] if shifts else (0, 0)
    return shift if times * 2 > shifts.total() else 0


def listed(what: str, records: Sequence[SeenRecord], counted: Counter[RecordContent]) -> Iterator[str]:
    """Yield which records are missing or added, with the first three."""
    total, left = counted.total(), Counter(counted)
    if not total:
        return
    named: list[str] = []
    for one in records:
        if left[one.content] > 0 and len(named) < 3:
            left[one.content] -= 1
            named.append(f"{one.offset} ({shown(one.key)}, {size(one.value)})")
    more = f" and {total - len(named)} more" if total > len(named) else ""
    yield f"{what}: {plural(total, 'record')}, at {', '.join(named)}{more}"


def changed(one: SeenRecord, other: SeenRecord) -> str:
    names = ("key", "value", "headers")
    parts = [name for name, was, now in zip(names, one.content, other.content, strict=True) if was != now]
    return f"{' and '.join(parts)} of the record with {shown(one.key)}"


def shown(key: bytes | None) -> str:
    if key is None:
        return "no key"
    text = key[:SHOWN].decode("utf-8", "backslashreplace")
    return f'key "{text}{"…" if len(key) > SHOWN else ""}"'


def size(value: bytes | None) -> str:
    # Values are user data, so the report has their lengths only.
    return "no value" if value is None else plural(len(value), "byte")
