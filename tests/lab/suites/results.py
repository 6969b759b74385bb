"""Readers of what other projects' test runners print: the outcome of each test by its name.

A test that began and has no end (its process was killed, or another test took the process with it) is `unfinished`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

PASSED, FAILED, SKIPPED, UNFINISHED = "passed", "failed", "skipped", "unfinished"
OUTCOMES = (PASSED, FAILED, SKIPPED, UNFINISHED)

Outcomes = dict[str, str]
Reader = Callable[[str], Outcomes]

_GO = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED, "run": UNFINISHED}
_PYTEST = {"PASSED": PASSED, "XFAIL": SKIPPED, "SKIPPED": SKIPPED, "FAILED": FAILED, "XPASS": FAILED, "ERROR": FAILED}
_PYTEST_LINE = re.compile(r"^(?P<test>\S+\.py::.+?) (?P<word>PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS)\b")
_LIBRDKAFKA = {"PASSED": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED, "RUNNING": UNFINISHED}
_LIBRDKAFKA_LINE = re.compile(r"^\|(?P<test>[^|]+)\|(?P<word>[^|]+)\|[^|]*\|")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def go(output: str) -> Outcomes:
    """Return the outcomes in the lines of `go test -json`, by package and test."""
    found: Outcomes = {}
    for line in output.splitlines():
        event = _json(line)
        if event.get("Test") and event.get("Action") in _GO:
            found[f"{event['Package'].rpartition('/')[2]}: {event['Test']}"] = _GO[event["Action"]]
    return found


def pytest(output: str) -> Outcomes:
    """Return the outcomes in the lines of `pytest -v`. A test with several lines has the worst of them."""
    found: Outcomes = {}
    for line in output.splitlines():
        if match := _PYTEST_LINE.match(_COLOURS.sub("", line)):
            file, _, test = match["test"].partition("::")
            name = f"{file.rpartition('/')[2].removesuffix('.py')}: {test}"
            outcome = _PYTEST[match["word"]]
            if found.get(name) != FAILED:
                found[name] = outcome
    return found


def librdkafka(output: str) -> Outcomes:
    """Return the outcomes in the summary of librdkafka's test runner, by number and name."""
    found: Outcomes = {}
    for line in output.splitlines():
        if match := _LIBRDKAFKA_LINE.match(_COLOURS.sub("", line)):
            outcome, test = _LIBRDKAFKA.get(match["word"].strip()), match["test"].strip()
            if outcome is not None and test != "<MAIN>":
                found[test] = outcome
    return found


def _json(line: str) -> dict[str, str]:
    try:
        event = json.loads(line) if line.startswith("{") else {}
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def counted(outcomes: Outcomes) -> Iterator[int]:
    """Yield how many tests have each outcome, in the order of OUTCOMES."""
    words = list(outcomes.values())
    yield from (words.count(word) for word in OUTCOMES)


def differences(direct: Outcomes, through: Outcomes) -> Outcomes:
    """Return what the tests came to through kproxy that passed directly and did not pass there."""
    return {
        test: through.get(test, UNFINISHED)
        for test, outcome in direct.items()
        if outcome == PASSED and through.get(test) not in (PASSED, SKIPPED)
    }
