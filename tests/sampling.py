"""The part of the tests that a run with `--sample` takes, as `make test` does, and with `--quick` a part of that part,
as `make quick` does.

Strategy. Of a test function with many sets of parameters a run takes one in so many, by the table below, and at least
one of each function; some functions that take long take turns as a whole. A number decides which: the day's, so that
everything has run after some days, or the one that is given (`make test SAMPLE=NUMBER`). `make test-all` and a plain
`pytest` take all of them. The last lines of a run say the number and how many tests were left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

PARTS = {
    "tests/docs/test_develop_pages.py": (2, 4),
    "tests/docs/": (1, 1),
    "tests/test_howto_pages.py": (2, 2),
    "tests/test_": (1, 1),  # pages: each is a test of its own
    "tests/isolation/": (1, 1),  # who gets around a rule does so in the one API and version that nobody tried
    "tests/session/test_addresses.py": (1, 1),
    "tests/record/observer/test_credentials.py": (1, 1),
    "tests/access/": (2, 2),
    "tests/admin/test_stretches.py": (24, 8),
    "tests/clients/": (2, 2),
    "tests/session/test_hostile_records.py": (2, 2),
    "tests/session/test_linear.py": (2, 2),
    "tests/e2e/": (2, 2),
    "tests/faults/": (2, 2),
    "tests/kafka/test_error_answers.py": (24, 4),
    "tests/kafka/test_java_messages.py": (24, 4),
    "tests/kafka/": (2, 2),
    "tests/runtime/": (2, 2),
    "tests/lake/": (2, 2),
    "tests/quota/": (2, 3),
    "tests/rules/test_large_documents.py": (2, 2),
    "tests/test_large_configs.py": (2, 3),
    "tests/tools/verify/test_recorded_faults.py": (2, 8),
    "tests/": (12, 6),
}
"""By how the path begins, the first that fits: from how many sets on one in how many is taken."""

TURNS = (
    (3, ("tests/lake/gold/jobs/test_gold.py::", "tests/lake/gold/test_partial.py::test_merging")),
    (3, ("tests/lake/jobs/test_take.py::test_killed", "tests/lake/jobs/test_take.py::test_stopped",
         "tests/lake/jobs/test_silver.py::test_workers")),
    (3, ("tests/lake/commands/test_kafka.py", "tests/lake/commands/test_submit.py",
         "tests/lake/test_real_traffic.py")),
    (2, ("tests/lake/gold/test_violations.py::",)),
    (2, ("tests/lake/jobs/test_clean.py", "tests/lake/jobs/test_compact.py::",
         "tests/lake/whatif/test_job.py")),
    (2, ("tests/kafka/test_secrets.py::",)),
    (2, ("tests/tools/replay/test_to_kafka.py::",)),
    (2, ("tests/tools/verify/test_recorded_clean.py", "tests/tools/verify/test_recorded_copier.py")),
    (2, ("tests/kafka/test_audit_topic.py::", "tests/kafka/test_brokers.py::test_a_broker_stops")),
)  # fmt: skip
"""What takes long and is about one thing: of each group one in so many is taken. A file is taken or left as a whole,
with what it sets up; behind `::` each function has a turn of its own."""


QUICK = 4
"""A quick run takes of sets one in so many of what the table says, from two sets on."""
QUICK_TURNS = (
    (4, ("tests/admin/test_api_machine.py::", "tests/admin/test_held_stretches.py::", "tests/admin/test_stretches.py::",
         "tests/session/test_fetch_isolation.py::", "tests/session/test_session_machine.py::",
         "tests/runtime/test_rules_at_work.py::test_a_d", "tests/runtime/test_taps_turmoil.py::",
         "tests/runtime/test_turns.py::", "tests/record/observer/test_chunks.py::test_random_cuts",
         "tests/app/test_config_sequences.py::", "tests/rules/test_large_documents.py::",
         "tests/rules/test_store_machine.py::", "tests/record/audit/test_kafka_outlet.py::",
         "tests/testing/test_injected.py::", "tests/test_large_configs.py::", "tests/tools/verify/test_bounds.py::")),
)  # fmt: skip
"""`TURNS` of a quick run, besides those of each sample: functions that take a second or more."""


def part_of(function: str, count: int, number: int, quick: bool = False) -> set[int]:
    """Return the places, of `count` sets of parameters, that sample `number` takes of a function with this node id."""
    least, one_in = next(rule for path, rule in PARTS.items() if function.startswith(path))
    if quick:
        least, one_in = 2, one_in * QUICK
    if count < least:
        return set(range(count))
    order = list(range(count))
    Random(function).shuffle(order)
    parts = min(one_in, count)
    return set(order[number % parts :: parts])


def sampled(nodeids: Iterable[str], number: int, quick: bool = False) -> set[str]:
    """Return the node ids that sample `number` takes of these; `quick`: in a quick run."""
    functions: dict[str, list[str]] = defaultdict(list)
    numbers: dict[str, int] = {}
    for nodeid in nodeids:
        functions[nodeid.partition("[")[0]].append(nodeid)
    for one_in, paths in (*TURNS, *(QUICK_TURNS if quick else ())):
        of_unit: dict[str, list[str]] = defaultdict(list)
        for function in functions:
            for path in paths:
                if function.startswith(path):
                    of_unit[function if "::" in path else path].append(function)
        for place, unit in enumerate(sorted(of_unit)):
            for function in of_unit[unit]:
                if (place + number) % one_in:
                    del functions[function]
                else:
                    numbers[function] = number // one_in  # else it would always be the same set's turn
    return {
        sets[place]
        for function, sets in functions.items()
        for place in part_of(function, len(sets), numbers.get(function, number), quick)
    }


def number_of(word: str) -> int:
    """Return the number of the sample of that name: a number, or `today`."""
    return datetime.now(UTC).date().toordinal() if word == "today" else int(word)


class Sample:
    """Plugin of one run of pytest that leaves out what is not in its sample."""

    def __init__(self, number: int, quick: bool) -> None:
        self.number, self.quick = number, quick
        self.left_out = 0

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Take out the tests that are not in the sample."""
        mine = sampled((item.nodeid for item in items), self.number, self.quick)
        others = [item for item in items if item.nodeid not in mine]
        if others:
            self.left_out = len(others)
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if item.nodeid in mine]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the main process of xdist what a worker has left out."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["not in the sample"] = self.left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take over what a worker has left out: all of them leave out the same."""
        self.left_out = getattr(node, "workeroutput", {}).get("not in the sample", self.left_out)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how many tests are not in the sample."""
        terminalreporter.write_line(
            f"sample {self.number}: {self.left_out} tests are left for other days; make test-all runs them all"
        )
