"""Table of histories for each check of `kproxy verify`: broken ones that it finds, and lawful twins of these.

    @broken("lost-write")
    def a_write_that_readers_do_not_get(history: History) -> None: ...

    @lawful("lost-write", "order", compacted=True)
    def a_compacted_log(history: History) -> None: ...

The files of this folder fill the table. tests/tools/verify/test_cases.py verifies each history as it is, and
tests/tools/verify/test_played.py plays it through `kproxy run` and verifies the capture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from kproxy.tools.verify.finding import FindingLevel, Verdict, checks
from tests.tools.verify.history import History

Lived = Callable[[History], None]
"""Function that adds its exchanges to a history."""


@dataclass(frozen=True)
class Case:
    """History for some checks. `level`: of the finding of each of them. None for a lawful history: nothing is found,
    or nothing is proved if it is for no checks.

    `options`: of the `History`; `terms`: of the verification. `memory_only`: why the history cannot be played through
    a proxy; empty if it can. `ended`: the history ends with the Metadata and DescribeConfigs that it began with.
    `also`: other checks with possible findings.
    """

    lived: Lived
    checks: tuple[str, ...]
    level: FindingLevel | None
    options: Mapping[str, Any] = field(default_factory=dict)
    terms: Mapping[str, Any] = field(default_factory=dict)
    memory_only: str = ""
    ended: bool = True
    also: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the case in test reports."""
        kind = "broken" if self.level else "lawful" if self.checks else "unproved"
        return "-".join((kind, *self.checks[:1], self.lived.__name__, *self.terms))

    def history(self) -> History:
        """Return the history of this case."""
        made = History(**self.options)
        self.lived(made)
        made.over = not self.ended
        return made

    def judge(self, verdict: Verdict) -> None:
        """Raise AssertionError if a verdict of the history, or of its capture, is not the expected one."""
        found = {one.check: one.level for one in reversed(verdict.findings)}
        if not self.checks:
            assert "proved" not in found.values(), found
            return
        expected = {} if self.level is None else dict.fromkeys(self.checks, self.level)
        assert {check: level for check, level in found.items() if check not in self.also} == expected


CASES: list[Case] = []


def broken(
    *names: str, level: FindingLevel = "proved", terms: Mapping[str, Any] | None = None, memory_only: str = "",
    also: tuple[str, ...] = (), **options: Any,
) -> Callable[[Lived], Lived]:  # fmt: skip
    """Add a broken history. Each of these checks has a finding of this level, and no others but `also` have any."""
    return entered(Case(no_exchanges, names, level, options, terms or {}, memory_only, also=also))


def lawful(
    *names: str, assume_complete: bool = False, terms: Mapping[str, Any] | None = None, memory_only: str = "",
    also: tuple[str, ...] = (), **options: Any,
) -> Callable[[Lived], Lived]:  # fmt: skip
    """Add a lawful history for these checks: only checks of `also` find anything, with `assume_complete` as well."""
    return entered(
        Case(no_exchanges, names, None, options, terms or {}, memory_only, also=also), assume_complete=assume_complete
    )


def unproved(
    *, assume_complete: bool = False, memory_only: str = "", ended: bool = True, **options: Any
) -> Callable[[Lived], Lived]:
    """Add a lawful history without DescribeConfigs: no check proves anything, with `assume_complete` as well."""
    options = {"compacted": None, **options}
    return entered(Case(no_exchanges, (), None, options, {}, memory_only, ended), assume_complete=assume_complete)


def no_exchanges(history: History) -> None:
    """Add nothing."""


def entered(case: Case, *, assume_complete: bool = False) -> Callable[[Lived], Lived]:
    """Return the decorator that enters a history into the table. `assume_complete`: also as a complete record."""
    unknown = {*case.checks, *case.also} - set(checks())
    assert not unknown, f"expected names of checks, got {sorted(unknown)}"

    def enter(lived: Lived) -> Lived:
        CASES.append(replace(case, lived=lived))
        if assume_complete:
            CASES.append(replace(case, lived=lived, terms={**case.terms, "assume_complete": True}))
        return lived

    return enter


def cases() -> list[Case]:
    """Return all histories of this folder's files."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem != "table":
            import_module(f"tests.tools.verify.cases.{path.stem}")
    return CASES
