"""`kproxy test`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kproxy.cli import main

RULES = "rules: [{name: late, kind: error, match: {api: Heartbeat}, when: {nth: 2}, error: NOT_COORDINATOR}]"
TESTS = """
tests:
  - name: the first one passes
    steps:
      - client: &beat {api: Heartbeat, version: 4, body: {group_id: g}}
        to_broker: untouched
  - name: so does the second
    steps:
      - {client: *beat, times: 2, to_broker: untouched}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with rules/ in it: two tests, of which one fails."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "r.yaml").write_text(RULES)
    (tmp_path / "rules" / "r.test.yaml").write_text(TESTS)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["test", *words])


def test_each_test_has_a_line_and_each_failure_its_place(folder: Path) -> None:
    """Value by value; the exit code is 1."""
    result = run()

    assert result.exit_code == 1
    assert (
        result.output
        == """\
rules/r.test.yaml
  ok    the first one passes
  FAIL  so does the second
        rules/r.test.yaml:9:46: to_broker: expected 1 frame, got no frames
1 passed, 1 failed
"""
    )


def test_what_holds_is_exit_code_0(folder: Path) -> None:
    """With -k only tests are run that have this in their file or name, and the rest is counted."""
    result = run("-k", "FIRST")

    assert (result.exit_code, result.output.splitlines()[1:]) == (
        0,
        ["  ok    the first one passes", "1 passed, 1 left out"],
    )
    assert run("-k", "r.test", "rules").exit_code == 1


def test_values_are_shown_one_below_the_other(folder: Path) -> None:
    """Expected above found, below the path of the field."""
    (folder / "rules" / "r.test.yaml").write_text(
        TESTS.replace("to_broker: untouched", "to_broker: {body: {group_id: h}}")
    )

    assert (
        """\
          group_id
            expected  "h"
            found     "g"
"""
        in run("rules/r.test.yaml").output
    )


def test_mistakes_are_lines_with_places(folder: Path) -> None:
    """None of that file's tests is run; those of others are."""
    (folder / "rules" / "s.yaml").write_text(RULES)
    (folder / "rules" / "s.test.yaml").write_text(TESTS.replace("untouched", "untuched").replace("times", "tims"))
    (folder / "rules" / "r.test.yaml").write_text(TESTS.replace("times: 2", "times: 1"))
    result = run("rules")

    assert result.exit_code == 1
    assert (
        result.output
        == """\
rules/r.test.yaml
  ok    the first one passes
  ok    so does the second
rules/s.test.yaml
  rules/s.test.yaml:6:20: expected untouched, nothing or a mapping, got text "untuched", did you mean "untouched"?
  rules/s.test.yaml:9:25: unknown key "tims", did you mean "times"? allowed: times, wait, resume, connection, client, \
to_broker, broker, to_client, closed, muted, held, flow, counts
  rules/s.test.yaml:9:45: expected untouched, nothing or a mapping, got text "untuched", did you mean "untouched"?
2 passed, 3 errors
"""
    )


def test_no_test_at_all_is_a_failure(folder: Path) -> None:
    """A folder without tests, and a filter that leaves none, are said to be so."""
    (folder / "empty").mkdir()
    for words, message in (
        (("empty",), "no tests found: they are in files called NAME.test.yaml"),
        (("-k", "nowhere"), "no test has that in its name, 2 left out"),
    ):
        result = run(*words)
        assert (result.exit_code, result.output) == (1, message + "\n")


def test_wrong_usage_is_exit_code_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is not there, and no rules/ where none is named."""
    monkeypatch.chdir(tmp_path)

    assert run("none").exit_code == 2
    assert "folder not found: rules/" in run().output
    assert run().exit_code == 2


def test_the_schema_of_test_files(folder: Path) -> None:
    """JSON Schema, the same as from `kproxy schema tests`."""
    schema = json.loads(run("--schema").output)

    assert set(schema["properties"]) == {"rules", "connection", "tests"}
    assert schema["$defs"]["CaseStep"]["additionalProperties"] is False
    assert json.loads(CliRunner().invoke(main, ["schema", "tests"]).output) == schema
