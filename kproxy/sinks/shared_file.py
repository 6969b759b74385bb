"""Capture that several processes write into: each appends whole blocks, and its limits count over all of them.

Strategy. The blocks of pcapng are whole by themselves, and those of a connection are all from one process. So each
process collects blocks and writes them in one go to a descriptor in append mode, which the kernel does not mix with
others'. How large the file is and how many exchanges are in it stands in the table that the processes share: whoever
wants to write asks for room first, so that limits hold exactly.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from kproxy.rules.shared_numbers import NumberCells

MOST_KEPT = 1 << 18
"""Bytes that are collected; as much as a file's buffer."""


class BlockFile:
    """File of one process's blocks, which are only ever written whole."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.kept: list[bytes] = []
        self.size = 0

    def write(self, blocks: bytes) -> int:
        """Collect some whole blocks, and write them when they are many. Raises OSError."""
        self.kept.append(blocks)
        self.size += len(blocks)
        if self.size >= MOST_KEPT:
            self.flush()
        return len(blocks)

    def flush(self) -> None:
        """Write what is collected.

        Raises OSError; a block written in part then is cut in the file, as on a full disk.
        """
        data, self.kept, self.size = memoryview(b"".join(self.kept)), [], 0
        while data:
            data = data[os.write(self.descriptor, data) :]

    def __enter__(self) -> BlockFile:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.flush()
        finally:
            os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class Totals:
    """Bytes and exchanges that all processes have written into a capture. `clock`: monotonic seconds."""

    cells: NumberCells
    clock: Callable[[], float]

    def grow(self, size: int, exchanges: int = 0) -> tuple[int, int]:
        """Add to the totals and return the new ones: (bytes, exchanges)."""
        before = self.cells.take(self.clock()) or (0.0, 0.0)
        now = before[0] + size, before[1] + exchanges
        self.cells.put(*now)
        return int(now[0]), int(now[1])


@dataclass(frozen=True, slots=True)
class CapturePart:
    """Part of one process in a shared capture.

    `names_from`: the number of its first address for a host that has only a name, which no other process gives to
    another host.
    """

    totals: Totals
    names_from: int
