"""The part of RESULTS.md that `make suites` writes: what is kept, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.lab.matrix.in_front_of import WAYS
from tests.lab.pages import code, plain, write_between
from tests.lab.suites.findings import KeptFinding, kept
from tests.lab.suites.results import FAILED, UNFINISHED, counted, differences
from tests.lab.suites.table import SUITES, Suite

PAGE = Path(__file__).with_name("RESULTS.md")
BEGIN = "<!-- what make suites found -->\n"
MOST = 40
"""Tests of one list on the page; the last line has the number of others."""


def write() -> None:
    """Write the part of the page between the marks."""
    write_between(PAGE, BEGIN, render({name: kept(name) for name in SUITES}))


def render(found: Mapping[str, Mapping[str, KeptFinding]]) -> str:
    """Return the table of all suites and ways, and a section for each suite that was run."""
    lines = ["| suite | sources | way | passed | failed | skipped | unfinished | requests | differences |"]
    lines.append("|" + "---|" * 9)
    for name in SUITES:
        ways = found.get(name, {})
        lines += [row(name, way, ways) for way in WAYS]
    sections = [section(SUITES[name], found[name]) for name in SUITES if found.get(name)]
    return "\n".join([*lines, "", *sections]).rstrip() + "\n"


def row(name: str, way: str, ways: Mapping[str, KeptFinding]) -> str:
    """Return the line of a suite on a way; one that was not run says so."""
    if way not in ways:
        return f"| {name} | | {way} | | | | | | not run |"
    one = ways[way]
    source = f"{one.revision}{', quick' if one.quick else ''}; run {one.day}"
    counts = " | ".join(map(str, counted(one.finding.outcomes)))
    if way == "direct":
        return f"| {name} | {source} | {way} | {counts} | | |"
    differing = "no direct run" if "direct" not in ways else counted_differences(SUITES[name], ways, way)
    return f"| {name} | {source} | {way} | {counts} | {one.finding.requests:.0f} | {differing} |"


def counted_differences(suite: Suite, ways: Mapping[str, KeptFinding], way: str) -> str:
    """Return how many tests differ on a way, and how many of them are meant to."""
    tests = different(ways, way)
    meant = sum(suite.why(test) != "" for test in tests)
    return str(len(tests) - meant) + (f", {meant} meant" if meant else "")


def different(ways: Mapping[str, KeptFinding], way: str) -> dict[str, str]:
    """Return the tests that passed directly and not on this way, with what they came to."""
    return differences(ways["direct"].finding.outcomes, ways[way].finding.outcomes)


def section(suite: Suite, ways: Mapping[str, KeptFinding]) -> str:
    """Return the section of a suite: coverage, troubles, tests that differ with their ways, and tests that do not pass
    directly."""
    lines = [f"### {suite.name}", ""]
    lines += [f"- Coverage: {suite.left_out}."] if suite.left_out else []
    for way, one in ways.items():
        if one.finding.ended.startswith("killed"):
            lines.append(f"- {way}: {one.finding.ended}; later tests did not run.")
        lines += [f"- {way}, seen at kproxy: {plain(trouble)}" for trouble in one.finding.troubles[:MOST]]
    if "direct" in ways:
        lines += differing(suite, ways)
        outcomes = ways["direct"].finding.outcomes
        lines += listed({test: f"{one} directly" for test, one in outcomes.items() if one in (FAILED, UNFINISHED)})
    return "\n".join(lines) + "\n"


def differing(suite: Suite, ways: Mapping[str, KeptFinding]) -> Iterator[str]:
    """Yield a line for each test that passed directly and not on other ways. Meant differences are the last."""
    where: dict[str, dict[str, list[str]]] = {}
    for way in WAYS:
        if way in ways and way != "direct":
            for test, outcome in different(ways, way).items():
                where.setdefault(test, {}).setdefault(outcome, []).append(way)
    texts = {
        test: "; ".join(f"{outcome} on {', '.join(on)}" for outcome, on in found.items())
        for test, found in where.items()
    }
    meant = {test: f"{text}.\n  Meant: {suite.why(test)}" for test, text in texts.items() if suite.why(test)}
    if len(ways) > 1 and len(meant) == len(texts):
        rest = ", except meant differences" if meant else ""
        yield f"- All tests that passed directly passed on the other ways{rest}."
    yield from listed({test: text for test, text in texts.items() if test not in meant})
    yield from listed(meant)


def listed(tests: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each of the first `MOST` tests with its text, and one with the number of others."""
    for test in sorted(tests)[:MOST]:
        yield f"- {code(test)}: {tests[test]}."
    if len(tests) > MOST:
        yield f"- and {len(tests) - MOST} more"
