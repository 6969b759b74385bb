"""A worker process: a proxy that gets its ports, rule files and admin address from the supervisor.

Started by the supervisor only, as `python -m kproxy.app.worker index=N parent=PID NAME=DESCRIPTOR …`. The descriptors
are `control`, its channel to the supervisor; `hand`, the socket that passes clients' connections; `lines`, the lock
that keeps log lines of several processes whole; and `table`, the shared memory for the counts of all workers' rules.
Its config and rules come as the first message on the channel. It ends on a message of the supervisor, when the channel
ends, and when the supervisor dies for any reason (the kernel ensures that).
"""

from __future__ import annotations

import kproxy.app.start  # noqa: F401 - first of all

# isort: split
import os
import signal
import socket
import sys
from collections.abc import Iterable, Iterator

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.app.config.document import Config
from kproxy.app.workers.fd_passing import Arrivals
from kproxy.app.workers.messages import NetworkSettings, Start, SupervisorCalls, WorkerCalls, unpack_config
from kproxy.app.workers.shared_table import SharedTable
from kproxy.app.workers.supervisor_client import RemotePortChange, RemotePorts, Reporter
from kproxy.app.workers.worker_rules import WorkerRules
from kproxy.base.errors import DocumentError, KproxyError
from kproxy.base.logs import log_of_process
from kproxy.base.system import die_with_parent
from kproxy.rules.rule_set import RuleSet
from kproxy.runtime.capacity import LogThrottle
from kproxy.runtime.connection import Connection
from kproxy.runtime.io.channel import Channel, hear, say
from kproxy.runtime.listeners.listener import Listener
from kproxy.runtime.network import NetworkChange
from kproxy.runtime.protocols import HostPort
from kproxy.runtime.server import Server

from .app import ProxyProcess
from .main import leaves

LAST_WORD = 1.0
"""Maximum seconds for a worker to report why it could not start."""


class WorkerServer(Server):
    """Server of a worker; it reports opened and closed connections to the supervisor."""

    reporter: Reporter | None = None

    def began(self, connection: Connection) -> None:
        super().began(connection)
        self.report_end(connection)

    def ended(self, connection: Connection) -> None:
        super().ended(connection)
        self.report_end(connection)

    def report_end(self, connection: Connection) -> None:
        if self.reporter is not None:
            self.reporter.changed(connection.client_address[0] if self.limits.max_connections_per_address else None)


class Worker(ProxyProcess):
    """Proxy of one worker process among several. `control` and `hand` are its sockets to the supervisor."""

    def __init__(
        self, start: Start, config: Config, rules: RuleSet, control: socket.socket, hand: socket.socket,
        log: FilteringBoundLogger,
    ) -> None:  # fmt: skip
        self.start, self.control, self.hand = start, control, hand
        self.index, self.workers, self.instance_mark = start.index, start.workers, start.instance
        self.generation = start.generation
        super().__init__(config, rules, log)

    def make_server(self) -> Server:
        self.channel = channel = Channel(self.control, self.reactor, self.log, self.lost)
        port_service = RemotePorts(channel, self.start.network, self.start.own)
        server = WorkerServer(self.reactor, self.config, self.session, self.counts, self.log,
                              advertise=self.advertise, port_service=port_service)  # fmt: skip
        port_service.set_topologies({name: upstream.topology for name, upstream in server.upstreams.items()})

        def met(listener: str, node: int, broker: HostPort) -> None:
            server.network.listeners[listener].upstream.topology.learn({node: broker})

        arrived = {listener.name: listener.arrived for listener in server.listeners}
        self.arrivals = Arrivals(
            self.hand, self.reactor, arrived, met, self.changed, LogThrottle(self.log), server.crowd
        )
        server.reporter = self.reporter = Reporter(channel, self.reactor, server, lambda: self.arrivals.taken)
        channel.on(WorkerCalls.drain, self.drain)
        channel.on(WorkerCalls.give_up, self.give_up)
        channel.on(WorkerCalls.leads_back, self.mark_loop)
        return server

    def mark_loop(self, cluster: str) -> None:
        """Note that a cluster leads back to kproxy, unless the config no longer has the cluster."""
        self.watch.leads_back(cluster)

    def changed(self) -> None:
        self.reporter.changed()

    def follow(self, rules: WorkerRules) -> None:
        """Follow the rules that the supervisor sends, and record the reported changes in the audit."""
        self.table = rules.table
        self.channel.serve(rules)
        if self.audit is not None:
            events = self.audit.rules
            self.channel.on(WorkerCalls.record, lambda method, arguments: getattr(events, method)(*arguments))

    def swap(self, rules: RuleSet) -> Iterator[None]:
        """Put another rule set in force, after recording the counts of the old rules."""
        if self.audit is not None:
            self.audit.rules.report()
        self.keeper.store.rule_set = rules
        yield from super().swap(rules)

    # ---- another config

    async def prepare_config(self, config: bytes) -> NetworkChange:
        """Return the change to another config, with ports that the supervisor opens. Raises UnusableSetting, and
        nothing has changed then."""
        unpacked = await trio.to_thread.run_sync(unpack_config, config)
        change = await trio.to_thread.run_sync(self.prepare, unpacked)
        await change.open()
        return change

    def commit_config(self, change: NetworkChange, rules: RuleSet, terms: NetworkSettings) -> None:
        """Put a config in force, on the supervisor's terms. Clients that were handed over earlier belong to the
        previous config. Cannot fail."""
        self.arrivals.take_all()
        for name in change.fates:
            before = change.before.upstreams[name].topology
            same = before.number == terms.clusters[name].number
            change.fates[name] = "kept" if same else "changed" if name in terms.others else "forgotten"
        assert isinstance(change.ports, RemotePortChange), "the ports are the supervisor's"
        change.ports.terms = terms
        by_address = self.config.limits.max_connections_per_address
        self.put_in_force(change, rules)
        self.arrivals.arrived = {listener.name: listener.arrived for listener in self.server.listeners}
        if self.config.limits.max_connections_per_address and not by_address:
            self.reporter.report_all()

    def announce_listeners(self, listeners: Iterable[Listener]) -> None:
        """Do nothing: the supervisor logs which listeners are open."""

    async def start_listening(self, nursery: trio.Nursery) -> None:
        """Do nothing: the supervisor handles signals and rule files, and the reactor already serves the channel."""

    async def start_measuring(self, nursery: trio.Nursery) -> None:
        """Answer the supervisor's questions, because it has the admin address and the export of metrics."""
        self.follow_measuring()

    def import_measuring(self, config: Config) -> None:
        """Import the modules that answer the supervisor, if this config needs them: an import in the loop would block
        it."""
        if config.measured:
            import kproxy.admin.worker_api
            import kproxy.app.metrics
            import kproxy.app.workers.pool_captures  # noqa: F401

    def follow_measuring(self) -> None:
        """Start to answer the supervisor's questions for metrics, if the config in force needs them."""
        if not self.config.measured or self.member is not None or not self.parts.begun:
            return
        from kproxy.admin.worker_api import Member
        from kproxy.app.metrics import WorkerMetrics
        from kproxy.app.workers.pool_captures import WorkerCaptures

        self.keeper.store.rule_set = self.rules
        self.member = Member(self.server, self.keeper, self.index, self.view_terms())
        collectors = [*self.collectors(), *self.parts.collectors]
        self.parts.on_collector = collectors.append
        self.channel.serve(self.member)
        self.channel.serve(WorkerMetrics(collectors, lambda: self.parts.label_metrics))
        self.channel.serve(WorkerCaptures(self.make_captures(), self.index, self.table))

    def watch_readiness(self, nursery: trio.Nursery) -> None:
        """Probe the clusters, and answer the supervisor, which logs when all workers are ready."""
        self.channel.on(WorkerCalls.find_readiness, self.find_readiness)
        self.watch_clusters()

    def started(self) -> None:
        self.watch.detect_loops()
        self.channel.send(SupervisorCalls.ready)
        self.reporter.beat()

    def leads_back(self, cluster: str) -> None:
        """Report to the supervisor that a cluster leads back to kproxy; it forwards that to all workers."""
        self.channel.send(SupervisorCalls.leads_back, cluster)

    # ---- the end

    def drain(self) -> None:
        self.arrivals.take_all()
        self.arrivals.close()
        self.server.drain()

    def give_up(self) -> None:
        self.drain()
        self.server.give_up("shutdown", "kproxy received a second stop signal")

    def lost(self, reason: str) -> None:
        """Drain and end at once, because the channel to the supervisor is lost."""
        self.log.error("the supervisor is gone", reason=reason)
        self.drain()
        self.server.give_up("shutdown", "the supervisor is gone")


def main(words: list[str]) -> int:
    """Run a worker until its end. Returns the exit code: 0, or 1 when it has failed."""
    given = {name: int(number) for name, _, number in (word.partition("=") for word in words)}
    die_with(given.pop("parent"))
    del given["index"]  # only for people who look at the list of processes
    for number in given.values():
        os.set_inheritable(number, False)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # the supervisor receives these signals as well, and forwards them to the workers
        signal.signal(ignored, signal.SIG_IGN)
    control, hand = socket.socket(fileno=given["control"]), socket.socket(fileno=given["hand"])
    (start,) = hear(control, WorkerCalls.start)
    config = unpack_config(start.config)
    log, _ = log_of_process(config.log.format, config.log.level, given["lines"], worker=start.index)
    worker: Worker = None  # type: ignore[assignment]  # stays None if making it fails
    failed: tuple[str, list[str]] | None = None

    def swap(made: RuleSet) -> Iterator[None]:
        return worker.swap(made)

    try:
        rules = WorkerRules(SharedTable.open(given["table"]), start.index, swap)
        worker = Worker(start, config, rules.begin(start.rules), control, hand, log)
        rules.process = worker
        worker.follow(rules)
        trio.run(worker.run)
    except* (KproxyError, OSError) as group:
        failed = failure(group)
    if failed is None:
        return 0
    if worker is None:
        say(control, LAST_WORD, SupervisorCalls.failed, *failed)
    else:
        worker.channel.last_word(LAST_WORD, SupervisorCalls.failed, *failed)
    return 1


def failure(group: BaseExceptionGroup[BaseException]) -> tuple[str, list[str]]:
    """Return the message and the mistakes for `SupervisorCalls.failed`."""
    errors = list(leaves(group))
    mistakes = [line for error in errors if isinstance(error, DocumentError) for line in error.mistakes]
    return "; ".join(str(error) for error in errors), mistakes


def die_with(parent: int) -> None:
    """Be killed when the parent process ends; end now if it has already."""
    die_with_parent()
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
