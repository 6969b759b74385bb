"""Several processes write into one capture."""

from __future__ import annotations

import os
from pathlib import Path

from kproxy.record.captures.capture_file import MOST_KEPT, BlockFile


def appending(path: Path) -> BlockFile:
    return BlockFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))


def test_blocks_of_two_writers_stay_whole(tmp_path: Path) -> None:
    """However often and with whatever sizes each of them writes, a block is in one piece."""
    path = tmp_path / "file"
    with appending(path) as one, appending(path) as two:
        for number in range(400):
            for writer, letter in ((one, b"a"), (two, b"b")):
                size = 1 + number * 37 % 5000
                writer.write(letter * size + b"\n")
                if number % 7 == 0:
                    writer.flush()
    lines = path.read_bytes().splitlines()

    assert sorted(map(len, lines)) == sorted([1 + number * 37 % 5000 for number in range(400)] * 2)
    assert all(len(set(line)) == 1 for line in lines)


def test_no_more_is_kept_than_a_buffer(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with appending(path) as blocks:
        blocks.write(b"x" * (MOST_KEPT - 1))
        assert path.stat().st_size == 0
        blocks.write(b"x")
        assert path.stat().st_size == MOST_KEPT
