"""`kproxy test`: run the tests of rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kproxy.base.errors import DocumentError
from kproxy.base.terminal import StyledLine, counted, print_styled, say
from kproxy.cli.reports import (
    FORMS,
    Case,
    Outputs,
    Problem,
    Report,
    checkout_path,
    problem_at,
    report_option,
    write_report,
)

if TYPE_CHECKING:
    from kproxy.tools.rehearse.cases.document import Ready
    from kproxy.tools.rehearse.cases.play import CaseFailure

DEFAULT = "rules"
RULES = {
    "failed-test": "kproxy's output differs from a test of rules.",
    "invalid-tests": "A test file, or a rule file that it tests, has an error.",
    "no-tests": "No test was found, or none has the text of -k.",
}


@dataclass
class FileReport:
    """Results of the tests of one file. `errors`: lines with their places; with any, no test was run.
    `left_out`: number of tests that were not selected."""

    file: Path
    played: list[tuple[Ready, list[CaseFailure]]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    left_out: int = 0

    @property
    def failed(self) -> int:
        return sum(1 for _, failures in self.played if failures)


@click.command("test")
@click.argument("paths", metavar="[PATHS…]", nargs=-1, type=click.Path(exists=True))
@click.option("-k", "words", metavar="TEXT", help="Run only tests with this text in file or name, in any case.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of test files, for editors.")
@report_option(*FORMS)
@click.pass_context
def command(ctx: click.Context, paths: tuple[str, ...], words: str | None, schema: bool, output: Outputs) -> None:
    """Run rule tests: files NAME.test.yaml, usually in the folder of the rule file NAME.yaml that they test.

    PATHS are such files, or folders of them (default: rules/). No broker runs and no time passes: each test is a
    dialogue of frames. The exit code is 1 if a test fails, a file has errors, or no test was found.
    """
    if schema:
        from kproxy.cli.printouts import identified_schema

        say(json.dumps(identified_schema("tests"), indent=2))
        return
    if not paths and not Path(DEFAULT).is_dir():
        raise click.UsageError(f"folder not found: {DEFAULT}/ (give paths: kproxy test PATHS…)")
    reports = list(run(paths or (DEFAULT,), words))
    if output:
        write_report(report_of(reports), output)
    if output.printed == "text":
        print_styled(lines_of(reports))
    ctx.exit(0 if all_good(reports) else 1)


def run(paths: tuple[str, ...], words: str | None = None) -> Iterator[FileReport]:
    """Run the tests of all files, or those with `words` in file or name. Errors are reported, not raised."""
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
            report.errors = error.mistakes
        yield report


def all_good(reports: list[FileReport]) -> bool:
    """Return True if tests were run, and all of them passed."""
    played = sum(len(report.played) for report in reports)
    return played > 0 and not any(report.failed or report.errors for report in reports)


def lines_of(reports: list[FileReport]) -> Iterator[StyledLine]:
    """Yield the lines of the printed report; the last one sums up."""
    for report in reports:
        if not report.errors and not report.played:
            continue
        yield StyledLine(str(report.file), "bold")
        for error in report.errors:
            yield StyledLine(f"  {error}", "red")
        for ready, failures in report.played:
            yield StyledLine(f"  {'FAIL' if failures else 'ok  '}  {ready.name}", "red" if failures else "green")
            for failure in failures:
                yield StyledLine(f"        {failure.position}: {failure.what}")
                yield from diff(failure)
    yield summary(reports)


def report_of(reports: list[FileReport]) -> Report:
    """Return a suite for each file, and a case for each test or for all errors of the file."""
    cases = []
    for report in reports:
        file = str(report.file)
        if report.errors:
            problems = [problem_at(error, {file}, "invalid-tests") for error in report.errors]
            cases.append(Case(file, "(file)", "error", problems, file=file))
        cases += [case_of(file, ready, failures) for ready, failures in report.played]
    text, good = summary(reports).text, all_good(reports)
    if not good and not cases:
        cases.append(Case("kproxy test", "(no tests)", "error", [Problem("no-tests", "error", text)]))
    return Report("test", int(not good), text, cases, RULES)


def case_of(file: str, ready: Ready, failures: list[CaseFailure]) -> Case:
    problems = []
    for failure in failures:
        problem = problem_at(f"{failure.position}: {failure.what}", {file}, "failed-test")
        problem.about, problem.details = ready.name, [line.text.strip() for line in diff(failure)]
        problem.identity = "failed-test", checkout_path(file), ready.name, failure.what
        problems.append(problem)
    line, _ = ready.source.place((*ready.at, "name"))
    return Case(file, ready.name, "failed" if failures else "passed", problems, file=file, line=line)


def diff(failure: CaseFailure) -> Iterator[StyledLine]:
    """Yield the differences of a failure, value by value: its path, what was expected, what was found."""
    for path, expected, found in failure.differences:
        if path:
            yield StyledLine(f"          {path}", "bold")
        yield StyledLine(f"            expected  {expected}", "green")
        yield StyledLine(f"            found     {found}", "red")


def summary(reports: list[FileReport]) -> StyledLine:
    """Return the line with the numbers of passed, failed and skipped tests, and of errors."""
    played, failed = sum(len(report.played) for report in reports), sum(report.failed for report in reports)
    errors, left_out = sum(len(report.errors) for report in reports), sum(report.left_out for report in reports)
    parts = [f"{played - failed} passed"] if played else []
    parts += [f"{failed} failed"] if failed else []
    parts += [counted(errors, "error")] if errors else []
    parts += [f"{left_out} left out"] if left_out else []
    if not parts:
        return StyledLine("no tests found: they are in files called NAME.test.yaml", "yellow")
    if not played and not errors:
        return StyledLine(f"no test has that in its name, {left_out} left out", "yellow")
    return StyledLine(", ".join(parts), "green" if all_good(reports) else "red")
