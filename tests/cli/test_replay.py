"""`kproxy replay`: options, refusals, warnings; what it does to brokers and clients stands in tests/tools/replay."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kproxy.cli import main
from kproxy.cli.replay import is_loopback, shortened
from kproxy.protocol import decode_request, encode
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.writer import CaptureWriter
from kproxy.record.exchange import ObservedExchange
from kproxy.testing.process import free_port
from tests.support.exchange_factory import NOON, conversation, write_capture
from tests.support.fake_broker import FakeBroker

pytestmark = pytest.mark.process


@pytest.fixture
def capture(tmp_path: Path) -> str:
    """A capture of some exchanges."""
    return str(write_capture(tmp_path / "traffic.pcapng", conversation()))


def call(*arguments: str, typed: str = "") -> tuple[int, str, str]:
    """Exit code, output and standard error."""
    result = CliRunner().invoke(main, ["replay", *arguments], input=typed)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "either --to HOST:PORT or --serve HOST:PORT is needed"),
        (["--to", "b:1", "--serve", "b:2"], "either --to HOST:PORT or --serve HOST:PORT is needed"),
        (["--to", "b"], 'Invalid value for --to: "b" has no port'),
        (["--to", "b:0"], "Invalid value for --to: expected a port from 1"),
        (["--serve", "b"], 'Invalid value for --serve: "b" has no port'),
        (["--to", "b:1", "--speed", "fast"], 'expected a speed above 0 or max, got "fast"'),
        (["--to", "b:1", "--speed", "0"], 'expected a speed above 0 or max, got "0"'),
        (["--to", "b:1", "--sasl-plain", "me"], "write USER:FILE, where FILE holds the password"),
        (["--to", "b:1", "--sasl-plain", "me:/not/there"], "/not/there: no such file or directory"),
    ],
)
def test_bad_options_are_usage_errors(capture: str, arguments: list[str], words: str) -> None:
    """Exit code 2, and nothing is sent."""
    code, _, said = call(capture, *arguments)

    assert code == 2
    assert words in " ".join(said.split())


def test_a_file_that_is_no_capture_is_refused(tmp_path: Path) -> None:
    """Events hold no bytes; a file that is not there is a usage error."""
    (tmp_path / "events.ndjson").write_text("{}\n")

    assert call(str(tmp_path / "events.ndjson"), "--to", "127.0.0.1:1")[0] == 1
    assert call("nothing.pcapng", "--to", "127.0.0.1:1")[0] == 2


def test_a_group_that_is_not_there_is_named(capture: str) -> None:
    """With all that are."""
    code, _, said = call(capture, "--to", "127.0.0.1:1", "--ignore", "offset")

    assert (code, said.split(", there are")[0]) == (1, 'kproxy: no group of fields is called "offset"')


def test_another_machine_is_asked_about_first(capture: str) -> None:
    """With the number of requests; no means no."""
    code, out, said = call(capture, "--to", "192.0.2.1:9092", typed="n\n")

    assert (code, out) == (1, "")
    assert "192.0.2.1:9092 is another machine: 6 recorded requests will be sent there" in said
    assert "Send them?" in said


@pytest.mark.parametrize(
    ("broker_topic", "options", "warned"),
    [("prod.orders", (), True), ("prod.orders", ("--side", "broker"), False), ("orders", (), False)],
)
def test_replay_client_side_names_are_warned_of(
    tmp_path: Path, broker_topic: str, options: tuple[str, ...], warned: bool
) -> None:
    """The recorded proxy renamed a topic: before anything is sent, the names of both sides are shown."""
    path = tmp_path / "renamed.pcapng"
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("full"))
        for write, topic in ((writer.write, "orders"), (writer.write_broker, broker_topic)):
            write(renamed_write(topic), ("127.0.0.1", 9092))
        writer.finish(NOON + 60, "asked")
    _, _, said = call(str(path), "--to", f"127.0.0.1:{free_port()}", *options)
    warning = 'client-side names ("orders"), its brokers got others ("prod.orders")'
    assert (warning in said) == warned
    assert ("--side broker sends what the brokers got" in said) == warned
    if warned:
        assert said.index(warning) < said.index("127.0.0.1", said.index("side broker"))


def renamed_write(topic: str) -> ObservedExchange:
    """Return the first Produce of the conversation, to this topic."""
    (seen, *_) = [one for one in conversation() if one.api == "Produce"]
    assert seen.request is not None
    message = decode_request(seen.request.data)
    message.body["topic_data"][0]["name"] = topic
    data = encode(message)
    return replace(seen, request=replace(seen.request, data=data, size=len(data) + 4))


def test_shortened_lists_three_names() -> None:
    assert shortened(["a", "b"]) == '"a", "b"'
    assert shortened(list("abcde")) == '"a", "b", "c" and 2 more'


def test_a_dry_run_asks_nobody_and_sends_nothing(capture: str) -> None:
    """Also in JSON; a filter says which are meant."""
    code, out, said = call(capture, "~k produce", "--to", "192.0.2.1:9092", "--dry-run", "-o", "json")

    assert (code, said) == (0, "")
    assert {one["request"].split()[0] for one in json.loads(out)} == {"Produce"}
    assert call(capture, "~k describecluster", "--to", "127.0.0.1:1")[2].startswith("kproxy: found no exchange that")


def test_a_target_that_is_not_there_is_one_line(capture: str) -> None:
    """Exit code 1."""
    port = free_port()

    assert call(capture, "--to", f"127.0.0.1:{port}") == (
        1, "", f"kproxy: the target 127.0.0.1:{port} does not answer: connection refused\n"
    )  # fmt: skip


def test_the_report_says_what_the_target_cannot_do(capture: str) -> None:
    """A broker that knows Metadata and ApiVersions only: nothing else is sent; that is no difference of answers."""
    with FakeBroker() as broker:
        code, out, _ = call(capture, "--to", broker.address, "--speed", "max", "--fail-on-difference")

    assert "the target does not have this API" in out
    assert code == 0
    assert {one.api.name for one in broker.requests} <= {"ApiVersions", "Metadata"}


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("kafka.example", False),
     ("10.0.0.1", False), ("0.0.0.0", False)],
)  # fmt: skip
def test_which_addresses_are_this_machine(host: str, expected: bool) -> None:
    """A name may be anything."""
    assert is_loopback(host) is expected


def test_serving_ends_in_order_and_says_what_was_asked(capture: str) -> None:
    """On SIGTERM, exit code 0."""
    command = [sys.executable, "-m", "kproxy", "replay", capture, "--serve", "127.0.0.1:0", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        started = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)

    assert started.startswith("serving 6 exchanges on 127.0.0.1:")
    assert (process.returncode, json.loads(out)) == (0, {"apis": [], "unmatched": {}})
