"""Hostile input of `kproxy verify`: options and files that make no sense, and names and numbers without bound."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kproxy.cli import main
from kproxy.cli.exchange_input import MOST_KINDS, Trouble
from kproxy.tools.verify import Verifier, VerifyTerms, stored_batches
from kproxy.tools.verify.stored_batches import SentBatchesCheck
from tests.support.exchange_factory import NOON, event_lines, write_capture
from tests.tools.verify.history import History, batch, clients_view

A, B = batch(b"a", b"aa"), batch(b"b", b"bb", at=1)
PCAP = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
"""Header of a pcap file for Ethernet."""


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["verify", *map(str, words)])


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Return a capture of a write and a read of the topic orders."""
    made = History(known=False, compacted=None)
    made.write(NOON, A, 0)
    made.read(NOON + 1, 0, (0, A))
    return write_capture(tmp_path / "good.pcapng", [pair.front for pair in made.pairs if pair.front])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fail-on", ""], "--fail-on: expected a level or CHECK=LEVEL, got none"),
        (["--fail-on", ","], "--fail-on: expected a level or CHECK=LEVEL, got none"),
        (["--fail-on", "order=note,order=proved"], "--fail-on: expected one level, got note and proved (at order)"),
        (["--retention", ""], "--retention: expected TOPIC=DURATION such as orders=7d, got none"),
        (["--retention", "orders=7d,orders=1d"], "--retention: expected one duration, got 7d and 1d (at orders)"),
        (["--retention", "a b=7d"], "--retention: expected names of topics, got 'a b'"),
        (["--only", "order", "--without", "order"], "--without: expected checks that are not in only, got order"),
        (["--memory", "9" * 400], "expected a smaller number, got 999"),
        (["--skew", "9" * 400], "expected a smaller number, got 999"),
        (["--token-file", "nowhere"], "--token-file: nowhere: the token cannot be read: no such file or directory"),
        (["--html", "other.pcapng"], "--html: expected another file than a recording, got other.pcapng"),
    ],
)
def test_options_without_sense_are_refused(capture: Path, words: Sequence[str], message: str) -> None:
    ran = run(capture, *words)
    assert ran.exit_code == 2, ran.output
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


def test_page_in_place_of_input_is_refused(tmp_path: Path, capture: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(capture.read_bytes())
    (tmp_path / "link").symlink_to(copy)
    ran = run(copy, "--html", tmp_path / "link")
    assert ran.exit_code == 2
    assert "--html: expected another file than a recording" in ran.stderr
    assert copy.read_bytes() == capture.read_bytes()


@pytest.mark.parametrize("option", ["--compacted", "--not-compacted", "--retention"])
def test_topic_that_no_exchange_has_is_refused(capture: Path, option: str) -> None:
    value = "=7d" if option == "--retention" else ""
    assert run(capture, option, f"orders{value}").exit_code == 0
    ran = run(capture, option, f"order{value}")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == f"kproxy: expected a topic of {capture}, got order (at {option})\n"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("no-packets.pcap", PCAP),
        ("another-link.pcap", PCAP[:20] + (147).to_bytes(4, "little")),
        ("begin.pcapng", b"\x0a\x0d\x0d\x0a"),
        ("begin.pcap", b"\xd4\xc3\xb2\xa1"),
        ("braces.ndjson", b"{" * 100_000),
        ("nested.ndjson", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        ("report.json", b'{"schema": "kproxy.verify/1"}\n'),
    ],
)
def test_file_without_exchanges_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    ran = run(path)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"kproxy: expected exchanges of clients, got none (at {path}")


def test_file_with_several_names_is_read_once(tmp_path: Path, capture: Path) -> None:
    (tmp_path / "link.pcapng").symlink_to(capture)
    (tmp_path / "x").mkdir()
    for again in (capture, tmp_path / "link.pcapng", tmp_path / "x" / ".." / "good.pcapng", tmp_path):
        ran = run(capture, again)
        assert ran.exit_code == 0, ran.output
        assert f"{capture} and 1 more: 2 exchanges of 2 connections" in ran.stdout


def test_name_of_a_file_is_text_in_all_reports(tmp_path: Path, capture: Path) -> None:
    """The name has control characters, markup, and a byte that is not UTF-8."""
    path, page = tmp_path / "\udcff\x1b[31m<script>.pcapng", tmp_path / "page.html"
    path.write_bytes(capture.read_bytes())
    ran = run(path, "--html", page)
    assert ran.exit_code == 0, ran.output
    assert "\x1b" not in ran.stdout + page.read_text()
    assert "<script>" not in page.read_text()
    assert json.loads(run(path, "-o", "json").stdout)["files"] == [str(path)]


def test_checksums_of_one_number_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client writes batches with equal checksums and other times, so that all count as one batch."""
    monkeypatch.setattr(stored_batches, "MOST_SENT", 50)
    history = History()
    for number in range(200):
        data = bytearray(batch(b"a", at=number))
        data[17:21] = bytes(4)
        history.write(1 + number / 100, bytes(data), number)
    verifier = Verifier(VerifyTerms(view="clients", assume_complete=True))
    for pair in history.pairs:
        verifier.take(pair.front, pair.behind)
    verdict = verifier.verdict()
    (check,) = [one for one in clients_view(verifier).checks if isinstance(one, SentBatchesCheck)]
    assert all(len(sent.times) <= 51 for sent in check.sent.values())
    assert "for want of memory" in verdict.not_checked["phantom-record"]


def test_names_of_apis_in_events_are_bounded(capture: Path, tmp_path: Path) -> None:
    made = History(known=False, compacted=None)
    made.write(NOON, A, 0)
    front = made.pairs[0].front
    assert front is not None
    line: dict[str, Any] = json.loads(event_lines([front]))
    verifier = Verifier(VerifyTerms())
    for number in range(300):
        for key in (0, 1 << 40):
            data = {**line["data"], "api": f"api {number}", "api_key": key}
            verifier.take_event(data)
            verifier.take_event({**data, "request_in": None, "response_out": None})
    counts = verifier.front_reader.counts
    assert {*counts.looked, *counts.damaged, *counts.not_kept} <= {"API 0", "API -1"}


def test_types_of_events_are_bounded() -> None:
    trouble = Trouble()
    for number in range(2 * MOST_KINDS):
        trouble.count(f"type {number}")
    assert len(trouble.other) == MOST_KINDS + 1
    assert trouble.other["others"] == MOST_KINDS


@pytest.mark.parametrize(
    ("level", "clean", "below"),
    [("note", [], {}), ("suspect", [], {"commit-goes-back": 1}), ("proved", [], {"commit-goes-back": 1})],
)
def test_check_with_hidden_finding_is_not_clean(level: str, clean: list[str], below: dict[str, int]) -> None:
    made = History()
    made.commit(1, 5)
    made.told(1.5, 5)
    made.commit(2, 4)
    made.commit(3, 6, generation=2)
    verdict = made.verdict(level=level, only=frozenset(("commit-goes-back",)))
    assert (verdict.clean, verdict.not_shown) == (clean, below)
