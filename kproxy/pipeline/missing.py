"""Which ids of a source have not come: ranges, read off blocks of bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kproxy.pipeline.transforms.ids import BITS

WIDE = 1 << BITS


class Missing(NamedTuple):
    """Ids `first` to `last`, neither of which has come, nor any between them."""

    first: int
    last: int


def missing(block: int, mask: int, before: int | None) -> Iterator[Missing]:
    """The ranges that are missing in a block of 64 ids up to the last that has come there, and right before it.

    Bit n of `mask`, a signed 64-bit number, says that block × 64 + n has come; some bit is set. `before` is the last
    id of its source that has come below the block; None: the block is the source's first.
    """
    expected = None if before is None else before + 1
    for bit in range(WIDE):
        if mask >> bit & 1:
            number = block * WIDE + bit
            if expected is not None and number > expected:
                yield Missing(expected, number - 1)
            expected = number + 1
