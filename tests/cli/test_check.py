"""`kproxy check`: every mistake at once, or what was found."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kproxy.cli import main
from kproxy.rules.document.read import ALL_KINDS

CONFIG = """
clusters: {main: {bootstrap: ["b1:9092"]}}
listeners: [{name: outside, bind: "127.0.0.1:9092", cluster: main}]
rules: [rules]
"""
RULE = "rules:\n  - {name: r, kind: rename_topic, topics: {a: b}, match: {listener: %s}}\n"

RIGHT = "1 rule, no warnings\n"


def check(*paths: Path) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(main, ["check", *map(str, paths)])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A config with a folder of one rule file."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "rules" / "r.yaml").write_text(RULE % "outside")
    return tmp_path


def test_what_is_right_is_summed_up(folder: Path) -> None:
    """A config together with the rules it names; each file once."""
    assert check(folder) == (
        0,
        f"{folder}/config.yaml: 1 cluster, 1 listener\n{folder}/rules/r.yaml: 1 rule (1 rename_topic)\n{RIGHT}",
        "",
    )


def test_rules_are_checked_against_the_config_that_names_them(folder: Path) -> None:
    """A listener that it does not have is a mistake there, and none where no config is given."""
    (folder / "rules" / "r.yaml").write_text(RULE % "outsid")
    code, out, err = check(folder / "config.yaml")

    assert code == 1
    assert out == f'{folder}/rules/r.yaml:2:69: unknown listener "outsid", did you mean "outside"? allowed: outside\n'
    assert err == "1 error\n"
    assert check(folder / "rules")[0] == 0


def test_mistakes_in_a_config_do_not_hide_those_in_its_rules(folder: Path) -> None:
    """Both are shown, in the order in which the files are reached."""
    (folder / "config.yaml").write_text(CONFIG + "stat: x\n")
    (folder / "rules" / "r.yaml").write_text("rules: [{name: a, kind: renam_topic}]")
    code, out, err = check(folder / "config.yaml", folder / "rules")

    assert code == 1
    assert [line.split(": ")[1] for line in out.splitlines()] == [
        'unknown key "stat", did you mean "state"? allowed',
        f'unknown kind "renam_topic", did you mean "rename_topic"? {ALL_KINDS}',
    ]
    assert err == "2 errors\n"


def test_rule_files_are_one_set(folder: Path) -> None:
    """Two files with a rule of the same name do not go together."""
    (folder / "other.yaml").write_text(RULE % "x")
    code, out, _ = check(folder / "rules", folder / "other.yaml")

    assert code == 1
    assert f'the name "r" is taken, first at {folder}/rules/r.yaml:2:5' in out


def test_a_file_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    """Not a traceback."""
    path = tmp_path / "none.yaml"

    assert check(path)[:2] == (1, f"{path}:1:1: the file cannot be read: no such file or directory\n")


def test_no_paths_is_a_usage_error() -> None:
    """Exit code 2."""
    assert check()[0] == 2


def test_a_folder_without_rules_is_said_to_be_one(tmp_path: Path) -> None:
    """No mistake, since folders may fill later, but not silence either."""
    assert check(tmp_path) == (0, f"{tmp_path}: no rule files (*.yaml or *.yml)\n", "")


def test_links_in_a_circle_are_a_mistake_at_their_file(tmp_path: Path) -> None:
    """Not a traceback."""
    link = tmp_path / "a.yaml"
    link.symlink_to(link)

    assert check(link)[1] == f"{link}:1:1: the file cannot be read: too many levels of symbolic links\n"


def test_rules_that_are_not_there_are_a_mistake_where_they_are_named(folder: Path) -> None:
    """In the config, whether or not the rest of it is right."""
    for more, mistakes in (("", 1), ("stat: x\n", 2)):
        (folder / "config.yaml").write_text(CONFIG.replace("[rules]", "[rules, rulse]") + more)
        code, out, _ = check(folder / "config.yaml")

        assert code == 1
        assert f'{folder}/config.yaml:4:16: there is no file or folder "{folder}/rulse"\n' in out
        assert len(out.splitlines()) == mistakes


def test_rules_named_by_a_variable_are_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `kproxy run` finds them."""
    monkeypatch.setenv("KPROXY_TEST_RULES", str(folder / "rules"))
    (folder / "config.yaml").write_text(CONFIG.replace("[rules]", '["${KPROXY_TEST_RULES}"]'))

    assert f"{folder}/rules/r.yaml: 1 rule" in check(folder / "config.yaml")[1]


WARNS = "rules: [{name: t, kind: drop, match: {api: Heartbeat}, what: response, connection: continue}]"


def test_warnings_are_shown_and_counted(folder: Path) -> None:
    """With their places, and after what is right; --strict makes mistakes of them."""
    file = folder / "rules" / "r.yaml"
    file.write_text(WARNS)
    code, out, err = check(file)
    first, warning, summary = out.splitlines()

    assert (code, err) == (0, "")
    assert first == f"{file}: 1 rule (1 drop)"
    assert warning.startswith(f"{file}:1:9: warning: connection: continue leaves out one response")
    assert summary == "1 rule, 1 warning"
    strict = CliRunner().invoke(main, ["check", "--strict", str(file)])
    assert (strict.exit_code, strict.stderr) == (1, "1 rule, 1 warning\n")


def test_warnings_do_not_hide_mistakes(folder: Path) -> None:
    """Both are shown, those of rules that are right included."""
    file = folder / "rules" / "r.yaml"
    file.write_text(WARNS.replace("]", ", {name: u, kind: dorp}]"))
    code, out, err = check(file)

    assert (code, err) == (1, "1 error, 1 warning\n")
    assert [line.split(": ")[1].split(" ")[0] for line in out.splitlines()] == ["unknown", "warning"]


def test_tests_of_rules_are_checked_with_them(folder: Path) -> None:
    """Beside the rules, or by themselves; a mistake in one is a mistake."""
    file = folder / "rules" / "r.test.yaml"
    file.write_text("tests: [{name: t, steps: [{wait: 1s}]}]")
    for path in (folder / "rules", file):
        code, out, _ = check(path)
        assert code == 0
        assert out.splitlines()[-2] == f"{file}: 1 test"
    assert check(folder / "rules")[1].endswith("1 rule, 1 test, no warnings\n")
    file.write_text("tests: [{name: t, stps: []}]")
    assert check(folder)[0] == 1


def test_a_scenario_is_checked_with_its_stages(tmp_path: Path) -> None:
    """Rules of each stage, beside those in force all the time; a name only once over all of them."""
    file = tmp_path / "s.yaml"
    stage = "{for: 1s, rules: [{name: %s, kind: delay, delay: 1s}]}"
    file.write_text(f"scenario: {{stages: [{stage % 'a'}, {stage % 'b'}]}}")
    assert check(file)[1].splitlines() == [f"{file}: 2 rules (2 delay)", "2 rules, no warnings"]
    file.write_text(f"scenario: {{stages: [{stage % 'a'}, {stage % 'a'}]}}")
    assert 'the name "a" is taken' in check(file)[1]


def test_the_schema_is_that_of_kproxy_schema() -> None:
    """Printed by either."""
    printed = CliRunner().invoke(main, ["check", "--schema"])

    assert printed.exit_code == 0
    assert printed.output == CliRunner().invoke(main, ["schema", "rules"]).output
