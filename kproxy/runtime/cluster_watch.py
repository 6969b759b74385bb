"""Watch over the clusters of the config in force: whether each leads back to kproxy, and whether its brokers answer.

Strategy. A config may have thousands of clusters, and may bring or take all of them at once. What is known of a
cluster follows the config in that step; the tasks that ask its brokers begin and end behind it, a few at a time. Each
step looks at what is in force then, so another config that comes meanwhile needs no order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from kproxy.runtime.io.background import Background
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.turns import a_few_at_a_time
from kproxy.runtime.upstreams.circle import CircleCheck
from kproxy.runtime.upstreams.upstream import Upstream
from kproxy.session.shared import CircleMark

from .readiness import Probe


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
