"""Facts about the exchanges of a run, its longest client time-out, and lines for a report.

The process of a run calls `describe_run` at its end. Exchanges that cannot be decoded, because of a rule or a broker,
are left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from kproxy.errors import DecodeError, RecordsError, WireError
from kproxy.explore.model import ExploredRun, FaultPlan, RunEnd
from kproxy.explore.places import EntityFacts, ExchangeFacts, digest_of, errors_of, places_of
from kproxy.rules.entity import Entity
from kproxy.testing.exchanges import SeenExchange
from kproxy.wire.records import Batch, Entry, entries
from kproxy.wire.records.digest import RecordsDigest
from kproxy.wire.table import errors as error_codes
from kproxy.wire.table.api_keys import FETCH, INIT_PRODUCER_ID, JOIN_GROUP, OFFSET_FETCH, PRODUCE, TXN_OFFSET_COMMIT

MOST_LINES = 200  # of the first and the last exchanges
LONGEST_LINE = 300
LONGEST_WAIT = 60.0  # seconds; clients request half an hour as `max.poll.interval.ms`
RECORDS, SEVERAL = frozenset({"records"}), frozenset({"records", "batches"})
NAMED = ("topic", "group", "transactional_id", "member")


def describe_run(
    plan: FaultPlan,
    ended: RunEnd,
    seconds: float,
    exchanges: Sequence[SeenExchange],
    libraries: Iterable[str] = (),
    **others: Any,
) -> ExploredRun:
    """Return a run with the facts of its exchanges. `libraries`: further client libraries. `others`: fields of
    ExploredRun."""
    facts = list(read_facts(exchanges))
    software = sorted({one.client_software for one in facts if one.client_software} | set(libraries))
    return ExploredRun(
        plan, ended, seconds, places=places_of(facts), digest=digest_of(facts), errors=errors_of(facts),
        patience=patience_of(exchanges), story=tuple(story_of(exchanges)), software=tuple(software), **others,
    )  # fmt: skip


def reads_lost_offsets(exchanges: Iterable[SeenExchange]) -> bool:
    """Return True if a client fetched the offsets of a group after it committed such offsets in a transaction."""
    groups: set[str | None] = set()
    for one in exchanges:
        if one.key in (TXN_OFFSET_COMMIT, OFFSET_FETCH):
            named = {entity.group for entity in one.entities}
            if one.key == OFFSET_FETCH and named & groups:
                return True
            groups |= named if one.key == TXN_OFFSET_COMMIT else set()
    return False


def read_facts(exchanges: Iterable[SeenExchange]) -> Iterator[ExchangeFacts]:
    for one in exchanges:
        with suppress(WireError, KeyError):
            yield facts_of(one)


def facts_of(one: SeenExchange) -> ExchangeFacts:
    """Return the facts about one exchange. Raises DecodeError."""
    codes = codes_of(one)
    traits = records_of_answer(one) if one.key == FETCH else {}
    told = []
    for entity in one.entities:
        batch, own = batch_of(one, entity) if one.key == PRODUCE else (None, traits.get(key_of(entity), frozenset()))
        named = frozenset(name for name in NAMED if getattr(entity, name))
        code = codes.get(entity, 0)
        told.append(EntityFacts(
            entity.topic, entity.partition, entity.group, entity.transactional_id, entity.offset, batch, named | own,
            error_codes.error_name(code) if code else "",
        ))  # fmt: skip
    software = one.taken.connection.session.identity.software
    return ExchangeFacts(one.api, one.client_id, software, tuple(told), one.answered is not None)


def codes_of(one: SeenExchange) -> Mapping[Entity, int]:
    """Return the error codes of the response by entity; empty if it cannot be decoded."""
    try:
        return one.codes()
    except (DecodeError, KeyError):
        return {}


def batch_of(one: SeenExchange, entity: Entity) -> tuple[Hashable, frozenset[str]]:
    """Return an identity of the first batch of a partition, the same when it is sent again, and its traits."""
    topic, partition = entity.where
    records = one.request.body["topic_data"][topic]["partition_data"][partition]["records"]
    if isinstance(records, RecordsDigest):
        producer, epoch, sequence = records.producer_id, records.producer_epoch, records.base_sequence
        transactional, other = records.transactional, (records.size, records.records)
        producer = -1 if producer is None else producer
    else:
        batch = first_entry(records)
        if not isinstance(batch, Batch):
            return bytes(records or b"")[:64], frozenset({"records"}) if records else frozenset()
        producer, epoch, sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
        transactional, other = batch.is_transactional, (batch.crc, batch.count)
    traits = {"records"} | ({"transactional"} if transactional else set())
    if producer < 0:
        return other, frozenset(traits)
    return (producer, epoch, sequence), frozenset(traits | {"idempotent"})


FetchedPartition = tuple[object, int | None]


def key_of(entity: Entity) -> FetchedPartition:
    return (entity.topic_id or entity.topic, entity.partition)


def records_of_answer(one: SeenExchange) -> dict[FetchedPartition, frozenset[str]]:
    """Return the trait `records` by partition of a Fetch response, and `batches` for several."""
    try:
        answer = one.response
    except DecodeError:
        return {}
    found = {}
    for topic in answer.body["responses"] if answer is not None else ():
        name = topic.get("topic_id") or topic.get("topic")
        for partition in topic["partitions"]:
            batches = batches_in(partition["records"])
            if batches:
                found[name, partition["partition_index"]] = SEVERAL if batches > 1 else RECORDS
    return found


def batches_in(records: Any) -> int:
    """Return the number of batches; 2 means two or more."""
    if isinstance(records, RecordsDigest):
        return records.batches
    try:
        return sum(1 for _ in islice(entries(records), 2)) if records else 0
    except RecordsError:  # a rule has made them so, or a broker
        return 1


def first_entry(records: Any) -> Entry | None:
    try:
        return next(iter(entries(records)), None) if records else None
    except RecordsError:
        return None


def patience_of(exchanges: Iterable[SeenExchange]) -> float:
    """Return the longest session, rebalance or transaction time-out in seconds, up to LONGEST_WAIT."""
    longest = 0
    for one in exchanges:
        if one.key not in (JOIN_GROUP, INIT_PRODUCER_ID):
            continue
        with suppress(DecodeError):
            body = one.request.body
            names = ("session_timeout_ms", "rebalance_timeout_ms")
            if one.key == INIT_PRODUCER_ID:
                names = ("transaction_timeout_ms",) if body["transactional_id"] is not None else ()  # type: ignore[assignment]
            longest = max(longest, *(body.get(name) or 0 for name in names), 0)
    return min(max(longest, 0) / 1000, LONGEST_WAIT)


def story_of(exchanges: Sequence[SeenExchange]) -> Iterator[str]:
    """Yield a line for each exchange, or for the first and the last of many."""
    if not exchanges:
        return
    began = exchanges[0].came
    half = MOST_LINES // 2
    cut = len(exchanges) > MOST_LINES
    for one in exchanges[:half] if cut else exchanges:
        yield line_of(one, began)
    if cut:
        yield f"… {len(exchanges) - 2 * half} others …"
        for one in exchanges[-half:]:
            yield line_of(one, began)


def line_of(one: SeenExchange, began: float) -> str:
    return f"{one.came - began:9.3f} s  {one.client_id or '-'}  {one}"[:LONGEST_LINE]
