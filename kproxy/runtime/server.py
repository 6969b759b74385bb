"""Server of the process, with all its listeners and connections: opening, limits, and the orderly end."""

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
from kproxy.rules.rule_set import BoundRules, Gate
from kproxy.rules.values.address import network_of
from kproxy.runtime.io.reactor import Reactor, SlowWork
from kproxy.runtime.io.scheduler import Background, work_through
from kproxy.runtime.listeners.listener import Listener
from kproxy.runtime.listeners.port_service import LocalPorts, PortService
from kproxy.runtime.upstreams.resolve import OwnPorts
from kproxy.runtime.upstreams.upstream import NodeLocator, Upstream
from kproxy.session.held_frames import HoldingDesk

from .capacity import Capacity, ConnectionCounts, ConnectionPlaces, HalfOpen, LogThrottle, find_capacity, log_capacity
from .cluster_identity import FormerListeners
from .connection import Connection
from .connection_view import MOST_ENDS, ConnectionEnd, report_end
from .drain import Drain, ShutdownDelay
from .network import NO_NETWORK, NetworkChange, Retired, check_bootstrap, end_connections, follow_locators
from .protocols import HostPort, MemoryWaiter, SessionFactory
from .taps import Taps
from .timeouts import MaxAges, Sweep

if TYPE_CHECKING:
    from kproxy.app.config.document import Config

MANY = 64
"""Connections at which, and at each doubling of which, it is asked whether clusters lead back to kproxy."""

NO_GATE = Gate(())
Advertises = Callable[[Listener, Facts, BoundRules | None], "Advertise | Literal[False]"]


def of_listener(listener: Listener, facts: Facts, bound: BoundRules | None = None) -> Advertise | Literal[False]:
    """Return how brokers appear to a connection, as the listener's own config says."""
    return listener.config.advertise


class Server:
    """Server of one process. `serve` opens everything and returns after a drain; `drain` may be called from anywhere.

    `advertise` says how brokers appear to a connection, where rules may have a say; by default the listener's config.
    `rules` are all that it may say. `port_service`: where clients come in, if that is in another process.
    """

    def __init__(
        self, reactor: Reactor, config: Config, session_factory: SessionFactory, counts: ConnectionCounts,
        log: FilteringBoundLogger, *, advertise: Advertises = of_listener,
        rules: Sequence[Advertise] = (), port_service: PortService | None = None,
    ) -> None:  # fmt: skip
        self.reactor, self.session_factory, self.counts = reactor, session_factory, counts
        self.log: FilteringBoundLogger = log.bind()  # a logger that is still lazy would be made anew at each call
        self.advertise = advertise
        self.gate: Callable[[], Gate] = lambda: NO_GATE
        self.desk = HoldingDesk()
        """Gives the rules in force about who may connect."""
        self.closes = LogThrottle(self.log)
        self.last_ends: deque[ConnectionEnd] = deque(maxlen=MOST_ENDS)
        self.own: OwnPorts | None = None if port_service is None else port_service.own
        self.locating: dict[str, tuple[NodeLocator, Background]] = {}
        self.limits = config.limits
        self.capacity = Capacity(0, self.limits.max_connections, self.limits.max_connections)  # until it is known
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
        self.woken: deque[MemoryWaiter] = deque()
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

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """Return the clusters of the config in force, by name."""
        return self.network.upstreams

    @property
    def listeners(self) -> list[Listener]:
        """Return the listeners of the config in force, in its order."""
        return list(self.network.listeners.values())

    def is_outdated(self, connection: Connection) -> bool:
        """Return True if the config in force has another word for its listener than the one that the connection came
        in by, or none."""
        listener = connection.listener
        current = self.network.listeners.get(listener.name)
        if current is listener or not isinstance(listener, Listener):
            return False
        return current is None or current.word != listener.word

    # ---- another config

    def put_in_force(self, change: NetworkChange) -> None:
        """Put a change that is ready in force, at once: for those who connect from now on, and for limits. Connections
        of listeners that go are drained."""
        before = self.listeners
        self.use_limits(change.config)
        change.commit()
        for listener in before:
            if self.network.listeners.get(listener.name) is not listener:
                self.retired.add(listener)
        for retired in list(self.retired.listeners):
            self.retired.look(retired)
        if any(isinstance(one, Listener) and one.gone is not None for one in (*before, *self.retired.listeners)):
            work_through(self.reactor, end_connections(self, list(self.connections)))

    def use_limits(self, config: Config) -> None:
        """Have the limits of a config hold from the next check on."""
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
        """Open all ports and serve until a drain is over. Needs the reactor to run. Raises InternalError or
        DocumentError when it cannot start."""
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
        """Return the number of connections in the middle of their TLS handshakes."""
        return self.half_open.total

    # ---- connections

    def refusal(self, client: HostPort) -> tuple[str, str] | None:
        """Return (cause, reason) if a connection from there may not begin now. None: it may.

        If all places are taken, a connection or handshake of the network with the most ends for another network.
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
        """Note whether all workers together have reached max_connections, as seen by the supervisor."""
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
        """Call `on_growth`: there are many more connections than before, as where each makes another one."""
        self.many = 2 * len(self.connections)
        self.on_growth()

    def swept(self) -> None:
        """Expect growth anew where connections have become fewer."""
        self.many = max(MANY, min(self.many, 2 * len(self.connections)))

    def report(self, connection: Connection, now: float) -> None:
        """Note the end of a connection, and log it unless the log has had the same of late."""
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
            self.retired.look(listener)
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
        """Return the bytes read from clients and from brokers so far, open connections included."""
        return (
            self.counts.client_bytes + sum(each.client.got for each in self.connections),
            self.counts.broker_bytes + sum(each.broker.got for each in self.connections),
        )

    def wake(self, sessions: Sequence[MemoryWaiter]) -> None:
        """Give these sessions their turn soon: they have memory, or are first in the line of a quota.

        Never within the caller's own turn. If that were put aside, all sessions that are woken later would wait for it.
        """
        if not self.woken:
            self.reactor.soon(self.wake_all)
        self.woken.extend(sessions)

    def wake_all(self) -> None:
        """Wake the sessions in order, in slices: each may wake others, so thousands may follow each other."""
        work_through(self.reactor, self.wake_steps())

    def wake_steps(self) -> Iterator[None]:
        while self.woken:
            self.wake_one(self.woken[0], monotonic())
            self.woken.popleft()  # not before: `wake` would plan another call
            yield

    def wake_one(self, session: MemoryWaiter, now: float) -> None:
        try:
            if session.owner is not None:
                session.owner.granted(now)
            else:
                session.granted(now)
        except Exception as error:  # it ends that one; the others still get their turn
            self.log.error("a connection cannot be woken", exc_info=error)
            if session.owner is not None:
                session.owner.crashed(error)

    # ---- the end

    def drain(self) -> None:
        """Take no new connections; open ones end when nothing is in flight, and all of them in `drain_timeout`."""
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
        """End all open connections, whatever is in flight."""
        self.for_each(self.connections, lambda connection: connection.end(cause, reason), self.check_finished)

    def close(self) -> None:
        """Close all ports and end all connections, at once."""
        self.draining = True  # a handshake may be through just now, and its task not yet cancelled
        self.port_service.close()
        for connection in list(self.connections):
            connection.end("shutdown", "kproxy is stopping")
