"""Test and package the test kits: `python -m tests.lab.kits.run [KIT …]`. Kits without their tools are left out.

The exit code is 1 if a kit fails, or if no kit could be run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.lab.kits.packages import PACKAGERS, PackageError
from tests.lab.kits.suites import KIT_SUITES, ROOT

STEPS = ("test", "package")
DIST = ROOT / "dist" / "kits"


def run_suites(names: list[str], steps: tuple[str, ...] = STEPS, version: str = "0.0.0", dist: Path = DIST) -> int:
    """Run these steps of these kits, and print the result of each kit. Return the exit code."""
    outcomes = {}
    for name in names:
        suite = KIT_SUITES[name]
        missing = suite.missing()
        if missing:
            outcomes[name] = f"left out, there is no {' and no '.join(missing)}"
            continue
        folder = suite.copied()
        code = suite.run(folder) if "test" in steps else 0
        if code:
            outcomes[name] = f"failed, exit code {code}"
            continue
        outcomes[name] = "passed" if "test" in steps else "packaged"
        if "package" in steps:
            dist.mkdir(parents=True, exist_ok=True)
            try:
                PACKAGERS[name](folder, dist, version)
            except (PackageError, subprocess.SubprocessError) as error:
                outcomes[name] = f"failed, {error}"
    sys.stdout.write("".join(f"{name}: {outcome}\n" for name, outcome in outcomes.items()))
    results = {outcome.partition(",")[0] for outcome in outcomes.values()}
    return int("failed" in results or results <= {"left out"})


def main() -> int:
    """Run the kits of the command line, by default all."""
    parser = argparse.ArgumentParser(description="the test kits of clients/, each with its language's Kafka client")
    parser.add_argument("kits", nargs="*", metavar="KIT", help=f"of {', '.join(KIT_SUITES)}")
    parser.add_argument("--step", choices=STEPS, action="append", help="only this step (default: test and package)")
    parser.add_argument("--version", default="0.0.0", help="version of the packages (default: %(default)s)")
    options = parser.parse_args()
    names = options.kits
    if unknown := [name for name in names if name not in KIT_SUITES]:
        parser.error(f"there is no kit {unknown[0]!r}, there are {', '.join(KIT_SUITES)}")
    return run_suites(names or list(KIT_SUITES), tuple(options.step or STEPS), options.version)


if __name__ == "__main__":
    sys.exit(main())
