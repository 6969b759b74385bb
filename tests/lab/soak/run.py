"""`make soak`: kproxy between real clients and a real Kafka, while everything goes wrong; exit code 1 for a finding.

    python -m tests.lab.soak.run [--seconds N] [--seed N] [--completeness] [--keep FOLDER]

Needs Java and Kafka's jars; root for the small file system, and a C compiler for the clock that jumps.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

from kproxy.testing.kafka import Kafka
from tests.lab.soak.chaos import schedule
from tests.lab.soak.records import ids_of
from tests.lab.soak.scene import BROKER_SETTINGS, Scene
from tests.lab.soak.soak import Soak, Told

RATE = 300
"""Records a second. The point is what goes wrong, not how much goes through."""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="kproxy while brokers, workers, lines, disks and clients fail")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, help="of the schedule; drawn and printed if left out")
    parser.add_argument("--completeness", action="store_true", help="ask kproxy audit completeness, too; needs Spark")
    parser.add_argument("--keep", metavar="FOLDER", help="copy journals, logs and audit there")
    return parser.parse_args(given)


def say(line: str) -> None:
    print(line, flush=True)


def completeness(audit: Path, lake: Path) -> tuple[list[str], list[str]]:
    """Findings and facts: the pipeline misses the same events as the plain reader, and can read all lines."""
    kproxy = [sys.executable, "-m", "kproxy", "audit"]
    subprocess.run(
        [*kproxy, "run", "--until", "silver", "--from", str(audit), "--lake", str(lake), "--quiet"], check=True
    )
    asked = [*kproxy, "completeness", "--lake", str(lake), "--json", "--quiet"]
    said = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    rows = [json.loads(line) for line in said]
    pipeline = {row["source"]: (row["events"], row["missing"]) for row in rows if "source" in row}
    plain = {source: (len(ids), max(ids) - min(ids) + 1 - len(ids)) for source, ids in ids_of(audit).items()}
    wrong = [f"kproxy audit completeness says {pipeline.get(source)}, the plain reader {plain.get(source)} of {source}"
             for source in pipeline.keys() | plain.keys() if pipeline.get(source) != plain.get(source)]  # fmt: skip
    wrong += [f"kproxy audit completeness says {row}" for row in rows if "source" not in row]
    missing = sum(missing for _, missing in pipeline.values())
    return wrong, [f"kproxy audit completeness: {len(pipeline)} sources, {missing} missing"]


def main() -> int:
    """The exit code."""
    given = arguments()
    seed = SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    say(f"soak of {given.seconds:g} s, seed {seed}, load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    begun = time.monotonic()
    with Kafka(3, properties=BROKER_SETTINGS) as kafka, Scene(kafka, disk=True) as scene:
        say(f"ready after {time.monotonic() - begun:.0f} s; small disk: {'yes' if scene.small_disk else 'no'}; "
            f"clock that jumps: {'yes' if scene.clock.works else 'no'}")  # fmt: skip
        lanes = schedule(seed, given.seconds, list(kafka.brokers))
        soak = Soak(scene, rate=RATE, with_java=True, say=say)
        told = soak.told
        try:
            soak.run(lanes, given.seconds)
            if given.completeness:
                findings, facts = completeness(scene.audit, scene.folder / "lake")
                told.findings += findings
                told.facts += facts
        except BaseException:
            say(scene.logs())
            tell(told)  # what was found until then
            raise
        finally:
            if given.keep:
                keep(scene, Path(given.keep))
    tell(told)
    say(f"{len(told.findings)} findings, seed {seed}, {time.monotonic() - begun:.0f} s in all, "
        f"load {os.getloadavg()[0]:.0f}")  # fmt: skip
    return int(bool(told.findings))


def tell(told: Told) -> None:
    for fact in told.facts:
        say(fact)
    for finding in told.findings:
        say(f"FINDING: {finding}")


def keep(scene: Scene, folder: Path) -> None:
    """Copy what helps to understand a finding."""
    shutil.copytree(scene.folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("lake"))
    if scene.proxy.child is not None and scene.proxy.child.log.exists():
        shutil.copy(scene.proxy.child.log, folder / "kproxy.log")


if __name__ == "__main__":
    sys.exit(main())
