"""Readiness to serve clients: missing conditions of the process, and of each cluster by health checks.

Strategy. A probe sends ApiVersions periodically on a persistent connection per cluster, logged in where kproxy does
that, so each check costs one small request. If the connection fails, another broker is tried before the cluster counts
as lost, because connections end for many reasons and a cluster has several brokers.
"""

from __future__ import annotations

import math
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.scheduler import Background, a_few_at_a_time
from kproxy.runtime.io.sniff import greeting
from kproxy.runtime.io.socket_io import attempt
from kproxy.runtime.upstreams.dialler import DialOptions, Race
from kproxy.runtime.upstreams.own_connection import own_connection, send_request
from kproxy.runtime.upstreams.upstream import Upstream
from kproxy.session.shared import LoopToken

from .protocols import HostPort

LOOK = 0.25
"""Seconds between two checks while not ready. It is short, so that readiness is reported promptly."""
LOOK_AGAIN = 1.0
"""Seconds between two checks once ready."""

AGAIN = 1.0
"""Seconds until the next probe after a failure."""
CONFIRM = 2.0
"""Seconds until the next probe after a success."""
PATIENCE = 3.5
"""Seconds for a response. After a timeout, a new connection with its response gets the same time, so a lost cluster is
detected within CONFIRM + 2 × PATIENCE (9 seconds)."""
QUESTION = bytes.fromhex("0000001000120000000000010006") + b"kproxy"
"""ApiVersions v0, the only request that every broker since 0.10 answers even before authentication (KIP-35)."""
MEANT = (35, 0)
"""Error codes of a healthy broker: UNSUPPORTED_VERSION (35) and NONE (0)."""
LONGEST = 1 << 20
"""Maximum bytes of a response."""

DRAINING = "nothing, it is draining"
GOING_TO_END = "nothing, it is going to end"
"""Reasons for not being ready after a termination signal, which are logged elsewhere."""

ClusterNeed = Literal["any", "all"]
"""Clusters that must respond."""


class Readiness(msgspec.Struct, frozen=True):
    """Missing conditions: `own` for all clients, `clusters` by cluster. An empty list: the brokers respond."""

    own: Sequence[str]
    clusters: Mapping[str, Sequence[str]]

    def waiting_for(self, need: ClusterNeed) -> list[str]:
        """Return the missing conditions of the process. Empty: ready."""
        dead = [reason for reasons in self.clusters.values() for reason in reasons]
        return [*self.own, *(dead if need == "all" or all(self.clusters.values()) else ())]

    def flags(self, need: ClusterNeed) -> tuple[bool, dict[str, bool]]:
        """Return (process is ready, readiness by cluster) for metrics."""
        return not self.waiting_for(need), {name: not self.of(name) for name in self.clusters}

    def of(self, cluster: str) -> list[str]:
        """Return the missing conditions for clients of that cluster. Raises KeyError for an unknown cluster."""
        return [*self.own, *self.clusters[cluster]]


def together(own: Sequence[str], clusters: Sequence[str], workers: Mapping[int, Readiness | str]) -> Readiness:
    """Combine the readiness of several processes. A worker without a result is a reason itself."""
    missing: list[str] = [*own]
    by_cluster: dict[str, list[str]] = {name: [] for name in clusters}
    for index, readiness in workers.items():
        if isinstance(readiness, str):
            missing.append(f"worker {index}: {readiness}")
            continue
        missing += [f"worker {index}: {reason}" for reason in readiness.own]
        for name, reasons in readiness.clusters.items():
            by_cluster[name] += [f"worker {index}: {reason}" for reason in reasons]
    return Readiness(missing, by_cluster)


async def report_waiting(
    ask: Callable[[], Awaitable[list[str]]], log: FilteringBoundLogger, fields: Mapping[str, Any]
) -> None:
    """Log each change between ready and not ready, until cancelled."""
    before: list[str] | None = None
    while True:
        missing = await ask()
        if not missing and before != []:
            log.info("ready", **fields)
        elif missing and before == [] and not {DRAINING, GOING_TO_END}.intersection(missing):
            log.warning("not ready", waiting_for=missing)
        if not missing or before is not None:
            before = missing
        await trio.sleep(LOOK if missing else LOOK_AGAIN)


class Probe:
    """Probe of one cluster. `answered`: the last probe succeeded. `silent`: the current connection has not received a
    response yet."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.answered, self.silent = False, True
        self.reason = "not asked yet"

    async def run(self, *, once: bool = False) -> None:
        """Probe until cancelled or, with `once`, until the first response."""
        while True:
            patience = PATIENCE if self.answered else PATIENCE + self.upstream.connect_timeout
            self.silent = True
            try:
                await self.follow(patience, once)
                return
            except (OSError, trio.TooSlowError) as error:
                if self.silent:
                    self.found(False, str(error) or f"no answer in {patience:g} s")
                    await trio.sleep(AGAIN)

    async def follow(self, patience: float, once: bool) -> None:
        """Probe periodically on one connection. Raises OSError and TooSlowError if a response is missing."""
        with trio.fail_after(patience) as limit:
            async with own_connection(self.upstream) as sock:
                while True:
                    await check_versions(sock)
                    self.silent = False
                    self.found(True)
                    if once:
                        return
                    limit.deadline = math.inf
                    await trio.sleep(CONFIRM)
                    limit.deadline = trio.current_time() + PATIENCE

    def found(self, answered: bool, reason: str = "") -> None:
        before, self.answered, self.reason = self.answered, answered, reason
        if answered != before:
            log = self.upstream.reactor.log.bind(cluster=self.upstream.name)
            if answered:
                log.info("upstream answers")
            else:
                log.info("upstream does not answer", reason=reason)

    async def ask(self) -> None:
        """Send one probe on a separate connection. Raises OSError."""
        async with own_connection(self.upstream) as sock:
            await check_versions(sock)


async def check_versions(sock: socket.SocketType) -> None:
    """Send ApiVersions and check the response. Raises OSError for a missing or invalid response."""
    frame = await send_request(sock, QUESTION, LONGEST)
    if len(frame) < 6 or int.from_bytes(frame[4:6], "big") not in MEANT:
        raise OSError(f"expected an ApiVersions response, got {frame[:10].hex()}")


# Monitor of the clusters of the config in force: loop detection and health checks.
#
# Strategy. A config may have thousands of clusters, and may bring or take all of them at once. The cluster state is
# updated together with the config. The probe tasks start and stop afterwards, a few at a time. Each step reads the
# config in force at that time, so config changes between steps need no ordering.
class Probing(NamedTuple):
    """Running probe. `once`: it ends after the first response."""

    probe: Probe
    once: bool
    task: Background


class ClusterWatch:
    """Checks and probes of clusters, by name. `probing`: the probes that run, or have run once."""

    def __init__(self, reactor: Reactor, mark: LoopToken) -> None:
        self.reactor, self.mark = reactor, mark
        self.circles: dict[str, LoopCheck] = {}
        self.probes: dict[str, Probe] = {}
        self.probing: dict[str, Probing] = {}
        self.new: deque[LoopCheck] = deque()
        """Checks that have not started yet."""
        self.left: deque[LoopCheck] = deque()
        """Checks of clusters that were removed or are reached in another way."""
        self.once: bool | None = None
        """True: one response per cluster is enough. None: clusters are not probed."""

    def use(self, upstreams: Mapping[str, Upstream]) -> list[LoopCheck]:
        """Create a check and a probe for each new cluster, and drop those of removed clusters. Return the new
        checks."""
        new: list[LoopCheck] = []
        for name in [name for name, probe in self.probes.items() if upstreams.get(name) is not probe.upstream]:
            self.left.append(self.circles.pop(name))
            del self.probes[name]
        for name, upstream in upstreams.items():
            if name not in self.probes:
                self.circles[name], self.probes[name] = LoopCheck(upstream, self.mark), Probe(upstream)
                new.append(self.circles[name])
        return new

    def follow(self, upstreams: Mapping[str, Upstream], *, once: bool) -> None:
        """Apply `use` at runtime, and start the new checks."""
        self.new.extend(self.use(upstreams))
        if self.once is not None:
            self.once = once
        self.reactor.spawn(a_few_at_a_time, self._task_steps())

    def probe(self, *, once: bool) -> None:
        self.once = once
        self.reactor.spawn(a_few_at_a_time, self._task_steps())

    def detect_loops(self) -> None:
        """Check each cluster for connections to its brokers that lead back to kproxy."""
        self.reactor.spawn(a_few_at_a_time, map(LoopCheck.start, list(self.circles.values())))

    def leads_back(self, cluster: str) -> None:
        """Record that a loop-detection request to this cluster came back, unless the cluster was removed."""
        if cluster in self.circles:
            self.circles[cluster].found()

    def _task_steps(self) -> Iterator[None]:
        """Stop outdated tasks and start missing ones, one in each step."""
        while self.left:
            self.left.popleft().stop()
            yield
        for name, one in list(self.probing.items()):
            wanted = self.probes.get(name) is one.probe and self.once is one.once
            if not wanted and self.probing.get(name) is one:
                del self.probing[name]
                one.task.stop()
                yield
        while self.new:
            self.new.popleft().start()
            yield
        for name, probe in list(self.probes.items()):
            if self.once is not None and name not in self.probing and self.probes.get(name) is probe:
                task = Background(self.reactor.spawn, partial(probe.run, once=self.once))
                self.probing[name] = Probing(probe, self.once, task)
                yield


LOOP_RETRY = 10.0
"""Seconds until the next check while the cluster leads back."""
LOOP_TIMEOUT = 5.0
"""Seconds for the response."""


class LoopCheck:
    """Loop detection for one cluster. The request is the first frame of a separate connection, before any login."""

    def __init__(self, upstream: Upstream, mark: LoopToken) -> None:
        self.upstream, self.mark = upstream, mark
        self.log = upstream.reactor.log.bind(cluster=upstream.name)
        self.asking = self.came_back = False
        self.task: Background | None = None
        self.stopped = False

    def start(self) -> None:
        """Start a check, unless one is pending."""
        if not self.asking and not self.stopped:
            self.asking = True
            self.task = Background(self.upstream.reactor.spawn, self.run)

    def stop(self) -> None:
        """Stop checking a cluster that is no longer used. A late request that comes back would count for the cluster
        that has the name now."""
        self.stopped = True
        if self.task is not None:
            self.task.stop()

    def found(self) -> None:
        """Refuse connections to this cluster after a request to it came back to kproxy."""
        self.came_back = True
        if not self.upstream.leads_back:
            self.upstream.leads_back = True
            self.log.error("cluster leads back to kproxy, its connections are refused")
        self.start()

    async def run(self) -> None:
        """Check once, and repeat every `LOOP_RETRY` seconds while the cluster leads back."""
        try:
            while True:
                self.came_back = False
                answered = await self.ask()
                if not self.upstream.leads_back:
                    return
                if answered and not self.came_back:
                    self.upstream.leads_back = False
                    self.log.info("cluster does not lead back to kproxy any more")
                    return
                await trio.sleep(LOOP_RETRY)
        finally:
            self.asking = False

    async def ask(self) -> bool:
        """Send one request; return True if any response came."""
        upstream, settled = self.upstream, trio.Event()
        sockets: list[socket.SocketType] = []

        def won(sock: socket.SocketType, server: HostPort) -> None:
            sockets.append(sock)
            upstream.reactor.notify(settled)

        def lost(tried: dict[str, str]) -> None:
            upstream.reactor.notify(settled)

        version = upstream.config.proxy_protocol
        options = DialOptions(None if version is None else greeting(version, None), upstream.mark, None, upstream.own)
        race = Race(upstream.reactor, upstream.resolver, upstream.tls, upstream.connect_timeout,
                    list(upstream.bootstrap), won, lost, options)  # fmt: skip
        try:
            async with upstream.reactor.step:  # there may be thousands of clusters
                race.start()
            await settled.wait()
            with trio.move_on_after(LOOP_TIMEOUT):
                return bool(sockets) and await self.send_question(sockets[0])
        except OSError:
            pass
        finally:
            if not race.done:
                race.cancel()
            for sock in sockets:
                sock.close()
        return False

    async def send_question(self, sock: socket.SocketType) -> bool:
        question = self.mark.question(self.upstream.name)
        await attempt(sock, lambda: sock.send(question))
        return bool(await attempt(sock, lambda: sock.recv(4096)))
