"""`kproxy mock` serves a cluster at the addresses that it prints, and ends when it is told to."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

from kproxy.cli import main
from kproxy.testing import ask

MOCK = [sys.executable, "-m", "kproxy", "mock"]


def topics(bootstrap: str) -> dict[str, int]:
    """Numbers of partitions, as the first broker says."""
    return ask.topics(bootstrap.split(",", maxsplit=1)[0])


@contextmanager
def serving(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the addresses in its first line."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*MOCK, *words], **pipes) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_it_keeps_what_is_written() -> None:
    """A record that one client writes is read by another one; its exit code is 0, and it says nothing else."""
    with serving("--brokers", "2", "--topic", "orders:4", "--topic=more") as (process, bootstrap):
        assert len(bootstrap.split(",")) == 2
        assert {name: count for name, count in topics(bootstrap).items() if name in ("orders", "more")} == {
            "orders": 4, "more": 1
        }  # fmt: skip
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("orders", b"one", partition=3)
        assert producer.flush(20) == 0
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("orders", 3, 0)])
        message = consumer.poll(20)
        assert message is not None and message.value() == b"one"
        consumer.close()
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    with serving() as (process, bootstrap):
        assert len(bootstrap.split(",")) == 3
        process.send_signal(number)
        assert process.wait(20) == 0


def test_it_ends_with_its_standard_input_where_that_is_wished() -> None:
    """What comes before the end is thrown away."""
    with serving("--until-eof") as (process, bootstrap):
        assert process.stdin is not None
        process.stdin.write("anything\n")
        process.stdin.flush()
        assert topics(bootstrap) == {}
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(20) == 0


def test_else_it_does_not() -> None:
    """As with a standard input that is closed from the start, in a build."""
    with serving() as (process, bootstrap):
        assert process.stdin is not None
        process.stdin.close()
        assert topics(bootstrap) == {}
        assert process.poll() is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--brokers", "0"], "0 is not in the range 1<=x<=50"),
        (["--brokers", "x"], "'x' is not a valid integer range"),
        (["--topic", ""], "a topic has 1 to 249 of the characters"),
        (["--topic", "a b"], "'a b': a topic has 1 to 249"),
        (["--topic", ".."], "'..': a topic has 1 to 249"),
        (["--topic", "ü"], "'ü': a topic has 1 to 249"),
        (["--topic", "a" * 250], "a topic has 1 to 249"),
        (["--topic", "a:0"], "'a:0': '0' is no number of partitions from 1 to 10000"),
        (["--topic", "a:"], "'a:': '' is no number of partitions"),
        (["--topic", "a:²"], "'a:²': '²' is no number of partitions"),
        (["--topic", "a:99999999999"], "is no number of partitions"),
        (["--topic", "a", "--topic", "a:2"], "--topic a is given 2 times"),
        (["x"], "unexpected extra argument (x)"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], says: str) -> None:
    done = CliRunner().invoke(main, ["mock", *words])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


@pytest.mark.parametrize("name", ["a", "-", "._-", "A.b_c-9"])
def test_names_that_brokers_take(name: str) -> None:
    with serving("--topic", name) as (_, bootstrap):
        assert topics(bootstrap) == {name: 1}


def test_a_missing_package_is_named_with_the_way_to_get_it() -> None:
    hide = "import sys; sys.modules['confluent_kafka'] = None; sys.argv = ['kproxy', 'mock'];"
    code = hide + "from kproxy.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "confluent-kafka is not installed" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
