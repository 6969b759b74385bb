"""Markers of tests, the fixed part of each sweep that a run takes, and the order of a run with several workers.

`make test` takes what is not marked `deep`. `make test-all` takes everything. Markers:

- `process`, `kafka`, `spark`, `tools(NAME, ...)`: what a test needs beyond Python. A file sets them with `pytestmark`;
  `FOLDERS` sets them for whole folders. A test without them that starts a process fails.
- `deep`: takes long, and is about something that other tests cover in a shorter form. Of a function with many sets of
  parameters, `SWEEPS` says how many stay; the others become `deep`. The choice is the same in every run.

Tests of one file run in one worker, and so do the files of one group in `GROUPS`.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.built_programs import BUILT, find_program

MARKERS = (
    "process: starts processes",
    "kafka: needs a JVM and Kafka's jars",
    "spark: needs a JVM and Spark",
    "tools(name, ...): needs these programs of the system",
    "deep: runs in `make test-all` only",
    "measured: compares CPU time with a limit; `make stretches` runs these tests alone",
)
FOLDERS = {
    "tests/access/": "kafka",
    "tests/clients/": "kafka",
    "tests/faults/": "kafka",
    "tests/kafka/": "kafka",
    "tests/lab/soak/": "kafka",
    "tests/quota/": "kafka",
    "tests/lake/": "spark",
    "tests/admin/page/": "process",
    "tests/app/workers/": "process",
    "tests/deploy/": "process",
    "tests/docs/": "process",
    "tests/e2e/": "process",
    "tests/lab/bench/": "process",
}
WORKERS = (1, 2) if os.environ.get("KPROXY_TEST_ALL") else (1,)
"""Numbers of workers for tests that also hold with one. Tests of workers have their own numbers."""
SWEEPS = {
    "tests/docs/": (1, 1),
    "tests/test_large_configs.py": (6, 3),
    "tests/test_howto_pages.py": (2, 3),
    "tests/test_docs.py": (2, 2),
    "tests/test_": (1, 1),  # pages: each is a test of its own
    "tests/isolation/test_quota_reconnects.py": (24, 4),
    "tests/isolation/": (1, 1),  # a way around a rule may exist in one API and version only
    "tests/lab/matrix/test_matrix.py": (1, 1),  # `make matrix` asks for every client and broker
    "tests/session/test_addresses.py": (1, 1),
    "tests/record/observer/test_credentials.py": (1, 1),
    "tests/record/observer/test_many_open.py": (2, 4),
    "tests/admin/test_stretches.py": (24, 8),
    "tests/admin/page/": (2, 4),
    "tests/cli/": (3, 3),
    "tests/session/test_hostile_records.py": (2, 8),
    "tests/session/test_linear.py": (2, 3),
    "tests/kafka/test_error_answers.py": (24, 4),
    "tests/kafka/test_java_messages.py": (24, 4),
    "tests/rules/test_large_documents.py": (2, 8),
    "tests/tools/verify/test_recorded_faults.py": (2, 8),
    "tests/protocol/test_golden.py": (4, 3),
    "tests/session/test_bounded_work.py": (6, 8),
    **dict.fromkeys(("tests/access/", "tests/clients/", "tests/e2e/", "tests/faults/", "tests/kafka/"), (2, 4)),
    **dict.fromkeys(("tests/runtime/", "tests/lake/", "tests/quota/", "tests/testing/"), (2, 4)),
    "tests/": (12, 6),
}
"""By the first prefix that fits: a function with at least so many sets of parameters keeps one in so many."""
CHOICE = 739_948
"""Decides which sets of a sweep stay. Any number does."""
GROUPS = {
    "Spark": ("tests/lake/",),
    "three brokers": (
        *(f"tests/clients/test_{name}.py" for name in ("aiokafka", "confluent", "java", "kafka_python", "max_age")),
        *(f"tests/clients/test_{name}.py" for name in ("racks", "telemetry")),
        *(f"tests/kafka/test_{name}.py" for name in ("admin", "brokers", "bypass", "offsets")),
        "tests/faults/test_leaders.py",
    ),
    "Java's messages": ("tests/kafka/test_error_answers.py", "tests/kafka/test_java_"),
    "one broker": ("tests/access/", "tests/faults/", "tests/quota/"),
    "clusters": ("tests/kafka/",),
    "browser": ("tests/admin/page/",),
    "recordings": ("tests/tools/replay/test_to_kafka.py", "tests/tools/replay/test_serve.py"),
}
"""Files that share something heavy, by the prefixes of their paths."""
SECONDS = {
    "Spark": 200,
    "three brokers": 130,
    "Java's messages": 50,
    "clusters": 130,
    "one broker": 90,
    "browser": 100,
    "recordings": 35,
    "tests/docs/test_contributing.py": 40,
    "tests/test_docs.py": 30,
    "tests/testing/test_pytest_plugin.py": 30,
    "tests/e2e/test_drain.py": 30,
}
"""Seconds of groups and of the slowest files. They decide the order only."""
SECONDS_OF_A_TEST = {"kafka": 1.0, "process": 0.5, "": 0.015}
JVM = ("java", "javac", "mvn")
NEEDED = {"kafka": JVM, "spark": JVM}
"""Programs of the system that a marker implies."""
STARTS = frozenset(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"))
"""Audit events of a process that starts another one."""


def kept_sets(function: str, count: int) -> set[int]:
    """Return the places, of `count` sets of parameters, that every run takes of a function with this node id."""
    least, one_in = next((rule for path, rule in SWEEPS.items() if function.startswith(path)), (1, 1))
    if count < least:
        return set(range(count))
    order = list(range(count))
    Random(function).shuffle(order)
    parts = min(one_in, count)
    return set(order[CHOICE % parts :: parts])


def left_out_sets(nodeids: Iterable[str]) -> set[str]:
    """Return the node ids of the sets of parameters that only `make test-all` runs."""
    functions: dict[str, list[str]] = defaultdict(list)
    for nodeid in nodeids:
        functions[nodeid.partition("[")[0]].append(nodeid)
    return {
        nodeid
        for function, sets in functions.items()
        for kept in [kept_sets(function, len(sets))]
        for place, nodeid in enumerate(sets)
        if place not in kept
    }


def group_of(nodeid: str) -> str:
    """Return the unit that goes to one worker: a group, or a file."""
    file = nodeid.partition("::")[0]
    return next((name for name, paths in GROUPS.items() if file.startswith(paths)), file)


class Groups(LoadScopeScheduling):
    """Scheduler of xdist that gives groups and files to workers in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


class Selection:
    """Plugin of one run: sets markers, leaves out tests whose programs are missing, and sorts."""

    running = ""

    def __init__(self) -> None:
        self.missing: Counter[str] = Counter()
        sys.addaudithook(self.on_audit)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Set the markers before `-m` selects by them, and take out the tests whose programs are missing."""
        # Sets with a marker of their own do not count: such a set would be the only one of its function.
        swept = (
            item.nodeid
            for item in items
            if item.get_closest_marker("deep") is None and item.get_closest_marker("measured") is None
        )
        deep = set() if os.environ.get("KPROXY_TEST_ALL") else left_out_sets(swept)
        there: dict[str, bool] = {}
        left_out = []
        for item in items:
            folder = next((marker for path, marker in FOLDERS.items() if item.nodeid.startswith(path)), None)
            if folder:
                item.add_marker(folder)
            if item.nodeid in deep:
                item.add_marker("deep")
            names = {marker.name for marker in item.iter_markers()}
            if names & {"kafka", "spark"}:
                item.add_marker("process")
            needed = {program for name in names for program in NEEDED.get(name, ())}
            needed |= {program for marker in item.iter_markers("tools") for program in marker.args}
            for program in needed - there.keys():
                there[program] = find_program(program) is not None
            lacking = sorted(program for program in needed if not there[program])
            if lacking:
                words = [f"{one} (make programs builds it)" if one in BUILT else one for one in lacking]
                self.missing[" and ".join(words)] += 1
                left_out.append(item)
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            gone = set(left_out)
            items[:] = [item for item in items if item not in gone]
        if hasattr(config, "workerinput"):
            longest_first(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Groups | None:
        """Keep groups together where whole files go to workers anyway."""
        if config.getvalue("dist") != "loadfile":
            return None
        config.option.loadscopereorder = False  # else xdist sorts by the number of tests
        return Groups(config, log)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send a worker's counts to the main process of xdist."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["missing"] = dict(self.missing)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take over the counts of a worker. All workers collect the same tests."""
        self.missing = Counter(getattr(node, "workeroutput", {}).get("missing", self.missing))

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Report how many tests were left out, by missing program."""
        for programs, count in sorted(self.missing.items()):
            terminalreporter.write_line(f"left out: {count} tests, there is no {programs}", yellow=True)

    def on_audit(self, event: str, arguments: tuple[object, ...]) -> None:
        """Raise RuntimeError if a test without the marker `process` starts a process."""
        if self.running and event in STARTS:
            raise RuntimeError(f"{self.running} starts a process: its file needs the marker `process`")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Watch a test without the marker `process`, with its fixtures."""
        self.running = "" if item.get_closest_marker("process") else item.nodeid
        try:
            return (yield)
        finally:
            self.running = ""


def longest_first(items: list[pytest.Item]) -> None:
    """Sort units so that the longest come first, each in one piece and in its own order."""
    groups = {item: group_of(item.nodeid) for item in items}
    seconds: dict[str, float] = defaultdict(float)
    for item, group in groups.items():
        marker = next((name for name in ("kafka", "process") if item.get_closest_marker(name)), "")
        seconds[group] += SECONDS_OF_A_TEST[marker]
    seconds.update({group: SECONDS[group] for group in seconds if group in SECONDS})
    order = sorted(seconds, key=lambda group: -seconds[group])
    place = {group: number for number, group in enumerate(order)}
    items.sort(key=lambda item: place[groups[item]])
