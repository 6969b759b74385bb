"""`kproxy show`: one exchange with all its fields, beside their bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kproxy.cli import main
from kproxy.protocol.records import Record, encode_batch
from tests.support.exchange_factory import Somebody, conversation, event_lines, exchange, write_capture


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["show", *map(str, words)])


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """The conversation of six exchanges."""
    return write_capture(tmp_path / "traffic.pcapng", conversation())


def test_an_exchange_by_its_number(capture: Path) -> None:
    """Who, when and how; both frames, field by field; the records."""
    ran = run(capture, 3)
    lines = ran.stdout.splitlines()

    assert (ran.exit_code, ran.stderr) == (0, "")
    assert lines[0].startswith(
        "exchange 3: Produce v8, correlation id 3, connection 3, 192.168.7.1:51000 → kafka-1:9092"
    )
    assert lines[0].endswith(' (node 1), client id "etl"')
    assert lines[1] == "2026-11-21T12:00:03.000000Z, answered after 250ms, errors NOT_LEADER_OR_FOLLOWER"
    assert "request: 198 bytes with the 4 of its length" in lines
    assert "       0  00 00                                  request_api_key: 0 Produce" in lines
    assert '       8  00 03 65 74 6c                         client_id: "etl"' in lines
    assert "      24  00 06                                          error_code: 6 NOT_LEADER_OR_FOLLOWER" in lines
    assert "          … 105 more" in lines
    assert lines[-3] == "orders[0]: 149 bytes of records"
    assert lines[-2].endswith("1 record, none, producer 4000 epoch 0 sequence 0, leader epoch -1, crc right")
    assert lines[-1].split("  ")[-4:] == [
        "2026-11-21T12:00:00.000Z", '"user-0"', f'"{("order 0 " * 8)[:60]}…"', 'trace="a1"',
    ]  # fmt: skip


def test_every_byte_of_a_frame_is_beside_one_field(capture: Path) -> None:
    """Offsets follow each other; long values show their first bytes and say how many more there are."""
    lines = run(capture, 5).stdout.split("\n\n")[1].splitlines()[1:]
    rows = [(int(line[:8]), bytes.fromhex(line[10:45].strip())) for line in lines if line[10:45].strip()]
    at = 0
    for start, data in rows:
        assert start == at
        at += len(data)

    assert at == 95 - 4


def test_the_first_that_a_filter_holds_for(capture: Path) -> None:
    """Or so many of them."""
    assert run(capture, "~k produce").stdout.startswith("exchange 2: Produce v8")
    shown = run(capture, "-n", 2, "~k", "produce", "~t", "orders").stdout
    assert [line for line in shown.splitlines() if line.startswith("exchange")] == [
        line for line in shown.splitlines() if line.startswith(("exchange 2:", "exchange 3:"))
    ]


def test_frames_that_are_not_there(capture: Path) -> None:
    """It is said."""
    assert "\nresponse: none\n" in run(capture, 4).stdout
    assert run(capture, 6).stdout.endswith("\nresponse: none\n")


def test_what_was_cut_and_what_was_withheld(tmp_path: Path) -> None:
    """How much is missing, and why; fields are shown as far as they go."""
    sasl = exchange("SaslAuthenticate", 1, {"auth_bytes": b"secret"}, {})
    config = {"resources": [{"resource_type": 2, "resource_name": "t", "configs": [{"name": "ssl", "value": "pass"}]}]}
    seen = [sasl, exchange("AlterConfigs", 1, config, {}, number=2)]
    path = write_capture(tmp_path / "a.pcapng", seen)
    cut = write_capture(tmp_path / "b.pcapng", conversation()[1:2], "none")

    assert "\n      16  10 bytes withheld: SASL token\n" in run(path, 1).stdout
    shown = run(path, 2).stdout
    assert "overwritten with *: config values" in shown
    assert "secret" not in shown + run(path, 1).stdout
    assert "pass" not in shown
    head = run(cut, 1).stdout
    assert " bytes not kept" in head and "decode error: request: only " in head
    assert "\nrecords: not shown, of the request the beginning was kept" in head


def test_bytes_that_cannot_be_read(tmp_path: Path) -> None:
    """The tree goes as far as it can, and says what is wrong."""
    seen = exchange("Heartbeat", 0, {"group_id": "g", "generation_id": 1, "member_id": "m"}, {})
    assert seen.request is not None
    seen.request.data = seen.request.data[:-1] + b"\xff\xff"
    seen.request.size += 1

    shown = run(write_capture(tmp_path / "a.pcapng", [seen])).stdout
    assert "generation_id: 1" in shown
    assert "left over: 1 byte: ff" in shown or "it cannot be read further" in shown


def test_records_that_are_many_or_odd(tmp_path: Path) -> None:
    """The first ones are shown; bytes that are no text are hex; cut and broken batches say so."""
    records = encode_batch([Record(number, 5, b"\xff\x00", None) for number in range(9)])
    broken = encode_batch([Record(9, 5, None, b"v" * 50)], codec=1)
    broken = broken[:70] + b"\xff" * (len(broken) - 70)
    partition = {"partition_index": 0, "records": records + broken + records[:70]}
    seen = exchange("Fetch", 11, {}, {"responses": [{"topic": "t", "partitions": [partition]}]}, who=Somebody())
    shown = run(write_capture(tmp_path / "a.pcapng", [seen]), "--records", 2).stdout.splitlines()

    at = shown.index(f"t[0]: {len(partition['records'])} bytes of records")
    assert shown[at + 2 : at + 5] == [
        "         0  1970-01-01T00:00:00.005Z  2 bytes: ff 00  null",
        "         1  1970-01-01T00:00:00.005Z  2 bytes: ff 00  null",
        "    … 2 of 9 records shown",
    ]
    assert shown[at + 5].startswith("  batch at offset 9 to 9, 1 record, gzip, leader epoch -1, crc ")
    assert "expected" in shown[at + 5]
    assert shown[at + 6].startswith("    cannot be read: bad gzip data")
    assert shown[at + 7] == "  the beginning of a batch, 70 bytes; brokers cut the last one off (KIP-74)"


def test_json(capture: Path) -> None:
    """Both frames as `kproxy decode` has them."""
    shown = json.loads(run(capture, 3, "-o", "json").stdout)

    assert (shown["number"], shown["outcome"], shown["request"]["bytes"]) == (3, "answered", 198)
    assert shown["request"]["header"]["client_id"] == "etl"
    assert shown["response"]["body"]["responses"][0]["partition_responses"][0]["error_code"] == 6


def test_json_of_what_is_not_whole(tmp_path: Path) -> None:
    """How much there is of it, and why not more."""
    path = write_capture(tmp_path / "a.pcapng", [exchange("SaslAuthenticate", 1, {"auth_bytes": b"secret"}, None)])

    shown = json.loads(run(path, "-o", "json").stdout)
    assert shown["request"] == {"bytes": 30, "kept": 16, "withheld": "SASL token"}
    assert shown["response"] is None


def test_of_an_event_file_the_columns(tmp_path: Path) -> None:
    """It has no bytes."""
    path = tmp_path / "events.ndjson"
    path.write_bytes(event_lines(conversation()))

    assert json.loads(run(path, 6).stdout)["group"] == "billing"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["7"], 1, "found no number 7"), (["~t nothing"], 1, "found no exchange that fits topic ~ nothing"),
        (["0"], 2, "exchanges are counted from 1"), (["zzz"], 2, 'unknown field "zzz"'),
    ],
)  # fmt: skip
def test_what_is_not_there(capture: Path, words: list[str], code: int, message: str) -> None:
    """Exit code 1; for what cannot be meant, 2."""
    ran = run(capture, *words)

    assert (ran.exit_code, ran.stdout) == (code, "")
    assert message in ran.stderr


def test_no_such_file() -> None:
    """A usage error."""
    ran = run("gone.pcapng", "1")

    assert (ran.exit_code, "file not found: gone.pcapng" in ran.stderr) == (2, True)


@pytest.mark.parametrize("form", ["tree", "json"])
def test_texts_that_are_no_utf_8_are_shown(tmp_path: Path, form: str) -> None:
    """Names of headers and of topics may be any bytes: they stand as escapes or in hex."""
    data = write_capture(tmp_path / "good.pcapng", conversation()).read_bytes()
    (damaged := tmp_path / "damaged.pcapng").write_bytes(
        data.replace(b"trace", b"tra\xdbe").replace(b"orders", b"\xdbrders")
    )
    ran = run(damaged, 3, "-o", form)

    assert (ran.exit_code, ran.stderr) == (0, "")
    wanted = ("\n\\udcdbrders[0]: ", '  tra\\udcdbe="a1"') if form == "tree" else ('"name": {"hex": "db7264657273"}',)
    assert all(one in ran.stdout for one in wanted)
