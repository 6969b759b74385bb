"""State that connections share: the memory that held frames may take, the mark of kproxy's own questions, and limits.

Memory. A frame that must be held reserves its whole length when its header is read and gives it back once the kernel
has what became of it. A session holds at most one reservation a direction and never waits for a second, and requests
and responses have separate budgets: a held request may wait for the broker, which may wait for its response to be read,
but a response waits only for its own client, whom a write time-out ends. So waiting cannot go round in a circle.
Those who wait are served in the order in which they came.

Mark. Where brokers' addresses lead to kproxy again, by way of other proxies or balancers, each connection makes another
one until there are no descriptors. No address shows that. So kproxy asks each cluster for ApiVersions with a client id
that no other process has; every proxy on the way passes it on, and who gets it back closes the circle. Brokers see that
id, and so does who reads their logs. It is one for each cluster, made with a secret: who has one can have connections
to that cluster refused, which it could do itself, and tells nothing of the id for another.
"""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Protocol

from kproxy.core.holding.desk import HoldingDesk
from kproxy.core.live.partition_session import Room
from kproxy.core.rewrite.context import MOST_NODES
from kproxy.core.rewrite.kept_answers import KeptAnswers
from kproxy.wire.scan.frames import framed
from kproxy.wire.table.api_keys import API_VERSIONS

from .counters import Counters

PREFIX = b"kproxy-circle-"
AT = 10
"""Offset of the client id in a request without its size, header version 1."""
SECRET_BYTES = 16
PROOF = 16
"""Characters that tell the questions of one kproxy, with all its workers, to one cluster from others."""


class Holder(Protocol):
    """Lane that holds a frame; it has reserved `reserved` bytes, or waits for `need`."""

    session: Any
    need: int
    reserved: int


class HeldMemory:
    """Budget of `limit` bytes for held frames, of which `used` are reserved now."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.waiting: deque[tuple[Holder, int]] = deque()

    def reserve(self, lane: Holder, size: int) -> bool:
        """Take `size` bytes now, or join the queue and return False; `release` will then hand the lane out."""
        if self.waiting or self.used + size > self.limit:
            self.waiting.append((lane, size))
            return False
        self.used += size
        return True

    def release(self, size: int) -> list[Holder]:
        """Give `size` bytes back. Returns the lanes that have got theirs by that, in order of waiting."""
        self.used -= size
        granted = []
        while self.waiting and (not self.used or self.used + self.waiting[0][1] <= self.limit):
            lane, wanted = self.waiting.popleft()
            self.used += wanted
            granted.append(lane)
        return granted

    def forget(self, lane: Holder) -> list[Holder]:
        """Take the lane, whose connection has ended, out of the queue; return the lanes that can go on instead."""
        if not self.waiting:
            return []
        self.waiting = deque(entry for entry in self.waiting if entry[0] is not lane)
        return self.release(0)


class CircleMark:
    """Mark on the questions of one kproxy. `on_return(cluster)` is called when one to that cluster has come back."""

    def __init__(self, instance: str = "") -> None:
        self.instance = instance or token_hex(SECRET_BYTES)
        self.on_return: Callable[[str], object] = lambda cluster: None

    def client_id(self, cluster: bytes) -> bytes:
        """Return the client id of questions to that cluster."""
        proof = hmac.digest(self.instance.encode(), cluster, "sha256").hex()[:PROOF]
        return PREFIX + proof.encode() + b"-" + cluster

    def question(self, cluster: str) -> bytes:
        """Return an ApiVersions request of version 0, with its size, which asks if that cluster leads back here."""
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


@dataclass(slots=True)
class Shared:
    """State and limits that the connections of one cluster share."""

    counters: Counters = field(default_factory=Counters)
    requests: HeldMemory = field(default_factory=lambda: HeldMemory(256 << 20))
    responses: HeldMemory = field(default_factory=lambda: HeldMemory(256 << 20))
    cluster_memory: MutableMapping[str, Any] = field(default_factory=dict)
    max_frame_bytes: int = 100 << 20
    hold_up_to: int = 64 << 10
    max_in_flight: int = 1000
    max_nodes: int = MOST_NODES
    mark: CircleMark = field(default_factory=CircleMark)
    room: Room = field(default_factory=Room)
    desk: HoldingDesk = field(default_factory=HoldingDesk)
    answers: KeptAnswers = field(default_factory=KeptAnswers)
