"""`kproxy test`: run the tests of rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kproxy.base.errors import DocumentError
from kproxy.base.terminal import StyledLine, print_styled, say

if TYPE_CHECKING:
    from kproxy.tools.rehearse.cases.document import Ready
    from kproxy.tools.rehearse.cases.play import CaseFailure

DEFAULT = "rules"


@dataclass
class FileReport:
    """Results of the tests of one file. If it has `mistakes`, lines with their places, then no test was played.
    `left_out` counts the tests that were not asked for."""

    file: Path
    played: list[tuple[Ready, list[CaseFailure]]] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)
    left_out: int = 0

    @property
    def failed(self) -> int:
        """Return how many of the tests that were played do not hold."""
        return sum(1 for _, failures in self.played if failures)


@click.command("test")
@click.argument("paths", metavar="[PATHS…]", nargs=-1, type=click.Path(exists=True))
@click.option("-k", "words", metavar="TEXT", help="Only tests whose file or name has this in it, in any case.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of test files instead, for editors.")
@click.pass_context
def command(ctx: click.Context, paths: tuple[str, ...], words: str | None, schema: bool) -> None:
    """Run the tests of rules: files NAME.test.yaml, most of them beside the NAME.yaml that they are about.

    PATHS are such files, or folders of them; rules/ if left out. No broker is needed and no time passes: each test is
    a dialogue of frames. Exit code 1 if a test fails, or a file has mistakes, or there is no test at all.
    """
    if schema:
        from kproxy.cli.printouts import tests_schema

        say(json.dumps(tests_schema(), indent=2))
        return
    if not paths and not Path(DEFAULT).is_dir():
        raise click.UsageError(f"there is no folder {DEFAULT}/ here, say where the tests are: kproxy test PATHS…")
    reports = list(run(paths or (DEFAULT,), words))
    print_styled(lines_of(reports))
    ctx.exit(0 if all_good(reports) else 1)


def run(paths: tuple[str, ...], words: str | None = None) -> Iterator[FileReport]:
    """Play the tests of all files, or those with `words` in file or name. Mistakes are reported, not raised."""
    from kproxy.tools.rehearse.cases.document import case_files, load_cases
    from kproxy.tools.rehearse.cases.play import play

    for file in case_files(paths):
        report = FileReport(file)
        try:
            for ready in load_cases(file):
                if words is None or words.lower() in f"{file} {ready.name}".lower():
                    report.played.append((ready, play(ready)))
                else:
                    report.left_out += 1
        except DocumentError as error:
            report.mistakes = error.mistakes
        yield report


def all_good(reports: list[FileReport]) -> bool:
    """Return True if tests were played, and all of them hold."""
    played = sum(len(report.played) for report in reports)
    return played > 0 and not any(report.failed or report.mistakes for report in reports)


def lines_of(reports: list[FileReport]) -> Iterator[StyledLine]:
    """Yield the lines of the printed report; the last one sums up."""
    for report in reports:
        if not report.mistakes and not report.played:
            continue
        yield StyledLine(str(report.file), "bold")
        for mistake in report.mistakes:
            yield StyledLine(f"  {mistake}", "red")
        for ready, failures in report.played:
            yield StyledLine(f"  {'FAIL' if failures else 'ok  '}  {ready.name}", "red" if failures else "green")
            for failure in failures:
                yield StyledLine(f"        {failure.position}: {failure.what}")
                yield from diff(failure)
    yield summary(reports)


def diff(failure: CaseFailure) -> Iterator[StyledLine]:
    """Yield the differences of a failure, value by value: its path, what was expected, what was found."""
    for path, expected, found in failure.differences:
        if path:
            yield StyledLine(f"          {path}", "bold")
        yield StyledLine(f"            expected  {expected}", "green")
        yield StyledLine(f"            found     {found}", "red")


def summary(reports: list[FileReport]) -> StyledLine:
    """Return the line that counts the tests passed, failed and left out, and the mistakes."""
    played, failed = sum(len(report.played) for report in reports), sum(report.failed for report in reports)
    mistakes, left_out = sum(len(report.mistakes) for report in reports), sum(report.left_out for report in reports)
    parts = [f"{played - failed} passed"] if played else []
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{mistakes} mistake{'s'[: mistakes != 1]}"] if mistakes else []
    parts += [f"{left_out} left out"] if left_out else []
    if not parts:
        return StyledLine("no tests found: they are in files called NAME.test.yaml", "yellow")
    if not played and not mistakes:
        return StyledLine(f"no test has that in its name, {left_out} left out", "yellow")
    return StyledLine(", ".join(parts), "green" if all_good(reports) else "red")
