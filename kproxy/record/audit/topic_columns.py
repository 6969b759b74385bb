"""Columns of the topics, partitions and record batches of an exchange.

One pass over the request and one over the response fill a table of topics. Elements match by name or id and by number.
An event lists as many as it may contain; the rest is counted. Term: *around* is the level outside of the topics, if
any (a group, a transaction, a log directory).

Columns that are single fields of the protocol are tables by field name. Field names have one meaning in all APIs, so
the tables are not split by API. A later line overrides an earlier one, and a response its request.

For a partition with one batch, the most frequent case, the partition's columns contain all of its header. Of several
batches each is listed, up to a limit for the partition and one for the event.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kproxy.protocol.elements import TopicWalk, topic_walk
from kproxy.protocol.records.entry import RecordsDigest
from kproxy.protocol.table.api_keys import NEW_HEARTBEATS
from kproxy.protocol.table.errors import error_name
from kproxy.protocol.table.layout import ZERO_UUID, Slot, Struct
from kproxy.record.audit.lines import plain
from kproxy.record.events.schema import MOST_BATCHES
from kproxy.record.exchange import ObservedExchange, Who

ColumnFields = tuple[tuple[str, str, bool], ...]
"""(column, field, whether negative numbers are values, not absence)"""

REQUEST = (
    ("acks", "acks"),
    ("isolation", "isolation_level"),
    ("instance", "group_instance_id"),
    ("instance", "instance_id"),
    ("generation", "generation_id"),
    ("generation", "generation_id_or_member_epoch"),
    ("generation", "member_epoch"),
    ("protocol", "protocol_name"),
    ("protocol", "server_assignor"),
    ("producer_id", "v3_and_below_producer_id"),
    ("producer_epoch", "v3_and_below_producer_epoch"),
    ("producer_id", "producer_id"),
    ("producer_epoch", "producer_epoch"),
)
RESPONSE = (
    ("throttle_ms", "throttle_time_ms"),
    ("member", "member_id"),
    ("generation", "generation_id"),
    ("generation", "member_epoch"),
    ("protocol", "protocol_name"),
    ("producer_id", "producer_id"),
    ("producer_epoch", "producer_epoch"),
)
NEGATIVE = {"acks": frozenset((0,)), "generation": NEW_HEARTBEATS}
"""Column → APIs in which a negative number has a meaning: acks=all, and the epochs of leaving members (KIP-848)."""

OF_PARTITION_REQUESTED = (
    ("fetch_offset", "fetch_offset"),
    ("offset", "offset"),
    ("committed_offset", "start_offset"),
    ("committed_offset", "committed_offset"),
    ("leader_epoch", "current_leader_epoch"),
    ("leader_epoch", "committed_leader_epoch"),
    ("leader_epoch", "leader_epoch"),
    ("leader", "leader"),
)
OF_PARTITION_ANSWERED = (
    ("base_offset", "base_offset"),
    ("offset", "offset"),
    ("offset", "end_offset"),
    ("high_watermark", "high_watermark"),
    ("last_stable_offset", "last_stable_offset"),
    ("log_start_offset", "log_start_offset"),
    ("log_start_offset", "low_watermark"),
    ("committed_offset", "start_offset"),
    ("committed_offset", "committed_offset"),
    ("leader_epoch", "committed_leader_epoch"),
    ("leader_epoch", "leader_epoch"),
    ("leader", "leader_id"),
)


def present(table: tuple[tuple[str, str], ...], struct: Struct | None, key: int = -1) -> ColumnFields:
    """Return the lines of a table with a field that this struct has.

    `key`: of the API, where numbers below zero may count.
    """
    if struct is None:
        return ()
    names = {slot.name for slot in struct.slots if not slot.array}
    return tuple((column, field, key in NEGATIVE.get(column, ())) for column, field in table if field in names)


def put(data: dict[str, Any], columns: ColumnFields, body: Mapping[str, Any]) -> None:
    for column, field, negative in columns:
        value = body.get(field)
        if isinstance(value, str):
            value = plain(value)
        elif value is not None and value < 0 and not negative:
            continue
        if value is not None:
            data[column] = value


OF_WRITTEN = ("producer_id", "producer_epoch", "base_sequence", "attributes", "crc")
OF_READ = ("base_offset", "last_offset", *OF_WRITTEN)
"""Columns of a digest; None and numbers below zero are absence."""
OF_BATCH = ("base_offset", "crc", "attributes", "last_delta", "producer_id", "producer_epoch", "sequence", "count")
"""Columns of one batch, in the order of `HEADER_FIELDS`."""
MOST_DETAILED = 10 * MOST_BATCHES


class BatchDetail:
    """Remaining batches that one event lists, over all partitions."""

    __slots__ = ("room",)

    def __init__(self) -> None:
        self.room = MOST_DETAILED

    def columns(self, digest: RecordsDigest) -> list[dict[str, Any]]:
        """Return the columns of each of the digest's first batches, as far as there is room."""
        told = list(batch_columns(digest, min(self.room, MOST_BATCHES)))
        self.room -= len(told)
        return told


def put_batches(row: dict[str, Any], digest: RecordsDigest | None, read: bool, detail: BatchDetail) -> None:
    """Set the columns about a partition's batches. `read`: offsets are the log's; producers count from zero."""
    if digest is None:
        return
    if digest.records is not None:
        row["records"] = digest.records
    row["bytes"], row["batches"] = digest.size, digest.batches
    if digest.codec:
        row["codec"] = digest.codec
    for column in OF_READ if read else OF_WRITTEN:
        value = getattr(digest, column)
        if value is not None and value >= 0:
            row[column] = value
    if digest.batches > 1 or digest.control:
        told = detail.columns(digest)
        if told:
            row["batches_detail"] = told


def batch_columns(digest: RecordsDigest, most: int) -> Iterator[dict[str, Any]]:
    """Yield the columns of each of the first batches with known headers."""
    markers = digest.markers or {}
    for number, header in enumerate((digest.headers or ())[:most]):
        columns: dict[str, Any] = {column: value for column, value in zip(OF_BATCH, header, strict=True) if value >= 0}
        if number in markers:
            columns["marker"] = markers[number]
        yield columns


def aborted_columns(transactions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the columns of the first aborted transactions that a partition's answer lists."""
    names = ("producer_id", "first_offset")
    return [{name: one[name] for name in names} for one in transactions[:MOST_BATCHES]]


def leader_columns(leader: Mapping[str, Any]) -> dict[str, int]:
    """Return the columns of `current_leader`. Empty for -1: the broker does not know the leader."""
    if leader["leader_id"] < 0:
        return {}
    return {"leader": leader["leader_id"], "leader_epoch": leader["leader_epoch"]}


class TopicElement(NamedTuple):
    """Topic in a message, and its partitions.

    `around`: distinguishes it from the same topic elsewhere in the message. `partitions`: elements, or numbers.
    """

    around: Hashable
    around_code: int
    name: str | None
    topic_id: UUID | None
    code: int
    partitions: list[Any]


class TopicReader:
    """Reader of the topics in messages of one direction.

    `index`: the field that holds a partition's number, None: the element is the number.
    """

    def __init__(self, walk: TopicWalk, columns: tuple[tuple[str, str], ...]):
        self.walk, self.around, self.index = walk, walk.around, walk.index
        partition = walk.partition
        struct = partition.struct if partition is not None else None
        self.code = partition.code if partition is not None else None
        self.topic_code = None if walk.flat else walk.topics.code
        self.records = next((slot.name for slot in slots(struct) if slot.type == "records"), None)
        self.acknowledged = next((slot.name for slot in slots(struct) if slot.name == "acknowledge_error_code"), None)
        self.names_leader = any(slot.name == "current_leader" for slot in slots(struct))
        self.tells_aborted = any(slot.name == "aborted_transactions" for slot in slots(struct))
        self.columns: ColumnFields = present(columns, struct)
        keys = walk.around.keys if walk.around is not None else ()
        self.around_role, self.around_field = keys[0] if keys else ("", "")
        self.around_code = walk.around.code if walk.around is not None else None

    def find(self, body: Mapping[str, Any], by_around: bool) -> Iterator[TopicElement]:
        """Yield all topics of a body. `by_around`: topics are the same only if what is around them is."""
        for name, topic_id, fields, around, partitions in self.walk.find(body):
            yield TopicElement(
                around[self.around_field] if by_around and around is not None else None,
                around[self.around_code] if self.around_code else 0,
                name,
                None if topic_id == ZERO_UUID else topic_id,
                fields[self.topic_code] if self.topic_code else 0,
                partitions,
            )

    def codes_around(self, body: Mapping[str, Any]) -> dict[Hashable, int]:
        """Return the error codes of the structs around topics, even of those without topics."""
        if self.around is None or self.around_code is None:
            return {}
        return {element[self.around_field]: element[self.around_code] for element in self.around.elements(body)}


def slots(struct: Struct | None) -> tuple[Slot, ...]:
    return () if struct is None else struct.all_slots


def topic_reader(key: int, version: int, *, answered: bool) -> TopicReader | None:
    """Return the reader of the topics in the requests or the responses of an API and version; None without topics."""
    walk = topic_walk(key, version, "response" if answered else "request")
    columns = OF_PARTITION_ANSWERED if answered else OF_PARTITION_REQUESTED
    return None if walk is None else TopicReader(walk, columns)


LAST_OFFSET = (1 << 63) - 1
"""Largest possible offset; a batch that begins there ends beyond it."""

ELSEWHERE = frozenset((6, 74))
"""NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH: the response names the leader (KIP-951)."""


class ExchangeTopic:
    """Topic of an exchange.

    `partitions`: number → [element of the request, of the response]; either may be just the number.
    """

    __slots__ = ("answered", "around", "code", "name", "partitions", "topic_id")

    def __init__(self, around: Hashable, name: str | None, topic_id: UUID | None) -> None:
        self.around, self.name, self.topic_id = around, name, topic_id
        self.code = 0
        self.answered = False
        self.partitions: dict[int, list[Any]] = {}


class TopicTable:
    """Table of the topics of one exchange, in the order of their first occurrence."""

    def __init__(self, requested: TopicReader | None, answered: TopicReader | None) -> None:
        self.sides = (requested, answered)
        self.by_around = bool(
            requested and answered and requested.around and requested.around_role == answered.around_role
        )
        self.topics: list[ExchangeTopic] = []
        self.known: dict[Hashable, ExchangeTopic] = {}
        self.around_codes: dict[Hashable, int] = {}
        self.total_records = self.total_bytes = 0
        self.detail = BatchDetail()
        self.counted = False  # a side with records was there

    def add(self, direction: int, body: Mapping[str, Any]) -> None:
        """Put the topics of a body in. `direction`: 0 request, 1 response."""
        side = self.sides[direction]
        if side is not None:
            self.counted |= side.records is not None
            if direction and self.by_around:
                self.around_codes = side.codes_around(body)
            for element in side.find(body, self.by_around):
                self.put(direction, element, side.index)
                if side.records is not None:
                    self.count(element.partitions, side.records)

    def count(self, partitions: list[Any], field: str) -> None:
        """Add the records and bytes of these partitions to the totals."""
        for partition in partitions:
            digest = partition[field]
            if digest is not None:
                self.total_records += digest.records or 0
                self.total_bytes += digest.size

    def put(self, direction: int, element: TopicElement, index: str | None) -> None:
        """Put one element in. `index`: the field with a partition's number, None: the element is it."""
        topic = self.topic(element)
        if direction:
            topic.answered = True
            topic.code = element.code or element.around_code or topic.code
        partitions = topic.partitions
        for partition in element.partitions:
            number = partition if index is None else partition[index]
            pair = partitions.get(number)
            if pair is None:
                pair = partitions[number] = [None, None]
            pair[direction] = partition

    def topic(self, element: TopicElement) -> ExchangeTopic:
        """Return the table's topic that an element is about, found by its name or its id."""
        by_name, by_id = (element.around, element.name), (element.around, element.topic_id)
        topic = self.known.get(by_name) if element.name is not None else None
        if topic is None and element.topic_id is not None:
            topic = self.known.get(by_id)
        if topic is None:
            topic = ExchangeTopic(element.around, element.name, element.topic_id)
            self.topics.append(topic)
        topic.name, topic.topic_id = topic.name or element.name, topic.topic_id or element.topic_id
        if element.name is not None:
            self.known[by_name] = topic
        if element.topic_id is not None:
            self.known[by_id] = topic
        return topic

    def columns(self, seen: ObservedExchange, most: int, top_code: int | None, *, several: bool) -> dict[str, Any]:
        """Return the columns about topics. `top_code`: error code at the top of the response; None: no such field.

        `several`: topics name their group or transaction.
        """
        topics: list[dict[str, Any]] = []
        room = most
        omitted = 0
        for topic in self.topics[:most]:
            row = name_columns(topic, seen.who)
            if several and isinstance(topic.around, str):
                row["group"] = plain(topic.around) or ""
            around = self.around_codes.get(topic.around) or top_code or 0
            rows = [
                self.partition_columns(number, topic.partitions[number], topic.code or around, seen)
                for number in first_partitions(topic, room)
            ]
            code = topic.code if topic.answered else around
            if code and (not topic.partitions or topic.answered):
                row["error"] = error_name(code)
            if rows:
                row["partitions"] = rows
            room -= len(rows)
            omitted += len(topic.partitions) - len(rows)
            topics.append(row)
        omitted += sum(len(topic.partitions) for topic in self.topics[most:])
        data: dict[str, Any] = {"topics": topics} if topics else {}
        if len(self.topics) > most:
            data["omitted_topics"] = len(self.topics) - most
        if omitted:
            data["omitted_partitions"] = omitted
        return data

    def partition_columns(self, number: int, pair: list[Any], around: int, seen: ObservedExchange) -> dict[str, Any]:
        """Return the columns of one partition.

        `pair`: elements of the request and the response. `around`: error code of the struct around the partition.
        """
        row: dict[str, Any] = {"partition": number}
        code = around
        for side, element in zip(self.sides, pair, strict=True):
            if side is None or not isinstance(element, dict):
                continue
            for column, field, _ in side.columns:
                value = element[field]
                if value is not None and value >= 0:
                    row[column] = value
            if side.records is not None:
                put_batches(row, element[side.records], side is self.sides[1], self.detail)
            if side.tells_aborted and element["aborted_transactions"]:
                row["aborted"] = aborted_columns(element["aborted_transactions"])
            if side.code is not None and side is self.sides[1]:
                code = element[side.code]
            if side.acknowledged is not None:
                code = code or element[side.acknowledged]
            if side.names_leader and code in ELSEWHERE:
                row |= leader_columns(element["current_leader"])
        if code:
            row["error"] = error_name(code)
            if seen.kproxy_made(code):
                row["error_by"] = "kproxy"
        if "base_offset" in row and "last_offset" not in row and row.get("records"):
            row["last_offset"] = row["base_offset"] + row["records"] - 1
        if row.get("last_offset", 0) > LAST_OFFSET:
            del row["last_offset"]
        return row

    def totals(self) -> dict[str, int]:
        """Return the records and bytes of all partitions, where a side that holds records was there."""
        return {"total_records": self.total_records, "total_bytes": self.total_bytes} if self.counted else {}


def first_partitions(topic: ExchangeTopic, most: int) -> list[int]:
    return [number for number, _ in zip(topic.partitions, range(most), strict=False)]


def name_columns(topic: ExchangeTopic, who: Who) -> dict[str, Any]:
    row: dict[str, Any] = {}
    topic_id = None if topic.topic_id is None else str(topic.topic_id)
    name = topic.name
    if name is None and topic_id is not None:
        name = who.topic_of(topic_id)
    if name is not None:
        row["topic"] = plain(name) or ""
        broker_topic = plain(who.broker_topic(name))
        if broker_topic is not None:
            row["broker_topic"] = broker_topic
    if topic_id is not None:
        row["topic_id"] = topic_id
    return row
