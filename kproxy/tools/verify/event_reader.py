"""Reader of facts from request events: of audit files and of a live proxy.

An event has columns of the exchange at the client. A fact without its column is absent, and the checks that need it are
not made (`events` in checks.yaml). Topics and groups have their names at the broker if the event has them, since
several clients may use one name for different topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from sys import intern
from typing import Any

from kproxy.protocol.records.entry import CONTROL, TRANSACTIONAL
from kproxy.protocol.table import api_keys, schema
from kproxy.protocol.table.errors import names as error_codes
from kproxy.record.audit.lines import LONGEST as LONGEST_OF_EVENT
from kproxy.record.events.schema import MOST_BATCHES

from .coordinator_facts import FENCED, in_zookeeper
from .facts import (
    LAST_OFFSET,
    BatchFact,
    BatchIdentity,
    CommitFact,
    DeletionFact,
    Fact,
    FencedFact,
    FetchedCommitFact,
    FetchPositionFact,
    JoinFact,
    LeaderEpochFact,
    ListedOffsetFact,
    MemberFact,
    OutOfRangeFact,
    PartitionPlace,
    PartitionsAddedFact,
    ProducerFact,
    ReadFact,
    RequestFact,
    Result,
    TopicFact,
    Witness,
    WriteFact,
)
from .log_facts import FENCED_WRITES, GONE, OUT_OF_RANGE, placed, write_result
from .read_exchange import LONGEST_NAME, coordinator_result
from .reading import LONGEST_TEXT, MOST_NAMES, MOST_RULES, ReadCounts

UNKNOWN_ERROR = -2
READ_COMMITTED = 1
END_TELLS_EPOCH = 5  # first version whose response has the next epoch
EventRow = Mapping[str, Any]  # columns of a request event, or of a topic, partition or batch in it
UNKNOWN = -1
OMITTED = (
    "decode_error",
    "omitted_topics",
    "omitted_partitions",
)  # columns of events that lack a part of their exchange


def number(row: EventRow, column: str) -> int:
    """Return the number in a column; UNKNOWN if it is absent or outside the protocol's range."""
    value = row.get(column)
    return value if isinstance(value, int) and 0 <= value <= LAST_OFFSET else UNKNOWN


def batches_told(row: EventRow) -> list[BatchFact]:
    """Return the batches of a partition. A partial batch is left out, and makes its read a partial one.

    The columns of a partition have one batch of user records without its timestamps. `batches_detail` has the first of
    several batches and of markers. Offsets in a request begin at 0.
    """
    if row.get("batches_detail"):
        found = [batch_of(one, "sequence", number(one, "last_delta"), number(one, "count"))
                 for one in row["batches_detail"] if one is not None]  # fmt: skip
    elif number(row, "batches") == 1:
        records, first, last = (number(row, column) for column in ("records", "base_offset", "last_offset"))
        delta = last - first if first >= 0 and last >= 0 else records - 1
        found = [batch_of(row, "base_sequence", delta, records)]
    else:
        found = []
    return [one for one in found if one is not None]


def batch_of(row: EventRow, sequence: str, delta: int, count: int) -> BatchFact | None:
    """Return the batch in these columns; None if a part is missing. `sequence`: the column of the first sequence."""
    crc, attributes, base = number(row, "crc"), number(row, "attributes"), max(number(row, "base_offset"), 0)
    if crc < 0 or attributes < 0 or delta < 0 or count < 0 or base + delta > LAST_OFFSET:
        return None
    identity = BatchIdentity(
        crc, count, number(row, "producer_id"), number(row, "producer_epoch"), number(row, sequence)
    )
    marker = row.get("marker")
    return BatchFact(
        base, delta, identity, attributes, UNKNOWN, UNKNOWN,
        "" if not attributes & CONTROL else marker if marker in ("commit", "abort") else "other",
        bool(attributes & TRANSACTIONAL),
    )  # fmt: skip


def aborted_told(row: EventRow) -> list[tuple[int, int]] | None:
    """Return producer ids and first offsets of aborted transactions; None if the event may lack some."""
    listed = row.get("aborted") or ()
    if len(listed) >= MOST_BATCHES:
        return None
    return [(number(one, "producer_id"), number(one, "first_offset")) for one in listed if one is not None]


@dataclass(slots=True)
class EventExchange:
    """Exchange of a request event. `names`: topics by id, from earlier events."""

    data: EventRow
    witness: Witness
    names: dict[str, str]

    @property
    def answered(self) -> bool:
        return self.witness.ended is not None

    def text(self, row: EventRow, *columns: str) -> str | None:
        """Return the name in the first of these columns that is not empty. None: no name, or a truncated one."""
        value = next((row[column] for column in columns if row.get(column)), None)
        return value if isinstance(value, str) and len(value) < min(LONGEST_NAME, LONGEST_OF_EVENT) else None

    def error(self, row: EventRow) -> int | None:
        """Return a partition's error code; None without a response."""
        return code_of(row) if self.answered else None

    def topics(self) -> Iterator[tuple[str, EventRow]]:
        """Yield topics with their names at the broker, or with their ids if the names are unknown."""
        for topic in self.data.get("topics") or ():
            if topic is not None:
                name, topic_id = self.text(topic, "broker_topic", "topic"), self.text(topic, "topic_id")
                if name and topic_id and len(self.names) < MOST_NAMES:
                    self.names[topic_id] = name
                name = name or (topic_id and self.names.get(topic_id, topic_id))
                if name:
                    yield name, topic

    def partitions(self) -> Iterator[tuple[PartitionPlace, EventRow, EventRow]]:
        """Yield partitions with place, topic's columns and own columns."""
        for name, topic in self.topics():
            for row in topic.get("partitions") or ():
                if row is not None and number(row, "partition") >= 0:
                    yield PartitionPlace(name, row["partition"]), topic, row

    @property
    def group(self) -> str | None:
        return self.text(self.data, "broker_group", "group")

    @property
    def producer(self) -> tuple[int, int]:
        return number(self.data, "producer_id"), number(self.data, "producer_epoch")


def code_of(row: EventRow) -> int:
    name = row.get("error")
    if name is None:
        return 0
    known = error_codes().get(name)
    return UNKNOWN_ERROR if known is None else known.code


def writes(event: EventExchange) -> Iterator[Fact]:
    acks = event.data.get("acks")
    if acks is None:
        return
    for place, topic, row in event.partitions():
        error = event.error(row)
        base = number(row, "base_offset") if error == 0 else -1
        result: Result = "open" if error == 0 and base < 0 else write_result(error)
        batches = placed(batches_told(row), max(base, 0))
        written_at = base if base >= 0 else None
        yield WriteFact(
            event.witness, place, batches, result, written_at, acks, number(row, "log_start_offset"),
            topic_id=event.text(topic, "topic_id") or "",
        )  # fmt: skip
        if error in FENCED_WRITES and batches and batches[0].transactional:
            yield FencedFact(event.witness, batches[0].identity.producer_id, batches[0].identity.epoch)


def reads(event: EventExchange) -> Iterator[Fact]:
    found = []
    for place, topic, row in event.partitions():
        position, error = number(row, "fetch_offset"), event.error(row)
        if position >= 0:
            yield FetchPositionFact(event.witness, place, position, bool(error))
            if error == OUT_OF_RANGE:
                yield OutOfRangeFact(event.witness, place, position)
        if error != 0 or "high_watermark" not in row:
            continue
        batches, aborted = batches_told(row), aborted_told(row)
        last, high_watermark = number(row, "last_offset"), number(row, "high_watermark")
        if last >= high_watermark:  # a replica's read: the records may still be truncated
            batches = []
        found.append(
            ReadFact(
                event.witness, place, position if position >= 0 else None, batches,
                high_watermark, number(row, "last_stable_offset"), number(row, "log_start_offset"),
                event.data.get("isolation") == READ_COMMITTED and aborted is not None, aborted or [],
                len(batches) < max(number(row, "batches"), 0), event.text(topic, "topic_id") or "",
                last if last >= 0 else None,
            )
        )  # fmt: skip
    yield from found


def listed_offsets(event: EventExchange) -> Iterator[Fact]:
    for place, _, row in event.partitions():
        if event.error(row) == 0 and number(row, "offset") >= 0:
            yield ListedOffsetFact(event.witness, place, row["offset"])


def topics_in_metadata(event: EventExchange) -> Iterator[Fact]:
    if not event.answered:
        return
    for name, topic in event.topics():
        topic_id = event.text(topic, "topic_id") or ""
        if code_of(topic) or name == topic_id:
            continue
        if topic_id:
            made = event.data["api_key"] == api_keys.CREATE_TOPICS
            yield TopicFact(event.witness, name, topic_id, made=made)
        for row in topic.get("partitions") or ():
            if row is not None and number(row, "partition") >= 0 and number(row, "leader_epoch") >= 0:
                place = PartitionPlace(name, row["partition"])
                yield LeaderEpochFact(event.witness, place, topic_id, row["leader_epoch"])


def deleted_topics(event: EventExchange) -> Iterator[Fact]:
    for name, topic in event.topics():
        if code_of(topic) in GONE:
            yield DeletionFact(event.witness, name, None)


def commits(event: EventExchange) -> Iterator[Fact]:
    group, of_transaction = event.group, event.data["api_key"] == api_keys.TXN_OFFSET_COMMIT
    if group is None or in_zookeeper(event.data["api_key"], event.witness.version):
        return
    producer = event.producer if of_transaction else None
    for place, _, row in event.partitions():
        error, offset = event.error(row), number(row, "committed_offset")
        if offset >= 0:
            generation = number(event.data, "generation")
            yield CommitFact(event.witness, group, place, offset, coordinator_result(error), generation, producer)
        if producer is not None and error in FENCED:
            yield FencedFact(event.witness, *producer)


def fetched_commits(event: EventExchange) -> Iterator[Fact]:
    """Yield committed offsets in an OffsetFetch. An offset of -1: the group has not committed."""
    if in_zookeeper(event.data["api_key"], event.witness.version):
        return
    for place, topic, row in event.partitions():
        several = event.text(topic, "group")
        group = several or event.group
        # The event has the broker's name of the first group only.
        renamed = several is not None and "broker_group" in event.data
        if group is not None and event.error(row) == 0 and not renamed:
            yield FetchedCommitFact(event.witness, group, place, number(row, "committed_offset"))


def deleted_groups(event: EventExchange) -> Iterator[Fact]:
    names = {event.group, *(event.text(one, "name") for one in event.data.get("resources") or () if one is not None)}
    yield from (DeletionFact(event.witness, None, name) for name in sorted(filter(None, names)))


def deleted_commits(event: EventExchange) -> Iterator[Fact]:
    if event.group is not None:
        yield from (DeletionFact(event.witness, name, event.group) for name, _ in event.topics())


def moves(event: EventExchange) -> Iterator[Fact]:
    """Yield that the partitions of a member may change."""
    news = event.data["api_key"] != api_keys.CONSUMER_GROUP_HEARTBEAT or event.data.get("topics") or code_of(event.data)
    if event.group is not None and news:
        yield JoinFact(event.witness, event.group, event.text(event.data, "member") or "", "", 0.0)


def leaves(event: EventExchange) -> Iterator[Fact]:
    if event.group is not None and event.answered and not code_of(event.data):
        yield MemberFact(event.witness, event.group, event.text(event.data, "member") or "", left=True)


def given_epochs(event: EventExchange) -> Iterator[Fact]:
    """Yield the producer id and epoch in the response to an InitProducerId or an EndTxn."""
    yield from fenced(event)
    ended = event.data["api_key"] == api_keys.END_TXN
    if not event.answered or code_of(event.data) or (ended and event.witness.version < END_TELLS_EPOCH):
        return
    name = event.text(event.data, "transactional_id")
    if min(event.producer) >= 0 and (name is None) == (event.data.get("transactional_id") is None):
        # An event lacks the producer id of the request, keep_prepared_txn, and the broker's transactional id.
        yield ProducerFact(
            event.witness, *event.producer, ended=ended, transactional_id=name, keeps=True, named=False
        )  # fmt: skip


def added_partitions(event: EventExchange) -> Iterator[Fact]:
    """Yield the partitions that a producer adds to its transaction. Requests of brokers are skipped."""
    if min(event.producer) < 0:
        return
    places = [place for place, _, _ in event.partitions()]
    failed = code_of(event.data) if event.answered else None
    yield from fenced(event)
    yield PartitionsAddedFact(event.witness, *event.producer, places, coordinator_result(failed))


def fenced(event: EventExchange) -> Iterator[Fact]:
    if code_of(event.data) in FENCED and min(event.producer) >= 0:
        yield FencedFact(event.witness, *event.producer)


EVENT_TELLERS: Mapping[int, Callable[[EventExchange], Iterator[Fact]]] = {
    api_keys.PRODUCE: writes,
    api_keys.FETCH: reads,
    api_keys.LIST_OFFSETS: listed_offsets,
    api_keys.METADATA: topics_in_metadata,
    api_keys.CREATE_TOPICS: topics_in_metadata,
    api_keys.DELETE_TOPICS: deleted_topics,
    api_keys.OFFSET_COMMIT: commits,
    api_keys.TXN_OFFSET_COMMIT: commits,
    api_keys.OFFSET_FETCH: fetched_commits,
    api_keys.DELETE_GROUPS: deleted_groups,
    api_keys.OFFSET_DELETE: deleted_commits,
    api_keys.JOIN_GROUP: moves,
    api_keys.SYNC_GROUP: moves,
    api_keys.CONSUMER_GROUP_HEARTBEAT: moves,
    api_keys.LEAVE_GROUP: leaves,
    api_keys.INIT_PRODUCER_ID: given_epochs,
    api_keys.END_TXN: given_epochs,
    api_keys.ADD_PARTITIONS_TO_TXN: added_partitions,
    api_keys.ADD_OFFSETS_TO_TXN: fenced,
}


class EventReader:
    """Reader of request events in the order of their ends. `counts`: events that were read, and that were not."""

    def __init__(self, counts: ReadCounts) -> None:
        self.counts = counts
        self.names: dict[str, str] = {}

    def facts(self, data: EventRow, witness: Witness) -> list[Fact]:
        key = number(data, "api_key")
        facts: list[Fact] = [RequestFact(witness, key)]
        tell = EVENT_TELLERS.get(key)
        if tell is None:
            self.counts.not_kept[witness.api] += key == api_keys.SHARE_FETCH  # events lack its batches
            return facts
        if any(data.get(column) for column in OMITTED):
            self.counts.not_kept[witness.api] += 1
        else:
            self.counts.looked[witness.api] += 1
        if not data.get("decode_error"):
            facts += tell(EventExchange(data, witness, self.names))
        return facts


def api_of(data: EventRow) -> str:
    """Name of an event's API; its key for one that is not known here, since names are counted."""
    name, key = str(data.get("api")), number(data, "api_key")
    return name if name in schema.names() else f"API {key if key < 1 << 15 else -1}"


def event_witness(data: EventRow, number_in_record: int, skew: float, recording: int = 0) -> Witness | None:
    """Return an event's witness; None for an event without a time."""
    ended = seconds(data.get("response_out"))
    began = seconds(data.get("request_in"))
    if began is None:
        began = ended
    if began is None:
        return None
    words = (str(data.get(column) or "") for column in ("software_name", "software_version"))
    return Witness(
        number=number_in_record,
        began=began - skew,
        ended=None if ended is None else max(ended, began) + skew,
        connection=(f"{data.get('client_address')}:{data.get('client_port')}", number(data, "connection"), recording),
        client=intern(str(data.get("client_id") or "")[:LONGEST_TEXT]),
        node=data.get("node"),
        api=api_of(data),
        version=number(data, "version"),
        rules=tuple(intern(str(rule)[:LONGEST_TEXT]) for rule in (data.get("rules") or ())[:MOST_RULES]),
        made_by_kproxy=data.get("responder") == "kproxy",
        software=intern(" ".join(filter(None, words))[:LONGEST_TEXT]),
        correlation_id=data.get("correlation_id") or 0,
        server=intern(f"{recording} {data.get('cluster')}") if recording else "",
        clock=0 if skew else recording,
    )


def seconds(stamp: Any) -> float | None:
    """Convert an event's time to seconds since 1970. None: absent or invalid."""
    try:
        return None if stamp is None else datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError, TypeError):
        return None
