"""Dispatcher of clients: the limits over all workers, the worker with the fewest connections, and the queue of waiting
clients.

Strategy. Few clients that stay for long must be spread evenly, and `SO_REUSEPORT` would spread them by chance. So one
process accepts, which costs it about 20 µs a connection, and hands each to the worker with the fewest; equal workers
take turns. When no worker can take one (all are restarting, or the queues to them are full), it waits here.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from time import monotonic
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from kproxy.app.config.document import Config
from kproxy.runtime.capacity import Capacity, ConnectionCounts, LogThrottle
from kproxy.runtime.listeners.sni_port import OnClient
from kproxy.runtime.protocols import HostPort, host_port, show
from kproxy.runtime.upstreams.dialler import Topology

from .fd_passing import HandedClient
from .pool_worker import PoolWorker
from .worker_pool import WorkerPool

Words = Mapping[str, object]
"""Settings that bind new clients, by the name of their listener; an unchanged listener keeps its object."""

MAX_CROWDING = 64  # clients handed over beyond max_connections; for them workers close connections of other networks
MOST_WAITING = 1024
"""Clients that wait for a worker. Each holds a descriptor; clients beyond the limit are refused at once."""


class Dispatcher:
    """Dispatcher of the supervisor; `arrived` is called for each client. `counts` has the refusals of this process.
    `ports_of` gives the number of a listener's ports."""

    def __init__(
        self,
        config: Config,
        pool: WorkerPool,
        topologies: Mapping[str, Topology],
        counts: ConnectionCounts,
        log: FilteringBoundLogger,
    ) -> None:
        self.pool, self.counts, self.log = pool, counts, log
        self.logs: dict[str, LogThrottle] = {}
        self.ports_of: Callable[[str], int] = lambda listener: 0
        self.words: Words = {}
        self.waiting: deque[tuple[HandedClient, socket.socket]] = deque()
        self.last = 0
        self.use(config, topologies, words_of(config, self.words))
        self.capacity = Capacity(0, self.limits.max_connections, self.limits.max_connections)
        self.most_waiting = MOST_WAITING
        self.draining = False
        pool.on_room = self.serve_waiting
        pool.on_returned = self.take_back

    def use(self, config: Config, topologies: Mapping[str, Topology], words: Words) -> None:
        """Put another config in force, for new clients and for those that wait."""
        self.topologies, self.limits, self.words = topologies, config.limits, words
        self.clusters = {listener.name: listener.cluster for listener in config.listeners}
        self.logs = {name: self.log_of(name) for name in self.clusters}
        waiting = list(self.waiting)
        self.waiting.clear()
        self.waiting.extend(self.still_welcome(waiting))

    def log_of(self, listener: str) -> LogThrottle:
        """Return the log of a listener, which may be gone."""
        return self.logs.get(listener) or LogThrottle(self.log.bind(listener=listener))

    def entrances(self, words: Words) -> dict[str, OnClient]:
        """Return the handlers for the clients of each listener, valid while their listener's settings are in force."""
        return {name: partial(self.arrived_by, word, name) for name, word in words.items()}

    def arrived_by(self, word: object, listener: str, node: int | None, sock: socket.socket, address: Any) -> None:
        """Accept a client that connected under these settings (`word`) of its listener. Another config may be in force
        by now, because the client may have had to send first bytes."""
        if self.words.get(listener) is word:
            self.arrived(listener, node, sock, address)
        elif listener in self.words:
            why = f"listener {listener} has other settings by now"
            self.refuse(listener, sock, client_of(address), "listener_changed", why)
        else:
            self.refuse_gone(listener, sock, client_of(address))

    def refuse_gone(self, listener: str, sock: socket.socket, client: HostPort) -> None:
        self.refuse(listener, sock, client, "listener_removed", f"listener {listener} is no longer there")

    def still_welcome(
        self, clients: Iterable[tuple[HandedClient, socket.socket]]
    ) -> Iterator[tuple[HandedClient, socket.socket]]:
        """Refuse clients of removed or moved listeners, and yield the others, without the places of forgotten nodes."""
        for handed, sock in clients:
            cluster = self.clusters.get(handed.listener)
            if cluster is None or handed.ports != self.ports_of(handed.listener):
                self.refuse_gone(handed.listener, sock, handed.client)
            elif handed.topology != self.topologies[cluster].number:
                yield msgspec.structs.replace(handed, broker=None), sock
            else:
                yield handed, sock

    def admit(self, capacity: Capacity) -> None:
        """Set the maximum number of connections of a process; in this process they only wait."""
        self.capacity = capacity.times(len(self.pool.workers))
        self.most_waiting = min(MOST_WAITING, capacity.connections)

    @property
    def connections(self) -> int:
        """Return the number of connections of all clients, including waiting ones."""
        return len(self.waiting) + sum(worker.ledger.connections for worker in self.pool.workers)

    def arrived(self, listener: str, node: int | None, sock: socket.socket, address: Any) -> None:
        """Take a client that has connected; `address` is in the socket module's form."""
        client = client_of(address)
        refusal = self.refusal(client)
        if refusal is not None:
            self.refuse(listener, sock, client, *refusal)
            return
        topology = self.topologies[self.clusters[listener]]
        broker = None if node is None else topology.nodes.get(node)
        ports = self.ports_of(listener)
        full = self.connections >= self.capacity.connections
        handed = HandedClient(listener, node, sock.family, client, broker, ports, topology.number, full)
        if (full or not self.waiting) and self.hand(handed, sock):
            return
        if full:
            self.refuse(listener, sock, client, "max_connections", self.capacity.reason)
        else:
            self.wait(handed, sock)

    def refusal(self, client: HostPort) -> tuple[str, str] | None:
        """Return (cause, reason) if a connection from there may not begin now. None: it may, or a worker decides."""
        limits = self.limits
        if self.connections >= self.capacity.connections + MAX_CROWDING:
            return "max_connections", self.capacity.reason
        most = limits.max_connections_per_address
        if most and self.connections_from(client[0]) >= most:
            return "max_connections_per_address", f"{client[0]} has {most} connections, no more are allowed"
        return ("shutdown", "kproxy is shutting down") if self.draining else None

    def connections_from(self, host: str) -> int:
        """Return the number of connections of all clients at `host`."""
        waiting = sum(handed.client[0] == host for handed, _ in self.waiting)
        return waiting + sum(worker.ledger.of(host) for worker in self.pool.workers)

    def refuse(self, listener: str, sock: socket.socket, client: HostPort, cause: str, why: str) -> None:
        self.counts.refused[cause] += 1
        self.log_of(listener).warning("connection refused", key=cause, cause=cause, reason=why, client=show(client))
        sock.close()

    def hand(self, handed: HandedClient, sock: socket.socket) -> bool:
        """Hand the client to the worker with the fewest connections; return False if no worker can take it now."""
        for worker in self.best_first():
            if worker.queue.put(handed, sock):
                self.last = worker.index
                worker.ledger.hand(handed.client[0], monotonic())
                return True
        return False

    def best_first(self) -> list[PoolWorker]:
        """Return the workers that are ready, the most responsive first; equal ones take turns."""
        count, last = len(self.pool.workers), self.last
        ready = [worker for worker in self.pool.workers if worker.ready and not worker.behind]
        ready.sort(key=lambda one: (one.silent, one.ledger.connections, (one.index - last - 1) % count))
        return ready

    def wait(self, handed: HandedClient, sock: socket.socket) -> None:
        if len(self.waiting) >= self.most_waiting:
            why = f"no worker can take it, and {self.most_waiting} connections wait for one"
            self.refuse(handed.listener, sock, handed.client, "no_worker", why)
        else:
            self.waiting.append((handed, sock))

    def serve_waiting(self, worker: PoolWorker) -> None:
        """Hand out waiting clients, because a worker may be able to take some."""
        while self.waiting and self.hand(*self.waiting[0]):
            self.waiting.popleft()

    def take_back(self, worker: PoolWorker) -> None:
        """Give the connections that this worker has not taken to others: it has died, or does not answer."""
        back = list(worker.queue.take_back())
        for _ in back:
            worker.ledger.take_back()
        for handed, sock in self.still_welcome(back):
            if not self.hand(handed, sock):
                self.wait(handed, sock)

    def drain(self) -> None:
        self.draining = True
        while self.waiting:
            handed, sock = self.waiting.popleft()
            self.refuse(handed.listener, sock, handed.client, "shutdown", "kproxy is shutting down")


def client_of(address: Any) -> HostPort:
    """Return the address of a client, given in the socket module's form."""
    client: HostPort = address if len(address) == 2 else host_port(address)
    return client


def words_of(config: Config, before: Words) -> Words:
    """Return the settings objects that bind clients of each listener; an unchanged listener keeps its object of
    `before`."""
    words: dict[str, object] = {}
    marks = config.marks()
    for one in config.listeners:
        ages = {"max_connection_age": None, "max_connection_age_jitter": None}
        word = one.model_copy(update=ages), config.clusters[one.cluster], marks[one.cluster]
        known = before.get(one.name)
        words[one.name] = known if known == word else word
    return words
