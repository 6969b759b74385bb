"""Facts of exchanges with coordinators: commits, group members and their partitions, producers and transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kproxy.base.errors import DecodeError
from kproxy.protocol.codec import structs
from kproxy.protocol.elements import topic_walk
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import OFFSET_COMMIT, OFFSET_FETCH

from .facts import (
    AssignmentFact,
    CommitFact,
    DeletionFact,
    Fact,
    FencedFact,
    FetchedCommitFact,
    JoinFact,
    MemberEpochFact,
    MemberFact,
    OwnedPartition,
    OwnershipFact,
    PartitionPlace,
    PartitionsAddedFact,
    ProducerFact,
    TransactionEndFact,
    VersionsFact,
)
from .read_exchange import ReadExchange, codes, coordinator_result

FENCED = codes("PRODUCER_FENCED")
ASSIGNMENT = "consumer_assignment"
VERSION_SIZE = 2


def commits(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield a CommitFact for each partition of an OffsetCommit or TxnOffsetCommit, and its member epoch."""
    request, witness = exchange.request, exchange.witness
    group = exchange.group(request["group_id"])
    if group is None or in_zookeeper(exchange.key, exchange.version):
        return
    generation = request.get("generation_id_or_member_epoch", request.get("generation_id", -1))
    producer = (request["producer_id"], request["producer_epoch"]) if "producer_id" in request else None
    errors = exchange.errors()
    for part, place in exchange.asked():
        error = None if errors is None else errors.get(place)
        offset = part.fields["committed_offset"]
        yield CommitFact(witness, group, place, offset, coordinator_result(error), generation, producer)
        if producer is not None and error in FENCED:
            yield FencedFact(witness, *producer)
    if errors and 0 in errors.values():
        yield from accepted_epoch(exchange, group, request.get("member_id"), generation, commit=True)


def accepted_epoch(
    exchange: ReadExchange, group: str, member_id: Any, epoch: int, *, stored: bool = False, commit: bool = False
) -> Iterator[Fact]:
    """Yield the generation of a member that the coordinator accepted, if both are known."""
    member = exchange.text(member_id)
    if member and epoch >= 0:
        yield MemberEpochFact(exchange.witness, group, member, epoch, stored, commit)


def fetched_commits(exchange: ReadExchange) -> Iterator[Fact]:
    stable = bool(exchange.request.get("require_stable"))
    walk = topic_walk(exchange.key, exchange.version, "response")
    response = exchange.response
    if walk is None or response is None or response.get("error_code") or in_zookeeper(exchange.key, exchange.version):
        return
    for topic in walk.find(response):
        around: dict[str, Any] = topic.around or exchange.request
        group = exchange.group(around["group_id"])
        if group is None or (topic.around is not None and topic.around["error_code"]):
            continue
        for part in walk.inside(topic):
            place = exchange.place(part)
            if place is not None and not part.error_code:
                yield FetchedCommitFact(exchange.witness, group, place, part.fields["committed_offset"], stable)


def in_zookeeper(key: int, version: int) -> bool:
    """True if commits of this version are stored in ZooKeeper, where later versions do not find them."""
    return version == 0 and key in (OFFSET_COMMIT, OFFSET_FETCH)


def deleted_groups(exchange: ReadExchange) -> Iterator[Fact]:
    for name in map(exchange.group, exchange.request["groups_names"] or ()):
        if name:
            yield DeletionFact(exchange.witness, None, name)


def deleted_commits(exchange: ReadExchange) -> Iterator[Fact]:
    group = exchange.group(exchange.request["group_id"])
    for topic in exchange.request["topics"] or ():
        name = exchange.topic(topic["name"])
        if group and name:
            yield DeletionFact(exchange.witness, name, group)


def joins(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield a JoinGroup, and the generation if its response has no error."""
    request = exchange.request
    group, member = exchange.group(request["group_id"]), exchange.text(request["member_id"])
    if group is not None and member is not None:
        timeout = max(request.get("rebalance_timeout_ms", request["session_timeout_ms"]), 0) / 1000
        joined = exchange.response or {}
        yield JoinFact(
            exchange.witness, group, member, exchange.text(request["protocol_type"]) or "", timeout,
            joined.get("generation_id", -1), exchange.text(joined.get("protocol_name")) or "",
        )  # fmt: skip
        if joined and not joined["error_code"]:
            yield from accepted_epoch(exchange, group, joined["member_id"], joined["generation_id"])


def assignments(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the generation of a SyncGroup, and the assignments of a classic group's leader."""
    request, response = exchange.request, exchange.response
    group = exchange.group(request["group_id"])
    if group is None:
        return
    if response is not None and not response["error_code"]:
        # The coordinator responds once the leader's assignments are stored.
        yield from accepted_epoch(exchange, group, request["member_id"], request["generation_id"], stored=True)
    if not request["assignments"]:
        return
    members: dict[str, list[PartitionPlace]] = {}
    for one in request["assignments"]:
        member = exchange.text(one["member_id"])
        places = assigned(exchange, one["assignment"])
        if member is not None and places is not None:
            members[member] = places
    protocol_type, protocol = request.get("protocol_type") or "", request.get("protocol_name") or ""
    error = None if response is None else response["error_code"]
    yield AssignmentFact(
        exchange.witness, group, request["generation_id"], protocol_type, protocol, members, coordinator_result(error)
    )


def assigned(exchange: ReadExchange, data: Any) -> list[PartitionPlace] | None:
    """Partitions in an assignment of the consumer protocol; None if it is malformed. `data` may be null."""
    written = bytes(data or b"")
    version = int.from_bytes(written[:VERSION_SIZE], "big", signed=True)
    if len(written) < VERSION_SIZE or version < 0:
        return None
    newest = schema.embedded()[ASSIGNMENT].versions.last
    struct = layout.embedded(ASSIGNMENT, min(version, newest))
    try:
        body, end = structs.decode(struct, written, VERSION_SIZE, api=ASSIGNMENT, version=version)
    except DecodeError:
        return None
    if end != len(written) and version <= newest:
        return None
    return [
        PartitionPlace(name, number)
        for topic in body["assigned_partitions"] or ()
        if (name := exchange.topic(topic["topic"]))
        for number in topic["partitions"] or ()
    ]


def heartbeats(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the heartbeat of a classic member, and its generation if the response has no error."""
    request, response = exchange.request, exchange.response
    group, member = exchange.group(request["group_id"]), exchange.text(request["member_id"])
    if group is not None and member:
        yield MemberFact(exchange.witness, group, member, left=False)
        if response is not None and not response["error_code"]:
            yield from accepted_epoch(exchange, group, member, request["generation_id"])


def leaves(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the members of a classic group that left successfully."""
    request, response = exchange.request, exchange.response
    group = exchange.group(request["group_id"])
    if group is None or response is None or response["error_code"]:
        return
    members = [one["member_id"] for one in response.get("members") or () if not one["error_code"]]
    for member in members if "members" in request else [request["member_id"]]:
        if exchange.text(member):
            yield MemberFact(exchange.witness, group, member, left=True)


def ownerships(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the member epoch and the partitions in a ConsumerGroupHeartbeat (KIP-848)."""
    request, response = exchange.request, exchange.response
    group, member = exchange.group(request["group_id"]), exchange.text(request["member_id"])
    if group is None or member is None:
        return
    owned = given = None
    if request["topic_partitions"] is not None:
        owned = by_id(exchange, request["topic_partitions"])
    epoch = request["member_epoch"]
    accepted = response is not None and not response["error_code"]
    if response is not None:
        member = exchange.text(response["member_id"]) or member
        if response["assignment"] is not None:
            given = by_id(exchange, response["assignment"]["topic_partitions"])
    if not member:
        return
    gone = epoch < 0 or (response is not None and not accepted)
    yield OwnershipFact(exchange.witness, group, member, owned, given, gone, epoch, accepted)
    if response is not None and accepted:
        yield MemberEpochFact(
            exchange.witness, group, member, response["member_epoch"], stored=True, requested=epoch
        )  # fmt: skip


def by_id(exchange: ReadExchange, topics: list[dict[str, Any]]) -> list[OwnedPartition]:
    return [
        OwnedPartition(str(one["topic_id"]), exchange.place_by_id(one["topic_id"], number))
        for one in topics or ()
        for number in one["partitions"] or ()
    ]


def given_epochs(exchange: ReadExchange) -> Iterator[Fact]:
    request, response = exchange.request, exchange.response
    transactional_id = exchange.transactional_id(request["transactional_id"])
    if (
        response is None
        or response["error_code"]
        or (transactional_id is None) != (request["transactional_id"] is None)
    ):
        return
    yield ProducerFact(
        exchange.witness, response["producer_id"], response["producer_epoch"],
        transactional_id=transactional_id, expected=request.get("producer_id", -1) >= 0,
        keeps=bool(request.get("keep_prepared_txn")), named=exchange.true_names,
    )  # fmt: skip


def added_partitions(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the partitions that a producer adds to its transaction. Requests of brokers are ignored."""
    request, response = exchange.request, exchange.response
    if "v3_and_below_topics" not in request:
        return
    producer = request["v3_and_below_producer_id"], request["v3_and_below_producer_epoch"]
    errors: dict[tuple[str, int], int] = {}
    for topic in (response or {}).get("results_by_topic_v3_and_below") or ():
        for one in topic["results_by_partition"] or ():
            errors[topic["name"], one["partition_index"]] = one["partition_error_code"]
    if not FENCED.isdisjoint(errors.values()):
        yield FencedFact(exchange.witness, *producer)
    places = [
        PartitionPlace(name, number)
        for topic in request["v3_and_below_topics"] or ()
        if (name := exchange.topic(topic["name"]))
        for number in topic["partitions"] or ()
    ]
    failed = None if response is None else next((error for error in errors.values() if error), 0)
    yield PartitionsAddedFact(exchange.witness, *producer, places, coordinator_result(failed))


def added_offsets(exchange: ReadExchange) -> Iterator[Fact]:
    error = None if exchange.response is None else exchange.response["error_code"]
    producer = exchange.request["producer_id"], exchange.request["producer_epoch"]
    if error in FENCED:
        yield FencedFact(exchange.witness, *producer)
    yield PartitionsAddedFact(exchange.witness, *producer, [], coordinator_result(error))


def ended_transactions(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the end of a transaction, and the next epoch if the response has one."""
    request, response, witness = exchange.request, exchange.response, exchange.witness
    producer = request["producer_id"], request["producer_epoch"]
    error = None if response is None else response["error_code"]
    next_producer = (
        (-1, -1) if response is None else (response.get("producer_id", -1), response.get("producer_epoch", -1))
    )
    own_epoch = next_producer == (producer[0], producer[1] + 1)
    yield TransactionEndFact(witness, *producer, request["committed"], coordinator_result(error), own_epoch)
    if error in FENCED:
        yield FencedFact(witness, *producer)
    if not error and next_producer[0] >= 0:
        name = exchange.transactional_id(request["transactional_id"])
        yield ProducerFact(
            witness, next_producer[0], next_producer[1], ended=True, transactional_id=name, named=exchange.true_names
        )


def offered_versions(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the versions that a broker offers, unless its response has an error."""
    response = exchange.response
    if response is not None and not response["error_code"] and response["api_keys"]:
        offered = {one["api_key"]: (one["min_version"], one["max_version"]) for one in response["api_keys"]}
        yield VersionsFact(exchange.witness, offered)
