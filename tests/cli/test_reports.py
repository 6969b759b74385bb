"""Reports for CI: JUnit, SARIF, GitHub annotations and JSON of check, test, verify and explore.

sarif-schema-2.1.0.json is a copy of the schema that OASIS Open publishes with SARIF 2.1.0 errata 01, at the address in
its `id`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import subprocess
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft4Validator
from junitparser import Failure, JUnitXml, Skipped

from kproxy.base.terminal import in_line
from kproxy.cli import main
from kproxy.cli.explore import report_of as explore_report
from kproxy.cli.reports import (
    FORMS,
    MOST_ANNOTATIONS,
    MOST_RESULTS,
    MOST_ROWS,
    Case,
    Outputs,
    Problem,
    Report,
    json_report,
    place_of,
    sarif_report,
    write_report,
)
from kproxy.testing.explore.result import judge
from tests.cli.test_verify import led_names, right, twice
from tests.support.built_programs import built
from tests.support.exchange_factory import write_capture
from tests.testing.explore.test_report import PAIR, exploration, failed_run

PAGE = (Path(__file__).parents[2] / "docs" / "ci-reports.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
HOSTILE = [
    "\x00\x1b[31m\x85", "]]>", "a\nb\r\n::error::c", "%0A%25", "::set-env name=a::b", "##[error]x",
    "\U0001f600\U0001fffe", "\ud800", "\udc80", "\u202eb\u2066\u2028\ufffe", "<b>&\"'", "a|b`*", "[x](http://y)",
    "{0}{{1}}", " ", "a,b=c:1:2: d", "-->", "<![CDATA[", "x" * 30_000,
]  # fmt: skip
RULES = "rules:\n  - {name: r, kind: error, match: {api: Produce}, error: NOT_COORDINATOR}\n"
DOUBTFUL = "rules:\n  - {name: r, kind: error, match: {api: Heartbeat, topic: a}, error: NOT_COORDINATOR}\n"
PASSES = "tests:\n  - name: first\n    steps: [{client: {api: Heartbeat}, to_broker: untouched}]\n"
FAILS = PASSES + "  - name: second\n    steps:\n      - {client: {api: Heartbeat}, to_broker: nothing}\n"
RUNS = {  # arguments; exit code, failed cases, problems
    "check ok/r.yaml": (0, 0, 0),
    "check doubtful.yaml": (0, 0, 1),
    "check --strict doubtful.yaml": (1, 1, 1),
    "check wrong.yaml doubtful.yaml": (1, 1, 3),
    "check missing.yaml": (1, 1, 1),
    "check config.yaml": (1, 1, 2),
    "check empty": (0, 0, 0),
    "test ok": (0, 0, 0),
    "test fails": (1, 1, 1),
    "test fails -k first": (0, 0, 0),
    "test fails -k none": (1, 1, 1),
    "test wrong": (1, 1, 1),
    "test empty": (1, 1, 1),
    "verify right.pcapng": (0, 0, 0),
    "verify twice.pcapng": (1, 1, 1),
    "verify twice.pcapng --fail-on offset-given-twice=note --level note": (1, 1, 1),
    "verify doubt.pcapng": (0, 0, 1),
    "verify right.pcapng twice.pcapng --only duplicate": (0, 0, 0),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder with input of each command. No file of GitHub is set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    for name, rules, tests in (("ok", RULES, PASSES), ("fails", RULES, FAILS), ("wrong", RULES, "tests: [1]\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "r.yaml").write_text(rules)
        (tmp_path / name / "r.test.yaml").write_text(tests)
    (tmp_path / "empty").mkdir()
    (tmp_path / "doubtful.yaml").write_text(DOUBTFUL)
    (tmp_path / "wrong.yaml").write_text("rules:\n  - {name: w, kind: eror}\n  - 1\n")
    (tmp_path / "config.yaml").write_text("clusters: 1\n")
    write_capture(tmp_path / "right.pcapng", right())
    write_capture(tmp_path / "twice.pcapng", twice(names=led_names))
    write_capture(tmp_path / "doubt.pcapng", twice())
    return tmp_path


def kproxy(words: str, *more: str) -> Result:
    return CliRunner().invoke(main, [*shlex.split(words), *more])


@cache
def sarif_schema() -> Draft4Validator:
    schema = json.loads(Path(__file__).with_name("sarif-schema-2.1.0.json").read_text())
    Draft4Validator.check_schema(schema)
    return Draft4Validator(schema, format_checker=Draft4Validator.FORMAT_CHECKER)


def valid_sarif(text: str) -> dict[str, Any]:
    """Return the run of a valid log."""
    log = json.loads(text)
    assert [error.message for error in sarif_schema().iter_errors(log)] == []
    (run,) = log["runs"]
    return run


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Return the workflow commands of a log as the runner of GitHub reads them: name, properties and message."""
    found = []
    for line in re.split(r"\r\n|\r|\n", text):
        if not line.lstrip().startswith("::"):
            assert not re.search(r"##\[.*\]", line), line  # the older form of a command, at any position
            continue
        head, _, data = line.lstrip()[2:].partition("::")
        name, _, given = head.partition(" ")
        values = dict(one.split("=", 1) for one in given.split(",") if one)
        found.append((name, {key: unescaped(value) for key, value in values.items()}, unescaped(data)))
    return found


def unescaped(text: str) -> str:
    for code, char in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(code, char)
    return text


def test_forms_of_a_command_agree_with_its_exit_code(folder: Path) -> None:
    for words, (code, failed, problems) in RUNS.items():
        ran = {form: kproxy(words, "-o", form) for form in FORMS}
        assert [one.exit_code for one in ran.values()] == [code] * len(FORMS), words
        assert kproxy(words).output == ran["text"].output

        junit = JUnitXml.fromstring(ran["junit"].stdout.encode())
        assert junit.failures + junit.errors == failed and junit.tests >= 1, words
        document = json.loads(ran["json"].stdout)
        assert document["schema"] == f"kproxy.{words.split()[0]}/1" and document["exit_code"] == code
        run = valid_sarif(ran["sarif"].stdout)
        assert len(run["results"]) == problems and run["invocations"][0]["exitCode"] == code, words
        names = [name for name, _, _ in commands(ran["github"].stdout)]
        assert [{"notice": "note"}.get(name, name) for name in names] == [one["level"] for one in run["results"]]

        found = document.get("findings") or [one for case in document.get("cases", ()) for one in case["problems"]]
        ids = [one["partialFingerprints"]["kproxy/v1"] for one in run["results"]]
        assert sorted(one["id"] for one in found) == sorted(ids) and len(set(ids)) == problems


EXPLORATIONS = {
    "new": (exploration(), 1),
    "nothing": (exploration(findings=[]), 0),
    "incomplete": (exploration(findings=[], problem="the test is flaky"), 2),
    "both": (exploration(problem="time was up"), 1),
    "interrupted": (exploration(findings=[], interrupted=True), 2),
    "skipped": (exploration(findings=[], runs=[], skipped="no broker"), 0),
    "known": (exploration(findings=[replace(exploration().findings[0], known=True)]), 0),
    "not confirmed": (exploration(findings=[replace(exploration().findings[0], of=1)]), 0),
}


@pytest.mark.parametrize("name", EXPLORATIONS)
def test_explore_report_fails_as_the_exit_code(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, code = EXPLORATIONS[name]
    report = explore_report(result)
    write_report(report, Outputs("junit"))
    junit = JUnitXml.fromstring(capsys.readouterr().out.encode())

    assert result.exit_code() == report.exit_code == code
    assert (junit.failures > 0, junit.errors > 0) == (code == 1, bool(result.problem or result.interrupted))
    assert junit.tests == 1 + len(result.findings)
    assert all(one.signature.short in case.name for one, case in zip(result.findings, report.cases[1:], strict=True))
    write_report(report, Outputs("github"))
    told = commands(capsys.readouterr().out)
    assert sum(level == "error" for level, _, _ in told) == junit.failures + junit.errors


def test_explore_unwritten_report_is_an_error() -> None:
    report = explore_report(exploration(findings=[]), ["a.json cannot be written: no space"])
    assert (report.exit_code, report.cases[0].outcome) == (2, "error")


def hostile_report() -> Report:
    cases = [
        Case(name, name, "failed", [Problem(name, "error", name, name, 3, 4, name, [name, name])], file=name, line=2)
        for name in HOSTILE
    ]
    skipped = [Case(name, name, "skipped", reason=name) for name in HOSTILE]
    return Report("check", 1, "errors", [*cases, *skipped], dict.fromkeys(HOSTILE, "x"), HOSTILE)


def test_junit_with_hostile_names_is_read_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report(hostile_report(), Outputs("junit"))
    text = capsys.readouterr().out
    suites = list(JUnitXml.fromstring(text.encode()))

    assert text.isascii()
    for name, suite in zip(HOSTILE, suites, strict=True):
        failed, skipped = suite
        assert suite.name == failed.name
        (failure,), (skip,) = failed.result, skipped.result
        assert isinstance(failure, Failure) and isinstance(skip, Skipped)
        assert failed.name == failed.classname == skip.message == failure.type
        if len(name) < 1000:
            assert failure.message == in_line(name)
        assert len(failure.text) <= 20_000 * 6


def test_sarif_with_hostile_names_is_valid(folder: Path) -> None:
    run = valid_sarif(json.dumps(sarif_report(hostile_report())))
    texts = [one["message"]["text"] for one in run["results"]]

    assert len(texts) == len(HOSTILE)
    for text in texts:
        assert not re.search(r"(?<!\{)\{\d+\}(?!\})|\]\(", text), text
        assert not set(text) & set("\x00\x1b\x85\u202e\u2066\u2028\ufffe\ud800\r")
    for result in run["results"]:
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9._~/%-]*", uri), uri
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_github_with_hostile_names_has_one_command_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report(hostile_report(), Outputs("github"))
    text = capsys.readouterr().out
    found = commands(text)

    assert len(found) == len(HOSTILE) == (len(text.splitlines()) - 1) / 2  # and a line for each note
    for name, (command, values, message) in zip(HOSTILE, found, strict=True):
        assert (command, set(values)) == ("error", {"file", "line", "col", "title"})
        shown = "".join(in_line(char) if char not in "\r\n" else char for char in name)
        if len(name) < 1000:
            assert message == "\n".join((f"{shown}: {shown}", shown, shown))
            assert values["title"] == f"kproxy check: {shown}"


class Tables(HTMLParser):
    """Collects the tags and the cells of a job summary."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells and self.lasttag == "td":
            self.cells[-1] += data


def summary_of(report: Report, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    file = folder / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    write_report(report, Outputs("github"))
    return file.read_text("utf-8")


def test_summary_shows_hostile_names_as_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = summary_of(hostile_report(), folder, monkeypatch)
    page = Tables()
    page.feed(text)

    assert page.tags == {"h3", "table", "tr", "th", "td", "p"}
    assert len(page.cells) == 4 * 2 * len(HOSTILE)
    assert "\n\n" not in text.rstrip("\n") and text.endswith("</p>\n\n")  # an empty line ends a block of HTML
    assert [cell for cell in page.cells if cell == "<b>&\"'"]
    assert not set(text) & set("\x00\x1b\x85\u202e\u2028\r")


def test_missing_parts_of_a_recording_are_in_each_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    words = "verify right.pcapng --filter 'api == Produce'"
    (missing,) = json.loads(kproxy(words, "-o", "json").stdout)["incomplete"]
    run = valid_sarif(kproxy(words, "-o", "sarif").stdout)

    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"] == f"missing: {missing}"
    assert f"kproxy verify: missing: {missing}\n" in kproxy(words, "-o", "github").stdout
    assert f"<p>missing: {missing}</p>" in (folder / "summary.md").read_text()
    assert ET.fromstring(kproxy(words, "-o", "junit").stdout)[0].findtext("system-out") == f"missing: {missing}"


def test_long_reports_are_bounded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = "\U000e0001" * 400 + "&" * 20_000  # one is escaped as twelve characters, the other one as five
    problems = [Problem("a", "warning", wide if number < 200 else f"{number}") for number in range(MOST_RESULTS + 10)]
    problems.append(Problem("b", "error", "the last one"))
    cases = [Case(wide, wide, "passed", [one]) for one in problems[:-1]]
    report = Report("check", 1, "s", [*cases, Case("s", "c", "failed", problems[-1:])])
    summary = summary_of(report, folder, monkeypatch)
    lines = capsys.readouterr().out.splitlines()
    (run,) = sarif_report(report)["runs"]
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]

    assert len(summary.encode()) < 1 << 20 and summary.count("<tr>") == 1 + MOST_ROWS
    assert summary.index("<td>failed</td>") < summary.index("<td>passed</td>")
    assert len(lines) == MOST_ANNOTATIONS + 1 and lines[0].endswith("::the last one")
    assert lines[-1] == f"kproxy check: s, {len(problems) - MOST_ANNOTATIONS:,} problems without annotation"
    assert len(run["results"]) == MOST_RESULTS and run["results"][0]["ruleId"] == "b"
    assert notification["message"]["text"] == "11 more problems are left out"


def test_summary_that_cannot_be_written_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder))
    ran = kproxy("check ok/r.yaml -o github")
    assert (ran.exit_code, ran.stderr) == (0, "kproxy: GITHUB_STEP_SUMMARY: is a directory\n")


def test_paths_start_at_the_checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder))
    monkeypatch.chdir(folder / "empty")
    for name in ("../doubtful.yaml", str(folder / "doubtful.yaml")):
        ((_, values, _),) = commands(kproxy(f"check {name} -o github").stdout)
        assert values["file"] == "doubtful.yaml"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder / "ok"))
    (result,) = valid_sarif(kproxy("check ../doubtful.yaml -o sarif").stdout)["results"]
    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location == {"uri": (folder / "doubtful.yaml").as_uri()}


def test_ids_stay_if_lines_move(folder: Path) -> None:
    def ids() -> list[str]:
        document = json.loads(kproxy("check doubtful.yaml -o json").stdout)
        return [one["id"] for one in document["cases"][0]["problems"]]

    before = ids()
    (folder / "doubtful.yaml").write_text(f"# one more line\n{DOUBTFUL}{DOUBTFUL[7:].replace('name: r', 'name: s')}")
    after = ids()
    assert after == [*before, f"{before[0]}-2"]


@pytest.mark.parametrize(
    ("line", "files", "expected"),
    [
        ("a.yaml:3:4: wrong: x:1:2: y", (), ("a.yaml", 3, 4, "wrong: x:1:2: y")),
        ("a:1:2: b.yaml:3:4: wrong", {"a:1:2: b.yaml"}, ("a:1:2: b.yaml", 3, 4, "wrong")),
        ("and 3 more mistakes", (), ("", 0, 0, "and 3 more mistakes")),
        (f"a:{'9' * 5000}:1: x", (), ("", 0, 0, f"a:{'9' * 5000}:1: x")),
    ],
)
def test_place_of_a_line_is_found(line: str, files: Any, expected: tuple[str, int, int, str]) -> None:
    assert place_of(line, files) == expected


def test_files_with_places_in_their_names_are_told_apart(folder: Path) -> None:
    name = "a:1:2: b.yaml"
    (folder / name).write_text(DOUBTFUL)
    (folder / "a").write_text(DOUBTFUL.replace("name: r", "name: s"))
    problems = [
        one for case in json.loads(kproxy("check", name, "-o", "json").stdout)["cases"] for one in case["problems"]
    ]

    assert [(one["file"], one["line"], one["column"]) for one in problems] == [(name, 2, 28)]
    assert kproxy("check", name).stdout.splitlines()[1].startswith(f"{name}:2:28: warning: this rule")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("check . -o xml", "'-o' / '--output': expected text, json, junit, sarif or github, got xml"),
        ("explore -o sarif -- true", "'-o' / '--output': expected text, json, junit or github, got sarif"),
        ("check . -o github=a", "expected json=FILE, junit=FILE or sarif=FILE, got github=a"),
        ("explore -o sarif=a -- true", "expected json=FILE or junit=FILE, got sarif=a"),
        ("test . -o junit=", "expected json=FILE, junit=FILE or sarif=FILE, got junit="),
        (
            "verify right.pcapng -o json=right.pcapng",
            "--output: expected another file than a recording, got right.pcapng",
        ),
        ("tail -o junit", "'-o' / '--output': expected table, wide or json, got junit"),
        (
            "explore --replay a.yaml -o junit -- true",
            "--replay: expected none of the options of an exploration, got --output",
        ),
        ("verify --json a.pcapng", "unknown option --json (renamed to -o json)"),
    ],
)
def test_wrong_output_is_a_usage_error(words: str, message: str) -> None:
    ran = kproxy(words)
    assert ran.exit_code == 2 and message in ran.stderr


def test_page_shows_what_the_commands_print(folder: Path) -> None:
    """Its files are written, its commands run, and commands of its CI files work."""
    for language, text in BLOCKS:
        if language == "yaml" and (name := re.match(r"# (rules/[\w.]+)\n", text)):
            (folder / name[1]).parent.mkdir(exist_ok=True)
            (folder / name[1]).write_text(text)
    examples = [
        one
        for language, text in BLOCKS
        if language == "console"
        for one in re.split(r"^\$ kproxy ", text, flags=re.MULTILINE)
    ]
    for words, _, expected in (one.partition("\n") for one in examples if one):
        assert kproxy(words).output == expected, words
    in_ci = re.findall(r"kproxy (\w[\w ]* -o \w+=\S+)[\n']", PAGE)
    assert len(in_ci) == 2
    for words in in_ci:
        assert kproxy(words).exit_code == ("test" in words)


def test_page_lists_the_fields_of_the_json(folder: Path) -> None:
    parts = re.findall(r"<!-- fields: (\w+) -->(.*?)(?=<!-- fields|\n## )", PAGE, re.DOTALL)
    cells = {name: "".join(re.findall(r"^\| (.*?) \|", part, re.MULTILINE)) for name, part in parts}
    tables = {name: set(re.findall(r"`(\w+)(?:\[\])?`", text)) for name, text in cells.items()}
    for words, table, inner in (("test fails", "check", "cases"), ("verify twice.pcapng", "verify", "findings")):
        document = json.loads(kproxy(words, "-o", "json").stdout)
        first = document[inner][-1]
        below = first["problems"][0] if "problems" in first else {}
        assert document.keys() | first.keys() | below.keys() == tables[table]


def test_explore_json_is_the_report_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-o json prints the document of --report, and lines about files are on standard error."""
    result = exploration()
    result.findings[0] = replace(result.findings[0], example=judge(failed_run(PAIR, "\x1b]]>")))

    def explore_test(test: Any, options: Any, tell: Any) -> Any:
        tell("crash in run 1: ##[stop-commands]a\n::error::b")
        return result

    monkeypatch.setattr("kproxy.testing.explore.fork_session.explore_test", explore_test)
    ran = kproxy("explore --report a.json -o json -- true")

    assert ran.exit_code == 1
    assert ran.stderr == "crash in run 1: ##\\u005bstop-commands]a\\u000a::error::b\nwritten: a.json\n"
    assert json.loads(ran.stdout) == json.loads((folder / "a.json").read_text())
    for form in ("junit", "github", "text"):
        assert kproxy("explore", "-o", form, "--", "true").exit_code == 1
    assert ET.fromstring(kproxy("explore -o junit -- true").stdout).attrib["failures"] == "1"


def test_report_that_cannot_be_printed_ends_with_two(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 would be a finding. The message does not name the recording."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("kproxy.testing.explore.fork_session.explore_test", lambda *_: exploration())
    for command in ("verify", "explore"):
        monkeypatch.setattr(f"kproxy.cli.{command}.write_report", full)
    for words, place in (("verify twice.pcapng -o json", "standard output: "), ("explore -o json -- true", "")):
        ran = kproxy(words)
        assert (ran.exit_code, ran.stderr) == (2, f"kproxy: {place}no space left on device\n")


def test_report_files_have_what_the_formats_print(folder: Path) -> None:
    """Beside the printed format, of hostile names as well. A file that cannot be written ends with exit code 2."""
    for words in ("check doubtful.yaml wrong.yaml", "test fails", "verify twice.pcapng"):
        printed = {form: kproxy(words, "-o", form).stdout for form in FORMS}
        files = [f"{form}={folder / form}" for form in ("json", "junit", "sarif")]
        for form in ("text", "github"):
            ran = kproxy(words, "-o", form, *(word for file in files for word in ("-o", file)))
            assert (ran.exit_code, ran.stdout) == (1, printed[form])
            assert json.loads((folder / "json").read_text()) == json.loads(printed["json"])
            assert json.loads((folder / "sarif").read_text()) == json.loads(printed["sarif"])
            assert re.sub(r'time="[\d.]+"', "", (folder / "junit").read_text()) == re.sub(
                r'time="[\d.]+"', "", printed["junit"]
            )
        ran = kproxy(words, "-o", "junit=missing/a.xml")
        assert (ran.exit_code, ran.stderr.splitlines()[-1]) == (2, "kproxy: missing/a.xml: no such file or directory")
    outputs = Outputs("text", {"json": "j", "junit": "x", "sarif": "s"})
    write_report(hostile_report(), outputs)
    assert json.loads((folder / "j").read_text()) == json_report(hostile_report())
    valid_sarif((folder / "s").read_text())
    ET.parse(folder / "x")


def test_json_of_a_report_keeps_raw_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report(hostile_report(), Outputs("json"))
    document = json.loads(capsys.readouterr().out)
    assert [case["name"] for case in document["cases"]] == HOSTILE * 2 and document == json_report(hostile_report())


@pytest.mark.process
@pytest.mark.deep
@pytest.mark.tools("sarif-multitool")
def test_sarif_multitool_accepts_the_logs(folder: Path) -> None:
    """Its errors fail. It also warns, for example about a missing address of the tool."""
    runs = ["check doubtful.yaml wrong.yaml", "test fails", "verify twice.pcapng", "check ok"]
    logs = [*(kproxy(words, "-o", "sarif").stdout for words in runs), json.dumps(sarif_report(hostile_report()))]
    for number, log in enumerate(logs):
        (folder / f"{number}.sarif").write_text(log)
    ran = subprocess.run(
        [built("sarif-multitool"), "validate", "*.sarif", "--level", "Error"], cwd=folder, capture_output=True,
        env={**os.environ, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"}, timeout=120, check=False, text=True,
    )  # fmt: skip
    assert ran.returncode == 0 and f"Done. {len(logs)} files scanned." in ran.stdout, ran.stdout
    assert " error " not in ran.stdout, ran.stdout
