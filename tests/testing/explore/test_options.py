"""Options of explorations, and the parts of the plugin that need no process."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from kproxy.base.errors import InputError
from kproxy.cli.explore import command, replay_line
from kproxy.testing.explore.database import Baseline
from kproxy.testing.explore.fork_session import packed_exploration, write_reports
from kproxy.testing.explore.model import ExchangePlace, ExploredRun, FaultPlan, PlannedFault, loads
from kproxy.testing.explore.options import OPTIONS, ExploreOptions, read_options, read_patterns
from kproxy.testing.explore.plan import fault_table, faults_of_files, rule_file
from kproxy.testing.explore.pytest_plugin import pytest_addoption
from kproxy.testing.explore.pytest_session import marked, options_of_tests
from kproxy.testing.explore.result import (
    Exploration,
    FailureSignature,
    FaultFinding,
    JudgedRun,
    KnownFailures,
    plain_message,
)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"faults": "nice"}, "faults: expected transient, fatal, crash, lies, got nice"),
        ({"faults": ""}, "faults: expected transient, fatal, crash, lies, got none"),
        ({"faults": 5}, "faults: expected a list such as transient,fatal, got 5"),
        ({"faults": [5]}, "faults: expected a list such as transient,fatal, got [5]"),
        ({"for": "soon"}, "for: expected a time above 0 such as 60s or 2m, got 'soon'"),
        ({"for": "0s"}, "for: expected a time above 0 such as 60s or 2m, got '0s'"),
        ({"limit": "1ms"}, "limit: expected at least 0.1 s, got 0.001 s"),
        ({"only": "colour=red"}, "only: expected NAME=TEXT with one of api, client_id,"),
        ({"only": "api"}, "client_software, topic, partition, group, transactional_id, got 'api'"),
        ({"only": "api="}, "got 'api='"),
        ({"only": "=x"}, "got '=x'"),
        ({"only": "api=Produze"}, "got 'Produze'"),
        ({"only": "topic=a,api=Prod"}, "only: expected an API that has faults (AddOffsetsToTxn,"),
        ({"only": "api=produce*"}, "got 'produce*'"),
        ({"only": "api=/Prod/"}, "got '/Prod/'"),
        ({"only": "client_id=/(/"}, "only: expected a pattern, got 'client_id=/(/'"),
        ({"only": "partition=one"}, "only: expected a number as partition, got 'one'"),
        ({"only": ["api=Produce"]}, "only: expected a text such as api=Produce, got ['api=Produce']"),
        ({"report": ["x.txt"]}, "report: expected a file name ending in .json or .html, got x.txt"),
        ({"jobs": 0}, "jobs: expected a positive integer, got 0"),
        ({"jobs": 100_000}, "jobs: expected 200 at most, got 100000"),
        ({"runs": "50"}, "runs: expected a positive integer, got '50'"),
        ({"depth": True}, "depth: expected a positive integer, got True"),
        ({"update": True}, "update: expected a file in baseline, got none"),
    ],
)
def test_read_options_with_wrong_value_raises(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        read_options(given)


@pytest.mark.parametrize("only", ["api=Produce", "api=Prod*,partition=0", "api=/(Produce|Fetch)/", "partition=*", ""])
def test_read_options_with_known_places_accepts_them(only: str) -> None:
    assert read_options({"only": only}).only == only


@pytest.mark.parametrize("given", [5, None, [5], ["TimeoutError: *", ""], {"a": 1}])
def test_read_patterns_with_wrong_value_raises(given: object) -> None:
    with pytest.raises(
        InputError, match=re.escape(f'ignore: expected patterns such as ["TimeoutError: *"], got {given}')
    ):
        read_patterns(given)


def test_read_patterns_with_text_or_list_returns_tuple() -> None:
    assert read_patterns("a*") == ("a*",) and read_patterns(["a", "b"]) == ("a", "b") and read_patterns(()) == ()


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        (pytest.mark.kproxy_explore(nonsense=1), "the keywords faults, ignore, only, runs, got nonsense"),
        (pytest.mark.kproxy_explore(50), "the keywords faults, ignore, only, runs, got 50"),
        (pytest.mark.kproxy_explore(ignore=5), "ignore: expected patterns"),
    ],
)
def test_marked_with_wrong_argument_raises(mark: pytest.MarkDecorator, said: str) -> None:
    item: Any = SimpleNamespace(get_closest_marker=lambda name: mark.mark)
    with pytest.raises(InputError, match=said):
        marked(item)


def test_command_with_wrong_option_exits_before_any_run(tmp_path: Path) -> None:
    missing = str(tmp_path / "known.json")
    for words, said in (
        (["--only", "api=Produze"], "expected an API that has faults"),
        (["--baseline", missing], "baseline: expected an existing file, or the option update"),
    ):
        told = CliRunner().invoke(command, [*words, "--", "false"])
        assert told.exit_code == 2 and said in " ".join(told.output.split()), told.output


def test_tests_cannot_be_killed() -> None:
    """Faults of the class crash are refused by pytest, where a request would be held for ever."""
    with pytest.raises(InputError, match="kproxy explore -- CMD"):
        options_of_tests({"faults": "transient,crash"})


def test_options_as_they_are_given() -> None:
    """What is left out has its default."""
    assert read_options({"runs": None}) == ExploreOptions()
    read = read_options(
        {"for": "2m", "faults": "lies, transient", "limit": "1500ms", "first": True, "report": ("x.json",)}
    )
    assert (read.seconds, read.limit, read.first, read.reports) == (120, 1.5, True, (Path("x.json"),))
    assert read.classes == ("transient", "lies")


def test_faults_of_a_saved_file(tmp_path: Path) -> None:
    """Each fault is known again from its rule alone; other rules are none."""
    steps = [PlannedFault(ExchangePlace(fault.api, client_id="app"), fault) for fault in fault_table().all]
    for number, step in enumerate(steps):
        (tmp_path / f"{number}.yaml").write_text(rule_file(FaultPlan((step,))))
    other = tmp_path / "other.yaml"
    other.write_text("rules:\n- {name: slow, kind: delay, delay: 1s, match: {api: Produce}}\n")

    found = [faults_of_files([tmp_path / f"{number}.yaml"]) for number in range(len(steps))]
    assert [[one.kind_of for one in faults] for faults in found] == [[step.fault.kind_of] for step in steps]
    both = faults_of_files([other, tmp_path / "0.yaml"])
    assert len(both) == 1 and both.transient and not both.fatal and not faults_of_files([other])


def test_the_command_that_repeats_a_finding() -> None:
    """It has all that the exploration had, as words of a shell."""
    given = {"upstream": "", "before": "", "check": "", "rules": (), "save": "explored", "seed": None}
    assert replay_line(("go", "run"), given) == "kproxy explore --replay explored/{name}{limit} -- go run"
    more = {"upstream": "a:1,b:2", "check": "./check me", "rules": ("my rules.yaml",), "save": "what we found/"}
    more["seed"] = 7
    assert replay_line(("my program", "-x"), given | more) == (
        "kproxy explore --upstream a:1,b:2 --check './check me' --rules 'my rules.yaml' "
        "--seed 7 --replay 'what we found'/{name}{limit} -- 'my program' -x"
    )


def test_known_failures() -> None:
    """Those of the baseline, and those that a marker's patterns are like."""
    one, other = (FailureSignature("failed", "AssertionError", message) for message in ("lost N", "doubled N"))
    known = KnownFailures(frozenset({one}), ("TimeoutError: *",))
    assert one in known and other not in known
    assert FailureSignature("raised", "TimeoutError", "after N s") in known
    shown = KnownFailures(patterns=("AssertionError: assert [1, 2] == []",))
    assert FailureSignature("failed", "AssertionError", plain_message("assert [3, 4] == []")) in shown
    assert FailureSignature("failed", "AssertionError", "assert [N] == []") not in shown


def test_an_exploration_travels_between_processes(tmp_path: Path) -> None:
    """What a worker has explored is put into one report with the others; a file that cannot be written is told."""
    result = Exploration("test_it", problem="no cluster", notes=["a note"])
    came = loads(packed_exploration(result), Exploration)
    assert (came.test, came.problem, came.notes) == ("test_it", "no cluster", ["a note"])
    new, page = tmp_path / "new" / "x.json", tmp_path / "x.html"
    options = ExploreOptions(reports=(new, page, page / "x.json"))
    told, is_written = write_reports([came], options, Baseline())
    assert "no cluster" in new.read_text() and "no cluster" in page.read_text()
    assert told[0] == f"written: {new}" and "cannot be written" in told[2] and not is_written
    assert write_reports([came], ExploreOptions(reports=(new,)), Baseline()) == ([f"written: {new}"], True)


def test_the_page_has_all_options() -> None:
    """Those of pytest and of the command."""
    page = (Path(__file__).parents[3] / "docs" / "explore.md").read_text()
    named = {option for given in command.params for option in given.opts if option.startswith("--")}
    own = named - {f"--{option.name}" for option in OPTIONS} - {"--seed"}
    words = [f"--kproxy-explore-{option.name}" for option in OPTIONS]
    missing = [word for word in words if f"`{word}" not in page]
    assert missing + [option for option in own if f"`{option}`" not in page] == []


@pytest.mark.parametrize("words", [["--for=5s"], ["--only=api=Produce", "--first"], ["--report=x.json"], ["--save=x"]])
def test_explore_replay_with_unused_option_is_refused(words: list[str]) -> None:
    result = CliRunner().invoke(command, ["--replay=x.yaml", *words, "--", "true"])
    names = ", ".join(word.split("=")[0] for word in words)
    assert result.exit_code == 2 and f"expected none of the options of an exploration, got {names}" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--replay=none.yaml"], "none.yaml:1:1: the file cannot be read"),
        (["--upstream=nonsense"], "Invalid value for --upstream"),
        ([f"--seed={1 << 64}"], "Invalid value for --seed"),
    ],
)
def test_explore_with_wrong_value_fails_before_the_first_run(words: list[str], said: str) -> None:
    result = CliRunner().invoke(command, [*words, "--", "true"])
    assert result.exit_code == 2 and said in result.output


def test_read_options_with_files_in_each_others_way_raises(tmp_path: Path) -> None:
    file = str(tmp_path / "x.json")
    update = {"baseline": file, "update": True}
    wrong = {
        "baseline: expected another file than the report": update | {"report": [str(tmp_path / "a" / ".." / "x.json")]},
        "update: expected a whole exploration, got the option first": update | {"first": True},
        "baseline: expected a file, got the folder": {"baseline": str(tmp_path), "update": True},
    }
    (tmp_path / "a").mkdir()
    for said, given in wrong.items():
        with pytest.raises(InputError, match=re.escape(said)):
            read_options(given)
    assert read_options({"baseline": file, "report": [file]}).reports  # read before, and written after


def test_replay_lines_of_a_hang_have_its_limit() -> None:
    """A program that is slower than the limit passes without it."""
    run = ExploredRun(FaultPlan(), "hang")
    hang, failed = (
        FaultFinding(FailureSignature(outcome), JudgedRun(run, outcome), 1, file="explored/x.yaml")
        for outcome in ("hang", "failed")
    )
    result = Exploration("t", replay="replay {name}{limit} -- go", replay_limit=" --limit {seconds}s", limit=15.2)
    assert result.replay_lines(hang) == ["replay x.yaml --limit 16s -- go"]
    assert result.replay_lines(failed) == ["replay x.yaml -- go"]


@pytest.mark.parametrize("given", [["--kproxy-explore-drip"], ["--kproxy-explore-drip", "test_orders.py"]])
def test_renamed_pytest_option_names_the_new_one(given: list[str]) -> None:
    parser = pytest.Parser(_ispytest=True)
    pytest_addoption(parser)

    with pytest.raises(pytest.UsageError, match="renamed to --kproxy-explore-one-batch-per-fetch"):
        parser.parse(given)
