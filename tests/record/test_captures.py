"""Captures of a process without workers: where they may be, how many, and how they end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import structlog
import trio

from kproxy.admin.captures import CaptureQuery, CaptureShown
from kproxy.admin.problem import Problem
from kproxy.app.app import ProxyProcess
from kproxy.app.workers import pool_captures
from kproxy.app.workers.pool_captures import LocalPool, LocalTable, PoolCaptures, WorkerCaptures
from kproxy.base.errors import FilterError
from kproxy.record.captures import running_captures as module
from kproxy.record.captures.capture_file import BlockFile, CaptureFile
from kproxy.record.captures.reader import Capture, read
from kproxy.record.captures.running_captures import CaptureRefused, Captures, StartedCapture
from kproxy.record.fanout import Fanout
from kproxy.record.filters import ExchangeView
from tests.support.capture_files import SERVER, client, metadata

pytestmark = pytest.mark.trio


class Wired:
    """Captures in a folder; calls for the loop wait in `loop`."""

    def __init__(self, folder: Path | None) -> None:
        self.fanout = Fanout(structlog.get_logger())
        self.offset = 0.0
        self.loop: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.parts = Captures(
            self.fanout, server=lambda who: SERVER, soon=self.loop.put, wall=self.clock,
            view=lambda seen: ExchangeView(seen, lambda one: {}),
        )  # fmt: skip
        table = LocalTable()
        pool = LocalPool(WorkerCaptures(self.parts, 0, table))
        self.captures = PoolCaptures(folder, pool, table, self.clock, "here")

    def clock(self) -> Callable[[float], float]:
        offset = self.offset
        return lambda when: when + offset

    async def start(self, name: str, **query: Any) -> CaptureShown:
        return await self.captures.start(CaptureQuery(file=name, **query))


@pytest.fixture
def wired(tmp_path: Path) -> Wired:
    return Wired(tmp_path / "captures")


async def test_capture_from_start_to_stop(wired: Wired, tmp_path: Path) -> None:
    """The folder is made, the sink receives exchanges until the capture is stopped, the file is complete."""
    shown = await wired.start("orders", filter="~k metadata", payload="full", side="client")
    assert (shown.name, shown.state, shown.stopped) == ("orders.pcapng", "running", "")
    who = client()
    wired.fanout.opened(who, 999.0)
    wired.fanout.take(metadata(1, who=who))
    stopped = await wired.captures.stop("orders.pcapng")
    wired.fanout.take(metadata(2, who=who))

    assert (stopped.state, stopped.stopped, stopped.exchanges, stopped.connections) == ("stopped", "asked", 1, 1)
    assert () == wired.fanout.sinks
    path = tmp_path / "captures" / "orders.pcapng"
    assert (0o600, stopped.size) == (path.stat().st_mode & 0o777, path.stat().st_size)
    assert [1] == [seen.correlation_id for seen in read(path)]
    assert {} == wired.captures.table.by_owner == wired.parts.by_name


async def test_capture_at_a_limit_ends_when_shown(wired: Wired) -> None:
    """Its thread has the loop detach the sink."""
    await wired.start("short", max_exchanges=1)
    wired.fanout.take(metadata(1))
    detach = wired.loop.get(timeout=60)
    assert 1 == len(wired.fanout.sinks)
    detach()
    assert () == wired.fanout.sinks
    shown = await wired.captures.show("short")
    assert ("stopped", "max_exchanges", 1) == (shown.state, shown.stopped, shown.exchanges)


@pytest.mark.parametrize(
    "name", ["", "../out", "a/b", "/etc/passwd", ".hidden", "a b", "a\0b", "..", "-rf", "x" * 300, "c:\\x"]
)
async def test_names_stay_in_the_folder(wired: Wired, tmp_path: Path, name: str) -> None:
    """Whatever else a name could mean."""
    with pytest.raises(CaptureRefused, match=f"make the name of a capture, got {len(name)}: ") as refused:
        await wired.start(name)
    assert "invalid_query" == refused.value.code
    assert not wired.captures.by_name and wired.captures.folder is not None and not wired.captures.folder.exists()


async def test_what_is_refused(wired: Wired, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder in the config, an existing file, more captures than the limit, no such path, an invalid filter."""

    async def code(wired: Wired, name: str, **given: Any) -> str:
        with pytest.raises(CaptureRefused) as refused:
            await wired.start(name, **given)
        return refused.value.code

    assert "no_captures" == await code(Wired(None), "a")
    await wired.start("a")
    before = (tmp_path / "captures" / "a.pcapng").read_bytes()
    assert "capture_exists" == await code(wired, "a.pcapng")
    assert before == (tmp_path / "captures" / "a.pcapng").read_bytes()
    monkeypatch.setattr(module, "MOST_RUNNING", 1)
    assert "too_many_captures" == await code(wired, "b")
    await wired.captures.stop("a")
    (tmp_path / "file").write_text("")
    assert "capture_failed" == await code(Wired(tmp_path / "file"), "a")
    with pytest.raises(FilterError):
        await wired.start("c", filter="~nothing")
    with pytest.raises(Problem, match='unknown capture "c"'):
        await wired.captures.stop("c")
    assert ["a.pcapng"] == [path.name for path in (tmp_path / "captures").iterdir()]


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), RuntimeError("no thread")])
async def test_part_that_cannot_be_opened_fails_the_capture(
    wired: Wired, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(module, "CaptureFile", Mock(side_effect=error))
    with pytest.raises(Problem, match=r"cannot be written: (too many open files|no thread)") as failed:
        await wired.start("a")
    assert ("capture_failed", 1) == (failed.value.code, failed.value.message.count("cannot be written"))


async def test_list_does_not_wait_for_a_capture_that_starts(wired: Wired) -> None:
    """The start waits for the topics of brokers."""
    recording, recorded = trio.Event(), trio.Event()

    async def begun(capture: StartedCapture) -> None:
        recording.set()
        await recorded.wait()

    wired.parts.begun = begun
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wired.start, "a")
        await recording.wait()
        shown = await wired.captures.show_all()
        assert ["running"] == [one.state for one in shown]
        recorded.set()
    await wired.captures.stop("a")


async def test_the_end_of_the_proxy(wired: Wired, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running captures are ended with their last block; of ended ones only the last are remembered."""
    monkeypatch.setattr(pool_captures, "MOST_REMEMBERED", 2)
    for name in "abcd":
        await wired.start(name)
        if name != "d":
            await wired.captures.stop(name)
    assert ["b.pcapng", "c.pcapng", "d.pcapng"] == list(wired.captures.by_name)
    wired.fanout.take(metadata(1))
    process: Any = SimpleNamespace(captures=wired.parts, pool_captures=wired.captures, audit=None, otlp=None)
    await ProxyProcess.close(process)
    capture = Capture(tmp_path / "captures" / "d.pcapng")
    assert 1 == len(list(capture))
    assert '"stopped": "proxy_ended", "exchanges": 1, "broker_exchanges": 0, "connections": 1' in capture.file.ends[-1]


async def test_capture_with_a_cut_block_is_failed_and_readable(
    wired: Wired, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write fails during the stop, after a part of a block. The last block is not written behind it."""
    await wired.start("a", payload="full")
    wired.fanout.take(metadata(1))
    flush = BlockFile.flush

    def flush_a_part(file: BlockFile) -> None:
        if file.kept:
            monkeypatch.setattr(BlockFile, "flush", flush)
            file.kept = [b"".join(file.kept)[:-20]]
            flush(file)
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(BlockFile, "flush", flush_a_part)
    shown = await wired.captures.stop("a")
    assert ("failed", "no space left on device") == (shown.state, shown.error)
    capture = Capture(tmp_path / "captures" / "a.pcapng")
    assert ([1], True) == ([seen.correlation_id for seen in capture], capture.file.torn)


async def test_close_while_the_loop_stops_a_capture_ends_all(wired: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop removes captures from the dictionary while the thread of `close` waits for files."""
    for name in "ab":
        await wired.start(name)
    files, join = [one.file for one in wired.parts.by_name.values()], CaptureFile.join

    def join_and_remove(file: CaptureFile, timeout: float) -> bool:
        wired.parts.by_name.pop(file.path.name, None)
        return join(file, timeout)

    monkeypatch.setattr(CaptureFile, "join", join_and_remove)
    wired.parts.close()
    assert ["proxy_ended"] * 2 == [file.stopped for file in files]
    wired.captures.close()


async def test_each_capture_has_the_clock_of_its_beginning(wired: Wired, tmp_path: Path) -> None:
    """The system's clock was an hour ahead when the process began, and has been set since."""
    for name, wired.offset in (("before", 3600.0), ("after", 0.0)):
        await wired.start(name)
        wired.fanout.take(metadata())
        await wired.captures.stop(name)
    before, after = (next(iter(Capture(tmp_path / "captures" / f"{name}.pcapng"))) for name in ("before", "after"))

    assert before.request is not None and after.request is not None
    assert before.request.first - after.request.first == 3600.0
