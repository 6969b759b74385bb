"""Run the suites of the test kits, those whose tools are there: `python -m tests.lab.kits.run [KIT …]`.

The exit code is 1 if one of them fails, or if none could be run.
"""

from __future__ import annotations

import argparse
import sys

from tests.lab.kits.suites import KIT_SUITES


def run_suites(names: list[str]) -> int:
    """Run these suites, and tell at the end what came of each. Return the exit code."""
    outcomes = {}
    for name in names:
        suite = KIT_SUITES[name]
        missing = suite.missing()
        if missing:
            outcomes[name] = f"left out, there is no {' and no '.join(missing)}"
            continue
        code = suite.run()
        outcomes[name] = f"failed, exit code {code}" if code else "passed"
    sys.stdout.write("".join(f"{name}: {outcome}\n" for name, outcome in outcomes.items()))
    said = " ".join(outcomes.values())
    return int("failed" in said or "passed" not in said)


def main() -> int:
    """Run what the command line names, by default all."""
    parser = argparse.ArgumentParser(description="the test kits of clients/, each with its language's Kafka client")
    parser.add_argument("kits", nargs="*", metavar="KIT", help=f"of {', '.join(KIT_SUITES)}")
    names = parser.parse_args().kits
    if unknown := [name for name in names if name not in KIT_SUITES]:
        parser.error(f"there is no kit {unknown[0]!r}, there are {', '.join(KIT_SUITES)}")
    return run_suites(names or list(KIT_SUITES))


if __name__ == "__main__":
    sys.exit(main())
