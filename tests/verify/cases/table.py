"""Table of histories for each check of `kproxy verify`: broken ones that it finds, and lawful twins of these.

    @broken("lost-write")
    def a_write_that_readers_do_not_get(history: History) -> None: ...

    @lawful("lost-write", "order", compacted=True)
    def a_compacted_log(history: History) -> None: ...

The files of this folder fill the table. tests/verify/test_cases.py verifies each history as it is, and
tests/verify/test_played.py plays it through `kproxy run` and verifies the capture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from kproxy.verify.checks import checks
from kproxy.verify.finding import Finding, FindingLevel, Verdict
from tests.verify.history import TOPIC, History

Lived = Callable[[History], None]
"""Function that adds its exchanges to a history."""


@dataclass(frozen=True)
class Case:
    """History for some checks. `level`: the one of the finding of each of them; None for a lawful history, in which
    they find nothing and nothing is proved. `options`: of the `History`; `terms`: of the verification. `memory_only`:
    why the history cannot be played through a proxy; empty if it can."""

    lived: Lived
    checks: tuple[str, ...]
    level: FindingLevel | None
    options: Mapping[str, Any] = field(default_factory=dict)
    terms: Mapping[str, Any] = field(default_factory=dict)
    memory_only: str = ""

    @property
    def name(self) -> str:
        """Return the name of the case in test reports."""
        return f"{'lawful' if self.level is None else 'broken'}-{self.checks[0]}-{self.lived.__name__}"

    def history(self) -> History:
        """Return the history of this case."""
        made = History(**self.options)
        self.lived(made)
        return made

    def captured_terms(self) -> Mapping[str, Any]:
        """Return the terms for a capture of this history: captures lack the values of configs."""
        return {"compacted": frozenset({TOPIC}), **self.terms} if self.options.get("compacted") else self.terms

    def judge(self, verdict: Verdict, *, captured: bool = False) -> None:
        """Raise AssertionError if a verdict of the history, or of its capture, is not the expected one."""
        found = {one.check: level(one, captured) for one in reversed(verdict.findings)}
        if self.level is None:
            assert "proved" not in found.values(), found
            assert not set(self.checks) & set(found), found
        else:
            assert {check: found.get(check) for check in self.checks} == dict.fromkeys(self.checks, self.level), found


def level(finding: Finding, captured: bool) -> FindingLevel:
    """Return the level of a finding. Captures lack the values of configs, which is no fault of the check."""
    return "proved" if captured and finding.doubts == ("compaction",) else finding.level


CASES: list[Case] = []


def broken(
    *names: str, level: FindingLevel = "proved", terms: Mapping[str, Any] | None = None, memory_only: str = "",
    **options: Any,
) -> Callable[[Lived], Lived]:  # fmt: skip
    """Add a broken history in which each of these checks has a finding of this level."""
    return entered(names, level, options, terms or {}, memory_only)


def lawful(
    *names: str, terms: Mapping[str, Any] | None = None, memory_only: str = "", **options: Any
) -> Callable[[Lived], Lived]:
    """Add a lawful history in which these checks find nothing, and no check proves anything."""
    return entered(names, None, options, terms or {}, memory_only)


def entered(
    names: tuple[str, ...], level: FindingLevel | None, options: Mapping[str, Any], terms: Mapping[str, Any],
    memory_only: str,
) -> Callable[[Lived], Lived]:  # fmt: skip
    """Return the decorator that enters a history into the table."""
    unknown = set(names) - set(checks())
    assert names and not unknown, f"expected names of checks, got {sorted(unknown)}"

    def enter(lived: Lived) -> Lived:
        CASES.append(Case(lived, names, level, options, terms, memory_only))
        return lived

    return enter


def cases() -> list[Case]:
    """Return all histories of this folder's files."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem != "table":
            import_module(f"tests.verify.cases.{path.stem}")
    return CASES
