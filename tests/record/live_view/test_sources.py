"""Captures that somebody opens in the view: what is taken, what is refused, and what never happens."""

from __future__ import annotations

import gzip
import io
import os
import random
import subprocess
import sys
import tempfile
from array import array
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.admin import sources
from kproxy.protocol.records import Record, encode_batch
from kproxy.record.captures.captured_connection import CapturedConnection
from kproxy.record.captures.reader import Capture
from kproxy.record.exchange import ObservedExchange
from kproxy.record.live_view import reading
from kproxy.record.live_view import reading as view_sources
from kproxy.record.live_view.config import ViewConfig
from kproxy.record.live_view.reading import OpenedCaptures, ReadingResult, Spool, encoded, read_places
from tests.admin import conftest as admin
from tests.support.capture_files import client, frame, metadata, packets, pcap, produce, request, written

pytestmark = pytest.mark.process

api, logged, make_api = admin.api, admin.logged, admin.make_api  # fixtures

BYTES = "application/octet-stream"


def capture_of(tmp_path: Path, count: int = 3) -> bytes:
    """Return a capture of kproxy's own with so many writes, and their answers."""
    who = client(7, principal="alice")
    exchanges = [produce(number, who=who, at=1000.0 + number) for number in range(1, count + 1)]
    return written(tmp_path / "own.pcapng", exchanges).read_bytes()


def spooled(tmp_path: Path, path: Path) -> tuple[ReadingResult, Spool]:
    """Read a capture in this process."""
    with (tmp_path / "spool").open("wb") as file:
        result = reading.read(file, str(path))
    number = os.open(tmp_path / "spool", os.O_RDONLY)
    return result, Spool(number, read_places(number, result), result.topics)


def same(one: ObservedExchange, other: ObservedExchange) -> bool:
    """Return True if two exchanges tell the same, their connections too."""
    assert isinstance(one.who, CapturedConnection)
    assert isinstance(other.who, CapturedConnection)
    names = [name for name in CapturedConnection.__slots__ if name not in ("names", "over", "exchanges")]
    fields = [name for name in ObservedExchange.__slots__ if name not in ("who", "_bodies")]
    return all(getattr(one.who, name) == getattr(other.who, name) for name in names) and all(
        getattr(one, name) == getattr(other, name) for name in fields
    )


@pytest.mark.trio
async def test_a_capture_is_opened_read_and_closed(api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a process of its own; nothing of it is left in a folder."""
    temporary = tmp_path / "temporary"  # other tests, in other processes, have files in the one of the machine
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    opened = await api("POST", "/api/sources?name=incident.pcapng", capture_of(tmp_path), kind=BYTES)
    shown = opened.json

    assert opened.status == 201, shown
    assert (shown["source"], shown["name"], shown["exchanges"], shown["written_by"]) == (
        "s1", "incident.pcapng", 3, "kproxy",
    )  # fmt: skip
    assert shown["missing"] == []
    assert shown["counts"]["connections"] == 1
    assert 3590 < shown["ttl_left"] <= 3600
    assert [one["source"] for one in (await api("GET", "/api/sources")).json["sources"]] == ["s1"]
    assert (await api("GET", "/api/sources/s1")).json["exchanges"] == 3
    assert list(temporary.iterdir()) == []
    assert (await api("DELETE", "/api/sources/s1")).status == 200
    assert (await api("GET", "/api/sources/s1")).code == "no_such_source"
    assert (await api("DELETE", "/api/sources/s1")).code == "no_such_source"


@pytest.mark.trio
async def test_what_is_no_capture_is_refused(api: Any, logged: list[dict[str, Any]]) -> None:
    """With what is wrong in it; the next one is taken all the same."""
    for text, message in (("", "expected a capture"), ("hello", "expected pcapng or pcap, got 68656c6c")):
        refused = await api("POST", "/api/sources?name=x", text, kind=BYTES)
        assert (refused.status, refused.code) == (422, "no_capture")
        assert message in refused.json["error"]["message"]
    assert (await api("GET", "/api/sources")).json["sources"] == []
    assert not [one for one in logged if one["event"] == "request failed"]


@pytest.mark.trio
async def test_a_file_has_a_length_and_comes_in_time(
    api: Any,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whatever its Content-Length says; one that stops in the middle leaves no place taken."""
    monkeypatch.setattr(sources, "LONGEST", 1000)
    refused = await api("POST", "/api/sources", b"x" * 1001, kind=BYTES, pieces=100)
    assert (refused.status, refused.code) == (413, "too_large")
    refused = await api("POST", "/api/sources", b"x", kind=BYTES, **{"content-length": str((256 << 20) + 1)})
    assert (refused.status, refused.code) == (413, "too_large")
    refused = await api("POST", "/api/sources", b"x" * 100, kind=BYTES, receive=trio.sleep_forever)
    assert (refused.status, refused.code) == (408, "too_slow")

    async def gone() -> Any:
        return {"type": "http.disconnect"}

    refused = await api("POST", "/api/sources", b"x" * 100, kind=BYTES, receive=gone)
    assert (refused.status, refused.code) == (408, "too_slow")
    assert trio.current_time() >= sources.LONGEST_SILENCE
    assert (await api("POST", "/api/sources", b"x" * 100, kind=BYTES)).code == "no_capture"


@pytest.mark.parametrize("kind", [None, "text/plain", "multipart/form-data", "application/json"])
@pytest.mark.trio
async def test_a_form_cannot_send_one(api: Any, kind: str | None) -> None:
    """Nor what a page of another origin may send unasked."""
    refused = await api("POST", "/api/sources", b"x", kind=kind)

    assert (refused.status, refused.code) == (415, "unsupported_media_type")


@pytest.mark.parametrize("query", ["?name=", "?name=" + "x" * 256, "?nam=x"])
@pytest.mark.trio
async def test_a_name_has_a_length(api: Any, query: str) -> None:
    """It is only shown, and no path."""
    assert (await api("POST", f"/api/sources{query}", b"x", kind=BYTES)).code == "invalid_query"


@pytest.mark.trio
async def test_there_are_four_places(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are on their way have one, too."""
    made: list[Any] = []

    async def pretend(kept: OpenedCaptures, file: Any, name: str, size: int) -> Any:
        made.append(kept.opening)
        return kept.add(name, size, ReadingResult(), Spool(-1, array("q"), {}))

    monkeypatch.setattr(sources, "opened", pretend)
    for _ in range(4):
        assert (await api("POST", "/api/sources", b"x", kind=BYTES)).status == 201
    refused = await api("POST", "/api/sources", b"x", kind=BYTES)

    assert (refused.status, refused.code, made) == (429, "too_many_sources", [1, 1, 1, 1])
    await api("DELETE", "/api/sources/s2")
    assert (await api("POST", "/api/sources", b"x", kind=BYTES)).json["source"] == "s5"


@pytest.mark.trio
async def test_no_room_on_the_disk_is_said(api: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For the file itself, and for what is read of it."""

    def full() -> Any:
        raise OSError(28, "No space left on device")

    data = capture_of(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(sources, "nameless", full)
        refused = await api("POST", "/api/sources", data, kind=BYTES)
    assert (refused.status, refused.code) == (409, "source_failed")
    assert "no space left" in refused.json["error"]["message"]


def test_a_source_goes_when_nobody_has_looked_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks keeps it; its file is closed with it."""
    now = 0.0
    monkeypatch.setattr(view_sources, "monotonic", lambda: now)
    kept = OpenedCaptures()
    numbers = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
    for number in numbers:
        source = kept.add("x", 1, ReadingResult(), Spool(number, array("q"), {}))
        source.looked_at = now
    now = 3000.0
    assert kept.find("s1") is not None
    now = 4000.0
    kept.expire()

    assert list(kept.by_id) == ["s1"]
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(numbers[1])
    kept.close()
    assert not kept.by_id


def test_a_spool_tells_what_was_read(tmp_path: Path) -> None:
    """Each exchange, from any place in it, as the capture's reader gives it."""
    path = tmp_path / "own.pcapng"
    who = client(7, principal="alice", software_name="librdkafka", node=2)
    written(path, [produce(1, who=who), metadata(2, who=who), produce(3, who=who, acks=0), metadata(4, who=client(8))])
    result, spool = spooled(tmp_path, path)
    wanted = list(Capture(path, most=reading.KEPT))

    assert len(spool) == result.exchanges == len(wanted) == 4
    for number in (3, 1, 4, 2):
        assert same(spool.exchange(number), wanted[number - 1])
        assert spool.behind(number) is None
    for number in (0, 5, -1):
        with pytest.raises(IndexError):
            spool.exchange(number)
    spool.close()


def test_what_passed_at_the_broker_is_found(tmp_path: Path) -> None:
    """In kproxy's own captures, whichever side came first; of two with one id in their order."""
    spool = reading.SpoolWriter(io.BufferedWriter(io.BytesIO()))
    front, back = client(7), CapturedConnection(7, "broker", "10.1.2.3", 1, "b", 9092, 0.0, client().names)
    for seen in (produce(1, who=front), produce(1, who=back), produce(2, who=back), produce(2, who=front),
                 produce(3, who=front)):  # fmt: skip
        spool.add(seen, own=True)

    assert spool.exchanges == 3
    assert [place >= 0 for place in spool.places[1::2]] == [True, True, False]


def test_gaps_of_tcpdump_are_named(tmp_path: Path) -> None:
    """In words, with how many bytes."""
    own = written(tmp_path / "own.pcapng", [produce(number, size=5000, at=1000.0 + number) for number in range(1, 9)])
    found = packets(own)
    lost = [one for number, one in enumerate(found) if number != len(found) // 2]
    path = pcap(tmp_path / "tcpdump.pcap", found[0].link, [(one.time, one.data, one.length) for one in lost])
    result, spool = spooled(tmp_path, path)

    assert result.problem == ""
    assert 0 < result.exchanges < 8 or result.counts["gaps"]
    assert any("bytes missing in 1 place" in text for text in result.missing), result.missing
    spool.close()


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MOST_EXCHANGES", 10, "only the first"),
        ("MOST_SPOOLED", 500, "only the exchanges of the first"),
        ("MOST_UNPACKED", 4000, "were read"),
        ("SECONDS", 0, "only what could be read within"),
    ],
)
def test_reading_has_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, message: str
) -> None:
    """What is beyond them is left out, and that is told."""
    monkeypatch.setattr(reading, limit, value)
    monkeypatch.setattr(reading, "CHECKED", 20)
    path = written(tmp_path / "own.pcapng", [produce(number, at=1000.0 + number) for number in range(1, 50)])
    result, spool = spooled(tmp_path, path)

    assert len(spool) == result.exchanges < 49
    assert any(message in text for text in result.missing), result.missing
    spool.close()


def test_a_packed_file_is_read_no_further_than_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MB of nothing in 64 kB."""
    monkeypatch.setattr(reading, "MOST_UNPACKED", 1 << 20)
    monkeypatch.setattr(reading, "CHECKED", 1)
    empty = b"\x06\0\0\0" + (1 << 16).to_bytes(4, "little") + bytes((1 << 16) - 12) + (1 << 16).to_bytes(4, "little")
    begin = written(tmp_path / "own.pcapng", [produce()]).read_bytes()
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(begin + 1000 * empty, 1))
    capture = Capture(path)
    capture.file = file = reading.LimitedFile(path)
    list(capture)

    assert (file.stopped, file.offset < 2 << 20) == ("unpacked", True)
    result, spool = spooled(tmp_path, path)
    assert result.exchanges <= 1
    spool.close()


def test_a_damaged_file_shows_what_comes_before_the_damage(tmp_path: Path) -> None:
    """Bytes changed at random; nothing is raised but what is told."""
    data = written(
        tmp_path / "own.pcapng", [produce(number, at=1000.0 + number) for number in range(1, 20)]
    ).read_bytes()
    chance = random.Random(17)
    for _ in range(60):
        spoiled = bytearray(data)
        for _ in range(chance.randrange(1, 20)):
            spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
        path = tmp_path / "spoiled"
        path.write_bytes(spoiled[: chance.randrange(len(spoiled))])
        with (tmp_path / "spool").open("wb") as file:
            result = reading.read(file, str(path))
        assert result.problem or result.exchanges <= 20
        for text in (result.problem, *result.missing):
            assert len(text) < 500


@pytest.mark.trio
async def test_a_process_that_dies_is_a_refusal(api: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of this one file; its places are free again."""
    monkeypatch.setattr(sources, "COMMAND", ("sh", "-c", "echo 'MemoryError: it is too large' >&2; exit 3"))
    refused = await api("POST", "/api/sources?name=x", capture_of(tmp_path), kind=BYTES)

    assert (refused.status, refused.code) == (422, "no_capture")
    assert "MemoryError: it is too large" in refused.json["error"]["message"]
    monkeypatch.undo()
    assert (await api("POST", "/api/sources?name=x", capture_of(tmp_path), kind=BYTES)).status == 201


@pytest.mark.trio
async def test_whoever_goes_ends_the_reading(api: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process is killed, and the next file is read."""
    monkeypatch.setattr(sources, "COMMAND", ("sleep", "600"))
    with trio.move_on_after(0.3):
        await api("POST", "/api/sources?name=x", capture_of(tmp_path), kind=BYTES)
    monkeypatch.undo()
    assert (await api("POST", "/api/sources?name=x", capture_of(tmp_path), kind=BYTES)).status == 201


def test_the_reader_of_files_has_limits_of_the_kernel() -> None:
    """Memory, time, and the size of what it writes; it ends with whoever has started it."""
    program = """
import os, resource
from kproxy.record.live_view import reading
reading.limit(os.getppid())
try:
    held = bytearray(reading.MEMORY)
except MemoryError:
    print(resource.getrlimit(resource.RLIMIT_CPU)[0], resource.getrlimit(resource.RLIMIT_FSIZE)[0])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    seconds, size = map(int, ran.stdout.split())

    assert seconds <= reading.SECONDS * 3 // 2
    assert size <= reading.MOST_SPOOLED + (64 << 20)


@pytest.fixture
def opened(api: Any, tmp_path: Path) -> Any:
    """Opens a capture whose broker side is another one for its second write."""
    front = client(7, principal="alice")
    back = CapturedConnection(7, "broker", "127.0.0.1", 40001, "10.0.0.2", 9092, 0.0, front.names)
    exchanges = [produce(number, who=front, at=1000.0 + number, size=50) for number in range(1, 8)]
    batch = encode_batch([Record(0, 1_000_000, b"user-1", b"s3cret" * 10)])
    topics = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    asked = request("Produce", 8, 2, {"acks": 1, "timeout_ms": 1000, "topic_data": topics})
    exchanges[1].request = frame(asked, 1002.0)
    path = tmp_path / "own.pcapng"
    written(path, exchanges)
    result, spool = spooled(tmp_path, path)
    place = spool.places
    number = os.open(tmp_path / "spool", os.O_RDWR | os.O_APPEND)
    behind = encoded(ObservedExchange(back, 2, 0, 8, 2, "shop", produce(2, size=90).request, outcome="answered"))
    place[3] = os.fstat(number).st_size
    os.write(number, len(behind).to_bytes(4, "big") + behind)
    os.close(number)
    return api.backend.sources.add("own.pcapng", 1, result, spool)


@pytest.mark.trio
async def test_exchanges_of_a_source_are_listed(api: Any, opened: Any) -> None:
    """The newest first, in parts, by a filter, in the columns of what passes."""
    whole = (await api("GET", "/api/exchanges?source=s1")).json
    columns = whole["columns"]
    first = (await api("GET", "/api/exchanges?source=s1&limit=3")).json
    rest = (await api("GET", f"/api/exchanges?source=s1&before={first['next']}")).json
    found = (await api("GET", "/api/exchanges?source=s1&filter=principal+==+alice+and+~val+xxx&limit=2")).json

    assert [row[0] for row in whole["rows"]] == [f"0-{number}" for number in range(7, 0, -1)]
    assert first["rows"] + rest["rows"] == whole["rows"]
    assert (whole["next"], rest["next"], whole["searched"]) == (None, None, 7)
    assert [row[columns.index("about")] for row in found["rows"]] == ["orders[0]"] * 2
    assert whole["rows"][0][columns.index("time")] == 1007.0
    assert whole["rows"][0][columns.index("principal")] == "alice"
    assert [row[columns.index("changed")] for row in whole["rows"]] == [number == 2 for number in range(7, 0, -1)]


@pytest.mark.trio
async def test_an_exchange_of_a_source_is_told(api: Any, opened: Any) -> None:
    """Its frames, its records, and what passed at the broker where that was something else."""
    told = (await api("GET", "/api/exchanges/0-2?source=s1")).json
    sent = await api("GET", "/api/exchanges/0-2/frame?source=s1&of=request&side=client")

    assert (told["id"], told["source"], told["event"]["principal"]) == ("0-2", "s1", "alice")
    assert told["request"]["client"]["form"] == "whole"
    assert told["request"]["broker"]["bytes"] > told["request"]["client"]["bytes"]
    assert told["request"]["changed"]
    assert len(sent.body) == told["request"]["client"]["bytes"]
    saved = await api("GET", "/api/exchanges/0-2/capture?source=s1")
    assert b"s3cret" in saved.body and b"alice" in saved.body
    assert told["records"][0]["batches"][0]["records"][0]["value_bytes"] == 60


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/exchanges?source=s2", "no_such_source"),
        ("/api/exchanges?source=" + "s" * 21, "invalid_query"),
        ("/api/exchanges?source=s1&filter=topc", "invalid_query"),
        ("/api/exchanges/0-8?source=s1", "no_such_exchange"),
        ("/api/exchanges/0-0?source=s1", "no_such_exchange"),
        ("/api/exchanges/1-1?source=s1", "no_such_exchange"),
        ("/api/exchanges/0-1?source=s2", "no_such_source"),
        ("/api/exchanges/0-1/frame?source=s2", "no_such_source"),
    ],
)
@pytest.mark.trio
async def test_what_a_source_has_not_is_refused(api: Any, opened: Any, path: str, code: str) -> None:
    assert (await api("GET", path)).code == code


@pytest.mark.trio
async def test_records_of_a_source_are_hidden_too(api: Any, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the config says so: in details, in bytes and in filters."""
    monkeypatch.setattr(api.backend, "view", ViewConfig(records=False))
    told = await api("GET", "/api/exchanges/0-2?source=s1")
    sent = await api("GET", "/api/exchanges/0-2/frame?source=s1&of=request")
    saved = await api("GET", "/api/exchanges/0-2/capture?source=s1")
    searched = await api("GET", "/api/exchanges?source=s1&filter=~val+x")

    assert b"orders" in b64decode(told.json["request"]["client"]["data"])
    assert b"s3cret" not in b64decode(told.json["request"]["client"]["data"])
    assert told.json["records"][0]["batches"] == []
    assert b"s3cret" not in sent.body
    assert b"orders" in saved.body and b"s3cret" not in saved.body
    assert (searched.status, searched.code) == (422, "invalid_query")


@pytest.mark.trio
async def test_a_source_that_is_closed_while_it_is_asked_is_refused(api: Any, opened: Any) -> None:
    """It had been found before its file went."""
    opened.spool.close()

    assert (await api("GET", "/api/exchanges?source=s1")).code == "no_such_source"
    assert (await api("GET", "/api/exchanges/0-1?source=s1")).code == "no_such_source"
