"""`kproxy tail`: exchanges in lines, from captures, event files, and a running proxy."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kproxy.cli import main
from kproxy.protocol.records import Record, encode_batch
from kproxy.record.audit.lines import EventEncoder
from kproxy.record.events.schema import SUMMARY_EVENT
from kproxy.record.exchange import ObservedExchange
from kproxy.testing.process import Proxy
from tests.support.exchange_factory import NOON, conversation, event_lines, exchange, write_capture
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import RawClient
from tests.support.schema_registry import SchemaRegistry
from tests.support.wait import until

pytestmark = pytest.mark.process


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["tail", *map(str, words)])


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """The conversation of six exchanges."""
    return write_capture(tmp_path / "traffic.pcapng", conversation())


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """The same as an event file."""
    path = tmp_path / "events.ndjson"
    path.write_bytes(event_lines(conversation()))
    return path


# ---- files


def test_a_line_for_each_exchange(capture: Path) -> None:
    """Number, time, connection, client, node, API, topics, records, sizes, acks, latency, throttle, error, rules."""
    ran = run(capture)

    assert (ran.exit_code, ran.stderr) == (0, "")
    assert [line.split("\t") for line in ran.stdout.splitlines()[2:4]] == [
        ["3", "2026-11-21T12:00:03.000000Z", "3", "etl", "1", "Produce v8", "orders[0]", "1", "198", "64", "all",
         "250ms", "-", "NOT_LEADER_OR_FOLLOWER", "-"],
        ["4", "2026-11-21T12:00:04.000000Z", "3", "etl", "1", "Produce v8", "orders[0]", "1", "198", "-", "0", "-", "-",
         "no answer due", "-"],
    ]  # fmt: skip
    assert ran.stdout.splitlines()[1].split("\t")[5:8] == ["Produce v8", "orders[0,3]", "8"]


@pytest.mark.parametrize("form", ["table", "wide"])
@pytest.mark.parametrize("words", [(), ("~k produce",), ("~g billing",)])
def test_tail_numbers_are_those_of_show(capture: Path, events: Path, form: str, words: tuple[str, ...]) -> None:
    """`kproxy show FILE NUMBER` prints the exchange of each row, whatever a filter leaves out."""
    for file in (capture, events):
        rows = [line.split("\t") for line in run(file, *words, "-o", form).stdout.splitlines()]
        assert rows
        for number, time, *_ in rows:
            shown = CliRunner().invoke(main, ["show", str(file), number]).stdout
            assert time in shown


def test_captures_and_events_say_the_same(capture: Path, events: Path) -> None:
    """In every form, and under every filter."""
    for words in (("-o", "json"), ("-o", "wide"), ("~k produce ~lat > 200ms",), ("error or pending",)):
        assert run(capture, *words).stdout == run(events, *words).stdout != ""


def test_json_lines_are_request_events(capture: Path) -> None:
    """Their data, without the envelope."""
    found = [json.loads(line) for line in run(capture, "-o", "json").stdout.splitlines()]

    assert [json.loads(line)["data"] for line in event_lines(conversation()).splitlines()] == found
    assert [one["api"] for one in found] == ["Metadata", "Produce", "Produce", "Produce", "Fetch", "Heartbeat"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["~k produce"], 3), (["~k", "produce", "~e"], 1), (["api == Produce and not acks == 0"], 2), (["~q"], 1),
        (["-n", "2"], 2), (["~key ^user-4$"], 1), (["~t other"], 0), (["~g billing"], 1), (["~src 192.168.7.2"], 2),
    ],
)  # fmt: skip
def test_filters_and_numbers(capture: Path, words: list[str], expected: int) -> None:
    """Words behind the file are one filter; `-n` stops."""
    ran = run(capture, *words)

    assert (ran.exit_code, len(ran.stdout.splitlines())) == (0, expected)


def test_a_directory_of_event_files(tmp_path: Path) -> None:
    """Published ones by name, then the one that is being written; other files are none."""
    lines = event_lines(conversation()).splitlines(keepends=True)
    folder = tmp_path / "dt=2026-11-21"
    folder.mkdir()
    (folder / "host-5b0c1e2f-0-000000000001.ndjson.gz").write_bytes(gzip.compress(b"".join(lines[:2])))
    (folder / "host-5b0c1e2f-0-000000000003.ndjson.gz").write_bytes(gzip.compress(b"".join(lines[2:4])))
    (tmp_path / ".host-5b0c1e2f-0-000000000005.ndjson.tmp").write_bytes(b"".join(lines[4:]))
    (tmp_path / "other.txt").write_text("no events")

    shown = run(tmp_path).stdout

    assert re.findall(r"T12:00:0(\d)", shown) == ["1", "2", "3", "4", "5", "6"]


def test_lines_that_are_no_events_are_counted(events: Path) -> None:
    """With the first one's place; what is whole is shown. A summary is no exchange."""
    summary = EventEncoder("s").line(SUMMARY_EVENT.name, NOON, {"api": "Produce", "count": 3})
    events.write_bytes(events.read_bytes() + b"{broken\n" + b'"text"\n' + summary + b'{"id":"9","sour')
    ran = run(events)

    assert len(ran.stdout.splitlines()) == 6
    assert ran.stderr.splitlines() == [
        f"kproxy: 3 lines could not be read, first {events}:7",
        "kproxy: skipped events: 1 kproxy.summary.v1; only `kproxy stats` without a filter counts summaries",
    ]


def test_a_packed_file_that_ends_in_the_middle(events: Path, tmp_path: Path) -> None:
    """What can be unpacked is shown."""
    packed = tmp_path / "cut.ndjson.gz"
    packed.write_bytes(gzip.compress(events.read_bytes() * 50)[:-200])
    ran = run(packed)

    assert ran.stdout
    assert f"first {packed}: it ends in the middle" in ran.stderr


def test_what_a_filter_cannot_judge_is_said(events: Path) -> None:
    """Events hold no records."""
    ran = run(events, "~k produce ~key x")

    assert (ran.exit_code, ran.stdout) == (0, "")
    expected = "3 exchanges could not be judged by the filter, the last: events hold no records, captures do"
    assert ran.stderr == f"kproxy: {expected}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["topc == x"], 'filter, column 1: unknown field "topc", did you mean "topic"?\n  topc == x\n  ^'),
        (["gone.pcapng"], "file not found: gone.pcapng"),
        (["-o", "xml"], "Invalid value for '-o'"),
    ],
)
def test_usage_errors(words: list[str], message: str) -> None:
    """Exit code 2, with the place in the filter."""
    ran = run(*words)

    assert (ran.exit_code, ran.stdout) == (2, "")
    assert message in ran.stderr


def test_what_is_neither_capture_nor_events(tmp_path: Path) -> None:
    """Exit code 1."""
    path = tmp_path / "x.gz"
    path.write_bytes(b"PK\x03\x04")
    ran = run(path)

    assert ran.exit_code == 1
    assert ran.stderr == f"kproxy: {path} is neither a capture nor an event file: it begins with 50 4b 03 04\n"


def test_standard_input(capture: Path) -> None:
    """A dash; and a reader that has seen enough ends it without a word."""
    command = f"{sys.executable} -m kproxy tail -o json -"
    ran = subprocess.run(
        ["bash", "-c", f"cat {capture} | {command} | head -n 1"], capture_output=True, timeout=60, check=False
    )

    assert (ran.returncode, ran.stderr, ran.stdout[:15]) == (0, b"", b'{"connection":3')


# ---- whole messages


AVRO = '{"type": "record", "name": "shop.Order", "fields": [{"name": "country", "type": "string"}]}'


def avro_exchange() -> ObservedExchange:
    batch = encode_batch([Record(0, 5, b"k", b"\0\0\0\0\x01\x04DE")])
    body = {"acks": 1, "topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]}
    return exchange("Produce", 9, body, {"responses": []}, at=NOON)


def value_of(line: str) -> Any:
    event = json.loads(line)
    assert (event["api"], event["response"]["responses"]) == ("Produce", [])
    return event["request"]["topic_data"][0]["partition_data"][0]["records"][0]["value"]


def test_a_capture_is_printed_with_its_messages(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.pcapng", [avro_exchange()])
    with SchemaRegistry() as registry:
        registry.add("orders-value", AVRO)
        config = tmp_path / "kproxy.yaml"
        config.write_text(f"""\
clusters: {{main: {{bootstrap: ["b:1"]}}}}
listeners: [{{name: a, bind: "h:1", cluster: main}}]
registries: {{main: {{url: "{registry.url}"}}}}
""")
        ran = run("-o", "json", "--body", "--config", config, path)
        shown = CliRunner().invoke(main, ["show", "--config", str(config), str(path)])
        registry.replies["/schemas/ids/1"] = 500, b""
        failed = run("-o", "json", "--body", "--config", config, path)
    assert (ran.exit_code, ran.stderr, value_of(ran.stdout)) == (0, "", {"country": "DE"})
    assert '"k"  shop.Order#1 {"country": "DE"}' in shown.stdout
    assert value_of(failed.stdout) == {"base64": "AAAAAAEEREU="}
    assert failed.stderr == "kproxy: 1 lookups in registry main failed, the last: expected status 200, got 500\n"
    assert value_of(run("-o", "json", "--body", path).stdout) == {"base64": "AAAAAAEEREU="}


def test_messages_of_events_are_refused(events: Path, capture: Path) -> None:
    ran = run("-o", "json", "--body", events)
    assert ran.exit_code == 1
    assert "has events, which contain no messages: --body needs a capture" in ran.stderr
    assert "--body needs -o json" in run("--body", capture).stderr
    assert "--config needs FILEs and --body" in run("-o", "json", "--config", "x.yaml", capture).stderr


# ---- a running proxy


@pytest.mark.parametrize("form", ["json", "table"])
def test_what_passes_is_told_as_it_passes(form: str) -> None:
    """By the filter, at once, with the rules that acted; an interrupt ends it in order."""
    rule = {"name": "slow", "kind": "delay", "match": {"api": "Metadata"}, "delay": "1ms"}
    with (
        FakeBroker() as broker,
        Proxy(broker.address, rules=[rule]) as proxy,
        tailing(proxy, "-o", form, *(["--body"] if form == "json" else []), "~k metadata ~mod") as tail,
    ):
        with RawClient(proxy.bootstrap) as client:
            client.brokers()
        assert tail.stdout is not None
        told = tail.stdout.readline()
        tail.send_signal(signal.SIGINT)
        rest = tail.stdout.read()
        code = tail.wait(60)

    if form == "json":
        event = json.loads(told)
        assert (event["api"], event["responder"], event["rules"]) == ("Metadata", "broker", ["slow"])
        assert event["request"]["topics"] == []
        assert [one["node_id"] for one in event["response"]["brokers"]] == [0]
    else:
        cells = told.rstrip("\n").split("\t")
        assert (cells[2:5], cells[-1]) == (["raw", "bootstrap", "Metadata v4"], "slow")
    assert (rest, code) == ("", 0)


def test_a_proxy_that_ends() -> None:
    """It does not wait for whoever looks; who looks is told, with exit code 1."""
    with FakeBroker() as broker, Proxy(broker.address) as proxy, tailing(proxy) as tail:
        assert proxy.stop() == 0
        _, said = tail.communicate(timeout=60)

    assert (said, tail.returncode) == (f"kproxy: the proxy at http://{proxy.admin} has ended\n", 1)


@contextmanager
def tailing(proxy: Proxy, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`kproxy tail`, once it misses nothing."""
    command = [sys.executable, "-m", "kproxy", "tail", *words]
    environment = {**os.environ, "KPROXY_ADMIN": f"http://{proxy.admin}"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        try:
            until(lambda: proxy.said("tail begins"))
            yield tail
        finally:
            tail.terminate()


def test_no_proxy_answers() -> None:
    """Exit code 1, and what may be the matter."""
    ran = run("--admin", "http://127.0.0.1:9")

    assert ran.exit_code == 1
    assert ran.stderr.startswith("kproxy: nothing answers at http://127.0.0.1:9")


def test_a_proxy_that_refuses(tmp_path: Path) -> None:
    """What it says is the message."""
    with FakeBroker() as broker, Proxy(broker.address) as proxy:
        ran = run("--admin", f"http://{proxy.admin}/nowhere", "~q")

    assert ran.exit_code == 1
    assert "there is no /nowhere/api/tail here" in ran.stderr
