"""Readiness to serve clients: what is missing for all of them, and, as probes find, for those of each cluster.

Strategy. Each cluster is asked ApiVersions now and then, on a connection that is kept for that, logged in where kproxy
does that, so that a cluster pays one small request each time. When nothing comes on it, another broker is tried before
the cluster counts as lost: connections end for many reasons, and one broker is not the cluster.
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
from kproxy.session.shared import CircleMark

from .protocols import HostPort

LOOK = 0.25
"""Seconds between two looks while it is not ready, so that it is said when it is true."""
LOOK_AGAIN = 1.0
"""Seconds between two looks afterwards."""

AGAIN = 1.0
"""Seconds to the next question while there is no answer."""
CONFIRM = 2.0
"""Seconds to the next question after an answer."""
PATIENCE = 3.5
"""Seconds that an answer may take, and after it was not there in time a new connection with its answer: a cluster that
is lost is noticed within CONFIRM + 2 × PATIENCE, that is nine."""
QUESTION = bytes.fromhex("0000001000120000000000010006") + b"kproxy"
"""ApiVersions v0, the one request that every broker since 0.10 answers, before authentication, too (KIP-35)."""
MEANT = (35, 0)
"""Error codes that are an answer: a version not supported is one as well."""
LONGEST = 1 << 20
"""Bytes of an answer."""

DRAINING = "nothing, it is draining"
GOING_TO_END = "nothing, it is going to end"
"""Reasons for not being ready after a signal to end. The log has lines of its own for them."""

ClusterNeed = Literal["any", "all"]
"""Clusters that have to answer."""


class Readiness(msgspec.Struct, frozen=True):
    """Missing conditions: `own` whatever clients want, `clusters` by cluster; none: its brokers answer."""

    own: Sequence[str]
    clusters: Mapping[str, Sequence[str]]

    def waiting_for(self, need: ClusterNeed) -> list[str]:
        """Return what is missing of the whole; empty when it is ready."""
        dead = [reason for reasons in self.clusters.values() for reason in reasons]
        return [*self.own, *(dead if need == "all" or all(self.clusters.values()) else ())]

    def flags(self, need: ClusterNeed) -> tuple[bool, dict[str, bool]]:
        """Return whether the whole is ready, and each cluster, as metrics tell it."""
        return not self.waiting_for(need), {name: not self.of(name) for name in self.clusters}

    def of(self, cluster: str) -> list[str]:
        """Return what is missing for the clients of that cluster. Raises KeyError when there is none."""
        return [*self.own, *self.clusters[cluster]]


def together(own: Sequence[str], clusters: Sequence[str], workers: Mapping[int, Readiness | str]) -> Readiness:
    """Combine the readiness of several processes; a worker that gives none is a reason of its own."""
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


async def tell(ask: Callable[[], Awaitable[list[str]]], log: FilteringBoundLogger, fields: Mapping[str, Any]) -> None:
    """Log when kproxy becomes ready, and when it is not any more, until cancelled."""
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
    """Probe of one cluster. `answered`: its brokers answered the last time. `silent`: nothing has come yet on the
    connection that there is now."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.answered, self.silent = False, True
        self.reason = "not asked yet"

    async def run(self, *, once: bool = False) -> None:
        """Ask until cancelled or, with `once`, until an answer has come."""
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
        """Ask on one connection again and again. Raises OSError and TooSlowError when no answer comes."""
        with trio.fail_after(patience) as limit:
            async with own_connection(self.upstream) as sock:
                while True:
                    await talk(sock)
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
        """Ask one question on a connection of its own. Raises OSError."""
        async with own_connection(self.upstream) as sock:
            await talk(sock)


async def talk(sock: socket.SocketType) -> None:
    """Send ApiVersions and check the answer. Raises OSError when none comes, or one that is no answer to it."""
    frame = await send_request(sock, QUESTION, LONGEST)
    if len(frame) < 6 or int.from_bytes(frame[4:6], "big") not in MEANT:
        raise OSError(f"answered ApiVersions with {frame[:10].hex()}, which is no answer to it")


# Watch over the clusters of the config in force: whether each leads back to kproxy, and whether its brokers answer.
#
# Strategy. A config may have thousands of clusters, and may bring or take all of them at once. What is known of a
# cluster follows the config in that step; the tasks that ask its brokers begin and end behind it, a few at a time. Each
# step looks at what is in force then, so another config that comes meanwhile needs no order.
class Probing(NamedTuple):
    """Probe at work. `once`: until its cluster has answered."""

    probe: Probe
    once: bool
    task: Background


class ClusterWatch:
    """Checks and probes of clusters, by name. `probing`: the probes that run, or have run once."""

    def __init__(self, reactor: Reactor, mark: CircleMark) -> None:
        self.reactor, self.mark = reactor, mark
        self.circles: dict[str, CircleCheck] = {}
        self.probes: dict[str, Probe] = {}
        self.probing: dict[str, Probing] = {}
        self.new: deque[CircleCheck] = deque()
        """Checks that are to ask for the first time."""
        self.left: deque[CircleCheck] = deque()
        """Checks of clusters that are gone, or are reached in another way."""
        self.once: bool | None = None
        """True if one answer of each cluster is enough; None while none is to be probed."""

    def use(self, upstreams: Mapping[str, Upstream]) -> list[CircleCheck]:
        """Have a check and a probe for each of these clusters, and none for those that are gone. Return the checks that
        are new."""
        new: list[CircleCheck] = []
        for name in [name for name, probe in self.probes.items() if upstreams.get(name) is not probe.upstream]:
            self.left.append(self.circles.pop(name))
            del self.probes[name]
        for name, upstream in upstreams.items():
            if name not in self.probes:
                self.circles[name], self.probes[name] = CircleCheck(upstream, self.mark), Probe(upstream)
                new.append(self.circles[name])
        return new

    def follow(self, upstreams: Mapping[str, Upstream], *, once: bool) -> None:
        """Do the same while kproxy runs, and ask those that are new."""
        self.new.extend(self.use(upstreams))
        if self.once is not None:
            self.once = once
        self.reactor.spawn(a_few_at_a_time, self._settle())

    def probe(self, *, once: bool) -> None:
        self.once = once
        self.reactor.spawn(a_few_at_a_time, self._settle())

    def look_for_circles(self) -> None:
        """Check each cluster for connections to its brokers that lead back to kproxy."""
        self.reactor.spawn(a_few_at_a_time, map(CircleCheck.start, list(self.circles.values())))

    def leads_back(self, cluster: str) -> None:
        """Note that a question to this cluster has come back, unless the config has it no more."""
        if cluster in self.circles:
            self.circles[cluster].found()

    def _settle(self) -> Iterator[None]:
        """End and begin tasks, one in each step, until there are those that there should be."""
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
"""Seconds to the next question while it leads back."""
LOOP_TIMEOUT = 5.0
"""Seconds for the answer."""


class CircleCheck:
    """Check of one cluster. The question goes out before any login, as the first frame of a connection of its own."""

    def __init__(self, upstream: Upstream, mark: CircleMark) -> None:
        self.upstream, self.mark = upstream, mark
        self.log = upstream.reactor.log.bind(cluster=upstream.name)
        self.asking = self.came_back = False
        self.task: Background | None = None
        self.stopped = False

    def start(self) -> None:
        """Ask, unless a question is under way."""
        if not self.asking and not self.stopped:
            self.asking = True
            self.task = Background(self.upstream.reactor.spawn, self.run)

    def stop(self) -> None:
        """Ask no more: no connections are made to this cluster any more. A question to one that led back would be
        taken for one to the cluster that has its name now."""
        self.stopped = True
        if self.task is not None:
            self.task.stop()

    def found(self) -> None:
        """Refuse connections to this cluster: a question to it has come back to kproxy."""
        self.came_back = True
        if not self.upstream.leads_back:
            self.upstream.leads_back = True
            self.log.error("cluster leads back to kproxy, its connections are refused")
        self.start()

    async def run(self) -> None:
        """Ask once, and again every `LOOP_RETRY` seconds while the cluster leads back."""
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
        """Ask one question; return True if somebody has answered it."""
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
                return bool(sockets) and await self.talk(sockets[0])
        except OSError:
            pass
        finally:
            if not race.done:
                race.cancel()
            for sock in sockets:
                sock.close()
        return False

    async def talk(self, sock: socket.SocketType) -> bool:
        question = self.mark.question(self.upstream.name)
        await attempt(sock, lambda: sock.send(question))
        return bool(await attempt(sock, lambda: sock.recv(4096)))
