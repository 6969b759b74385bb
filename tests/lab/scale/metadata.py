"""Metadata answer of a very large cluster through a session: bytes held, and time between two places to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from kproxy.session.held_memory import HeldMemory
from kproxy.session.lanes.assembler import Assembler
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.stretches import READ, Stopwatch, Watch

METADATA, VERSION = 3, 12
PER_TOPIC = (100, 1)
"""Partitions of each topic: as clusters have them, and as many names as there can be."""
RENAME = "rules: [{name: names, kind: rename_topic, topics: {'shop-*': 'orders-*'}}]"
WAYS = {
    "ports": ("", lambda node: ("kproxy-0", 10_000 + node)),
    "sni": ("", lambda node: (f"b{node}.kafka.example.com", 443)),
    "ports, topics renamed": (RENAME, lambda node: ("kproxy-0", 10_000 + node)),
}
"""By name: rules, and how a broker appears to clients."""


class PeakMemory(HeldMemory):
    """Budget of held frames that remembers the most that was reserved at a time."""

    peak = 0

    def reserve(self, lane: Assembler, size: int) -> Sequence[Assembler]:
        """Take `size` bytes as the budget does, and keep the peak."""
        granted = super().reserve(lane, size)
        self.peak = max(self.peak, self.used)
        return granted


@dataclass(frozen=True)
class MetadataCost:
    """Cost of one Metadata answer: bytes from the broker, held and to the client; CPU ms in all and in one go, and in
    all for the next client that gets the same."""

    way: str
    came: int
    held: int
    left: int
    total_ms: float
    longest_ms: float
    again_ms: float


def answer_of(brokers: int, partitions: int, per_topic: int) -> bytes:
    """Return the frame with which a broker describes the whole cluster; each partition has three replicas."""
    replicas = [[(number + more) % brokers for more in range(3)] for number in range(per_topic)]
    parts = [
        {"error_code": 0, "partition_index": number, "leader_id": nodes[0], "leader_epoch": 5, "replica_nodes": nodes,
         "isr_nodes": nodes, "offline_replicas": []}
        for number, nodes in enumerate(replicas)
    ]  # fmt: skip
    topics = [
        {"error_code": 0, "name": f"orders-{number:05}", "topic_id": UUID(int=number + 1 | 4 << 76),
         "is_internal": False, "partitions": parts, "topic_authorized_operations": 0}
        for number in range(partitions // per_topic)
    ]  # fmt: skip
    nodes = [
        {"node_id": number, "host": f"broker-{number}.kafka.svc", "port": 9092, "rack": "a"}
        for number in range(brokers)
    ]
    return response(METADATA, VERSION, 1, brokers=nodes, cluster_id="large", controller_id=0, topics=topics)


def measure(way: str, frame: bytes, watch_with: Callable[[], Watch] = Stopwatch) -> MetadataCost:
    """Pass the response through a new session, in pieces as a driver reads them, and through a second client's session.

    `watch_with`: measures the work; the times of its result are in thousandths of its unit.
    """
    rules, place = WAYS[way]
    memory = PeakMemory(256 << 20)
    shared, plan, left, watches = ClusterState(responses=memory), None, [], (watch_with(), watch_with())
    for watch in watches:
        talk = Dialogue(rules, advertise=True, shared=shared, plan=plan)
        plan, talk.nodes = talk.session.plan, place
        talk.client(request(METADATA, VERSION, 1, topics=None))
        with watch:
            talk.broker(frame, READ)
        assert talk.closed is None, talk.closed
        left.append(talk.to_client)
    first, second = watches
    assert left[0] == left[1]
    longest = max(first.longest, second.longest)
    return MetadataCost(
        way, len(frame), memory.peak, len(left[0]),
        *(round(seconds * 1000, 1) for seconds in (first.total, longest, second.total)),
    )  # fmt: skip
