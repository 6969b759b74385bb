"""Reports of explorations: text, JSON, a page, and the baseline."""

from __future__ import annotations

import fnmatch
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kproxy.base.errors import InputError
from kproxy.testing.explore.database import Baseline
from kproxy.testing.explore.model import (
    ExchangePlace,
    FaultPlan,
    PlaceMark,
    PlannedFault,
    ProvedViolation,
    RaisedError,
    RunEnd,
    StepCounters,
)
from kproxy.testing.explore.places import common_places
from kproxy.testing.explore.plan import fault_table
from kproxy.testing.explore.report import (
    MOST_DETAILS,
    SCHEMA,
    coverage_properties,
    html_report,
    json_report,
    known_behaviour,
    known_behaviours,
    report_lines,
)
from kproxy.testing.explore.result import (
    FINDINGS,
    Exploration,
    FailureSignature,
    FaultFinding,
    KnownFailures,
    judge,
    merged_outcome,
)
from tests.testing.explore.made_up import COPY, failed_run, made_run, plan, planned, stable

PLACES = stable(COPY)
LOST = plan(planned("Produce", "answer lost", PLACES[3]))
SMALLEST = plan(planned("Produce", "answer lost", ExchangePlace("Produce")))
PAIR = plan(*LOST.steps, planned("Produce", "never arrives", PLACES[5]))
EVIL = "<script>alert(1)</script>\x1b[31m\u202e&\"'"


def exploration(message: str = "lost 3", **more) -> Exploration:
    """Return an exploration with a finding."""
    failed = failed_run(LOST, message, software=("librdkafka/2",), story=("0.000 s  app  Produce",))
    runs = [made_run(plan(planned("OffsetCommit", "answer lost", PLACES[2]))), failed, failed_run(PAIR, message)]
    judged = [judge(run) for run in runs]
    judged.append(judge(made_run(plan(planned("Metadata", "never arrives", PLACES[0])), counters=())))
    finding = FaultFinding(
        judged[1].signature, judged[1], 2, met=2, fails=3, of=3, smallest=SMALLEST, replays=5, replays_of=5, tried=17,
        seconds=20.4, complete=True, controls=(0, 2), file="tests/explored/test_copy-3f9a.yaml",
    )  # fmt: skip
    result = Exploration(
        "tests/test_copy.py::test_copy", ("transient",), 8, common_places(PLACES, PLACES), [made_run(plan())] * 2, 15.0,
        judged, [finding], 70.0, frozenset({"Produce: answer lost", "Produce: never arrives"}), 1987,
    )  # fmt: skip
    result.exploring = 43.2
    result.replay = '@pytest.mark.kproxy_rules("tests/explored/{name}")'
    for name, value in more.items():
        setattr(result, name, value)
    return result


def text_of(result: Exploration) -> str:
    return "\n".join(report_lines(result))


def test_the_text_says_what_was_done_and_found() -> None:
    """The report of an exploration with a finding, line by line."""
    assert text_of(exploration()).splitlines() == [
        "tests/test_copy.py::test_copy EXPLORED",
        "  learned      3 kinds of exchanges, 7 stable places, in 2 runs",
        "  explored     4 runs in 43 s, 8 side by side: 2 FAILED, 1 passed, 1 not exercised, left: 1,987 plans",
        "  covered      2 of 2 faults",
        "  FAILED  AssertionError: lost 3 (2 runs, first in run 2)",
        "    Produce #1: the answer is lost",
        (
            "    shrunk from Produce #2 (out[0]) of app: the answer is lost in 17 runs (20 s); "
            "fails in 5 of 5 runs, 0 of 2 without faults"
        ),
        "    saved tests/explored/test_copy-3f9a.yaml; from now on:",
        '      @pytest.mark.kproxy_rules("tests/explored/test_copy-3f9a.yaml")',
    ]


def test_a_test_that_skips_itself() -> None:
    """It is no failure, and what a baseline has of it stays."""
    result = exploration(skipped="no container engine", runs=[], findings=[], learned=common_places((), ()))
    assert text_of(result) == "tests/test_copy.py::test_copy SKIPPED\n  skipped      no container engine"
    assert result.exit_code() == 0
    known = Baseline().updated([exploration()])
    assert known.updated([result]).failures == known.failures


def test_how_to_repeat_it_is_said() -> None:
    """By a command, where it was a program that was explored."""
    told = text_of(exploration(replay="kproxy run --upstream HOST:PORT --rules 'my folder'/{name}"))
    assert "      kproxy run --upstream HOST:PORT --rules 'my folder'/test_copy-3f9a.yaml" in told.splitlines()


def test_what_is_uncertain_is_said() -> None:
    """Flaky and known findings, those that are the test's own, time that was up, and what was left out are told."""
    result = exploration(unlike_mock=("JoinGroup: answer lost",), refused=3, notes=["interrupted"], left=0)
    finding = result.findings[0]
    finding.fails, finding.of, finding.complete, finding.known = 6, 10, False, True
    assert "time was up" in text_of(result)
    finding.smallest, finding.tried = finding.example.run.plan, 0
    text = text_of(result)
    assert "(2 runs, first in run 2; intermittent; known)" in text
    assert "not shrunk: time was up" in text
    assert "nothing is left" in text
    assert "JoinGroup: answer lost" in text
    assert "3 plans without room" in text
    assert "note: interrupted" in text
    finding.controls = (5, 5)
    assert "not the faults: it fails in 5 of 5 runs without any" in text_of(result)
    finding.controls, finding.replays = (0, 5), None
    assert "fails in 6 of 10 runs, 0 of 5 without faults" in text_of(result)


def test_a_test_that_was_not_explored_says_why() -> None:
    """Flaky tests and broken ones have one line with the reason."""
    problem = "the test is flaky (1 of 2 runs without faults: lost 1), and is not explored"
    lines = text_of(Exploration("t", problem=problem, flaky=True)).splitlines()
    assert lines == ["t FLAKY", f"  problem      {problem}"]
    assert text_of(Exploration("t", problem="no port")).splitlines()[0] == "t NOT EXPLORED"


def test_messages_are_one_line() -> None:
    """Of what an assertion says the first line is told."""
    assert "  FAILED  AssertionError: lost 3 (2 runs" in text_of(exploration("\n lost 3\nassert 1 == 2\n + where"))


def test_broken_runs_and_verify_are_told() -> None:
    """What kproxy itself failed at is told, and what verify has proved of a finding."""
    broken = made_run(LOST, counters=(StepCounters(1, 1, 0, ("raised ValueError",)),))
    result = exploration()
    result.runs.append(judge(broken))
    proved = failed_run(LOST, violations=(ProvedViolation("lost-write", "orders[0] at 3"),))
    result.findings[0].example = judge(proved)
    text = text_of(result)
    assert "BROKEN       raised ValueError" in text
    assert "verify: lost-write orders[0] at 3" in text


def test_the_json_has_everything() -> None:
    """Places, runs with outcomes, findings with rules, coverage and what is left."""
    document = json.loads(json_report([exploration()]))
    assert document["schema"] == SCHEMA == "kproxy.explore/1"
    (test,) = document["tests"]
    assert test["outcomes"] == {"failed": 2, "passed": 1, "not exercised": 1}
    assert [run["outcome"] for run in test["runs"]] == ["passed", "failed", "failed", "not exercised"]
    assert len(test["places"]) == 7
    assert test["coverage"]["applied"] == ["Produce: answer lost", "Produce: never arrives"]
    (finding,) = test["findings"]
    assert finding["smallest"]["rules"][0]["match"] == {"api": "Produce"}
    assert finding["signature"]["message"] == "lost N"
    assert test["left"] == 1987
    assert test["exit_code"] == 1


def test_coverage_properties_have_counts_and_names() -> None:
    result = exploration(all_faults=frozenset({"Produce: answer lost", "Produce: late", "Fetch: late"}))
    assert dict(coverage_properties(result)) == {
        "kproxy_explore.places": 7,
        "kproxy_explore.runs": 4,
        "kproxy_explore.outcomes": "2 failed, 1 passed, 1 not exercised",
        "kproxy_explore.faults": 3,
        "kproxy_explore.faults_applied": 1,
        "kproxy_explore.faults_not_applied": "Fetch: late; Produce: late",
        "kproxy_explore.plans_left": 1987,
        "kproxy_explore.findings": 1,
        "kproxy_explore.new_findings": 1,
        "kproxy_explore.rule_files": "tests/explored/test_copy-3f9a.yaml",
    }
    assert dict(coverage_properties(Exploration("t", problem="no port")))["kproxy_explore.problem"] == "no port"


def client_finding(
    faults: FaultPlan, ended: RunEnd, raised: RaisedError | None = None, *software: str, problem: str = ""
) -> Exploration:
    """Return an exploration with one confirmed finding of these faults."""
    judged = judge(made_run(faults, ended, raised=raised, software=software, problem=problem))
    finding = FaultFinding(judged.signature, judged, 1, smallest=faults, fails=3, of=3)
    return Exploration("t", runs=[judged], findings=[finding])


def known_plan(*names: str) -> FaultPlan:
    faults = [next(one for one in fault_table().all if one.name == name) for name in names]
    return plan(*(PlannedFault(ExchangePlace(one.api), one) for one in faults))


HANG = "OffsetFetch: NOT_COORDINATOR, before the work"
SENDS_OFFSETS = "at copier.py:17: producer.send_offsets_to_transaction(offsets, metadata, 5)"
BOOTSTRAP = RaisedError(
    "aiokafka.errors.KafkaConnectionError",
    "KafkaConnectionError: Unable to bootstrap from [('127.0.0.1', 3)]",
    "t.py:3",
)
UNSTARTED = RaisedError(
    "aiokafka.errors.KafkaError",
    "KafkaError: KafkaConnectionError('Connection at ::1 closed')",
    "t.py:5",
    "await producer.start()",
)
STOPPED = RaisedError("asyncio.exceptions.CancelledError", "", "t.py:9", "await consumer.stop()")
AIOKAFKA = "aiokafka-0.14.0"
PYTHON = "confluent-kafka-python/2.16.1-rdkafka-2.16.0"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("librdkafka-offset-fetch", client_finding(known_plan(HANG), "hang", None, PYTHON)),
        ("librdkafka-offset-fetch", client_finding(known_plan(HANG), "hang", None, "librdkafka/2.17.1")),
        ("aiokafka-start", client_finding(known_plan("Metadata: never arrives"), "raised", BOOTSTRAP)),
        ("aiokafka-start", client_finding(known_plan("ApiVersions: answer lost"), "raised", BOOTSTRAP)),
        (
            "aiokafka-start-transactional",
            client_finding(known_plan("FindCoordinator: never arrives"), "raised", UNSTARTED),
        ),
        ("aiokafka-stop", client_finding(known_plan("Fetch: never arrives"), "raised", STOPPED)),
        (
            "aiokafka-stop-hang",
            client_finding(known_plan("OffsetCommit: answer lost"), "hang", None, "aiokafka-0.14.0"),
        ),
        ("librdkafka-commit", client_finding(known_plan("OffsetCommit: answer lost"), "hang", None, PYTHON)),
        (
            "librdkafka-send-offsets",
            client_finding(known_plan("Produce: never arrives"), "hang", None, PYTHON, problem=SENDS_OFFSETS),
        ),
        ("", client_finding(known_plan("Produce: never arrives"), "hang", None, PYTHON, problem="at t.py:3: flush()")),
        ("", client_finding(known_plan(HANG), "hang", None, "librdkafka/2.9.9")),
        ("", client_finding(known_plan(HANG), "hang", None, "apache-kafka-java/4.1.0")),
        ("", client_finding(known_plan(HANG), "hang", None, "librdkafka/")),
        ("", client_finding(known_plan(HANG), "hang")),
        ("", client_finding(known_plan(HANG), "died", None, PYTHON)),
        ("", client_finding(known_plan(HANG, "Produce: never arrives"), "hang", None, PYTHON)),
        ("", client_finding(known_plan("OffsetFetch: never arrives"), "hang", None, PYTHON)),
        ("", client_finding(known_plan("Produce: never arrives"), "raised", BOOTSTRAP)),
        ("", client_finding(known_plan("Fetch: never arrives"), "raised", replace(STOPPED, line="await work()"))),
        ("", client_finding(plan(), "hang", None, PYTHON)),
    ],
)
def test_known_behaviour_is_named_in_all_reports(name: str, found: Exploration) -> None:
    (finding,) = found.findings
    behaviour = known_behaviour(finding)
    assert ("" if behaviour is None else behaviour.name) == name
    (written,) = json.loads(json_report([found]))["tests"][0]["findings"]
    page, text = " ".join(Page(html_report([found])).texts), text_of(found)
    properties = dict(coverage_properties(found))
    if behaviour is None:
        assert written["client_behaviour"] is None and "known behaviour" not in page + text
        assert "kproxy_explore.client_behaviour" not in properties
        return
    assert properties["kproxy_explore.client_behaviour"] == written["client_behaviour"]["name"] == name
    assert all(behaviour.reference in one and "options baseline and update" in one for one in (page, text))
    ignored = re.search(r"ignore=\[(.*)\]\)", text)
    assert (ignored is None) == (behaviour.error == "*")
    if ignored is not None:
        assert finding.signature in KnownFailures(patterns=(json.loads(ignored[1]),))
    fixed = replace(behaviour, software=r"v([0-9.]+)", since="1.2", fixed="1.10")
    assert [fixed.has_version([one]) for one in ("v1.1", "v1.2", "v1.9.9", "v1.10", "v2")] == [
        False, True, True, False, False
    ]  # fmt: skip


def test_known_behaviours_name_existing_faults() -> None:
    names = [fault.name for fault in fault_table().all]
    for one in known_behaviours():
        assert one.reference.startswith("https://github.com/") and one.symptom and one.outcome in FINDINGS
        assert all(fnmatch.filter(names, pattern) for pattern in one.faults)


class Page(HTMLParser):
    """Reader of a page that knows which elements, attributes and texts it has, and that each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        self.texts.append(data)


def test_the_page_has_a_matrix_whose_cells_lead_to_runs() -> None:
    page = Page(html_report([exploration()]))
    assert page.open == []
    attributes = page.attributes
    links = {value for name, value in attributes if name == "href"}
    assert links == {"#t0-0", "#t0-1", "#t0-2", "#t0-3"}
    assert {link[1:] for link in links} <= {value for name, value in attributes if name == "id"}
    assert {"passed", "failed", "exercised", "untried", "run"} <= {
        value for name, value in attributes if name == "class"
    }
    assert "0.000 s  app  Produce" in page.texts


def test_nothing_that_others_say_is_markup() -> None:
    """Scripts in messages, names, stacks and outputs are text, and nothing of the page can be loaded or run."""
    evil_place = ExchangePlace("Produce", EVIL, topic=EVIL, group=EVIL, mark=PlaceMark("ordinal", 2))
    of = plan(planned("Produce", "answer lost", evil_place))
    run = made_run(
        of, "raised", raised=RaisedError(EVIL, EVIL, EVIL), stacks=EVIL, output=EVIL, problem=EVIL, story=(EVIL,),
        violations=(ProvedViolation(EVIL, EVIL),), software=(EVIL,), errors=(EVIL,),
    )  # fmt: skip
    judged = judge(run)
    finding = FaultFinding(judged.signature, judged, 1, smallest=of, file=EVIL)
    result = Exploration(EVIL, runs=[judged], findings=[finding], problem=EVIL, notes=[EVIL], unlike_mock=(EVIL,))
    for text in (html_report([result]), text_of(result), json_report([result])):
        assert "\x1b" not in text
    page = Page(html_report([result]))
    assert page.open == []
    assert not {"script", "img", "link", "iframe", "b"} & set(page.tags)
    assert {name for name, _ in page.attributes} <= {
        "lang", "charset", "http-equiv", "name", "content", "href", "class", "id", "title"
    }  # fmt: skip
    assert all(value.startswith("#t0-") for name, value in page.attributes if name == "href")
    assert "default-src 'none'" in dict(page.attributes)["content"]


def test_a_page_of_many_runs_is_bounded() -> None:
    """Of thousands of runs those that failed can be looked at, and as many others as there is room for."""
    result = exploration()
    result.runs = [judge(made_run(LOST, story=("x" * 100,)))] * (MOST_DETAILS + 500) + result.runs[1:2]
    text = html_report([result])
    assert text.count('class="run"') == MOST_DETAILS
    assert f'id="t0-{MOST_DETAILS + 500}"' in text


@pytest.mark.parametrize(
    ("outcomes", "merged"),
    [
        ([], None),
        (["passed", "failed"], "failed"),
        (["hang", "failed"], "hang"),
        (["not exercised", "passed"], "passed"),
        (["slow", "passed"], "passed"),
        (["slow"], "slow"),
        (["not exercised"], "not exercised"),
        (["loud", "passed"], "loud"),
    ],
)
def test_a_cell_stands_for_its_worst_run(outcomes, merged) -> None:
    """Of several runs of a place and a fault the worst is shown."""
    assert merged_outcome(outcomes) == merged


# ---- baseline


def test_a_baseline_comes_back_sorted(tmp_path: Path) -> None:
    """What is written is read, and the same whatever the order of the findings."""
    file = tmp_path / "known.json"
    found = Baseline().updated([exploration(), exploration("doubled", test="other")])
    file.write_text(found.text())
    assert Baseline.read(file).text() == found.text() == file.read_text()
    assert found.text() == Baseline().updated([exploration("doubled", test="other"), exploration()]).text()
    (known,) = Baseline.read(file).known("other")
    assert known.message == "doubled"
    assert Baseline.read(file).known("nobody") == frozenset()


def test_an_update_replaces_what_was_explored_only() -> None:
    """Failures of tests that were not explored, or not to the end, stay; those that are gone go."""
    before = Baseline().updated([exploration(test="a"), exploration(test="b"), exploration(test="c")])
    after = before.updated([exploration(test="a", findings=[]), exploration(test="b", findings=[], problem="no port")])
    assert [bool(after.known(test)) for test in "abc"] == [False, True, True]


def test_a_failure_that_is_the_test_s_own_is_not_in_the_baseline() -> None:
    """What fails without faults, too, is nothing to know."""
    result = exploration()
    result.findings[0].controls = (2, 2)
    assert Baseline().updated([result]).failures == {}


def test_baseline_of_missing_file_is_empty_only_for_update(tmp_path: Path) -> None:
    missing = tmp_path / "none.json"
    with pytest.raises(InputError, match=r"expected an existing file, or the option update, got .*none\.json"):
        Baseline.read(missing)
    assert Baseline.read(missing, update=True).failures == {}
    assert Baseline.read(None).failures == {}


WRONG_CHECKS = """{"schema": "kproxy.explore.baseline/1", "failures": [
    {"test": "t", "plan": "", "signature": {"outcome": "failed", "checks": "gap"}}
]}"""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"schema": "other/1", "failures": []}',
        '{"schema": "kproxy.explore.baseline/1", "failures": [1]}',
        '{"schema": "kproxy.explore.baseline/1", "failures": [{"test": "t", "plan": "", "signature": {}}]}',
        '{"schema": "kproxy.explore.baseline/1", "failures": [{"test": "", "plan": "", "signature": {"outcome": ""}}]}',
        WRONG_CHECKS,
    ],
)
def test_a_wrong_baseline_is_an_input_error(tmp_path: Path, text: str) -> None:
    """Another file is refused with its name; nothing is taken for known."""
    file = tmp_path / "known.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"known\.json: expected a baseline of explorations"):
        Baseline.read(file)
    with pytest.raises(InputError, match="cannot be read"):
        Baseline.read(tmp_path)


def test_signatures_travel_whole() -> None:
    """All fields of a signature come back."""
    signature = FailureSignature("failed", "E", "m", "t.py:3", ("a", "b"))
    result = exploration()
    result.findings[0].signature = signature
    assert Baseline().updated([result]).known(result.test) == {signature}
