"""Readers of other projects' results, the comparison, the page and the command line of `make suites`."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest

from kproxy.app.config.document import Config
from kproxy.base.errors import InternalError
from kproxy.base.jars import MissingTool
from tests.lab.matrix import in_front_of
from tests.lab.matrix.in_front_of import WAYS, Brokers
from tests.lab.suites import findings, page, results, run
from tests.lab.suites.plugins import aiokafka_brokers
from tests.lab.suites.table import SUITES
from tests.lab.suites.toxiproxy import toxiproxy

ROOT = Path(__file__).parents[3]


def test_outcomes_of_go_are_read_test_by_test() -> None:
    """Sub-tests count, packages do not, lines that are no JSON are passed over, and a test without an end says so."""
    events = [
        {"Action": "run", "Package": "x/kgo", "Test": "TestA"},
        {"Action": "output", "Package": "x/kgo", "Test": "TestA", "Output": "--- FAIL"},
        {"Action": "pass", "Package": "x/kgo", "Test": "TestA/sub"},
        {"Action": "pass", "Package": "x/kgo", "Test": "TestA"},
        {"Action": "run", "Package": "x/kgo", "Test": "TestB"},
        {"Action": "skip", "Package": "x/kgo", "Test": "TestC"},
        {"Action": "fail", "Package": "x/kgo", "Test": "TestD"},
        {"Action": "fail", "Package": "x/kgo"},
    ]
    output = "panic: oh\n{not json\n[]\n" + "\n".join(map(json.dumps, events))

    assert results.go(output) == {
        "kgo: TestA": "passed",
        "kgo: TestA/sub": "passed",
        "kgo: TestB": "unfinished",
        "kgo: TestC": "skipped",
        "kgo: TestD": "failed",
    }


def test_outcomes_of_pytest_are_read_line_by_line() -> None:
    """A test whose fixture fails at the end has failed; the summary behind is no second source."""
    output = """tests/test_a.py::test_one[x y] PASSED [ 10%]
tests/test_a.py::TestB::test_two SKIPPED (no such thing) [ 20%]
\x1b[32mtests/test_a.py::test_three PASSED\x1b[0m [ 30%]
tests/test_a.py::test_three ERROR [ 30%]
tests/test_a.py::test_four XFAIL [ 40%]
FAILED tests/test_a.py::test_five - oh
"""

    assert results.pytest(output) == {
        "test_a: test_one[x y]": "passed",
        "test_a: TestB::test_two": "skipped",
        "test_a: test_three": "failed",
        "test_a: test_four": "skipped",
    }


def test_outcomes_of_librdkafka_are_read_from_its_summary() -> None:
    """Tests that did not start and the line of the whole run are left out."""
    output = """[0001_multiobj  /  1.0s] ================= Test PASSED
|\x1b[32m <MAIN>                                   |     PASSED |  12.345s \x1b[0m|
|\x1b[32m 0001_multiobj                            |     PASSED |   1.234s \x1b[0m|
|\x1b[31m 0002_unkpart                             |     FAILED |   1.234s \x1b[0m|\x1b[31m test_x():1: oh\x1b[0m
|\x1b[36m 0003_msgmaxsize                          |    SKIPPED |   0.000s \x1b[0m|
|\x1b[35m 0004_conf                                |    RUNNING |   0.000s \x1b[0m|
|\x1b[33m 0005_order                               |        DNS |   0.000s \x1b[0m|
"""

    assert results.librdkafka(output) == {
        "0001_multiobj": "passed",
        "0002_unkpart": "failed",
        "0003_msgmaxsize": "skipped",
        "0004_conf": "unfinished",
    }


def test_a_difference_is_a_test_that_passes_directly_only() -> None:
    """What fails directly is none, nor what a suite skips by itself; what is missing is one."""
    direct = {"a": "passed", "b": "passed", "c": "passed", "d": "failed", "e": "skipped", "f": "passed"}
    through = {"a": "passed", "b": "failed", "d": "failed", "e": "failed", "f": "skipped"}

    assert results.differences(direct, through) == {"b": "failed", "c": "unfinished"}


def finding(**outcomes: str) -> findings.KeptFinding:
    """Return what is kept of a run with these outcomes."""
    return findings.KeptFinding(
        findings.Finding(outcomes, 12, ["a | <b> `c`"], 1, "exit code 0"), "abc, 2026-01-01", "2026-11-24", True
    )


def test_the_page_tells_differences_and_what_was_not_run() -> None:
    """Each suite has a line for each way; what other projects wrote is no markup."""
    text = page.render(
        {"sarama": {"direct": finding(A="passed", B="failed", C="passed"), "prefix": finding(A="failed", C="passed")}}
    )

    assert "| sarama | abc, 2026-01-01, quick; run 2026-11-24 | direct | 2 | 1 | 0 | 0 | | |" in text
    assert "| sarama | abc, 2026-01-01, quick; run 2026-11-24 | prefix | 1 | 1 | 0 | 0 | 12 | 1 |" in text
    assert "| sarama | | audit | | | | | | not run |" in text
    assert "- `A`: failed on prefix." in text
    assert "- `B`: failed directly." in text
    assert "- prefix, seen at kproxy: a / ‹b› 'c'" in text
    assert sum(line.endswith("not run |") for line in text.splitlines()) == len(SUITES) * len(WAYS) - 2


def test_what_is_meant_is_told_apart() -> None:
    """A test that cannot pass through kproxy is on the page with its reason, and is no difference to look into."""
    name = "admin: test_describe_metadata_quorum"
    text = page.render({"kafka-python": {"direct": finding(**{name: "passed"}), "prefix": finding(**{name: "failed"})}})

    assert "| prefix | 0 | 1 | 0 | 0 | 12 | 0, 1 meant |" in text
    assert f"- `{name}`: failed on prefix.\n  Meant: a tenant cannot see Kafka's internal topics." in text
    assert "- All tests that passed directly passed on the other ways, except meant differences." in text
    assert run.compare(SUITES["kafka-python"], ["direct", "prefix"], {
        "direct": findings.Finding({name: "passed", "a": "passed"}),
        "prefix": findings.Finding({name: "failed", "a": "failed"}),
    }) == 1  # fmt: skip


def test_long_lists_end_with_a_number() -> None:
    """A suite that fails as a whole does not fill the page."""
    many = {f"t{number:03}": "failed" for number in range(page.MOST + 5)}

    assert list(page.listed(many))[-1] == "- and 5 more"


def test_what_is_kept_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of one way stays when another way is run, and goes when all is forgotten."""
    monkeypatch.setenv("KPROXY_CACHE", str(tmp_path))
    findings.keep("kafka-go", "direct", findings.Finding({"a": "passed"}), "r", quick=False)
    findings.keep("kafka-go", "audit", findings.Finding({"a": "failed"}, 3), "r", quick=False)

    assert {way: one.finding.outcomes for way, one in findings.kept("kafka-go").items()} == {
        "direct": {"a": "passed"},
        "audit": {"a": "failed"},
    }
    assert findings.kept("kafka-python") == {}
    findings.forget()
    assert findings.kept("kafka-go") == {}


def test_mistakes_in_what_is_named_say_what_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown suite, a folder that is not there, one of something else, and a tool that is missing."""
    with pytest.raises(InternalError, match="SARAMMA=x: expected one of FRANZ_GO=FOLDER"):
        run.suite_and_folder("SARAMMA=x")
    with pytest.raises(InternalError, match=r"no such folder; it is to have the sources of github\.com/IBM/sarama"):
        run.suite_and_folder(f"SARAMA={tmp_path}/none")
    with pytest.raises(InternalError, match=r"there is no async_producer\.go in it"):
        run.suite_and_folder(f"SARAMA={tmp_path}")
    (tmp_path / "async_producer.go").touch()
    assert run.suite_and_folder(f"SARAMA={tmp_path}")[0] is SUITES["sarama"]
    monkeypatch.setattr(run, "tool_path", lambda tool: None)
    with pytest.raises(MissingTool, match=r"no go found, needed to build sarama \(Debian: apt-get install golang-go\)"):
        run.look_for_tools(SUITES["sarama"])
    with pytest.raises(SystemExit):
        run.arguments(["--ways", "direct,sideways", "SARAMA=x"])
    with pytest.raises(SystemExit):
        run.arguments([])


def test_make_knows_every_suite() -> None:
    """A suite of the table that the Makefile does not pass on could never be run by `make suites`."""
    (names,) = re.findall(r"^SUITE_FOLDERS = (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert names.split() == [suite.variable for suite in SUITES.values()]


@pytest.mark.parametrize("way", [way for way in WAYS if way != "direct"])
@pytest.mark.parametrize("ports", [{}, {1: 9092}], ids=["any port", "its own port"])
def test_each_way_is_a_config_that_loads(way: str, ports: dict[int, int]) -> None:
    """Nodes that tests look for at a port are kproxy's at that port, on each way."""
    brokers = Brokers(host="localhost", ports=ports)

    class Upstream:
        def bootstrap(self, listener: str) -> str:
            return "127.0.0.1:1"  # no listener gets this port

    through = WAYS[way]
    assert through is not None
    made = in_front_of.document(through, Upstream(), brokers, "events")

    config = Config.model_validate(made)
    assert (config.workers == 2, config.audit is not None) == (way == "workers", way == "audit")
    assert brokers.addresses() == ("localhost:9092" if ports else "")


def test_the_stand_in_for_toxiproxy_agrees_to_everything() -> None:
    """Sarama asks for proxies, saves them, adds toxics and resets."""
    with toxiproxy() as env:
        address = env["TOXIPROXY_ADDR"]
        with urllib.request.urlopen(f"{address}/proxies/kafka1") as answer:
            assert json.load(answer)["name"] == "kafka1"
        with urllib.request.urlopen(f"{address}/proxies/kafka1", data=b'{"enabled": false}') as answer:
            assert (answer.status, json.load(answer)) == (200, {"enabled": False})
        with urllib.request.urlopen(f"{address}/reset", data=b"") as answer:
            assert answer.status == 204


def test_aiokafka_gets_brokers_that_run_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its conftest's fixtures are replaced when it is registered, and those of other files are left alone."""
    monkeypatch.setenv("KPROXY_BOOTSTRAP", "127.0.0.1:1234,127.0.0.1:1235")
    conftest, other = ModuleType("conftest"), ModuleType("other")
    conftest.__file__, other.__file__ = "/x/tests/conftest.py", "/x/tests/test_a.py"
    conftest.KafkaServer = lambda *given: given  # type: ignore[attr-defined]
    for module in (conftest, other):
        aiokafka_brokers.pytest_plugin_registered(module)

    assert aiokafka_brokers.server_of(conftest)()[:2] == ("127.0.0.1", 1234)
    assert {"docker", "kafka_server", "kerberos_utils"} <= vars(conftest).keys()
    assert "docker" not in vars(other)
