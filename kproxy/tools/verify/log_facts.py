"""Facts of exchanges about logs and topics: writes, reads, offsets, leader epochs, topic ids and configs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from kproxy.base.errors import RecordsError
from kproxy.protocol.codec.message import Message
from kproxy.protocol.elements import Partition
from kproxy.protocol.records import Batch, LegacyEntry, decode, decode_control
from kproxy.protocol.records.entry import BATCH, RecordHeaders
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import ALTER_CONFIGS, FETCH
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.record.observer.credentials import FILLER
from kproxy.session.partition_session import PartitionSession

from .facts import (
    LAST_OFFSET,
    BatchFact,
    BatchIdentity,
    ConfigsAlteredFact,
    DeletionFact,
    Fact,
    FencedFact,
    FetchPositionFact,
    LeaderEpochFact,
    ListedOffsetFact,
    LogBound,
    Marker,
    OutOfRangeFact,
    PartitionPlace,
    ReadFact,
    RecordsDeletedFact,
    Result,
    SessionFact,
    TopicFact,
    Witness,
    WriteFact,
)
from .read_exchange import ReadExchange, codes

# Errors of a Produce that brokers return before they append, so that nothing was stored. NOT_LEADER_OR_FOLLOWER,
# UNKNOWN_TOPIC_OR_PARTITION and UNKNOWN_TOPIC_ID are also returned for appended batches that wait for replicas.
REFUSED = codes(
    "CORRUPT_MESSAGE", "MESSAGE_TOO_LARGE", "INVALID_TOPIC_EXCEPTION", "RECORD_LIST_TOO_LARGE", "NOT_ENOUGH_REPLICAS",
    "INVALID_REQUIRED_ACKS", "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED",
    "UNKNOWN_PRODUCER_ID", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "INVALID_RECORD",
    "INVALID_TIMESTAMP", "POLICY_VIOLATION", "INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING",
    "UNSUPPORTED_COMPRESSION_TYPE", "TRANSACTION_ABORTABLE", "UNSUPPORTED_VERSION",
)  # fmt: skip
FENCED_WRITES = codes("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
(OUT_OF_RANGE,) = codes("OFFSET_OUT_OF_RANGE")
LATEST, EARLIEST = -1, -2  # ListOffsets timestamps of log bounds
CONSUMER = -1  # replica id of consumers


def write_facts(exchange: ReadExchange) -> Iterator[Fact]:
    witness, acks = exchange.witness, exchange.request["acks"]
    answers = {place: part.fields for part, place in exchange.answered()}
    for part, place in exchange.asked():
        answer = answers.get(place)
        error = None if answer is None else answer["error_code"]
        result = write_result(error)
        base, start, stamped = None, -1, False
        if answer is not None:
            start = answer.get("log_start_offset", -1)
            stamped = answer.get("log_append_time_ms", -1) >= 0
            if result == "ok" and 0 <= answer["base_offset"] <= LAST_OFFSET:
                base = answer["base_offset"]
            yield from leader_epoch(part, place, answer, witness)
        batches = placed(batches_of(exchange, part.records), base or 0)
        yield WriteFact(witness, place, batches, result, base, acks, start, stamped, id_text(part.topic_id))
        if error in FENCED_WRITES:
            fenced = {(one.identity.producer_id, one.identity.epoch) for one in batches if one.transactional}
            yield from (FencedFact(witness, producer_id, epoch) for producer_id, epoch in sorted(fenced))


def write_result(error: int | None) -> Result:
    """Result of a write by its error code; None: no response."""
    if error == 0:
        return "ok"
    return "failed" if error in REFUSED else "open"


def placed(batches: list[BatchFact], base: int) -> list[BatchFact]:
    """Return batches of a request with the offsets that follow from the base offset."""
    found = []
    for one in batches:
        found.append(replace(one, base=base))
        base += one.delta + 1
    return found


def batches_of(exchange: ReadExchange, records: RecordHeaders | None) -> list[BatchFact]:
    """Return the batches of a records field. Malformed ones are counted as damaged."""
    found = []
    for entry in () if records is None else records.entries:
        batch = batch_fact(entry)
        if batch is None:
            exchange.damaged += 1
        elif exchange.records and isinstance(entry, Batch) and not entry.is_control:
            found.append(replace(batch, **contents(entry)))
        else:
            found.append(batch)
    return found


def batch_fact(entry: Batch | LegacyEntry) -> BatchFact | None:
    """Return the fact of a batch header; None if it is malformed."""
    if isinstance(entry, LegacyEntry):
        if not 0 <= entry.offset <= LAST_OFFSET:
            return None
        identity = BatchIdentity(entry.crc, 1, -1, -1, -1)
        return BatchFact(
            entry.offset, 0, identity, entry.attributes, entry.timestamp, entry.timestamp, comparable=False
        )
    base, delta = entry.base_offset, entry.last_offset_delta
    if base < 0 or delta < 0 or entry.count < 0 or base + delta > LAST_OFFSET:
        return None
    identity = BatchIdentity(entry.crc, entry.count, entry.producer_id, entry.producer_epoch, entry.base_sequence)
    marker: Marker = marker_of(entry) if entry.is_control else ""
    oldest, newest = entry.base_timestamp, entry.max_timestamp
    return BatchFact(base, delta, identity, entry.attributes, oldest, newest, marker, entry.is_transactional)


def contents(batch: Batch) -> dict[str, Any]:
    """Return the fields that need the records of a batch; empty if they are unreadable or were not kept."""
    content, ascending, last = 0, True, -1
    try:
        for record in decode(batch):
            content = hash((content, record.key, record.value, record.headers))
            ascending = ascending and record.offset > last
            last = record.offset
    except RecordsError:
        return {}
    return {"content": content, "ascending": ascending}


def marker_of(batch: Batch) -> Marker:
    """Marker of a control batch; "other" if it is unreadable."""
    if len(batch.raw) <= BATCH.size:
        return "other"
    try:
        name = decode_control(next(decode(batch, limit=1000))).name
    except (RecordsError, StopIteration):
        return "other"
    return "commit" if name == "commit" else "abort" if name == "abort" else "other"


def read_facts(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield a ReadFact for each partition of a Fetch response, with its requested position."""
    witness, request, response = exchange.witness, exchange.request, exchange.response
    if is_of_replica(request):
        return
    sessions = exchange.sessions
    session = sessions.request(Message(schema.load(FETCH), exchange.version, {}, request))
    listed = {place: part.fields for part, place in exchange.asked()}
    positions = {place: fields["fetch_offset"] for place, fields in listed.items() if fields["fetch_offset"] >= 0}
    if response is not None and "session_id" in response:
        yield SessionFact(
            witness, request["session_id"], request["session_epoch"], response["error_code"], response["session_id"]
        )
    if isinstance(session, PartitionSession):
        if response is None:
            sessions.forget(session)
        else:
            sessions.response(session, response["error_code"], response["session_id"])
    if response is None or response.get("error_code"):
        yield from (FetchPositionFact(witness, place, position) for place, position in positions.items())
        return
    failed, reads = set(), []
    committed_only = bool(request.get("isolation_level"))
    for part, place in exchange.answered():
        fields = part.fields
        yield from leader_epoch(part, place, fields, witness)
        requested = listed.get(place)
        if requested is None and isinstance(session, PartitionSession):
            requested = session.asked.get((part.name_or_id, part.number))  # type: ignore[arg-type]  # a topic has a name
        position = None if requested is None or requested["fetch_offset"] < 0 else requested["fetch_offset"]
        epoch = -1 if requested is None else requested.get("current_leader_epoch", -1)
        if fields["error_code"]:
            failed.add(place)
            if fields["error_code"] == OUT_OF_RANGE and position is not None:
                yield OutOfRangeFact(witness, place, position, epoch)
            continue
        before = exchange.damaged
        batches = batches_of(exchange, part.records)
        aborted = [(one["producer_id"], one["first_offset"]) for one in fields.get("aborted_transactions") or ()]
        reads.append(
            ReadFact(
                witness, place, position, batches,
                fields["high_watermark"], fields.get("last_stable_offset", -1), fields.get("log_start_offset", -1),
                committed_only, aborted, exchange.damaged > before, id_text(part.topic_id),
                leader_epoch=epoch,
            )
        )  # fmt: skip
    for place, position in positions.items():
        yield FetchPositionFact(witness, place, position, place in failed)
    yield from reads


def shared_reads(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield a ReadFact for each partition in a ShareFetch response, which has batches and no log offsets."""
    if exchange.response is None or exchange.response.get("error_code"):
        return
    for part, place in exchange.answered():
        yield from leader_epoch(part, place, part.fields, exchange.witness)
        before = exchange.damaged
        batches = batches_of(exchange, part.records)
        if not part.fields["error_code"] and (batches or exchange.damaged > before):
            yield ReadFact(
                exchange.witness, place, None, batches, -1, -1, -1, False, [], exchange.damaged > before,
                id_text(part.topic_id), shared=True,
            )  # fmt: skip


def is_of_replica(request: dict[str, Any]) -> bool:
    """True if a Fetch has a broker's replica id. Its response may contain records that are truncated later."""
    state = request.get("replica_state")
    replica: int = request.get("replica_id", CONSUMER) if state is None else state["replica_id"]
    return replica != CONSUMER


def leader_epoch(
    part: Partition, place: PartitionPlace, fields: dict[str, object], witness: Witness
) -> Iterator[LeaderEpochFact]:
    """Yield the leader epoch of a partition in a Produce or Fetch response, if it has one."""
    leader = fields.get("current_leader")
    epoch = leader.get("leader_epoch", -1) if isinstance(leader, dict) else -1
    if epoch >= 0:
        yield LeaderEpochFact(witness, place, id_text(part.topic_id), epoch)


def id_text(topic_id: object) -> str:
    return "" if topic_id is None or topic_id == ZERO_UUID else str(topic_id)


def listed_offsets(exchange: ReadExchange) -> Iterator[Fact]:
    stable = bool(exchange.request.get("isolation_level"))
    times = {} if is_of_replica(exchange.request) else {place: part.fields for part, place in exchange.asked()}
    for part, place in exchange.answered():
        if not part.error_code:
            offset = part.fields.get("offset", -1)
            if offset < 0:
                offset = max(part.fields.get("old_style_offsets") or (-1,))
            if offset >= 0:
                time = times[place]["timestamp"] if place in times else 0
                yield ListedOffsetFact(exchange.witness, place, offset, bound_at(time, stable=stable))


def bound_at(time: int, *, stable: bool) -> LogBound | None:
    """Bound that a ListOffsets timestamp requests. `stable`: the isolation level is read_committed."""
    if time == LATEST:
        return "stable" if stable else "end"
    return "start" if time == EARLIEST else None


def deleted_records(exchange: ReadExchange) -> Iterator[Fact]:
    for part, place in exchange.answered():
        if not part.error_code and part.fields["low_watermark"] >= 0:
            yield RecordsDeletedFact(exchange.witness, place, part.fields["low_watermark"])


TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
POLICY = "cleanup.policy"
COMPACT = "compact"
UNCLEAN = "unclean.leader.election.enable"
OFF = "false"
BROKER_DEFAULTS = (f"log.{POLICY}", UNCLEAN)
UNCLEAN_ELECTION = 1
OVERWRITTEN = FILLER.decode()
GONE = codes("NONE", "REQUEST_TIMED_OUT", "UNKNOWN_SERVER_ERROR")


def topics_in_metadata(exchange: ReadExchange) -> Iterator[Fact]:
    for topic, parts in exchange.answered_topics():
        name, topic_id = exchange.topic(topic.name), id_text(topic.topic_id)
        if not name or topic.fields["error_code"]:
            continue
        if topic_id:
            yield TopicFact(exchange.witness, name, topic_id)
        for part in parts:
            place, epoch = exchange.place(part), part.fields.get("leader_epoch", -1)
            if place is not None and epoch >= 0:
                yield LeaderEpochFact(exchange.witness, place, topic_id, epoch, part.fields["leader_id"])


def created_topics(exchange: ReadExchange) -> Iterator[Fact]:
    if exchange.request.get("validate_only"):
        return
    asked = {one["name"]: one for one in exchange.request["topics"] or ()}
    for topic in (exchange.response or {}).get("topics") or ():
        name = exchange.topic(topic["name"])
        if not name or topic["error_code"]:
            continue
        requested, returned = (asked.get(topic["name"]) or {}).get("configs"), topic.get("configs")
        compacted, unclean = (
            by(requested) if by(returned) is None else by(returned) for by in (compacted_by, unclean_by)
        )
        yield TopicFact(exchange.witness, name, id_text(topic.get("topic_id")), compacted, made=True, unclean=unclean)


def deleted_topics(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield topics that DeleteTopics deleted, or may have."""
    request, response = exchange.request, exchange.response
    asked = [(one["name"], one["topic_id"]) for one in request.get("topics") or ()]
    asked += [(name, None) for name in request.get("topic_names") or ()]
    failed = {
        named(exchange, one["name"], one.get("topic_id"))
        for one in (response or {}).get("responses") or ()
        if one["error_code"] not in GONE
    }
    for name in [named(exchange, *one) for one in asked]:
        if name and name not in failed:
            yield DeletionFact(exchange.witness, name, None)


def named(exchange: ReadExchange, name: str | None, topic_id: UUID | None) -> str | None:
    """Topic name of a name or id in a message; None if unknown."""
    if name:
        return exchange.topic(name)
    return None if topic_id is None else exchange.name_of(topic_id)


def described_configs(exchange: ReadExchange) -> Iterator[Fact]:
    for resource in (exchange.response or {}).get("results") or ():
        name = exchange.topic(resource["resource_name"])
        compacted, unclean = compacted_by(resource["configs"]), unclean_by(resource["configs"])
        if resource["resource_type"] == TOPIC_RESOURCE and name and (compacted, unclean) != (None, None):
            yield TopicFact(exchange.witness, name, "", compacted, unclean=unclean)


def altered_configs(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield topics whose new configs permit the loss of records. A deleted or redacted value may be any. AlterConfigs
    deletes the configs that it does not list."""
    for resource in exchange.request["resources"] or ():
        configs = resource["configs"] or ()
        if resource["resource_type"] == BROKER_RESOURCE and any(one["name"] in BROKER_DEFAULTS for one in configs):
            yield ConfigsAlteredFact(exchange.witness)
        name = exchange.topic(resource["resource_name"])
        if resource["resource_type"] != TOPIC_RESOURCE or not name:
            continue
        compacted, unclean = compacted_by(configs), unclean_by(configs)
        if compacted or unclean:
            yield TopicFact(exchange.witness, name, "", compacted or None, unclean=unclean or None)
        listed = {one["name"] for one in configs}
        unknown = [("compacted", POLICY)] * (compacted is None) + [("unclean", UNCLEAN)] * (unclean is None)
        altered = tuple(one for one, config in unknown if exchange.key == ALTER_CONFIGS or config in listed)
        if altered:
            yield ConfigsAlteredFact(exchange.witness, altered)


def elected_leaders(exchange: ReadExchange) -> Iterator[Fact]:
    if exchange.request.get("election_type") != UNCLEAN_ELECTION:
        return
    topics = exchange.request["topic_partitions"]
    if topics is None:  # all of the cluster
        yield ConfigsAlteredFact(exchange.witness, ("unclean",))
    for name in filter(None, (exchange.topic(one["topic"]) for one in topics or ())):
        yield TopicFact(exchange.witness, name, "", unclean=True)


def compacted_by(configs: Any) -> bool | None:
    """True if these configs compact a topic; None if they lack the policy, or it is redacted."""
    value = value_of(configs, POLICY)
    return None if value is None else COMPACT in value


def unclean_by(configs: Any) -> bool | None:
    """True if these configs permit unclean leader elections; None as for `compacted_by`."""
    value = value_of(configs, UNCLEAN)
    return None if value is None else value.lower() != OFF


def value_of(configs: Any, name: str) -> str | None:
    """Value of a config; None if it is missing or redacted."""
    values = (one.get("value") for one in configs or () if one["name"] == name)
    return next((one for one in values if isinstance(one, str) and one.strip(OVERWRITTEN)), None)
