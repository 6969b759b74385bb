"""The thread that writes a capture."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.record.captures import capture_file
from kproxy.record.captures.capture_file import CaptureFile, CaptureLimits
from kproxy.record.captures.pcapng import read_note
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.reader import Capture
from kproxy.record.captures.writer import CaptureWriter
from kproxy.record.exchange import ObservedExchange
from tests.support.capture_files import SERVER, begun_part, client, metadata, produce


class Begun:
    """A capture that has begun; `over` is set when it has ended."""

    def __init__(self, path: Path, limits: CaptureLimits = CaptureLimits(), payload: str = "full") -> None:  # noqa: B008
        self.over = threading.Event()
        self.path = path
        self.file = CaptureFile(path, Policy(payload), limits, float, self.over.set, begun_part(path))

    def put(self, seen: ObservedExchange) -> None:
        self.file.exchange(seen, SERVER, None, behind=False)

    def read(self) -> tuple[list[int], dict[str, object]]:
        """Correlation ids, and the note of this process."""
        assert self.over.wait(60)
        capture = Capture(self.path)
        found = [seen.correlation_id for seen in capture]
        return found, read_note(capture.file.ends[0])


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No exchange is written before this is set."""
    event = threading.Event()
    write = CaptureWriter.write

    def waiting(self: CaptureWriter, seen: ObservedExchange, server: tuple[str, int], **more: Any) -> None:
        assert event.wait(60)
        write(self, seen, server, **more)

    monkeypatch.setattr(CaptureWriter, "write", waiting)
    yield event
    event.set()


def test_all_that_was_put_is_written(tmp_path: Path) -> None:
    """In order, ends of connections included."""
    begun = Begun(tmp_path / "c.pcapng")
    who = client()
    for number in range(500):
        begun.put(metadata(number, who=who))
    begun.file.closed(who, 1001.0)
    begun.file.stop()
    assert begun.file.join(60)
    begun.put(metadata(500))

    assert (list(range(500)), "asked") == (begun.read()[0], begun.file.stopped)
    assert begun.path.stat().st_size == begun.file.part.totals.grow(0)[0]
    assert (500, 1, 0) == (begun.file.written.exchanges, begun.file.written.connections, begun.file.dropped)


def test_limits(tmp_path: Path) -> None:
    """Of size, which the file never exceeds, of exchanges, and of time."""
    size = Begun(tmp_path / "size", CaptureLimits(size=50_000))
    for number in range(100):
        size.put(produce(number, size=1000))
    found, _ = size.read()
    assert "max_size" == size.file.stopped
    assert 40_000 < size.path.stat().st_size <= 50_000
    assert found == list(range(len(found)))

    count = Begun(tmp_path / "count", CaptureLimits(exchanges=7))
    for number in range(100):
        count.put(metadata(number))
    assert (list(range(7)), "max_exchanges") == (count.read()[0], count.file.stopped)

    time = Begun(tmp_path / "time", CaptureLimits(seconds=0.05))
    assert ([], "max_seconds") == (time.read()[0], time.file.stopped)
    assert 0.05 <= time.file.seconds < 10


def test_what_does_not_fit_is_dropped_and_counted(
    tmp_path: Path, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By number and by bytes; the file says how many are missing. Nobody waits."""
    monkeypatch.setattr(capture_file, "MOST_WAITING", 10)
    many = Begun(tmp_path / "many")
    for number in range(100):
        many.put(metadata(number))
    monkeypatch.setattr(capture_file, "MOST_WAITING", 1000)
    monkeypatch.setattr(capture_file, "MOST_WAITING_BYTES", 5000)
    heavy = Begun(tmp_path / "heavy")
    for number in range(100):
        heavy.put(produce(number, size=1000))
    slow.set()
    for begun in (many, heavy):
        begun.file.stop()
        found, said = begun.read()
        assert 3 < len(found) < 15
        assert 100 - len(found) == begun.file.dropped
        assert said["part"] == {"dropped": {("Metadata" if begun is many else "Produce"): begun.file.dropped}}


def test_capture_file_after_its_end_keeps_no_entries(tmp_path: Path, slow: threading.Event) -> None:
    """Up to 100 ended captures stay listed, and a broker's long responses may arrive after the end."""
    begun = Begun(tmp_path / "c.pcapng", CaptureLimits(exchanges=1))
    for number in range(5):
        begun.put(metadata(number))
    slow.set()
    assert begun.over.wait(60)
    begun.file.own([metadata(5)], SERVER, 1001.0)
    assert begun.file.queue.empty()


def test_a_mistake_ends_the_capture_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should writing raise, the capture has failed with that."""

    def broken(*arguments: object, **more: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(CaptureWriter, "write", broken)
    begun = Begun(tmp_path / "c")
    begun.put(metadata(1))
    assert begun.over.wait(60)
    assert ("failed", "ValueError: a bug") == (begun.file.stopped, begun.file.error)
