"""`kproxy explore -- CMD`: programs in any language, their exit codes, and clients that die in the middle."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.explore.conftest import Explorations

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]  # beside much else each exploration takes minutes
COPIER = [sys.executable, "copier.py"]
JUDGED = [f"--before={sys.executable} copier.py seed", f"--check={sys.executable} copier.py check"]


@pytest.mark.deep
def test_nothing_is_found_in_what_is_right(explorations: Explorations) -> None:
    """Exit code 0; the check finds the records through the listener without faults."""
    told = explorations.explore_command(*JUDGED, "--runs=4", "--jobs=4", "--only=api=Produce", "--", *COPIER, "copy")
    assert told.code == 0, told.text
    assert sum(told.tests[0]["outcomes"].values()) == 4 and told.findings == []


@pytest.mark.deep
def test_a_death_between_the_write_and_the_commit(explorations: Explorations) -> None:
    """The program is killed while a request is held, and started again: it writes a record twice."""
    once = [JUDGED[0], f"{JUDGED[1]}-once"]
    told = explorations.explore_command(
        *once, "--faults=crash", "--runs=8", "--jobs=4", "--depth=1", "--first", "--", *COPIER, "copy"
    )
    assert told.code == 1, told.text
    (finding,) = told.findings
    assert finding["signature"]["message"] == "lost N, doubled N" and finding["signature"]["where"] == "--check"
    assert "the client dies" in finding["smallest"]["text"]
    assert f"--replay {finding['file']} -- " in told.text
    again = explorations.explore_command(
        *once, "--runs=3", "--jobs=3", "--replay", finding["file"], "--", *COPIER, "copy"
    )
    assert again.code == 1 and "fails in 3 of 3 runs" in again.text, again.text


@pytest.mark.deep
def test_a_program_that_is_no_child_any_more(explorations: Explorations) -> None:
    """A finding is replayed by one line, with words that a shell would take apart; a program that passes ends with 0,
    and where there was nothing to act on it is told. What has become a daemon is killed with the program, and with the
    run."""
    explorations.write("my program.sh", """
        setsid sh -c 'sleep 1000; echo "left by my program"' > /dev/null 2>&1 &
        test -z "$2" || exec "$1" -c '
        import os
        from confluent_kafka import Producer
        producer = Producer({"bootstrap.servers": os.environ["KPROXY_BOOTSTRAP"], "retries": 0, "linger.ms": 0})
        told = []
        producer.produce("out", b"x", partition=0, on_delivery=lambda error, message: told.append(error))
        producer.flush(20)
        raise SystemExit(str(told[0]) if told[0] else 0)
        '
    """)  # fmt: skip
    program = ["sh", "my program.sh", sys.executable]
    options = ["--save=my findings", "--faults=transient", "--only=api=Produce", "--runs=1", "--jobs=4"]
    told = explorations.explore_command(*options, "--", *program, "write it")
    (finding,) = told.findings
    name = Path(finding["file"]).name
    line = f"kproxy explore --replay 'my findings'/{name} -- {shlex.join([*program, 'write it'])}"
    assert told.code == 1 and line in told.text, told.text
    again = explorations.explore_command(*shlex.split(line)[2:])
    assert again.code == 1 and "fails in 1 of 1 run" in again.text, again.text
    other = explorations.explore_command("--replay", finding["file"], "--", *program)
    assert other.code == 2 and "not exercised: matched 0, applied 0" in other.text, other.text
    processes = subprocess.run(["ps", "axo", "args"], capture_output=True, text=True, check=True).stdout
    assert "left by my program" not in processes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["--", "false"], "fails (2 of 2 runs without faults: exit code 1", marks=pytest.mark.deep),
        (["--rules=none.yaml", "--", "true"], "none.yaml"),
        pytest.param(["--", "no-such-program"], "no-such-program cannot be started", marks=pytest.mark.deep),
        pytest.param(
            ["--before=echo no >&2; exit 3", "--", "true"],
            "--before has ended with exit code 3: no",
            marks=pytest.mark.deep,
        ),
        pytest.param(
            ["--upstream=127.0.0.1:1", "--", "true"],
            "no broker of the upstream 127.0.0.1:1 ans",
            marks=pytest.mark.deep,
        ),
        pytest.param(["--", "true"], "nothing has gone through kproxy", marks=pytest.mark.deep),
        pytest.param(["--limit=10s", "--", "sleep", "600"], "runs without faults: hang", marks=pytest.mark.deep),
    ],
)
def test_commands_that_cannot_be_explored(explorations: Explorations, words: list[str], said: str) -> None:
    """Exit code 2, and why."""
    told = explorations.explore_command(*words)
    assert told.code == 2 and said in told.text, told.text
