"""`kproxy redact`: a capture that may be shown to others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kproxy.cli import main
from kproxy.record.captures.pcapng import PacketFile
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.reader import read
from kproxy.record.captures.writer import CaptureWriter
from tests.support.exchange_factory import NOON, conversation, orders, write_capture


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["redact", *map(str, words)])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The conversation of six exchanges."""
    return write_capture(tmp_path / "traffic.pcapng", conversation())


def test_records_are_gone_and_counted(source: Path, tmp_path: Path) -> None:
    """What was done is said on standard error; the file tells that it is redacted."""
    target = tmp_path / "shown.pcapng"
    ran = run(source, target)

    size = len(orders(5, codec=4))
    assert (ran.exit_code, ran.stdout) == (0, "")
    first, second = ran.stderr.splitlines()
    assert first == "kproxy: 6 exchanges, 12 records in 5 batches redacted"
    assert second.startswith(f"kproxy: 1 compressed batch compressed again: {size} bytes before, ")
    assert (b"user-1" in source.read_bytes(), b"user-1" in target.read_bytes()) == (True, False)
    assert [seen.client_id for seen in read(target)] == ["etl"] * 4 + ["report"] * 2
    file = PacketFile(target)
    list(file)
    assert '"redacted": "records"' in file.notes[0]


def test_names_are_others(source: Path, tmp_path: Path) -> None:
    """Of clients, users and addresses."""
    target = tmp_path / "shown.pcapng"
    assert run(source, target, "--names").exit_code == 0

    found = [(seen.client_id, seen.who.client_address, seen.who.broker, seen.who.principal) for seen in read(target)]
    assert (
        found
        == [("client-1", "10.0.0.1", "host-1:9092", "User:user-1")] * 4
        + [("client-2", "10.0.0.3", "host-2:9092", None)] * 2
    )
    assert next(iter(read(target))).request.first == NOON + 1


def test_both_sides_of_a_capture_of_kproxy(tmp_path: Path) -> None:
    """What passed at the broker is redacted, too, and stands on its own interface as before."""
    source, target = tmp_path / "both.pcapng", tmp_path / "shown.pcapng"
    with source.open("wb") as file:
        writer = CaptureWriter(file, Policy("full"))
        for seen in conversation():
            writer.write(seen, ("127.0.0.1", 9092))
            writer.write_broker(seen, ("172.16.0.1", 9093))
        writer.finish(NOON + 60, "asked")
    assert run(source, target, "--names").exit_code == 0

    assert b"user-2" not in target.read_bytes()
    for side in ("client", "broker"):
        shown = [(one.api, one.client_id, one.outcome) for one in read(target, side=side)]
        assert [(api, outcome) for api, _, outcome in shown] == [
            (one.api, one.outcome) for one in read(source, side=side)
        ]
        assert {client for _, client, _ in shown} == {"client-1", "client-2"}


def test_a_file_that_is_there_is_kept(source: Path, tmp_path: Path) -> None:
    """Unless it is to be overwritten; the source never is."""
    target = tmp_path / "shown.pcapng"
    target.write_bytes(b"mine")
    before = source.read_bytes()
    refused = run(source, target)
    assert (refused.exit_code, target.read_bytes()) == (2, b"mine")
    assert "exists, overwrite it with --force" in refused.stderr

    assert run(source, target, "--force").exit_code == 0
    assert "the same file" in run(source, source, "--force").stderr
    assert source.read_bytes() == before


def test_what_is_no_capture(tmp_path: Path) -> None:
    """Exit code 1, and nothing is left."""
    path, target = tmp_path / "x", tmp_path / "shown.pcapng"
    path.write_bytes(b"no capture")
    ran = run(path, target)

    assert (ran.exit_code, list(tmp_path.iterdir())) == (1, [path])
    assert "expected pcapng or pcap" in ran.stderr


def test_a_capture_without_kafka(tmp_path: Path) -> None:
    """It is said, and nothing is left."""
    path, target = write_capture(tmp_path / "empty.pcapng", []), tmp_path / "shown.pcapng"
    ran = run(path, target)

    assert (ran.exit_code, target.exists()) == (1, False)
    assert "no Kafka exchange was found in it" in ran.stderr


def test_a_file_that_is_there_survives_a_source_without_exchanges(tmp_path: Path) -> None:
    """Also with --force."""
    (target := tmp_path / "kept.pcapng").write_bytes(b"something")
    ran = run(write_capture(tmp_path / "none.pcapng", []), target, "--force")

    assert (ran.exit_code, target.read_bytes()) == (1, b"something")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.pcapng", "none.pcapng"]


def test_a_pipe_is_not_replaced_by_a_file(source: Path, tmp_path: Path) -> None:
    """Nor would a device be, which a superuser could replace."""
    os.mkfifo(target := tmp_path / "pipe")
    ran = run(source, target, "--force")

    assert (ran.exit_code, target.is_fifo()) == (2, True)
    assert "got the device or pipe" in ran.stderr
