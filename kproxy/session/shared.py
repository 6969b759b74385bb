"""State that the connections of a cluster share: memory for held frames, limits, and the token of loop detection.

Loop detection. If the address of a broker leads back to kproxy through other proxies or balancers, each connection
opens another one until no descriptor is left. Addresses do not show such loops. So kproxy sends each cluster an
ApiVersions request with a client id that no other process uses. Proxies forward it, and a kproxy that receives its own
id has found a loop. Brokers log the id. It depends on the cluster and on a secret: a client that copies it can have
connections to that cluster refused, as it could without it, and cannot derive the id for another cluster.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from kproxy.protocol.framing import framed
from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.rules.exchange import ContentLimits
from kproxy.session.rewrite.context import MOST_NODES, ResponseCache

from .counters import Counters
from .held_frames import HeldRegistry
from .held_memory import HeldMemory
from .partition_session import SessionPartitionLimit

if TYPE_CHECKING:
    from kproxy.rules.content.schemas import SchemaCache
    from kproxy.rules.filter.record_fields import Decoder

PREFIX = b"kproxy-circle-"
AT = 10
"""Offset of the client id in a request without its size, header version 1."""
SECRET_BYTES = 16
PROOF = 16
"""Characters that distinguish the lookups of one kproxy, with all its workers, in one cluster from others."""


class LoopToken:
    """Mark on the questions of one kproxy. `on_return(cluster)` is called when one to that cluster has come back."""

    def __init__(self, instance: str = "") -> None:
        self.instance = instance or token_hex(SECRET_BYTES)
        self.on_return: Callable[[str], object] = lambda cluster: None

    def client_id(self, cluster: bytes) -> bytes:
        proof = hmac.digest(self.instance.encode(), cluster, "sha256").hex()[:PROOF]
        return PREFIX + proof.encode() + b"-" + cluster

    def question(self, cluster: str) -> bytes:
        """Return an ApiVersions request of version 0, with its size, that detects if that cluster leads back here."""
        name = self.client_id(cluster.encode())
        body = API_VERSIONS.to_bytes(2, "big") + bytes(6) + len(name).to_bytes(2, "big") + name
        return framed(body)

    def cluster_of(self, frame: bytes) -> str:
        """Return the cluster that this kproxy sent the client's ApiVersions request to; empty: it did not send it."""
        if not frame.startswith(PREFIX, AT):
            return ""
        name = frame[AT : AT + int.from_bytes(frame[AT - 2 : AT], "big")]
        cluster = name[len(PREFIX) + PROOF + 1 :]
        if not hmac.compare_digest(name, self.client_id(cluster)):
            return ""
        return cluster.decode(errors="replace")


@dataclass(slots=True, eq=False, weakref_slot=True)
class ClusterState:
    """State and limits that the connections of one cluster share."""

    counters: Counters = field(default_factory=Counters)
    requests: HeldMemory = field(default_factory=lambda: HeldMemory(256 << 20))
    responses: HeldMemory = field(default_factory=lambda: HeldMemory(256 << 20))
    cluster_memory: MutableMapping[str, Any] = field(default_factory=dict)
    max_frame_bytes: int = 100 << 20
    buffer_threshold: int = 64 << 10
    max_in_flight: int = 1000
    max_nodes: int = MOST_NODES
    mark: LoopToken = field(default_factory=LoopToken)
    room: SessionPartitionLimit = field(default_factory=SessionPartitionLimit)
    desk: HeldRegistry = field(default_factory=HeldRegistry)
    answers: ResponseCache = field(default_factory=ResponseCache)
    unix_time: Callable[[float], float] = float  # of monotonic seconds; rehearsals have Unix time already
    trace_sample: float = 1.0  # fraction of new traces that are sampled; for new connections
    content: ContentLimits = field(default_factory=ContentLimits)
    decoder: Decoder | None = None  # of keys and values with schemas, for record conditions
    find_schemas: Callable[[], SchemaCache | None] = lambda: None
    """Returns the schemas of the cluster's registry; None if it has none."""
