"""Histories made by hand: exchanges of clients with a cluster, each with its time, as `kproxy.tools.verify` takes them.

history = History()
history.write(1.0, batch(b"a"), base=0)
history.read(2.0, 0, (0, batch(b"b")))
history.findings()                          {"inconsistent-offset": "proved"}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from kproxy.cli.verify_input import over
from kproxy.protocol.codec import structs
from kproxy.protocol.records import Control, Producer, Record, encode_batch, encode_control
from kproxy.protocol.table import layout
from kproxy.record.captures.pairs import BothSides
from kproxy.record.exchange import Form, ObservedExchange
from kproxy.tools.verify import Verdict, Verifier, VerifyTerms
from kproxy.tools.verify.cluster import COORDINATORS_LOGS
from kproxy.tools.verify.view import ViewVerifier
from tests.support.exchange_factory import Somebody, exchange
from tests.support.frames import fetch_body, fetched_body, produce_body, produced_body

TOPIC = "orders"
TOPIC_ID = UUID("3f2504e0-4f89-11d3-9a0c-0305e82c3301")
NOW = 1_795_262_400_000
PRODUCER, CONSUMER = (
    Somebody(1, client_port=50001, client_id="writer"),
    Somebody(2, client_port=50002, client_id="reader"),
)
COORDINATOR = Somebody(3, client_port=50003, client_id="reader", node=2)
Stored = tuple[int, bytes]
"""Offset at which a batch is, and its bytes."""


def batch(
    *values: bytes,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
    at: int = 0,
    codec: int = 0,
) -> bytes:
    """Return a batch of these values as it is sent. `producer`: id, epoch and sequence; `at`: milliseconds."""
    records = [Record(offset, NOW + at, None, value) for offset, value in enumerate(values)]
    who = Producer() if producer is None else Producer(*producer, transactional)
    return encode_batch(records, producer=who, codec=codec)


def marker(producer_id: int, epoch: int, *, commit: bool) -> bytes:
    """Return the batch with which a coordinator ends a transaction."""
    record = encode_control(Control(int(commit), {"version": 0, "coordinator_epoch": 0}), 0, NOW)
    return encode_batch([record], producer=Producer(producer_id, epoch, -1, True), control=True)


def thinned(*values: bytes, last: int) -> bytes:
    """Return a batch of these values that takes the offsets up to `last`, as compaction leaves one."""
    records = [Record(offset, NOW, None, value) for offset, value in enumerate(values)]
    return encode_batch(records, last_offset_delta=last)


def stored(*batches: Stored) -> bytes:
    """Return a records field with these batches at these offsets."""
    return b"".join(offset.to_bytes(8, "big") + data[8:] for offset, data in batches)


def records_in(data: bytes) -> int:
    """Return how many offsets the first batch in these bytes takes."""
    return int.from_bytes(data[23:27], "big") + 1


class History:
    """History of exchanges. `known`: Metadata has the topic's id first and last; otherwise it may be another topic.
    `compacted`: the policy in DescribeConfigs first and last; None for no DescribeConfigs. `unclean`: the election
    setting there, None for none. `by_clock`: the record is in
    the order of the times; otherwise in that of the calls. `strangers`: responses without a request, at its end."""

    def __init__(
        self, *, known: bool = True, compacted: bool | None = False, unclean: bool | None = False, by_clock: bool = True
    ) -> None:
        self.pairs: list[BothSides] = []
        self.by_clock = by_clock
        self.known, self.compacted, self.unclean, self.over = known, compacted, unclean, False
        self.strangers = self.epoch = self.log_epoch = 0
        self.ends: list[tuple[float, int]] = []
        if known:
            self.metadata(0.1)
        if compacted is not None:
            self.configs(0.2, compacted)

    def add(
        self, at: float, api: str, version: int, request: Mapping[str, Any], response: Mapping[str, Any] | None, *,
        who: Somebody = CONSUMER, took: float = 0.02, rules: tuple[str, ...] = (), by_rule: bool = False,
        behind: Mapping[str, Any] | None = None, form: Form = Form.WHOLE,
    ) -> ObservedExchange:  # fmt: skip
        """Add an exchange that begins at this second. `behind`: the response that the broker gave, if it is another."""
        number = len(self.pairs) + 1
        if api == "DeleteTopics":
            self.ends.clear()
        seen = exchange(api, version, request, response, who=who, at=at, number=number, form=form)
        seen.rules, seen.answered_by_rule = list(rules), by_rule
        if seen.response is not None:
            seen.response.first = seen.response.last = at + took
        other = None
        if behind is not None:
            other = exchange(api, version, request, behind, who=who, at=at, number=number)
        self.pairs.append(BothSides(seen, other))
        return seen

    def elect(self) -> None:
        """Raise the leader epochs in later Metadata responses, as leader elections do."""
        self.epoch, self.log_epoch = self.epoch + 1, self.log_epoch + 1

    def metadata(
        self, at: float, topic_id: UUID = TOPIC_ID, epoch: int | None = None, *, who: Somebody = CONSUMER
    ) -> None:
        """Add a Metadata with the topic's id and the leader epochs. `epoch`: of the topic, None for the last one."""
        if topic_id != TOPIC_ID:
            self.ends.clear()
        self.epoch = self.epoch if epoch is None else epoch
        parts = [{"partition_index": 0, "leader_id": 1, "leader_epoch": self.epoch}]
        logs = [
            {"name": name, "partitions": [{"partition_index": 0, "leader_id": 2, "leader_epoch": self.log_epoch}]}
            for name in COORDINATORS_LOGS
        ]
        topic = {"name": TOPIC, "topic_id": topic_id, "partitions": parts}
        self.add(at, "Metadata", 12, {"topics": None}, {"brokers": [], "topics": [topic, *logs]}, who=who)

    def create(self, at: float) -> None:
        """Add a CreateTopics of the topic."""
        asked = {"topics": [{"name": TOPIC, "num_partitions": 1}]}
        self.add(at, "CreateTopics", 7, asked, {"topics": [{"name": TOPIC, "topic_id": TOPIC_ID}]})

    def configs(self, at: float, compacted: bool, *, who: Somebody = CONSUMER) -> None:
        """Add a DescribeConfigs of the topic, and of the coordinators' topics, which are compacted."""
        policies = {TOPIC: "compact" if compacted else "delete"} | dict.fromkeys(COORDINATORS_LOGS, "compact")
        asked, told = [], []
        for name, policy in policies.items():
            values = {"cleanup.policy": policy}
            if self.unclean is not None:
                values["unclean.leader.election.enable"] = str(self.unclean).lower()
            configs = [{"name": config, "value": value} for config, value in values.items()]
            asked.append({"resource_type": 2, "resource_name": name, "configuration_keys": None})
            told.append({"resource_type": 2, "resource_name": name, "configs": configs})
        self.add(at, "DescribeConfigs", 2, {"resources": asked}, {"results": told}, who=who)

    def write(
        self, at: float, data: bytes, base: int | None = 0, *, error: int = 0, acks: int = -1, who: Somebody = PRODUCER,
        behind: int | None = None, **more: Any,
    ) -> None:  # fmt: skip
        """Add a Produce. `base`: the offset it was given, None: no answer came. `behind`: the broker's answer."""
        request = produce_body((TOPIC, 0, data), acks=acks)
        response = None if base is None else produced_body(TOPIC, offset=base, error=error)
        other = None if behind is None else produced_body(TOPIC, offset=behind)
        if base is not None and not error:
            self.end_at(at, base + records_in(data))
        self.add(at, "Produce", 9, request, response, who=who, behind=other, **more)

    def read(
        self, at: float, position: int, *batches: Stored, high: int | None = None, stable: int = 1000, start: int = 0,
        committed: bool = False, aborted: tuple[tuple[int, int], ...] = (), behind: tuple[Stored, ...] | None = None,
        version: int = 11, epoch: int = -1, error: int = 0, **more: Any,
    ) -> None:  # fmt: skip
        """Add a Fetch from this offset. `behind`: batches of the broker's response. `epoch`: leader epoch in the
        request. `high`: the high watermark; None for the end of all records in the history up to this second."""
        ends = [base + records_in(data) for base, data in batches]
        end = self.end_at(at, *([position, *ends] if high is None else [high]))
        high = end if high is None else high
        request = fetch_body(TOPIC, offset=position, isolation_level=int(committed))
        if version >= 9:
            request["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
        if version >= 7:
            request["session_epoch"] = -1

        def answer(found: tuple[Stored, ...]) -> dict[str, Any]:
            body = fetched_body((TOPIC, 0, stored(*found)), high_watermark=high)
            fields = {"last_stable_offset": stable} | ({"log_start_offset": start} if version >= 5 else {})
            fields |= {"error_code": error}
            lists = [{"producer_id": one, "first_offset": first} for one, first in aborted]
            body["responses"][0]["partitions"][0] |= fields | {"aborted_transactions": lists}
            return body

        other = None if behind is None else answer(behind)
        self.add(at, "Fetch", version, request, answer(batches), behind=other, **more)

    def refused_read(self, at: float, position: int, **more: Any) -> None:
        """Add a Fetch from this offset that receives OFFSET_OUT_OF_RANGE."""
        self.read(at, position, error=1, high=-1, stable=-1, start=-1, **more)

    def bound(
        self, at: float, offset: int, *, time: int = -1, committed: bool = False, version: int = 5, **more: Any
    ) -> None:
        """Add a ListOffsets that reports this offset. `time`: -1 requests the end of the log, -2 its start."""
        part = {"partition_index": 0, "timestamp": time}
        request = {
            "replica_id": -1,
            "isolation_level": int(committed),
            "topics": [{"name": TOPIC, "partitions": [part]}],
        }
        parts = [{"partition_index": 0, "offset": offset}]
        self.add(at, "ListOffsets", version, request, {"topics": [{"name": TOPIC, "partitions": parts}]}, **more)

    def delete_records(self, at: float, offset: int, *, error: int = 0, **more: Any) -> None:
        """Add a DeleteRecords of all records below this offset."""
        request = {
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": offset}]}],
            "timeout_ms": 1,
        }
        parts = [{"partition_index": 0, "low_watermark": -1 if error else offset, "error_code": error}]
        self.add(at, "DeleteRecords", 1, request, {"topics": [{"name": TOPIC, "partitions": parts}]}, **more)

    def share(self, at: float, *batches: Stored, acquired: tuple[tuple[int, int], ...] = (), **more: Any) -> None:
        """Add a ShareFetch of group g that brings these batches, of which it acquires these offsets."""
        part = {"partition_index": 0, "records": stored(*batches), "acquired_records": [
            {"first_offset": first, "last_offset": last, "delivery_count": 1} for first, last in acquired]}  # fmt: skip
        asked = {"group_id": "g", "member_id": "m", "topics": []}
        told = {"responses": [{"topic_id": TOPIC_ID, "partitions": [part]}]}
        self.add(at, "ShareFetch", 1, asked, told, **more)

    def commit(
        self, at: float, offset: int, *, answered: bool = True, error: int = 0, generation: int = 1, member: str = "",
        **more: Any,
    ) -> None:  # fmt: skip
        """Add an OffsetCommit of group g."""
        parts = [{"partition_index": 0, "committed_offset": offset}]
        request = {
            "group_id": "g",
            "generation_id_or_member_epoch": generation,
            "member_id": member,
            "topics": [{"name": TOPIC, "partitions": parts}],
        }
        response = {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "error_code": error}]}]}
        self.add(at, "OffsetCommit", 8, request, response if answered else None, **({"who": COORDINATOR} | more))

    def told(self, at: float, offset: int, *, stable: bool = False, **more: Any) -> None:
        """Add an OffsetFetch of group g that reports this offset. `stable`: with `require_stable`."""
        asked = {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
        parts = [{"partition_index": 0, "committed_offset": offset}]
        told = {"group_id": "g", "topics": [{"name": TOPIC, "partitions": parts}]}
        self.add(
            at,
            "OffsetFetch",
            8,
            {"groups": [asked], "require_stable": stable},
            {"groups": [told]},
            **({"who": COORDINATOR} | more),
        )

    def init(self, at: float, producer_id: int, epoch: int) -> None:
        """Add an InitProducerId that gives this epoch."""
        self.add(at, "InitProducerId", 4, {"transactional_id": "t", "transaction_timeout_ms": 1000},
                 {"producer_id": producer_id, "producer_epoch": epoch}, who=PRODUCER)  # fmt: skip

    def end(
        self, at: float, producer_id: int, epoch: int, *, commit: bool, version: int = 3, error: int = 0,
        answered: bool = True, who: Somebody = PRODUCER,
    ) -> None:  # fmt: skip
        """Add an EndTxn."""
        request = {"transactional_id": "t", "producer_id": producer_id, "producer_epoch": epoch, "committed": commit}
        response = {"error_code": error}
        if version >= 5:
            response |= {"producer_id": producer_id, "producer_epoch": epoch + 1}
        self.add(at, "EndTxn", version, request, response if answered else None, who=who)

    def txn_commit(self, at: float, offset: int, producer_id: int = 7, epoch: int = 0, **more: Any) -> None:
        """Add a TxnOffsetCommit of group g."""
        parts = [{"partition_index": 0, "committed_offset": offset}]
        request = {"transactional_id": "t", "group_id": "g", "producer_id": producer_id, "producer_epoch": epoch,
                   "topics": [{"name": TOPIC, "partitions": parts}]}  # fmt: skip
        self.add(
            at, "TxnOffsetCommit", 3, request,
            {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}, **more,
        )  # fmt: skip

    def close(self) -> None:
        """Add the last Metadata and DescribeConfigs, unless the history has them or is to have none."""
        last = max((pair.front.request.last for pair in self.pairs if pair.front and pair.front.request), default=0.0)
        if not self.over and self.known:
            self.metadata(last + 20)
        if not self.over and self.compacted is not None:
            self.configs(last + 20.1, self.compacted)
        self.over = True

    def end_at(self, at: float, *ends: int) -> int:
        """Return the end of the log at this second, after these ends are added to it."""
        self.ends += [(at, end) for end in ends]
        return max((end for time, end in self.ends if time <= at), default=0)

    def verdict(self, **terms: Any) -> Verdict:
        """Return the verdict of this history, notes included."""
        self.close()
        pairs = sorted(self.pairs, key=over) if self.by_clock else self.pairs
        verifier = Verifier(VerifyTerms(**({"level": "note"} | terms)))
        for pair in pairs:
            verifier.add(pair)
        verifier.strangers = self.strangers
        return verifier.verdict()

    def findings(self, **terms: Any) -> dict[str, str]:
        """Return the level of each check that found something."""
        return {one.check: one.level for one in reversed(self.verdict(**terms).findings)}


def clients_view(verifier: Verifier, cluster: str | None = PRODUCER.cluster) -> ViewVerifier:
    known = verifier.cluster(cluster)
    assert known is not None
    assert known.clients is not None
    return known.clients


def assignment(*numbers: int) -> bytes:
    """Return an assignment of partitions of the topic, as the consumer protocol writes it."""
    body = {"assigned_partitions": [{"topic": TOPIC, "partitions": list(numbers)}], "user_data": None}
    return b"\0\1" + structs.encode(layout.embedded("consumer_assignment", 1), body)
