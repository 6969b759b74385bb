"""The supervisor of worker processes: it accepts clients and hands them over, and carries no traffic itself.

It has the singletons:

network        all ports of listeners, the state file and the topologies of clusters; the dispatcher, which chooses the
               worker for each client, and keeps the limits over all workers
pool           the workers' processes
keeper         the rules, their files and their times to live
configs        the config in force, and its changes
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.app.config.changes import FLAGS, Origin
from kproxy.app.config.document import AdminConfig, Config
from kproxy.app.config.keeper import ConfigKeeper
from kproxy.app.workers.messages import Start, SupervisorCalls, WorkerCalls
from kproxy.app.workers.pool_network import PoolChange, PoolNetwork
from kproxy.app.workers.pool_worker import PoolWorker
from kproxy.app.workers.rule_messages import PoolRuleKeeper, RuleNewsSender
from kproxy.app.workers.shared_table import SharedTable
from kproxy.app.workers.worker_pool import WorkerPool, call_all, pids
from kproxy.base.errors import KproxyError
from kproxy.base.logs import log_of_process, lost_lines
from kproxy.rules.document.store import RuleStore
from kproxy.rules.rule_set import RuleSet
from kproxy.runtime.capacity import find_capacity, log_capacity
from kproxy.runtime.drain import ShutdownDelay, drain_on_signal
from kproxy.runtime.io.channel import Unanswered
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.listeners.listener_ports import ListenerPorts
from kproxy.runtime.readiness import DRAINING, GOING_TO_END, Readiness, report_waiting, together
from kproxy.runtime.rule_files import RuleFiles
from kproxy.session.shared import LoopToken

from . import garbage
from .main import (
    WallClock,
    advertising,
    certificates_of,
    instance,
    log_listeners,
    log_start,
    need_of,
    open_admin,
    read_rules,
    run_all,
    sweep,
    tokens_of,
    use_at_once,
)
from .reloadable import PoolParts

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from kproxy.admin.backend import Backend
    from kproxy.app.workers.pool_captures import PoolCaptures
    from kproxy.app.workers.pool_members import PoolMetrics
    from kproxy.record.component_collectors import CertificateSide, RuleCollector


class Supervisor:
    """Process that starts the workers and accepts their clients.

    `store` has the rules in force, `files` are the rule files that filled it. `lines` is the descriptor with the lock
    that keeps the log lines of several processes whole.
    """

    def __init__(
        self, config: Config, store: RuleStore, files: RuleFiles, log: FilteringBoundLogger, lines: int
    ) -> None:
        self.config, self.log, self.store, self.files = config, log, store, files
        self.reactor = Reactor(log)
        self.table = table = SharedTable.create()
        self.captures: PoolCaptures | None = None
        self.pool = WorkerPool(config.workers, self.reactor, self.start_for, log,
                         descriptors={"lines": lines, "table": table.fd},
                         by_address=bool(config.limits.max_connections_per_address))  # fmt: skip
        self.network = PoolNetwork(config, self.pool, self.reactor, log, advertising(store.rule_set))
        self.dispatcher, self.port_service = self.network.dispatcher, self.network.port_service
        self.configs: ConfigKeeper | None = None
        self.backend: Backend | None = None
        self.certificates: dict[tuple[CertificateSide, str], str] = {}
        self.rule_metrics: RuleCollector | None = None
        self.mark = LoopToken()
        self.keeper = PoolRuleKeeper(store, self.pool, self.swap, self.reactor, log, table)
        self.keeper.events = None if config.audit is None else RuleNewsSender(self.pool)
        self.pool.on_worker += [self.register_handlers, self.keeper.worker_begins]
        self.pool.on_admit = self.keeper.admit
        self.listening = self.draining = False
        self.drained_since = 0.0
        self.parts = PoolParts(self.keeper, self.pool, self.reactor, log, self.collectors, self.readiness)
        self.parts.prepare(config)()
        self.shutdown_delay = ShutdownDelay(config.limits.shutdown_delay, self.reactor, log)

    # ---- with workers

    def start_for(self, worker: PoolWorker) -> Start:
        """Return the first message to a worker: its config, ports, known nodes and rules."""
        own = tuple(self.port_service.own.addresses())
        return Start(
            self.network.packed, worker.index, self.config.workers, self.network.terms(), self.keeper.state(),
            self.mark.instance, own, worker.restarts,
        )  # fmt: skip

    def register_handlers(self, worker: PoolWorker) -> None:
        assert worker.channel is not None
        self.network.register_handlers(worker)
        worker.channel.on(SupervisorCalls.leads_back, lambda cluster: self.pool.send(WorkerCalls.leads_back, cluster))

    # ---- another config

    @property
    def ending(self) -> bool:
        """Return True if kproxy drains, or is about to."""
        return self.draining or self.shutdown_delay.begun

    def prepare(self, config: Config) -> PoolChange:
        """Return the change to another config; blocks. Raises UnusableSetting, and nothing has changed then."""
        commit_parts = self.parts.prepare(config)
        change = PoolChange(self.network, config)
        change.commit_parts = commit_parts
        return change

    def put_in_force(self, change: PoolChange, rules: RuleSet) -> None:
        """Put the supervisor's half of a change in force, at once. Cannot fail."""
        before = dict(self.port_service.by_listener)
        config = self.config = change.config
        change.commit()
        self.shutdown_delay.seconds = config.limits.shutdown_delay
        if self.rule_metrics is not None:
            self.rule_metrics.most = config.limits.rule_labels
        self.announce({
            name: ports for name, ports in self.port_service.by_listener.items() if before.get(name) is not ports
        })  # fmt: skip
        change.commit_parts()
        use_at_once(config, self.backend, self.certificates)

    def swap(self, rules: RuleSet) -> None:
        """Open and close ports for another rule set that is now in force."""
        self.port_service.use_rules(advertising(rules))

    # ---- running

    async def run(self) -> None:
        """Run until drained. Raises KproxyError and OSError when the supervisor cannot start."""
        try:
            async with trio.open_nursery(strict_exception_groups=True) as nursery:
                await nursery.start(self.reactor.run)
                await nursery.start(drain_on_signal, self)
                await nursery.start(self.files.watch, self.keeper)
                await nursery.start(self.keeper.follow)
                if self.configs is not None:
                    nursery.start_soon(self.configs.watch)
                await self.start_measuring(nursery)
                await self.serve(nursery)
                await self.parts.close()
                nursery.cancel_scope.cancel()
        finally:
            self.port_service.close()
            self.pool.close()
            if self.captures is not None:
                self.captures.close()

    async def start_measuring(self, nursery: trio.Nursery) -> None:
        """Start the metrics endpoint of the admin address and the export to a collector, as far as configured, for all
        workers."""
        self.parts.start(self.config)
        if self.config.admin is not None:
            await self.start_admin(nursery, self.config.admin, self.parts.measure())

    def collectors(self) -> list[Collector]:
        from prometheus_client import PlatformCollector, ProcessCollector

        from kproxy.record.component_collectors import ConfigCollector, RuleCollector, WorkerCollector
        from kproxy.record.metrics.traffic import LogCollector

        rules = self.rule_metrics = RuleCollector(self.store, self.keeper.loads, self.config.limits.rule_labels)
        own = [WorkerCollector(self.pool, self.network.counts), LogCollector(lost_lines), rules,
               PlatformCollector(registry=None), ProcessCollector(registry=None)]  # fmt: skip
        if self.configs is not None:
            own.append(ConfigCollector(self.configs))
        return own

    async def start_admin(self, nursery: trio.Nursery, admin: AdminConfig, metrics: PoolMetrics) -> None:
        from kproxy.admin.api import make_app
        from kproxy.admin.backend import Backend
        from kproxy.app.workers.pool_captures import PoolCaptures
        from kproxy.app.workers.pool_members import members_of

        self.captures = PoolCaptures(
            self.config.captures, self.pool, self.table, WallClock, instance(self.config),
            topics=self.config.capture_topics,
        )  # fmt: skip
        backend = Backend(
            self.keeper, members_of(self.pool), self.readiness, metrics.scraped, self.captures,
            self.port_service.known_addresses, self.log, need=admin.ready, view=self.config.view,
        )  # fmt: skip
        backend.configs, backend.tokens = self.configs, tokens_of(admin)
        self.backend = backend
        self.certificates.update(certificates_of(self.config))
        await nursery.start(self.captures.follow)
        app = make_app(backend, admin.bind.host, self.certificates)
        await open_admin(nursery, app, admin, self.log, self.reactor)

    async def readiness(self) -> Readiness:
        """Return the readiness of the supervisor and of the workers, all of which must be ready."""
        missing = [] if self.listening else ["listeners"]
        if self.draining:
            missing.append(DRAINING)
        elif self.shutdown_delay.begun:
            missing.append(GOING_TO_END)
        said = {worker.index: answer for worker, answer in await call_all(self.pool, WorkerCalls.find_readiness)}
        workers: dict[int, Readiness | str] = {}
        for worker in self.pool.workers:
            found = said.get(worker.index, "it is not running")
            workers[worker.index] = str(found) if isinstance(found, Unanswered) else found
        return together(missing, list(self.config.clusters), workers)

    async def waiting_for(self) -> list[str]:
        """Return the reasons why kproxy is not ready; none when it is."""
        return (await self.readiness()).waiting_for(need_of(self.config))

    async def serve(self, nursery: trio.Nursery) -> None:
        """Accept clients until drained. `nursery` is for the background tasks."""
        capacity, limits = find_capacity(self.config.limits), self.config.limits
        self.dispatcher.admit(capacity)
        self.port_service.admit(capacity)
        log_capacity(capacity.times(self.config.workers), limits, self.log)
        await self.port_service.open()
        try:
            await self.pool.start()
        except (KproxyError, OSError):
            if self.draining:  # the signal to end came before all workers had begun
                return
            raise
        self.listening = True
        self.keeper.started()
        self.announce(self.port_service.by_listener)
        self.log.info("serving", **self.about())
        garbage.freeze()
        nursery.start_soon(sweep)
        nursery.start_soon(report_waiting, self.waiting_for, self.log, self.about())
        await self.pool.finished.wait()
        self.log.info("workers have ended", seconds=round(monotonic() - self.drained_since, 3))

    def announce(self, opened: Mapping[str, ListenerPorts]) -> None:
        log_listeners([(ports.config, ports.port) for ports in opened.values()], self.reactor, self.log)

    def about(self) -> Mapping[str, Any]:
        """Return the fields of the log line at the start of serving."""
        return {"rules": len(self.store.rule_set), "pid": os.getpid(), "workers": pids(self.pool)}

    def drain(self) -> None:
        """Accept no new connections, and have the workers close the open ones when their requests are answered."""
        if self.draining:
            return
        self.draining, self.drained_since = True, monotonic()
        timeout = self.config.limits.drain_timeout
        self.log.info("draining", connections=self.dispatcher.connections, timeout=timeout)
        self.port_service.close()
        self.dispatcher.drain()
        self.pool.drain(timeout)

    def give_up(self, cause: str, reason: str) -> None:
        """Close all open connections, including those with requests in flight."""
        self.pool.give_up()


def run(config: Config, origin: Origin = FLAGS) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code: 0 after a drain, 1 when it could not start."""
    lines = os.memfd_create("kproxy log", os.MFD_CLOEXEC)
    log, queue = log_of_process(config.log.format, config.log.level, lines)

    log_start(config, origin, log)

    def made() -> Callable[[], Awaitable[None]]:
        store, files = read_rules(config, log)
        supervisor = Supervisor(config, store, files, log, lines)
        configs = supervisor.configs = ConfigKeeper(config, origin, supervisor, supervisor.keeper, files, log)
        files.on_hangup = configs.reload
        return supervisor.run

    return run_all(made, queue)
