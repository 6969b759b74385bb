"""A fuzzer's bytes read as decisions, so that what it finds worth keeping stays meaningful when it changes a byte.

`Feed` gives numbers, choices and pieces of bytes. `FedRandom` is a `random.Random` whose chances come from the bytes as
long as there are some: whatever is made by chance (values of messages, rule sets, whole conversations) is then guided.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")


class Feed:
    """Reads from the front; behind the end there are zeros, so that every input is a whole one."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return self.at < len(self.data)

    def take(self, size: int) -> bytes:
        """So many bytes, fewer at the end."""
        piece = self.data[self.at : self.at + size]
        self.at += len(piece)
        return piece

    def byte(self) -> int:
        return int.from_bytes(self.take(1), "big")

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1."""
        return int.from_bytes(self.take(1 if limit <= 256 else 2 if limit <= 65536 else 4), "big") % limit

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def piece(self) -> bytes:
        """Bytes with their number in front: one byte, or from 240 on two."""
        size = self.byte()
        return self.take(size if size < 240 else (size - 240) << 8 | self.byte())

    def rest(self) -> bytes:
        return self.take(len(self.data))


class FedRandom(Random):
    """Chances from bytes; when these are used up, from a seed that they give."""

    def __new__(cls, data: bytes) -> FedRandom:
        return super().__new__(cls)

    def __init__(self, data: bytes) -> None:
        self.feed = Feed(data)
        super().__init__(zlib.crc32(data))

    def random(self) -> float:
        return int.from_bytes(self.feed.take(2).ljust(2, b"\0"), "big") / 65536 if self.feed else super().random()

    def getrandbits(self, k: int) -> int:
        size = (k + 7) // 8
        if not self.feed or not k:
            return super().getrandbits(k)
        return int.from_bytes(self.feed.take(size).ljust(size, b"\0"), "big") >> (size * 8 - k)

    def seed(self, *given: Any, **more: Any) -> None:
        super().seed(*given, **more)
