"""Memory, descriptors and counters of kproxy's processes while it runs.

Strategy: a thread looks once a second. Of each process a line of memory is kept, whose growth is judged after a
warm-up; of the metrics that only grow, that they do, over deaths of workers, too.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from kproxy.testing.process import Proxy, children_of

from .faults import FAULTS

PAGE = os.sysconf("SC_PAGE_SIZE")
PASSING = {fault["name"] for fault in FAULTS}
"""Rules that are in the rule file for some seconds."""
WARM_UP = 60.0
"""Seconds of a process that say nothing: it compiles what it needs when it is first needed."""
SHORTEST = 60.0
"""Seconds after the warm-up from which on growth can be told from noise."""
MAY_GROW = 6.0
"""MB between the first and the last third: memory that Python's allocator has and gives to nobody. Connections and
held frames come and go; a leak goes on for as long as the run lasts."""
AT_MOST = 250.0
"""MB that no process of kproxy may have here, where a hundred connections and small frames are all that there is."""


def memory(pid: int) -> float:
    """MB that are its own and in use; 0 when it is gone."""
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except OSError:
        return 0.0
    return (resident - shared) * PAGE / 1e6


def descriptors(pid: int) -> int:
    """Open ones; 0 when it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


@dataclass
class Line:
    """Memory over time: (seconds since the process was first seen, MB)."""

    began: float
    points: list[tuple[float, float]] = field(default_factory=list)

    def growth(self) -> tuple[float, float] | None:
        """MB between the medians of the first and the last third after the warm-up, and seconds between the two; None
        when it did not live long enough."""
        warm = [point for point in self.points if point[0] >= WARM_UP]
        if len(warm) < 6 or warm[-1][0] - warm[0][0] < SHORTEST:
            return None
        third = len(warm) // 3
        first, last = warm[:third], warm[-third:]
        grown = median(mb for _, mb in last) - median(mb for _, mb in first)
        return grown, median(at for at, _ in last) - median(at for at, _ in first)


class Vitals:
    """Looks at `proxy` until the end; a context manager. `findings` are sentences."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy, self.findings = proxy, list[str]()
        self.lines: dict[int, Line] = {}
        self.most: dict[int, int] = defaultdict(int)  # descriptors
        self.looks = 0
        self.counters: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def look(self) -> None:
        """Once."""
        now = time.monotonic()
        for pid in (self.proxy.pid, *children_of(self.proxy.pid)):
            line = self.lines.setdefault(pid, Line(now))
            if mb := memory(pid):
                line.points.append((now - line.began, mb))
            self.most[pid] = max(self.most[pid], descriptors(pid))
        self._count()
        self.looks += 1

    def _count(self) -> None:
        try:
            status, text = self.proxy.get("/metrics")
        except OSError:  # a worker stands still, and the answer waits for it
            return
        if status != 200:
            self.findings.append(f"/metrics answered {status}: {text[:200]}")
            return
        now = {(name, labels): value for name, labels, value in growing(text)}
        for (name, labels), before in list(self.counters.items()):
            value = now.get((name, labels))
            passing = dict(labels).get("rule") in PASSING  # it can go and come back between two looks
            if name.startswith("kproxy_rule_") and (value is None or passing):
                del self.counters[name, labels]
            elif value is None or value < before:
                self.findings.append(f"{name}{dict(labels)} went down from {before:g} to {value}")
        self.counters.update(now)

    def total(self, name: str) -> float:
        """What a counter had when it was last looked at, all labels together."""
        return sum(value for (found, _), value in self.counters.items() if found == name)

    def memory_findings(self) -> list[str]:
        """Processes that grew, or are larger than they have a right to be."""
        found = []
        for pid, line in self.lines.items():
            what = "the supervisor" if pid == self.proxy.pid else f"worker process {pid}"
            highest = max((mb for _, mb in line.points), default=0.0)
            if highest > AT_MOST:
                found.append(f"{what} had {highest:.0f} MB")
            if (grown := line.growth()) and grown[0] > MAY_GROW:
                found.append(f"{what} grew by {grown[0]:.1f} MB within {grown[1]:.0f} s")
        return found

    def told(self) -> list[str]:
        """Memory of the processes that lived long enough, for people."""
        lines = []
        for pid, line in self.lines.items():
            if not line.points:
                continue
            what = "supervisor" if pid == self.proxy.pid else f"worker {pid}"
            grown = line.growth()
            change = "too short for a slope" if grown is None else f"{grown[0]:+.2f} MB within {grown[1]:.0f} s"
            lines.append(f"{what}: {line.points[-1][0]:.0f} s, last {line.points[-1][1]:.1f} MB, {change}, "
                         f"at most {self.most[pid]} descriptors")  # fmt: skip
        return lines

    def _run(self) -> None:
        while not self._stop.wait(1.0):
            self.look()

    def __enter__(self) -> Self:
        self.look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()


def growing(text: str) -> list[tuple[str, tuple[tuple[str, str], ...], float]]:
    """The samples of an exposition that can only grow: counters, and counts of histograms; those of kproxy itself."""
    return [
        (sample.name, tuple(sorted(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(text)
        if family.name.startswith("kproxy_")
        for sample in family.samples
        if (family.type == "counter" and sample.name.endswith("_total"))
        or (family.type == "histogram" and sample.name.endswith(("_bucket", "_count")))
    ]
