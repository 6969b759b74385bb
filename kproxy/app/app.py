"""Put the parts of a proxy process together and run them: no other module but the command line imports them all."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.app.config.changes import FLAGS, Origin
from kproxy.app.config.document import AdminConfig, Config
from kproxy.app.config.keeper import ConfigKeeper
from kproxy.base.logs import log_of_process, lost_lines
from kproxy.record.live_view.config import ViewConfig
from kproxy.rules import rule_set
from kproxy.rules.document.store import RuleStore
from kproxy.rules.exchange import Facts
from kproxy.rules.kinds.advertise import Advertise
from kproxy.rules.rule_set import ActiveRule, Gate, RuleSet
from kproxy.runtime.capacity import ConnectionCounts
from kproxy.runtime.config.network import Limits
from kproxy.runtime.drain import drain_on_signal
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.listeners.listener import Listener
from kproxy.runtime.network import NetworkChange
from kproxy.runtime.readiness import DRAINING, GOING_TO_END, ClusterWatch, Readiness, report_waiting
from kproxy.runtime.rule_files import RuleFiles
from kproxy.runtime.rule_keeper import RuleKeeper
from kproxy.runtime.server import Server
from kproxy.runtime.timeouts import HeldWatch, MemoryWatch
from kproxy.session.counters import ApiTally, Counters, Tallies
from kproxy.session.held_frames import HeldRegistry
from kproxy.session.held_memory import HeldMemory
from kproxy.session.partition_session import SessionPartitionLimit
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.rewrite.context import ResponseCache
from kproxy.session.sasl.login import NO_SASL
from kproxy.session.sasl_server import SaslServer
from kproxy.session.session import Session
from kproxy.session.shared import ClusterState, LoopToken

from . import garbage
from .live_view import RuleFilters
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
from .reloadable import ProcessParts

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from kproxy.admin.backend import Backend
    from kproxy.admin.worker_api import Member, ViewTerms
    from kproxy.record.captures.running_captures import Captures
    from kproxy.record.component_collectors import CertificateSide
    from kproxy.record.live_view.watch import ViewWatch

    from .label_metrics import ClientTelemetry
    from .metrics import ProcessMetrics
    from .otlp import OtlpExport
    from .recording import Audit
    from .workers.pool_captures import PoolCaptures


def unix_time(now: float) -> float:
    """Return the Unix time at a time of `monotonic()`, in seconds."""
    return now + time() - monotonic()


class ProxyProcess:
    """Proxy of one process: its config, its rules, and the counters, limits and plans that its connections share.

    `store` holds the rules in force and is updated in place; `files` are the rule files that filled it. A worker
    (worker.py) is a proxy that gets its ports, rule files and admin address from the supervisor.
    """

    index, workers, generation = 0, 1, 0
    """Number of this process, from 0 on; number of processes that carry traffic; number of earlier processes in its
    place."""
    instance_mark = ""
    """Mark of this kproxy, for loop detection; random if empty."""

    def __init__(
        self, config: Config, rules: RuleSet, log: FilteringBoundLogger, *,
        store: RuleStore | None = None, files: RuleFiles | None = None,
    ) -> None:  # fmt: skip
        self.config, self.log = config, log
        self.take(rules)
        self.counters, self.counts, self.tallies = Counters(), ConnectionCounts(), Tallies()
        self.mark = LoopToken(self.instance_mark)
        limits = config.limits
        self.held: WeakSet[ClusterState] = WeakSet()  # also of clusters that the config no longer has
        self.room = SessionPartitionLimit(limits.session_partitions)
        self.desk = HeldRegistry(limits.max_buffered_bytes)
        self.answers = ResponseCache()
        self.shared: dict[str, ClusterState] = {}
        self.plans: dict[tuple[str, bool, bool, str, tuple[ActiveRule, ...]], Plan] = {}
        self.number = 0  # connections that this process has opened so far
        self.reactor = Reactor(log, self.counters.proxy_time.add)
        self.server = self.make_server()
        self.share()
        self.server.gate = self.gate
        self.server.desk = self.desk
        self.desk.judge = self.judge = RuleFilters(self.server, config.view.records)
        HeldWatch(self.desk, self.reactor)
        self.keeper = RuleKeeper(store or RuleStore(listeners=config.places()), self.swap, self.reactor, log)
        self.files = files or RuleFiles((), log)
        self.watch = ClusterWatch(self.reactor, self.mark)
        self.watch.use(self.server.upstreams)
        self.mark.on_return = self.leads_back
        self.server.on_growth = self.watch.detect_loops
        self.listening = False
        self.admin_url = ""
        self.certificates: dict[tuple[CertificateSide, str], str] = {}
        self.configs: ConfigKeeper | None = None
        self.backend: Backend | None = None
        self.on_limits: Callable[[Limits], object] = lambda limits: None
        self.captures: Captures | None = None
        self.pool_captures: PoolCaptures | None = None
        self.metrics: ProcessMetrics | None = None
        self.member: Member | None = None
        self.parts = ProcessParts(self.server, self.counters, log, worker=self.index if self.workers > 1 else None)
        self.parts.prepare(config)()
        self.audit: Audit | None = None
        if config.audit is not None:
            from .recording import Audit

            labels = None if self.parts.label_metrics is None else self.parts.label_metrics.sink
            self.audit = Audit(config, config.audit, self.server, lambda: self.rules.live, log, worker=self.index,
                               labels=labels, otlp=None if self.otlp is None else self.otlp.logs)  # fmt: skip
            self.keeper.events = self.audit.rules
            self.parts.record_in(self.audit)

    @property
    def telemetry(self) -> ClientTelemetry | None:
        return self.parts.telemetry

    @property
    def otlp(self) -> OtlpExport | None:
        return self.parts.otlp

    def make_server(self) -> Server:
        """Make the server; called once, after the reactor and the rules are made."""
        return Server(self.reactor, self.config, self.session, self.counts, self.log, advertise=self.advertise,
                      rules=advertising(self.rules))  # fmt: skip

    def session(self, listener: Listener, facts: Facts, node: int | None) -> Session:
        """Return the session of a new connection, bound to the rules in force."""
        bound = self.bind(facts)
        self.number += 1
        telemetry = self.parts.telemetry
        plan = self.plan_for(listener, bound, bound.live, "" if telemetry is None else telemetry.mode(listener.name))
        # unique over all workers; modulo `workers` it is the worker's index
        number = self.number * self.workers + self.index
        session = Session(plan, self.shared[facts.cluster], facts, number, bound)
        if listener.terms is not None:
            session.logins.serve(SaslServer(session, listener.terms))
        elif listener.ends_sasl:
            session.logins.sasl = NO_SASL
        if telemetry is not None and plan.bound.telemetry:
            session.telemetry = telemetry.serve(session)
        return session

    def plan_for(
        self, listener: Listener, bound: rule_set.MatchingRules, live: tuple[ActiveRule, ...], telemetry: str
    ) -> Plan:
        """Return the plan of a connection of this listener that is bound to these rules, while these live rules are in
        force. `listener` and `telemetry` (how the client's own metrics are taken) may belong to an earlier config,
        because the client has already received that config's list of APIs.

        Connections with equal arguments share a plan; `swap` evicts plans of earlier live rules.
        """
        advertise = bound.advertise is not None or listener.advertises
        ends_sasl = listener.ends_sasl
        key = bound.key, advertise, ends_sasl, telemetry, live
        plan = self.plans.get(key)
        if plan is None:
            hide = self.config.limits.unknown_apis == "hide"
            fixed = ConnectionSettings.of(
                bound, advertise=advertise, hide=hide, ends_sasl=ends_sasl, telemetry=telemetry
            )
            plan = self.plans[key] = Plan(fixed, live, self.tallies)
        return plan

    def take(self, rules: RuleSet) -> None:
        """Use these rules for connections that open after this call."""
        self.rules = rules
        for running in rules.live:
            running.effect.clock = monotonic

    def swap(self, rules: RuleSet) -> Iterator[None]:
        """Put another rule set in force: its live rules from the next frame of each connection on, all other rules for
        new connections. Each step is one connection; connections that open between steps have the new rules."""
        self.take(rules)
        self.plans = {}
        self.server.port_service.use_rules(advertising(rules))
        for connection in list(self.server.connections):
            if self.rules is not rules:  # another swap has begun since, and goes through all connections itself
                return
            if connection.closed:
                continue
            if rules.gate and (barred := self.gate().check_quietly(connection.facts)) is not None and barred.closes:
                connection.cut(barred.close_with, barred.why, "not_allowed")
                yield
                continue
            session = connection.session
            live = self.bind(connection.facts).live
            connection.use(self.plan_for(connection.listener, session.rules, live, session.plan.bound.telemetry))
            yield

    def advertise(
        self, listener: Listener, facts: Facts, bound: rule_set.MatchingRules | None = None
    ) -> Advertise | Literal[False]:
        """Return the advertised addresses of a connection: a rule has priority over the listener's setting. `bound`:
        the rules of a connection that is open already."""
        return (bound or self.bind(facts)).advertise or listener.config.advertise

    def bind(self, facts: Facts) -> rule_set.MatchingRules:
        return self.rules.bind(facts)

    def gate(self) -> Gate:
        return self.rules.gate

    def leads_back(self, cluster: str) -> None:
        """Note that a request sent to this cluster came back from a client: its address leads to kproxy itself."""
        self.watch.leads_back(cluster)

    # ---- another config

    def share(self, forgotten: Collection[str] = ()) -> None:
        """Set up the state that connections of each cluster share, with the limits of the config in force. New
        connections to `forgotten` clusters start with empty state."""
        limits, otlp = self.config.limits, self.config.otlp
        sample = 1.0 if otlp is None or otlp.traces is None else otlp.traces.sample
        self.room.limit, self.room.several = limits.session_partitions, len(self.config.clusters) > 1
        self.desk.use_limit(limits.max_buffered_bytes)
        before = self.shared
        self.shared = {}
        for name in self.config.clusters:
            shared = None if name in forgotten else before.get(name)
            if shared is None:
                memories = HeldMemory(limits.max_buffered_bytes), HeldMemory(limits.max_buffered_bytes)
                for memory in memories:
                    MemoryWatch(memory, self.server)
                shared = ClusterState(self.counters, *memories, mark=self.mark, room=self.room, desk=self.desk,
                                answers=self.answers, unix_time=unix_time)  # fmt: skip
                self.held.add(shared)
            self.shared[name] = shared
            if self.config.registries:
                from kproxy.rules.content.schemas import decoder_of

                shared.find_schemas = partial(self.server.schemas, name)
                shared.decoder = decoder_of(shared.find_schemas)
        for shared in list(self.held):
            for memory in (shared.requests, shared.responses):
                if granted := memory.use_limit(limits.max_buffered_bytes):
                    self.server.wake([lane.session for lane in granted])
            shared.trace_sample = sample
            shared.content.max_decompressed_bytes = limits.content.max_decompressed_bytes
            shared.content.max_fetch_bytes = limits.content.max_fetch_bytes
            shared.max_frame_bytes, shared.buffer_threshold = limits.max_frame_bytes, limits.buffer_threshold
            shared.max_in_flight, shared.max_nodes = limits.max_in_flight, limits.max_nodes

    @property
    def ending(self) -> bool:
        """Return True if the process drains, or is about to."""
        return self.server.draining or self.server.shutdown_delay.begun

    def prepare(self, config: Config) -> NetworkChange:
        """Return the change to another config; blocks. Raises UnusableSetting, and nothing has changed then."""
        commit_parts = self.parts.prepare(config)
        self.import_measuring(config)
        change = NetworkChange(self.server, config)
        change.commit_parts = commit_parts
        return change

    def put_in_force(self, change: NetworkChange, rules: RuleSet) -> None:
        """Put a prepared change in force, at once, together with these rules. Cannot fail."""
        if self.audit is not None:
            self.audit.rules.report()  # of removed rules, for the last time
        config = self.config = change.config
        gone = {name for name, fate in change.fates.items() if fate != "kept"}
        gone |= change.before.upstreams.keys() - config.clusters.keys()
        self.take(rules)
        self.plans = {}
        self.share(gone)
        self.server.put_in_force(change)
        for name in gone:
            self.server.taps.fanout.pictures.pop(name, None)
        self.watch.follow(self.server.upstreams, once=not config.measured)
        if self.audit is not None:
            self.audit.follow_clusters(self.server.upstreams)
        self.on_limits(config.limits)
        self.announce_added(change)
        change.commit_parts()
        self.follow_measuring()
        self.use_view(config.view)
        use_at_once(config, self.backend, self.certificates)

    # ---- for the admin address

    def held_bytes(self) -> Mapping[str, int]:
        """Return the bytes that are reserved for held frames, by direction, of all clusters."""
        shared = list(self.held)
        return {
            "request": sum(one.requests.used for one in shared),
            "response": sum(one.responses.used for one in shared),
        }

    def counted(self) -> Iterable[ApiTally]:
        return self.tallies.values()

    def open_by_listener(self) -> Mapping[str, int]:
        found = {listener.name: 0 for listener in self.server.listeners}
        for connection in self.server.connections:  # also of removed listeners
            name = connection.listener.name
            found[name] = found.get(name, 0) + 1
        return found

    def bytes_read(self) -> tuple[int, int]:
        return self.server.bytes()

    @property
    def readiness(self) -> Readiness:
        """Return the readiness of listeners, rules (read before anything starts) and brokers."""
        missing = [] if self.listening else ["listeners"]
        if self.server.draining:
            missing.append(DRAINING)
        elif self.server.shutdown_delay.begun:
            missing.append(GOING_TO_END)
        if self.audit is not None and self.audit.trouble:
            missing.append(self.audit.trouble)
        clusters = {
            name: [] if each.answered else [f"cluster {name}: {each.reason}"]
            for name, each in self.watch.probes.items()
        }
        return Readiness(missing, clusters)

    async def waiting_for(self) -> list[str]:
        """Return the reasons why the proxy is not ready; none when it is."""
        return self.readiness.waiting_for(need_of(self.config))

    # ---- running

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until drained. Raises KproxyError when the proxy cannot start."""
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            await nursery.start(self.reactor.run)
            await self.start_listening(nursery)
            self.parts.start()
            if self.audit is not None:
                self.audit.start(nursery)
            try:
                await self.start_measuring(nursery)
                await self.serve(nursery, task_status)
            finally:
                with trio.CancelScope(shield=True):
                    await self.close()
            nursery.cancel_scope.cancel()

    async def start_listening(self, nursery: trio.Nursery) -> None:
        await nursery.start(drain_on_signal, self.server)
        await nursery.start(self.files.watch, self.keeper)
        if self.configs is not None:
            nursery.start_soon(self.configs.watch)

    async def close(self) -> None:
        """Write the recorded events, after all connections have ended."""
        if self.captures is not None:
            await self.captures.record_last_topics()
            await trio.to_thread.run_sync(self.captures.close)
        if self.pool_captures is not None:
            await self.pool_captures.report_last()
            self.pool_captures.close()
        if self.audit is not None:
            await self.audit.close()
        if self.otlp is not None:
            await self.otlp.close_traces()
            await self.otlp.close()

    async def serve(self, nursery: trio.Nursery, task_status: trio.TaskStatus[None]) -> None:
        """Accept clients until drained. `nursery` is for the background tasks."""
        async with trio.open_nursery(strict_exception_groups=True) as serving:
            await serving.start(self.server.serve)
            self.listening = True
            garbage.freeze()
            nursery.start_soon(sweep)
            self.started()
            self.watch_readiness(nursery)
            task_status.started()

    def started(self) -> None:
        """Log that the proxy serves, and start the tasks that wait for that."""
        self.watch.detect_loops()
        self.keeper.started()
        self.announce()

    def watch_readiness(self, nursery: trio.Nursery) -> None:
        """Start to probe the clusters, and log when the proxy is ready."""
        self.watch_clusters()
        nursery.start_soon(report_waiting, self.waiting_for, self.log, self.about())

    def watch_clusters(self) -> None:
        """Start to probe the clusters: until they have answered, or all the time if metrics are scraped or exported."""
        self.watch.probe(once=not self.config.measured)

    def about(self) -> Mapping[str, Any]:
        """Return the fields of the log line at the start of serving."""
        return {"rules": len(self.rules), "pid": os.getpid()}

    def make_captures(self) -> Captures | None:
        """Make this process's parts in captures; None if the config disables them."""
        if self.config.captures is None:
            return None
        from .recording import make_captures

        self.captures = make_captures(self.server)
        return self.captures

    def make_pool_captures(self) -> PoolCaptures:
        """Make the captures that can be started over the admin address: this process is their only worker."""
        from .workers.pool_captures import LocalPool, LocalTable, PoolCaptures, WorkerCaptures

        config, table = self.config, LocalTable()
        pool = LocalPool(WorkerCaptures(self.make_captures(), 0, table))
        self.pool_captures = PoolCaptures(config.captures, pool, table, WallClock, instance(config),
                                          topics=config.capture_topics)  # fmt: skip
        return self.pool_captures

    def view_terms(self) -> ViewTerms:
        """Return the settings of the admin address's live view."""
        from kproxy.admin.worker_api import ViewTerms

        def make_watch() -> ViewWatch:
            from .live_view import make_watch

            return make_watch(self)

        return ViewTerms(self.config.view, make_watch)

    async def start_measuring(self, nursery: trio.Nursery) -> None:
        """Start the metrics endpoint of the admin address and the export to a collector, as far as configured."""
        if self.config.admin is not None:
            await self.start_admin(nursery, self.config.admin, self.measure())
        self.follow_measuring()

    def import_measuring(self, config: Config) -> None:
        """Import the modules for metrics if this config uses them: an import in the loop would block it."""
        if config.measured:
            import kproxy.app.metrics
            import kproxy.record.component_collectors  # noqa: F401

    def follow_measuring(self) -> None:
        """Export metrics to a collector, if the config in force enables that."""
        if self.config.measured and self.otlp is not None and self.parts.begun:
            self.otlp.start_metrics(self.measure().samples, self.find_readiness)

    def measure(self) -> ProcessMetrics:
        """Return the metrics of this process, made at the first call."""
        if self.metrics is None:
            from kproxy.record.component_collectors import ConfigCollector, RuleCollector

            from .metrics import ProcessMetrics

            rules = RuleCollector(self.keeper.store, self.keeper.loads, self.config.limits.rule_labels)
            self.on_limits = lambda limits: setattr(rules, "most", limits.rule_labels)
            configs = () if self.configs is None else (ConfigCollector(self.configs),)
            collectors = (*self.collectors(), rules, *configs, *self.parts.collectors)
            self.metrics = ProcessMetrics(collectors, lambda: self.parts.label_metrics)
            self.parts.on_collector = self.metrics.registry.register
        return self.metrics

    def use_view(self, view: ViewConfig) -> None:
        """Apply the view settings of the config in force."""
        self.judge.use(view.records)
        if self.member is not None:
            self.member.use_view(view)

    async def find_readiness(self) -> Readiness:
        return self.readiness

    async def start_admin(self, nursery: trio.Nursery, admin: AdminConfig, metrics: ProcessMetrics) -> None:
        """Open the admin address. HTTP is imported only then: it takes a third of the start."""
        from kproxy.admin.api import make_app
        from kproxy.admin.backend import process_backend

        backend = process_backend(
            self.keeper, self.server, lambda: self.readiness, metrics.scraped, self.log,
            captures=self.make_pool_captures(), need=admin.ready, view=self.view_terms(),
        )  # fmt: skip
        backend.configs, backend.tokens = self.configs, tokens_of(admin)
        (member,) = backend.members
        self.backend, self.member = backend, member
        self.certificates.update(certificates_of(self.config))
        await nursery.start(backend.captures.follow)
        app = make_app(backend, admin.bind.host, self.certificates)
        self.admin_url = await open_admin(nursery, app, admin, self.log, self.reactor)

    def collectors(self) -> list[Collector]:
        """Return the Prometheus collectors of this process's metrics, except those of rules."""
        from kproxy.record.metrics.traffic import LogCollector, TrafficCollector

        found: list[Collector] = [
            TrafficCollector(self.counters, self.counts, self.counted, self, self.held_bytes), LogCollector(lost_lines)
        ]  # fmt: skip
        if self.audit is not None:
            from kproxy.record.component_collectors import AuditCollector

            found.append(AuditCollector(self.audit.recorder))
        return found

    def announce(self) -> None:
        self.announce_listeners(self.server.listeners)
        self.log.info("serving", **self.about())

    def announce_added(self, change: NetworkChange) -> None:
        before = change.before.listeners
        left = {} if change.ports is None else change.ports.left
        self.announce_listeners(one for one in self.server.listeners if one.name in left or one.name not in before)

    def announce_listeners(self, listeners: Iterable[Listener]) -> None:
        log_listeners([(one.config, one.port) for one in listeners], self.reactor, self.log)


def run(config: Config, origin: Origin = FLAGS) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code: 0 after a drain, 1 when it could not start."""
    log, lines = log_of_process(config.log.format, config.log.level)
    log_start(config, origin, log)

    def made() -> Callable[[], Awaitable[None]]:
        proxy = prepared(config, log)
        proxy.configs = ConfigKeeper(config, origin, proxy, proxy.keeper, proxy.files, log)
        proxy.files.on_hangup = proxy.configs.reload
        return proxy.run

    return run_all(made, lines)


def prepared(config: Config, log: FilteringBoundLogger) -> ProxyProcess:
    """Return a proxy with the rules of its files in force. Raises DocumentError."""
    store, files = read_rules(config, log)
    return ProxyProcess(config, store.rule_set, log, store=store, files=files)
