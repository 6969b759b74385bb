"""Measure explorations on the mock and on a real Kafka.

Rows of planted programs have the run that finds the mistake, and the smallest plan. Rows of right programs have the
outcomes of all runs.

    python -m tests.lab.explore.measure [WORDS…] [--runs N]

Each row is printed at its end, as a row of RESULTS.md. WORDS choose rows by parts of their names, such as
`kafka/right/looks_away` (default: all rows).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kproxy.testing.kafka import Kafka
from kproxy.testing.plugin import PROXIED
from tests.testing.explore import test_explored_commands, test_planted, test_real_kafka
from tests.testing.explore.conftest import Explorations, Told

TRANSACTIONAL = ("--faults=transient", "--limit=40s")
FEW_PLANS = ("retries_by_hand", "nothing_is_the_end", "looks_away")
"""Right programs that have fewer plans of one and two faults than runs are wanted: they get three."""


@dataclass(frozen=True)
class Measured:
    """Row of the table: a program on a cluster, planted or put right, and the options of its exploration. `command`:
    what is explored by `kproxy explore`; if empty, it is a file of tests."""

    cluster: str
    form: str
    file: str
    options: tuple[str, ...]
    command: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the name by which it is chosen."""
        return f"{self.cluster}/{self.form}/{self.file}"


def rows(runs: int) -> Iterator[Measured]:
    """Yield all rows. `runs`: of each right program, with one fault each, then two, then three."""
    for cluster, planted in (("mock", test_planted.ON_MOCK), ("kafka", test_real_kafka.ON_KAFKA)):
        for one in planted:
            yield Measured(cluster, "planted", one.file, (f"--runs={one.within}", "--for=300s", *one.options))
    for cluster in ("mock", "kafka"):
        for file in test_real_kafka.RIGHT:
            depth = 3 if file in FEW_PLANS else 2
            yield Measured(cluster, "right", file, (f"--runs={runs}", "--for=900s", f"--depth={depth}"))
    yield Measured("kafka", "right", "no_rewind", (f"--runs={runs}", "--for=900s", *TRANSACTIONAL))
    copy = (*test_explored_commands.COPIER, "copy")
    before, check = test_explored_commands.JUDGED
    crashes = ("--faults=crash", "--depth=1", "--jobs=4")
    yield Measured("mock", "planted", "copier", (before, f"{check}-once", *crashes, "--runs=8", "--first"), copy)
    yield Measured("mock", "right", "copier", (before, check, *crashes, f"--runs={runs}", "--for=500s"), copy)
    seed = f"--before={sys.executable} seed.py"
    java = (seed, "--jobs=2", "--depth=1", "--faults=transient", "--only=api=Heartbeat", "--runs=12", "--for=400s")
    yield Measured("kafka", "planted", "Revoked.java", (*java, "--first"), ("planted",))
    yield Measured("kafka", "right", "Revoked.java", java, ("right",))


def explored(row: Measured, kafka: Kafka | None, folder: Path) -> Told:
    """Explore the program of a row in a folder, and return what was told."""
    explorations = Explorations(folder)
    if row.command:
        command = row.command
        if kafka is not None:
            command = (*test_real_kafka.revoked_in(folder), *command)
            return explorations.explore_command(f"--upstream={kafka.bootstrap('DIRECT')}", *row.options, "--", *command)
        return explorations.explore_command(*row.options, "--", *command)
    if kafka is not None:
        explorations.write("conftest.py", test_real_kafka.conftest(kafka))
    test = "test_planted" if row.form == "planted" else "test_right"
    return explorations.explore(f"{row.file}.py::{test}", *row.options)


def shown(row: Measured, told: Told) -> str:
    """Return a row as one of Markdown: the program, where, runs, seconds, seconds of a run, outcomes, findings."""
    (test,) = told.tests
    runs, seconds = len(test["runs"]), test["exploring_seconds"]
    each = [run["seconds"] for run in test["runs"] if run["outcome"] == "passed"]
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in test["outcomes"].items())
    middle = f"{sorted(each)[len(each) // 2]:.1f}" if each else ""
    rest = f", {test['left']} plans left" if row.form == "right" else ""
    return (
        f"| {row.form}: {row.file} | {row.cluster} | {runs} in {seconds:.0f} s, {middle} s each | {outcomes}{rest} | "
        f"{'; '.join(map(finding_text, test['findings'])) or 'none'} |"
    )


def finding_text(finding: dict[str, Any]) -> str:
    """Return a finding in a line: in which run it was met, and the plan to which it was shrunk."""
    signature, shrinking = finding["signature"], finding["shrinking"]
    replays = finding["replays"] or {"failed": finding["fails"], "of": finding["of"]}
    said = " ".join([signature["message"] or signature["outcome"], *signature["checks"]])
    return (
        f"run {finding['first']}: {said}: {finding['smallest']['text']}, in {shrinking['tried']} runs "
        f"({shrinking['seconds']:.0f} s), fails in {replays['failed']} of {replays['of']}"
    )


def main() -> int:
    """Measure what is asked for. Return 1 if an exploration told nothing."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.explore.measure")
    parser.add_argument("words", nargs="*", help="parts of the names of rows")
    parser.add_argument("--runs", type=int, default=test_real_kafka.RUNS, help="runs of each right program")
    given = parser.parse_args()
    chosen = [row for row in rows(given.runs) if not given.words or any(word in row.name for word in given.words)]
    bad = 0
    with ExitStack() as stack:
        kafka = None
        if any(row.cluster == "kafka" for row in chosen):
            kafka = stack.enter_context(Kafka(1, listeners=[PROXIED]))
        for row in chosen:
            began = time.monotonic()
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kproxy-measure-")))
            told = explored(row, kafka if row.cluster == "kafka" else None, folder)
            if len(told.tests) != 1 or told.tests[0]["problem"]:
                bad += 1
                print(f"{row.name}: nothing was told:\n{told.text}", flush=True)
                continue
            print(shown(row, told), flush=True)
            said = {key: told.tests[0][key] for key in ("outcomes", "left", "seconds", "limit", "findings", "notes")}
            sys.stderr.write(json.dumps({"row": row.name, "took": time.monotonic() - began, **said}) + "\n")
            sys.stderr.flush()
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
