"""`pytest --kproxy-explore` on small tests: what it finds, what it does with tests that cannot be explored, and how it
ends."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.testing.explore.conftest import Explorations

ONE_WRITE = """
    from confluent_kafka import Producer

    def write(kproxy, **settings):
        told = []
        producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "client.id": "app", "linger.ms": 0,
                             "retry.backoff.ms": 20, "retry.backoff.max.ms": 50, "log_level": 0, **settings})
        producer.produce("out", b"one", partition=0, on_delivery=lambda error, message: told.append(error))
        producer.flush(20)
        return [error is None for error in told] == [True]
"""
pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]  # beside much else each exploration takes minutes


def command_of(pid: Path) -> str:
    """Return the words of a process; none if it has ended."""
    with suppress(OSError):
        return (pid / "cmdline").read_text(errors="replace")
    return ""


SMALL = ["--only=api=Produce", "--depth=1", "--jobs=4", "--for=30s"]


def test_a_planted_failure_is_found_shrunk_and_replayed(explorations: Explorations) -> None:
    """The first runs find it; a rule file repeats it, by a marker."""
    explorations.write("pytest.ini", "[pytest]\naddopts = --junitxml=junit.xml\n")
    told = explorations.explore("quick.py::test_planted", "--runs=6", "--faults=transient", "--first", *SMALL)

    (finding,) = told.findings
    (case,) = ET.parse(explorations.folder / "junit.xml").iter("testcase")
    properties = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert properties["kproxy_explore.runs"] == str(len(told.tests[0]["runs"])) and case.find("failure") is not None
    assert properties["kproxy_explore.plans_left"] == str(told.tests[0]["left"])
    assert properties["kproxy_explore.faults_applied"] == str(len(told.tests[0]["coverage"]["applied"]))
    assert told.code == 1 and "EXPLORED" in told.text, told.text
    assert finding["first"] <= 6 and finding["signature"]["message"].startswith("doubled N")
    (rule,) = finding["smallest"]["rules"]
    assert (rule["at"], rule["when"]["nth"]) == ("response", 1)  # whatever befalls the answer
    file = finding["file"]
    assert f'@pytest.mark.kproxy_rules("{file}")' in told.text
    explorations.write("test_replayed.py", f"""
        import pytest
        from quick import test_planted as planted

        @pytest.mark.kproxy_rules("{file}")
        def test_by_marker(kproxy):
            assert kproxy.faults.transient and not kproxy.faults.fatal and len(kproxy.faults) == 1
            with pytest.raises(AssertionError, match="doubled 1"):
                planted(kproxy)

        def test_as_ever(kproxy):
            assert not kproxy.faults
            planted(kproxy)
    """)  # fmt: skip
    code, text = explorations.pytest("test_replayed.py")
    assert code == 0, text


@pytest.mark.deep
def test_what_is_fine_passes_and_others_run_as_ever(explorations: Explorations) -> None:
    """Tests without the fixture are run once; what a fatal fault raises is no failure, and a test knows of it."""
    explorations.write("test_fine.py", ONE_WRITE + """
    def test_fine(kproxy, capsys):
        done = write(kproxy)
        assert done or kproxy.faults.fatal, "lost"
        if not done:
            raise RuntimeError("cannot be written, and I say so")

    def test_another(tmp_path):
        assert not list(tmp_path.iterdir())
    """)  # fmt: skip
    told = explorations.explore("test_fine.py", "--runs=3", "--faults=fatal", "-v", *SMALL)

    (test,) = told.tests
    assert told.code == 0, told.text
    assert test["findings"] == [] and set(test["outcomes"]) <= {"loud", "passed"} and test["outcomes"]["loud"] >= 1
    assert "test_fine.py::test_fine EXPLORED" in told.text and "test_fine.py::test_another PASSED" in told.text


@pytest.mark.deep
def test_tests_that_cannot_be_explored(explorations: Explorations) -> None:
    """They fail, and it is said why; one that is skipped stays so."""
    explorations.write("test_unfit.py", """
    import pytest

    def test_fails(kproxy):
        assert 1 == 2

    @pytest.mark.skip(reason="not today")
    def test_skipped(kproxy):
        pass
    """)  # fmt: skip
    told = explorations.explore("test_unfit.py")

    assert told.code == 1 and "1 failed, 1 skipped" in told.text, told.text
    assert "the test fails (2 of 2 runs without faults: AssertionError: assert 1 == 2" in told.text


def test_marker_with_wrong_value_fails_before_any_run(explorations: Explorations) -> None:
    explorations.write("test_marked.py", """
    import pathlib
    import pytest

    def test_first(kproxy):
        pathlib.Path("ran").touch()

    @pytest.mark.kproxy_explore(only="api=Produze")
    def test_marked_badly(kproxy):
        pass
    """)  # fmt: skip
    told = explorations.explore("test_marked.py")

    assert told.code == pytest.ExitCode.USAGE_ERROR, told.text
    assert "test_marked.py::test_marked_badly: only: expected an API that has faults" in told.text
    assert not (explorations.folder / "ran").exists()


@pytest.mark.deep
def test_other_tests_that_cannot_be_explored(explorations: Explorations) -> None:
    """They fail, and it is said why."""
    explorations.write("test_unfit.py", """
    import os
    import threading
    import time

    import pytest

    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()

    @pytest.fixture
    def left(kproxy):
        yield
        assert kproxy.upstream == "", "torn down badly"

    def test_says_nothing(kproxy):
        pass

    def test_dies(kproxy):
        os._exit(7)

    def test_teardown(kproxy, left):
        pass
    """)  # fmt: skip
    told = explorations.explore("test_unfit.py")

    problems = {test["test"].rpartition("::")[2]: test["problem"] for test in told.tests}
    assert told.code == 1 and "3 failed" in told.text, told.text
    assert "nothing has gone through kproxy" in problems["test_says_nothing"]
    assert "the test fails (2 of 2 runs without faults: exit code 7)" in problems["test_dies"]
    assert "torn down badly" in problems["test_teardown"]
    assert all("threads that begin when the test is imported (1)" in test["notes"][0] for test in told.tests)


@pytest.mark.deep
def test_fixtures_folders_and_tests_that_are_not_run(explorations: Explorations) -> None:
    """Fixtures of a module may use the proxy before the test: faults are at their requests, too. Runs side by side have
    temporary folders of their own, and leave none, nor daemons; a log file of the user is begun once. What is expected
    to fail is run as ever; what skips itself is skipped, and with a fault says nothing. The marker of a finding names
    its file from the root folder.
    """
    (explorations.folder / "deep").mkdir()
    explorations.write("pytest.ini", "[pytest]\nkproxy_scope = module\n")
    explorations.write("deep/test_odd.py", ONE_WRITE + """
    import logging, os, subprocess, sys
    import pytest

    @pytest.fixture(scope="module")
    def seeded(kproxy_engine, tmp_path_factory):
        assert tmp_path_factory.mktemp("seed").parent.name.startswith("run-")
        assert write(kproxy_engine), "not seeded"

    def test_odd(seeded, kproxy, tmp_path):
        code = "import os, time\\nif os.fork() == 0:\\n os.setsid()\\n if os.fork() == 0: time.sleep(1000)"
        subprocess.run([sys.executable, "-S", "-c", code, "left by test_odd"], check=True)
        assert not list(tmp_path.iterdir())
        (tmp_path / "file").write_text("x")
        assert not kproxy.faults, "with a fault"

    @pytest.mark.xfail(strict=True)
    def test_expected(kproxy):
        assert write(kproxy) and False

    def test_skipped(kproxy):
        pytest.skip("not here")

    def test_skipped_with_a_fault(kproxy):
        assert write(kproxy)
        if kproxy.faults:
            pytest.skip("of no use")

    def test_logs():
        logging.getLogger().warning("a line of the user's")
    """)  # fmt: skip
    log = explorations.folder / "log"
    explorations.environment["PYTEST_ADDOPTS"] = f"--basetemp={explorations.folder / 'temporary'} --log-file={log}"
    found = explorations.explore("deep/test_odd.py", "--runs=2", "--faults=transient", "-rsx", *SMALL)

    tests = {test["test"].rpartition("::")[2]: test for test in found.tests}
    assert found.code == 1 and "1 failed, 2 passed, 1 skipped, 1 xfailed" in found.text, found.text
    assert tests["test_skipped"]["skipped"] == "not here"
    assert tests["test_skipped_with_a_fault"]["outcomes"] == {"not exercised": 2}
    (finding,) = tests["test_odd"]["findings"]
    assert finding["signature"]["where"] == 'deep/test_odd.py: assert not kproxy.faults, "with a fault"'
    assert f'@pytest.mark.kproxy_rules("{finding["file"]}")' in found.text
    assert "a line of the user's" in log.read_text()
    assert not list((explorations.folder / "temporary").glob("explored-*"))
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if "left by test_odd" in command_of(pid)]


@pytest.mark.deep
def test_interrupted(explorations: Explorations) -> None:
    """What was found is told; nothing is left running."""
    explorations.write("test_long.py", ONE_WRITE + """
    def test_long(kproxy):
        assert write(kproxy, retries=0) or kproxy.faults, "lost"
        assert not kproxy.faults, "broken by anything"
    """)  # fmt: skip
    options = ["--kproxy-explore", "--kproxy-explore-for=300s", "--kproxy-explore-jobs=2", "-v"]
    with explorations.start("pytest", "-p", "no:cacheprovider", *options, "test_long.py") as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if "failed in run" in line:
                break
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    text = "".join(lines) + rest
    assert process.returncode == 2, text
    assert "interrupted" in text and "broken by anything" in text


@pytest.mark.deep
def test_workers_of_xdist(explorations: Explorations) -> None:
    """Each explores a test, with its share of the jobs; there is one report of all."""
    explorations.write("test_two.py", ONE_WRITE + """
    import pytest

    @pytest.mark.parametrize("number", [1, 2])
    def test_it(kproxy, number):
        assert write(kproxy) or kproxy.faults.fatal
    """)  # fmt: skip
    told = explorations.explore("test_two.py", "-n2", "--runs=2", "--only=api=Produce", "--faults=transient", "-v")

    assert told.code == 0, told.text
    assert sorted(test["test"] for test in told.tests) == ["test_two.py::test_it[1]", "test_two.py::test_it[2]"]
    assert all(test["outcomes"] == {"passed": 2} for test in told.tests), told.text
    cores = len(os.sched_getaffinity(0))
    assert {test["jobs"] for test in told.tests} == {max(1, 4 * cores // 2)}


@pytest.mark.deep
def test_a_lasting_cluster_is_started_once(explorations: Explorations) -> None:
    """By the pytest of the user; each run has a part of it for itself, and the fixtures that it needs besides."""
    explorations.write("test_shared.py", ONE_WRITE + """
    import pytest
    from kproxy.testing.cluster import readable_mock

    @pytest.fixture(scope="session")
    def cluster():
        with open("starts", "a") as file, readable_mock() as cluster:
            file.write("cluster ")
            file.flush()
            yield cluster

    @pytest.fixture(scope="session")
    def kproxy_upstream(cluster):
        return cluster.bootstrap

    @pytest.fixture
    def own():
        with open("starts", "a") as file:
            file.write("own ")

    def test_it(kproxy, own):
        assert write(kproxy) or kproxy.faults.fatal
        assert len(kproxy.exchanges(api="Produce", topic="out")) >= 1 and kproxy.prefix.endswith(".")
    """)  # fmt: skip
    told = explorations.explore("test_shared.py", "--runs=2", "--faults=transient", *SMALL)

    assert told.code == 0, told.text
    words = (explorations.folder / "starts").read_text().split()
    assert words.count("cluster") == 1 and words.count("own") >= 4
    assert "topics of the runs stay on the cluster" in told.text  # this one cannot delete any


@pytest.mark.deep
def test_a_baseline(explorations: Explorations) -> None:
    """What is known fails no test, also what a marker ignores."""
    explorations.write("test_known.py", ONE_WRITE + """
    import pytest

    def test_known(kproxy):
        assert write(kproxy) and not kproxy.faults, "never with a fault"

    @pytest.mark.kproxy_explore(runs=2, ignore=["AssertionError: never with a fault*"])
    def test_ignored(kproxy):
        assert write(kproxy) and not kproxy.faults, "never with a fault"
    """)  # fmt: skip
    options = ["--runs=2", "--faults=transient", "--baseline=known.json", *SMALL]
    first = explorations.explore("test_known.py::test_known", "--update", *options)
    assert first.code == 1 and "never with a fault" in (explorations.folder / "known.json").read_text()
    again = explorations.explore("test_known.py", *options)
    assert again.code == 0 and "known" in again.text, again.text
