"""Publishing a file: it may be stopped between any two steps, and is then done again."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.record.audit import event_files as module
from kproxy.record.audit.event_files import OpenFile, publish

STEM, DAY = "host-5b0c1e2f-0-000000000001", "2026-11-21"
LINES = b"".join(b'{"number":%d}\n' % number for number in range(50_000))


class Stopped(Exception):
    """In place of a kill."""


class Steps:
    """Stands in for `os`, as publisher.py sees it: stops before the n-th call that changes or syncs something."""

    def __init__(self, left: int) -> None:
        self.left = left

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Stopped

    def fsync(self, fd: int) -> None:
        self.step()
        os.fsync(fd)

    def write(self, fd: int, data: memoryview) -> int:
        self.step()
        return os.write(fd, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[OpenFile]:
    file = OpenFile(tmp_path, STEM, DAY)
    file.append(LINES)
    file.sync()
    yield file
    file.close()


def visible(folder: Path) -> list[bytes]:
    return [gzip.decompress(path.read_bytes()) for path in folder.glob("dt=*/[!._]*")]


def test_stopped_anywhere_and_done_again(tmp_path: Path, source: OpenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each stop readers see all of the lines or none, and the lines are there for the next attempt."""
    stops, done = 0, False
    while not done:
        steps = Steps(stops)
        with monkeypatch.context() as patch:
            patch.setattr(module, "os", steps)
            patch.setattr(module, "sync_folder", lambda _folder, steps=steps: steps.step())
            for name in ("rename", "unlink"):
                real = getattr(Path, name)
                patch.setattr(Path, name, lambda *a, real=real, steps=steps, **k: (steps.step(), real(*a, **k))[1])
            try:
                publish(tmp_path, STEM, DAY, source.fd)
                done = True
            except Stopped:
                stops += 1
        assert visible(tmp_path) in ([], [LINES])
        if visible(tmp_path) == [] and not (tmp_path / f".{STEM}.ndjson.gz").exists():
            assert source.path.read_bytes() == LINES

    assert stops >= 8
    assert visible(tmp_path) == [LINES]
    assert [path.name for path in tmp_path.iterdir()] == [f"dt={DAY}"]


def test_a_consumer_that_deletes_at_once(tmp_path: Path, source: OpenFile) -> None:
    """What was published is not published again, even if a consumer has taken it away in the meantime."""
    publish(tmp_path, STEM, DAY, source.fd)
    (tmp_path / f"dt={DAY}" / f"{STEM}.ndjson.gz").unlink()

    with pytest.raises(FileNotFoundError):
        publish(tmp_path, STEM, DAY, None)
    assert visible(tmp_path) == []


def test_a_packed_file_without_its_source(tmp_path: Path) -> None:
    """It is only renamed."""
    (tmp_path / f".{STEM}.ndjson.gz").write_bytes(gzip.compress(LINES))
    publish(tmp_path, STEM, DAY, None)

    assert visible(tmp_path) == [LINES]
