"""`kproxy mock` serves a cluster at the addresses that it prints, and ends when it is told to."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

from kproxy.cli import main
from kproxy.testing import one_request
from kproxy.testing.cluster import MockCluster
from kproxy.testing.mock_rules import RULES
from kproxy.testing.process import free_ports
from tests.support.line_count import LineCount
from tests.support.pace import within

pytestmark = pytest.mark.process
MOCK = [sys.executable, "-m", "kproxy", "mock"]


def topics(bootstrap: str) -> dict[str, int]:
    """Numbers of partitions, as the first broker says."""
    return one_request.topics(bootstrap.split(",", maxsplit=1)[0])


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
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    with serving() as (process, bootstrap):
        assert len(bootstrap.split(",")) == 3
        process.send_signal(number)
        assert process.wait(60) == 0


def test_it_ends_with_its_standard_input_where_that_is_wished() -> None:
    """What comes before the end is thrown away."""
    with serving("--until-eof") as (process, bootstrap):
        assert process.stdin is not None
        process.stdin.write("anything\n")
        process.stdin.flush()
        assert topics(bootstrap) == {}
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(60) == 0


def test_else_it_does_not() -> None:
    """As with a standard input that is closed from the start, in a build."""
    with serving() as (process, bootstrap):
        assert process.stdin is not None
        process.stdin.close()
        assert topics(bootstrap) == {}
        assert process.poll() is None


def asked(url: str, body: str = "") -> Any:
    """The answer of the admin API, to a POST where there is a body."""
    headers = {"Content-Type": "application/yaml" if body.strip() else "application/json"}
    request = urllib.request.Request(url, body.encode() or None, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_with_an_admin_address_kproxy_stands_in_front(tmp_path: Path) -> None:
    """Rules come from files and over the admin API, and what passed from the first request on can be asked for. What
    stands in front of brokers elsewhere mocks none. Both end at once, whatever is in flight."""
    (tmp_path / "a.yaml").write_text("rules: [{name: slow, kind: delay, match: {api: Produce}, delay: 1ms}]")
    words = ("--admin", "127.0.0.1:0", "--until-eof")
    with serving(*words, "--topic", "orders", "--rules", str(tmp_path), "--seed", "7") as (process, bootstrap):
        assert process.stdout is not None and process.stdin is not None
        admin = process.stdout.readline().strip()
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        producer.produce("orders", b"one")
        assert producer.flush(20) == 0
        rules = asked(f"{admin}/api/rules")
        writes = asked(f"{admin}/api/exchanges?filter=~k+produce&wait=20s")
        everything = asked(f"{admin}/api/exchanges")
        assert rules["seed"] == 7
        assert [(rule["name"], rule["applied"]) for rule in rules["rules"]] == [
            *((rule["name"], 0) for rule in RULES),
            ("slow", 1),
        ]
        assert writes["reached"] is True
        assert {row[4] for row in everything["rows"]} >= {"ApiVersions", "Metadata", "Produce"}
        assert [row[0] for row in writes["rows"]] == [row[0] for row in everything["rows"] if row[4] == "Produce"]

        with serving(*words, "--upstream", bootstrap) as (other, address):
            assert other.stdout is not None
            url = other.stdout.readline().strip()
            rule = "{kind: delay, delay: 0, when: {hold: true}}"
            assert topics(address) == {"orders": 1}
            assert asked(f"{url}/api/rules")["rules"] == []
            assert asked(f"{url}/api/rules/held?origin=test&ttl=1m", rule)["origin"] == "test"
            with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as held:
                held.sendall(METADATA)  # kproxy holds it, and would wait for that in a drain
                assert asked(f"{url}/api/rules/held/wait?timeout=20s", " ")["reached"] is True
                other.send_signal(signal.SIGTERM)
                assert other.wait(60) == 0
        process.stdin.close()
        assert process.wait(60) == 0


METADATA = bytes.fromhex("0000000f 0003 0000 00000001 0001 78 00000000")
"""A request for all topics, version 0, of the client `x`."""


def test_brokers_that_do_not_answer_are_told_at_the_start() -> None:
    """As are rules with a mistake: exit code 1, and nothing on standard output."""
    words = ["--admin", "127.0.0.1:0", "--upstream", f"127.0.0.1:{free_ports(1)[0]}"]
    done = subprocess.run([*MOCK, *words], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no broker answers" in done.stderr and "Traceback" not in done.stderr


def test_rules_with_a_mistake_are_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("rules: [{name: slow, kind: dealy}]")
    words = ["--admin", "127.0.0.1:0", "--rules", str(tmp_path / "a.yaml")]
    done = subprocess.run([*MOCK, *words], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "a.yaml:1:" in done.stderr and '"dealy"' in done.stderr and "Traceback" not in done.stderr


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
        (["--rules", "a.yaml"], "--rules is for kproxy in front, which needs --admin"),
        (["--seed", "0"], "--seed is for kproxy in front"),
        (["--upstream", "localhost:9092"], "--upstream is for kproxy in front"),
        (["--admin", "127.0.0.1"], "--admin"),
        (["--admin", "0.0.0.0:0"], "--admin"),
        (["--admin", "127.0.0.1:0", "--upstream", "a b"], "--upstream"),
        (["--admin", "127.0.0.1:0", "--upstream", ""], "--upstream"),
        (["--admin", "127.0.0.1:0", "--upstream", "", "--topic", "a"], "--upstream has brokers and topics of its own"),
        (["--admin", "127.0.0.1:0", "--upstream", "a:1", "--brokers", "3"], "--upstream has brokers and topics of its"),
        (["--admin", "127.0.0.1:0", "--upstream", "a:1", "--topic", "a"], "--upstream has brokers and topics of its"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], says: str) -> None:
    done = CliRunner().invoke(main, ["mock", *words])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def name_twice(count: int) -> None:
    words = [word for number in range(count) for word in ("--topic", f"t{number}")]
    done = CliRunner().invoke(main, ["mock", *words, "--topic", "t7"])
    assert done.exit_code == 2 and "--topic t7 is given 2 times" in done.output


def test_mock_with_many_topics_takes_linear_work() -> None:
    spent = []
    for number in (300, 300, 1200):
        with LineCount() as count:
            name_twice(number)
        spent.append(count.total)
    assert spent[2] < 6 * spent[1]


@pytest.mark.measured
def test_mock_with_many_topics_takes_little_time() -> None:
    began = time.thread_time()
    name_twice(30_000)
    assert within(time.thread_time() - began, 10)


def test_partitions_have_a_limit_in_all() -> None:
    """A mock keeps each in memory."""
    words = [word for number in range(11) for word in ("--topic", f"t{number}:10000")]
    done = CliRunner().invoke(main, ["mock", *words])
    assert done.exit_code == 2 and "110000 partitions, 100000 at most" in " ".join(done.output.split())


def test_an_address_in_use_is_told_at_the_start() -> None:
    """Exit code 1, and nothing on standard output."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = ["--admin", f"127.0.0.1:{taken.getsockname()[1]}"]
        done = subprocess.run([*MOCK, *words], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot bind" in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_brokers_may_be_listed_with_blanks() -> None:
    """As people write lists."""
    with MockCluster(2) as cluster:
        first, second = cluster.bootstrap.split(",")
        with serving("--admin", "127.0.0.1:0", "--upstream", f" {first} , {second}") as (process, address):
            assert topics(address) == {}
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


GARBAGE = [
    b"",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    struct.pack(">i", -1) + bytes(64),
    struct.pack(">i", 0x7FFFFFFF) + bytes(64),
    struct.pack(">i", 0),
    struct.pack(">ihhih", 10, 999, 0, 1, -1),
    struct.pack(">ihhih", 10, 3, -1, 1, -1),
    struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0x7FFFFFFF),
    struct.pack(">ihhihi", 14, 3, 1, 1, 0x7FFF, -1),
    struct.pack(">ihhihhhii", 20, 0, 3, 1, -1, -1, -1, 1000, 0x7FFFFFFF),
    struct.pack(">ihhihiiiibi", 31 - 4, 1, 4, 1, -1, -1, 500, 1, 1, 0, 0x7FFFFFFF),
]
"""What strangers send: other protocols, sizes and counts that cannot be, APIs and versions that are not there."""


@pytest.mark.parametrize("words", [(), ("--admin", "127.0.0.1:0")], ids=["mock", "admin"])
def test_garbage_ends_its_own_connection_only(words: tuple[str, ...]) -> None:
    """Others are served as before, and what was in flight does not hold up the end."""
    with serving("--topic", "orders", "--brokers", "1", *words) as (process, bootstrap):
        host, _, port = bootstrap.rpartition(":")
        with ExitStack() as stack:
            for data in GARBAGE:
                stream = stack.enter_context(socket.create_connection((host, int(port)), 20))
                stream.sendall(data)
                with suppress(OSError):
                    stream.shutdown(socket.SHUT_WR)
            assert topics(bootstrap) == {"orders": 1}
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


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
