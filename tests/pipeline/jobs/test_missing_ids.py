"""Ranges of ids that have not come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kproxy.pipeline.jobs.completeness import WIDE, missing


def blocks(numbers: set[int]) -> list[tuple[int, int, int | None]]:
    """The blocks that these ids make, as Spark gives them."""
    found = []
    for block in sorted({number // WIDE for number in numbers}):
        mask = sum(1 << number % WIDE for number in numbers if number // WIDE == block)
        below = [number for number in numbers if number < block * WIDE]
        found.append((block, mask - (1 << WIDE) if mask >= 1 << WIDE - 1 else mask, max(below, default=None)))
    return found


def test_gaps_within_and_before_a_block_are_told() -> None:
    """What is behind the last id that came is the next block's."""
    assert list(missing(1, 0b1001, 60)) == [(61, 63), (65, 66)]
    assert list(missing(1, -1, 63)) == []
    assert list(missing(0, 0b100, None)) == []


@given(st.sets(st.integers(1, 400), min_size=1))
def test_ranges_are_what_has_not_come(numbers: set[int]) -> None:
    """Between the first id and the last, each once."""
    told = [one for block in blocks(numbers) for one in missing(*block)]

    missed = [number for first, last in told for number in range(first, last + 1)]
    assert missed == [number for number in range(min(numbers), max(numbers)) if number not in numbers]
