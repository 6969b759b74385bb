"""Server of the process, with all its listeners and connections: start, limits, and drain."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Literal

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.record.fanout import Fanout
from kproxy.rules.exchange import Facts
from kproxy.rules.kinds.advertise import Advertise
from kproxy.rules.rule_set import Gate, MatchingRules
from kproxy.rules.values.address import network_of
from kproxy.runtime.io.reactor import Reactor, SlowWork
from kproxy.runtime.io.scheduler import Background, work_through
from kproxy.runtime.listeners.listener import Listener
from kproxy.runtime.listeners.port_service import LocalPorts
from kproxy.runtime.upstreams.resolve import OwnPorts
from kproxy.runtime.upstreams.upstream import NodeLocator, Upstream
from kproxy.session.held_frames import HeldRegistry

from .capacity import Capacity, ConnectionCounts, ConnectionPlaces, HalfOpen, LogThrottle, find_capacity, log_capacity
from .cluster_identity import FormerListeners
from .connection import Connection
from .connection_view import MOST_ENDS, ConnectionEnd, report_end
from .drain import Drain, ShutdownDelay
from .network import NO_NETWORK, NetworkChange, Retired, check_bootstrap, end_connections, follow_locators
from .protocols import HostPort, SessionFactory
from .taps import Taps
from .timeouts import MaxAges, Sweep

if TYPE_CHECKING:
    from kproxy.app.config.document import Config
    from kproxy.app.workers.supervisor_client import RemotePorts
    from kproxy.rules.content.schemas import SchemaCache
    from kproxy.session.lanes.services import LaneHost

    from .upstreams.registry import Registries

MANY = 64
"""Connection count that triggers loop detection, as does each doubling of it."""

NO_GATE = Gate(())
Advertises = Callable[[Listener, Facts, MatchingRules | None], "Advertise | Literal[False]"]


def of_listener(listener: Listener, facts: Facts, bound: MatchingRules | None = None) -> Advertise | Literal[False]:
    """Return the `advertise` setting of the listener's config."""
    return listener.config.advertise


class Server:
    """Server of one process. `serve` opens all ports and returns after a drain; `drain` may be called from any task.

    `advertise` returns how brokers appear to a connection and can depend on rules (default: the listener's config).
    `rules`: all values that it can return. `port_service`: accepts clients in another process, if set.
    """

    def __init__(
        self, reactor: Reactor, config: Config, session_factory: SessionFactory, counts: ConnectionCounts,
        log: FilteringBoundLogger, *, advertise: Advertises = of_listener,
        rules: Sequence[Advertise] = (), port_service: RemotePorts | None = None,
    ) -> None:  # fmt: skip
        self.reactor, self.session_factory, self.counts = reactor, session_factory, counts
        self.log: FilteringBoundLogger = log.bind()  # a lazy logger would be built at each call
        self.advertise = advertise
        self.gate: Callable[[], Gate] = lambda: NO_GATE
        """Returns the rules in force for access to the proxy."""
        self.desk = HeldRegistry()
        self.registries: Registries | None = None
        """Schema registries; None until a config has one."""
        self.closes = LogThrottle(self.log)
        self.last_ends: deque[ConnectionEnd] = deque(maxlen=MOST_ENDS)
        self.own: OwnPorts | None = None if port_service is None else port_service.own
        self.locating: dict[str, tuple[NodeLocator, Background]] = {}
        self.limits = config.limits
        self.capacity = Capacity(0, self.limits.max_connections, self.limits.max_connections)  # until `admit`
        self.alone = port_service is None
        self.former = FormerListeners()
        self.many = MANY
        self.on_growth: Callable[[], object] = lambda: None
        self.connections: set[Connection] = set()
        self.places = ConnectionPlaces()
        self.taps = Taps(Fanout(self.log), lambda: self.connections)
        self.taps.slowly = partial(work_through, reactor)
        self.per_address: Counter[str] = Counter()
        self.slow_work = SlowWork(reactor)
        self.half_open = HalfOpen(self.capacity)
        reactor.aside.add_work = self.slow_work.add
        self.draining = self.crowded = False
        self.drains: Drain | None = None
        self.shutdown_delay = ShutdownDelay(self.limits.shutdown_delay, reactor, self.log)
        self.finished = trio.Event()
        self.woken: deque[LaneHost] = deque()
        self.admin_port = None if config.admin is None else config.admin.bind.port
        self.network = NO_NETWORK
        change = NetworkChange(self, config)
        change.commit()
        self.port_service = port_service or self.local_ports(config, rules)
        self.own = self.port_service.own
        self.retired = Retired(self.port_service.prune)
        for upstream in self.upstreams.values():
            upstream.own = self.own
        self.sweep = Sweep(self, MaxAges(config))

    def local_ports(self, config: Config, rules: Sequence[Advertise]) -> LocalPorts:
        arrived = {listener.name: listener.arrived for listener in self.listeners}
        topologies = {name: upstream.topology for name, upstream in self.upstreams.items()}
        return LocalPorts(config, self.reactor, arrived, topologies, self.counts, self.log, rules, self.places)

    def schemas(self, cluster: str | None) -> SchemaCache | None:
        """Return the schemas of a cluster's registry; None if it has none."""
        return None if self.registries is None else self.registries.cache(cluster)

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """Return the clusters of the config in force, by name."""
        return self.network.upstreams

    @property
    def listeners(self) -> list[Listener]:
        """Return the listeners of the config in force, in its order."""
        return list(self.network.listeners.values())

    def is_outdated(self, connection: Connection) -> bool:
        """Return True if the connection's listener was removed, or has a different `word` in the config in force."""
        listener = connection.listener
        current = self.network.listeners.get(listener.name)
        if current is listener:
            return False
        return current is None or current.word != listener.word

    # ---- another config

    def put_in_force(self, change: NetworkChange) -> None:
        """Commit a prepared change for new connections and limits. Connections of removed listeners are drained."""
        before = self.listeners
        self.use_limits(change.config)
        change.commit()
        for listener in before:
            if self.network.listeners.get(listener.name) is not listener:
                self.retired.add(listener)
        for retired in list(self.retired.listeners):
            self.retired.close_unused(retired)
        if any(one.gone is not None for one in (*before, *self.retired.listeners)):
            work_through(self.reactor, end_connections(self, list(self.connections)))

    def use_limits(self, config: Config) -> None:
        """Apply the limits of a config from the next check."""
        before, self.limits = self.limits, config.limits
        if before.max_connections != self.limits.max_connections:
            self.admit(find_capacity(self.limits))
            if self.alone:
                log_capacity(self.capacity, self.limits, self.log)
        if bool(before.max_connections_per_address) != bool(self.limits.max_connections_per_address):
            self.per_address = Counter(each.client_address[0] for each in self.connections)
        self.shutdown_delay.seconds = self.limits.shutdown_delay
        self.port_service.use_limits(self.limits)
        self.sweep.use(MaxAges(config))

    def own_ports(self) -> set[int]:
        ports = {listener.port for listener in self.listeners}
        return ports if self.admin_port is None else ports | {self.admin_port}

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open all ports and serve until a drain is finished. The reactor must run. Raises InternalError or
        DocumentError for a failed start."""
        self.admit(find_capacity(self.limits))
        if self.alone:
            log_capacity(self.capacity, self.limits, self.log)
        try:
            await self.port_service.open()
            check_bootstrap(self.upstreams.values(), self.port_service.own.has)
            follow_locators(self)
            task_status.started()
            await self.finished.wait()
        finally:
            self.close()

    def admit(self, capacity: Capacity) -> None:
        self.capacity = self.half_open.capacity = capacity
        self.port_service.admit(capacity)

    @property
    def handshaking(self) -> int:
        return self.half_open.total

    # ---- connections

    def refusal(self, client: HostPort) -> tuple[str, str] | None:
        """Return (cause, reason) if a connection from this client must be refused now, otherwise None.

        At the connection limit, a connection or handshake of the network with the most is ended to make room for
        another network.
        """
        if self.draining:
            return "shutdown", "kproxy is shutting down"
        most = self.limits.max_connections_per_address
        if most and self.per_address[client[0]] >= most:
            return "max_connections_per_address", f"{client[0]} has {most} connections, no more are allowed"
        taken = len(self.connections) + self.half_open.total + self.port_service.waiting
        full = self.crowded or taken >= self.capacity.connections
        if full and not self.places.make_room(network_of(client[0]), self.capacity.reason):
            return "max_connections", self.capacity.reason
        return None

    def crowd(self, crowded: bool) -> None:
        """Set whether all workers together have reached max_connections, as counted by the supervisor."""
        self.crowded = crowded

    def began(self, connection: Connection) -> None:
        self.connections.add(connection)
        self.places.add(connection)
        connection.listener.connections += 1
        if len(self.connections) > self.many:
            self.grown()
        if self.limits.max_connections_per_address:
            self.per_address[connection.client_address[0]] += 1
        self.counts.opened[connection.listener.name] += 1
        self.sweep.begin(connection)

    def grown(self) -> None:
        """Call `on_growth`, since the number of connections has doubled. In a proxy loop, each connection opens another
        one."""
        self.many = 2 * len(self.connections)
        self.on_growth()

    def swept(self) -> None:
        """Lower the growth threshold after the number of connections has fallen."""
        self.many = max(MANY, min(self.many, 2 * len(self.connections)))

    def report(self, connection: Connection, now: float) -> None:
        """Record the end of a connection, and log it rate-limited."""
        self.last_ends.append(ConnectionEnd(connection, now))
        report_end(connection, now, self.log, self.closes)

    def ended(self, connection: Connection) -> None:
        counts = self.counts
        counts.closed[connection.cause] += 1
        counts.client_bytes += connection.client.got
        counts.broker_bytes += connection.broker.got
        if connection in self.connections:
            self.connections.discard(connection)
            self.places.remove(connection)
        listener = connection.listener
        listener.connections -= 1
        if not listener.connections and listener in self.retired.listeners:
            self.retired.close_unused(listener)
        if self.limits.max_connections_per_address:
            host = connection.client_address[0]
            self.per_address[host] -= 1
            if not self.per_address[host]:
                del self.per_address[host]
        if self.drains is not None:
            self.drains.count(connection)
        if self.draining:
            self.check_finished()

    def bytes(self) -> tuple[int, int]:
        """Return (bytes read from clients, bytes read from brokers), including open connections."""
        return (
            self.counts.client_bytes + sum(each.client.got for each in self.connections),
            self.counts.broker_bytes + sum(each.broker.got for each in self.connections),
        )

    def wake(self, sessions: Sequence[LaneHost]) -> None:
        """Schedule these sessions: they received memory, or are at the head of a quota's queue.

        They never run in the caller's turn. If that turn were suspended, all sessions woken later would wait for it.
        """
        if not self.woken:
            self.reactor.soon(self.wake_all)
        self.woken.extend(sessions)

    def wake_all(self) -> None:
        """Wake the sessions in order, in slices: each may wake others, so there can be thousands."""
        work_through(self.reactor, self.wake_steps())

    def wake_steps(self) -> Iterator[None]:
        while self.woken:
            self.wake_one(self.woken[0], monotonic())
            self.woken.popleft()  # popped afterwards, since `wake` schedules a call if the queue is empty
            yield

    def wake_one(self, session: LaneHost, now: float) -> None:
        try:
            if session.owner is not None:
                session.owner.granted(now)
            else:
                session.granted(now)
        except Exception as error:  # only this connection ends
            self.log.error("a connection cannot be woken", exc_info=error)
            if session.owner is not None:
                session.owner.crashed(error)

    # ---- the end

    def drain(self) -> None:
        """Refuse new connections. Open ones end when they are idle, and all of them after `drain_timeout`."""
        if self.draining:
            return
        self.draining = True
        self.log.info("draining", connections=len(self.connections), timeout=self.limits.drain_timeout)
        self.port_service.close()
        self.reactor.call_at(monotonic() + self.limits.drain_timeout, self.out_of_time)
        self.drains = Drain(self)
        self.drains.start()
        self.for_each(self.connections, lambda connection: connection.drain(monotonic()), self.check_finished)

    def for_each(
        self, connections: Iterable[Connection], act: Callable[[Connection], object],
        done: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        """Call `act` for each of these connections that is still open, in slices, then `done`. An exception ends only
        the connection that caused it."""

        def steps() -> Iterator[None]:
            for connection in every:
                try:
                    if not connection.closed:
                        act(connection)
                except Exception as error:
                    self.log.error("a connection cannot be ended", exc_info=error)
                    connection.crashed(error)
                yield

        every = list(connections)
        work_through(self.reactor, steps(), done)

    def check_finished(self) -> None:
        if self.draining and not self.connections:
            if self.drains is not None:
                self.drains.finish()
            self.reactor.notify(self.finished)

    def out_of_time(self) -> None:
        self.give_up("drain_timeout", f"answers did not come within {self.limits.drain_timeout:g} s")

    def give_up(self, cause: str, reason: str) -> None:
        """End all open connections, even with requests in flight."""
        self.for_each(self.connections, lambda connection: connection.end(cause, reason), self.check_finished)

    def close(self) -> None:
        self.draining = True  # a handshake may complete before its task is cancelled
        self.port_service.close()
        for connection in list(self.connections):
            connection.end("shutdown", "kproxy is stopping")
        if self.registries is not None:
            self.registries.prepare({})()
