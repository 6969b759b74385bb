"""Reports of `check`, `test`, `verify` and `explore` for CI: JUnit XML, SARIF 2.1.0, GitHub annotations and JSON.

A command converts its result into a Report. Each writer escapes names for its format, since clients and files choose
them. A report has a failed case or an error if and only if the command's exit code is not 0.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree as ET

import click

from kproxy.base.distribution import own_version, project_url
from kproxy.base.named_file import reason
from kproxy.base.terminal import in_line, print_json, printable, say, stable_ids

FORMS = ("text", "json", "junit", "sarif", "github")
FILE_FORMS = ("json", "junit", "sarif")
Level = Literal["error", "warning", "note"]
Outcome = Literal["passed", "failed", "error", "skipped"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
OUTCOMES: tuple[Outcome, ...] = ("error", "failed", "skipped", "passed")
SUMMARY = "GITHUB_STEP_SUMMARY"
MOST_RESULTS = 5_000  # of a SARIF file: GitHub shows no more
MOST_ANNOTATIONS = 50  # GitHub shows 10 errors and 10 warnings of a step, 50 of a job
MOST_NOTES = 20
MOST_ROWS = 100  # cases in the step summary, which may have 1 MiB
LONGEST_CELL = 300  # characters
LONGEST_TEXT = 20_000  # characters of a case or an annotation
LONGEST_NAME = 1_000  # characters of an attribute
PLACE = re.compile(r":(\d{1,9}):(\d{1,9}): ")
PLACEHOLDER = re.compile(r"\{(\d+)\}")


@dataclass(slots=True)
class Problem:
    """Problem of a case. `rule`: stable id of its sort. `identity`: input of its id; empty: rule, path and text.

    `about`: a place outside of files, such as a partition. Line and column count from 1; 0: none.
    """

    rule: str
    level: Level
    text: str
    file: str = ""
    line: int = 0
    column: int = 0
    about: str = ""
    details: list[str] = field(default_factory=list)
    identity: tuple[str, ...] = ()

    def head(self, name: str = "") -> str:
        """Return `about` and text, or the text alone in a case of this name."""
        return self.text if self.about in ("", name) else f"{self.about}: {self.text}"

    def lines(self, name: str) -> Iterator[str]:
        place = f"{self.file}:{self.line}:{self.column}: " if self.line else ""
        yield f"{place}{self.level}: {self.head(name)}"
        yield from (f"  {detail}" for detail in self.details)


@dataclass(slots=True)
class Case:
    """One test, file, check or finding. `reason`: why it was skipped."""

    suite: str
    name: str
    outcome: Outcome = "passed"
    problems: list[Problem] = field(default_factory=list)
    reason: str = ""
    file: str = ""
    line: int = 0
    seconds: float = 0.0

    @property
    def text(self) -> str:
        return self.problems[0].head(self.name) if self.problems else self.reason


@dataclass(slots=True)
class Report:
    """Result of a command. `summary`: one line without names. `rules`: descriptions of the problems' rules by id.
    `notes`: remarks about the result as a whole, such as missing parts of a recording; the first MOST_NOTES are shown.
    """

    command: str
    exit_code: int
    summary: str
    cases: list[Case]
    rules: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def shown_notes(self) -> list[str]:
        return [in_line(shortened(note, LONGEST_NAME)) for note in self.notes[:MOST_NOTES]]

    def problems(self) -> list[tuple[Problem, str]]:
        """Return the problems with their ids, errors first."""
        found = [one for case in self.cases for one in case.problems]
        ids = stable_ids(one.identity or (one.rule, checkout_path(one.file), one.text) for one in found)
        return sorted(zip(found, ids, strict=True), key=lambda pair: LEVELS.index(pair[0].level))


class Outputs(NamedTuple):
    """`printed`: format on standard output. `files`: paths of report files by format."""

    printed: str = FORMS[0]
    files: Mapping[str, str] = {}

    def __bool__(self) -> bool:
        """Return whether a report is wanted, besides text on standard output."""
        return bool(self.files) or self.printed != FORMS[0]


def report_option(*forms: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the repeatable option -o; the command gets the argument `output`, an Outputs."""
    in_files = [form for form in forms if form in FILE_FORMS]

    def read(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Outputs:
        printed, files = FORMS[0], {}
        for value in values:
            form, is_file, path = value.partition("=")
            known = in_files if is_file else forms
            if form not in known or (is_file and not path):
                wanted = "=FILE, ".join(known[:-1]) + f"=FILE or {known[-1]}=FILE" if is_file else one_of(known)
                raise click.BadParameter(f"expected {wanted}, got {in_line(value)}", ctx, param)
            if is_file:
                files[form] = path
            else:
                printed = form
        return Outputs(printed, files)

    return click.option(
        "-o", "--output", multiple=True, metavar="FORMAT[=FILE]", callback=read,
        shell_complete=lambda ctx, param, start: [form for form in forms if form.startswith(start)],
        help=f"Output format: {one_of(forms)}. With =FILE also into a file: {one_of(in_files)}. Can be repeated.",
    )  # fmt: skip


def one_of(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def write_report(report: Report, output: Outputs, document: Mapping[str, Any] | None = None) -> None:
    """Write the files of a report, and print it unless text is printed. `document`: the JSON of the command, if it has
    its own. A file that cannot be written ends the command with exit code 2."""
    document = document or json_report(report)
    for form, path in output.files.items():
        text = json.dumps(document, indent=2) if form == "json" else report_text(report, form)
        try:
            Path(path).write_text(f"{text}\n", "ascii")
        except OSError as error:
            say(f"kproxy: {in_line(path)}: {reason(error)}", err=True)
            raise click.exceptions.Exit(2) from None
    if output.printed == "json":
        print_json(document)
    elif output.printed != FORMS[0]:
        say(report_text(report, output.printed))
        if output.printed == "github":
            write_summary(report)


def report_text(report: Report, form: str) -> str:
    """Return a report as JUnit XML or SARIF, both in ASCII, or as workflow commands of GitHub."""
    if form == "junit":
        return junit_report(report)
    if form == "sarif":
        return json.dumps(sarif_report(report), indent=1)
    return "\n".join(github_lines(report))


def place_of(line: str, files: Collection[str]) -> tuple[str, int, int, str]:
    """Split `file:line:column: text`. `files`: known names, which may contain such a text. Without a place, file is
    empty."""
    found = list(PLACE.finditer(line))
    chosen = next((one for one in found if line[: one.start()] in files), found[0] if found else None)
    if chosen is None:
        return "", 0, 0, line
    return line[: chosen.start()], int(chosen[1]), int(chosen[2]), line[chosen.end() :]


def problem_at(line: str, files: Collection[str], rule: str, level: Level = "error") -> Problem:
    """Return the problem of a line `file:line:column: text`."""
    file, row, column, text = place_of(line, files)
    return Problem(rule, level, text, file, row, column)


def checkout_path(file: str) -> str:
    """Return the path from the root of the checkout (GITHUB_WORKSPACE, otherwise the current folder) with `/`, or the
    absolute path of a file elsewhere."""
    if not file:
        return ""
    try:
        path = Path(os.path.abspath(file))
        root = os.environ.get("GITHUB_WORKSPACE") or Path.cwd()
        return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()
    except (OSError, ValueError):  # the current folder is deleted
        return file


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def case_body(case: Case) -> str:
    """Return the text of a case's problems, at most LONGEST_TEXT characters before invisible ones are escaped."""
    lines = (line for one in case.problems for line in one.lines(case.name))
    return printable(shortened("\n".join(lines), LONGEST_TEXT))


def json_report(report: Report) -> dict[str, Any]:
    """Return the document of `check` and `test`. Fields are only added."""
    ids = {id(problem): known for problem, known in report.problems()}
    cases = []
    for case in report.cases:
        made = {name: value for name, value in asdict(case).items() if name not in ("problems", "seconds")}
        problems = [{"id": ids[id(one)], **asdict(one)} for one in case.problems]
        for one in problems:
            del one["identity"], one["about"]
        cases.append({**made, "problems": problems})
    return {
        "schema": f"kproxy.{report.command}/1",
        "exit_code": report.exit_code,
        "summary": report.summary,
        "cases": cases,
    }


def junit_report(report: Report) -> str:
    """Return JUnit XML in ASCII. Characters that XML does not allow are written as `\\u001b`."""
    root = ET.Element("testsuites", {"name": f"kproxy {report.command}", **tallies(report.cases)})
    suites: dict[str, list[Case]] = {}
    for case in report.cases:
        suites.setdefault(case.suite, []).append(case)
    for name, cases in suites.items():
        suite = ET.SubElement(root, "testsuite", {"name": attribute(name), **tallies(cases)})
        for case in cases:
            add_case(suite, case)
    if report.notes and len(root):
        ET.SubElement(root[0], "system-out").text = "\n".join(report.shown_notes())
    ET.indent(root)
    made: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return made.decode()


def add_case(suite: ET.Element, case: Case) -> None:
    known = {"file": checkout_path(case.file), "line": str(case.line or "")}
    element = ET.SubElement(suite, "testcase", {
        "classname": attribute(case.suite), "name": attribute(case.name), "time": f"{case.seconds:.3f}",
        **{name: attribute(value) for name, value in known.items() if value},
    })  # fmt: skip
    if case.outcome == "skipped":
        ET.SubElement(element, "skipped", {"message": attribute(case.reason)})
    elif case.outcome != "passed":
        tag = "failure" if case.outcome == "failed" else "error"
        rule = case.problems[0].rule if case.problems else case.outcome
        failure = ET.SubElement(element, tag, {"type": attribute(rule), "message": attribute(case.text)})
        failure.text = case_body(case)
    if case.problems and case.outcome in ("passed", "skipped"):
        ET.SubElement(element, "system-out").text = case_body(case)


def tallies(cases: Collection[Case]) -> dict[str, str]:
    counts = Counter(case.outcome for case in cases)
    return {
        "tests": str(len(cases)), "failures": str(counts["failed"]), "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]), "time": f"{sum(case.seconds for case in cases):.3f}",
    }  # fmt: skip


def attribute(text: str) -> str:
    return in_line(shortened(text, LONGEST_NAME))


def sarif_report(report: Report) -> dict[str, Any]:
    """Return a SARIF log with one run: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html"""
    problems = report.problems()
    rules = sorted({*report.rules, *(problem.rule for problem, _ in problems)})
    number = {rule: index for index, rule in enumerate(rules)}
    invocation: dict[str, Any] = {"executionSuccessful": True, "exitCode": report.exit_code}
    notes = [("note", note) for note in report.shown_notes()]
    if more := problems[MOST_RESULTS:]:
        notes.append(("warning", f"{len(more):,} more problems are left out"))
    if notes:
        invocation["toolExecutionNotifications"] = [
            {"level": level, "message": {"text": sarif_text(text)}} for level, text in notes
        ]
    texts = {rule: {"text": sarif_text(report.rules.get(rule) or rule)} for rule in rules}
    home = {"informationUri": url} if (url := project_url()) else {}
    descriptors = [{"id": in_line(rule), "shortDescription": texts[rule], "help": texts[rule]} for rule in rules]
    return {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "kproxy", "version": own_version(), **home, "rules": descriptors}},
            "automationDetails": {"id": f"kproxy-{report.command}/"},
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The root of the checkout."}}},
            "invocations": [invocation],
            "results": [
                {"ruleId": in_line(one.rule), "ruleIndex": number[one.rule], "level": one.level,
                 "message": {"text": sarif_text("\n".join((one.head(), *one.details)))},
                 "locations": sarif_locations(one), "partialFingerprints": {"kproxy/v1": known}}
                for one, known in problems[:MOST_RESULTS]
            ],
        }],
    }  # fmt: skip


def sarif_locations(problem: Problem) -> list[dict[str, Any]]:
    location: dict[str, Any] = {}
    if problem.file:
        path = checkout_path(problem.file)
        base = {} if path.startswith("/") or Path(path).is_absolute() else {"uriBaseId": "SRCROOT"}
        physical: dict[str, Any] = {"artifactLocation": {"uri": file_uri(path), **base}}
        if problem.line:
            physical["region"] = {"startLine": problem.line, "startColumn": problem.column}
        location["physicalLocation"] = physical
    if problem.about:
        location["logicalLocations"] = [{"fullyQualifiedName": in_line(problem.about), "kind": "resource"}]
    return [location] if location else []


def file_uri(path: str) -> str:
    """Return a path with `/` as a URI reference, which is relative for a relative path."""
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError:
        data = path.encode("utf-8", "surrogatepass")
    return f"file://{'' if path.startswith('/') else '/'}{quote(data)}" if Path(path).is_absolute() else quote(data)


def sarif_text(text: str) -> str:
    """Return a plain text message that has no placeholder `{0}` and no embedded link `[text](target)`."""
    plain = PLACEHOLDER.sub(r"{{\1}}", shortened(text, LONGEST_TEXT).replace("](", "] ("))
    return printable(plain)


def github_lines(report: Report) -> Iterator[str]:
    """Yield workflow commands of GitHub, and a line with the summary."""
    problems = report.problems()
    for problem, _ in problems[:MOST_ANNOTATIONS]:
        command = "notice" if problem.level == "note" else problem.level
        values = {"file": checkout_path(problem.file), "line": problem.line, "col": problem.column,
                  "title": f"kproxy {report.command}: {problem.rule}"}  # fmt: skip
        given = ",".join(f"{name}={command_property(str(value))}" for name, value in values.items() if value)
        text = shortened("\n".join((problem.head(), *problem.details)), LONGEST_TEXT)
        yield f"::{command} {given}::{command_data(text)}"
    left = len(problems) - MOST_ANNOTATIONS
    yield from (log_line(f"kproxy {report.command}: {note}") for note in report.shown_notes())
    yield f"kproxy {report.command}: {report.summary}" + (f", {left:,} problems without annotation" if left > 0 else "")


def log_line(text: str) -> str:
    """Return a text as one line of a log, without `##[`: GitHub reads a command after it at any position of a line."""
    return in_line(text).replace("##[", "##\\u005b")


def command_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def command_property(text: str) -> str:
    return command_data(text).replace(":", "%3A").replace(",", "%2C")


def write_summary(report: Report) -> None:
    """Append a table of the cases to the file in GITHUB_STEP_SUMMARY, if it is set. A failure is printed, and does not
    change the exit code."""
    file = os.environ.get(SUMMARY)
    if not file:
        return
    try:
        with open(file, "a", encoding="utf-8") as summary:
            summary.writelines(f"{line}\n" for line in summary_lines(report))
    except OSError as error:
        say(f"kproxy: {SUMMARY}: {reason(error)}", err=True)


def summary_lines(report: Report) -> Iterator[str]:
    """Yield HTML without empty lines, which Markdown passes unread. Failed cases come first."""
    yield f"<h3>{cell(f'kproxy {report.command}: {report.summary}')}</h3>"
    if report.cases:
        yield "<table><tr><th>result</th><th>suite</th><th>case</th><th>problem</th></tr>"
        for case in sorted(report.cases, key=lambda one: OUTCOMES.index(one.outcome))[:MOST_ROWS]:
            cells = (case.outcome, case.suite, case.name, case.text)
            yield "<tr>" + "".join(f"<td>{cell(text)}</td>" for text in cells) + "</tr>"
        yield "</table>"
    if (left := len(report.cases) - MOST_ROWS) > 0:
        yield f"<p>{left:,} more cases</p>"
    yield from (f"<p>{cell(note)}</p>" for note in report.shown_notes())
    yield ""


def cell(text: str) -> str:
    made = in_line(shortened(text, LONGEST_CELL))
    return escape(shortened(made, LONGEST_CELL))  # an escaped character has up to twelve
