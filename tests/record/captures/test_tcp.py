"""Segments put in order."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.record.captures.tcp_stream import LONGEST_WAIT, MOST_WAITING, WHOLE, StreamDirection, StreamPiece

STREAM = bytes(Random(1).randbytes(5000))


def all_of(direction: StreamDirection, segments: list[tuple[int, bytes, int]], start: int = 0) -> list[StreamPiece]:
    """(place in the stream, what is kept, size) each; given up at the end."""
    found = []
    for number, (place, data, size) in enumerate(segments):
        found += direction.receive((start + place) % WHOLE, data, size, number / 1000)
    return [*found, *direction.give_up()]


def shuffled(random: Random) -> list[tuple[int, bytes, int]]:
    """The stream in segments that overlap and are repeated, near to their places."""
    segments = []
    place = 0
    while place < len(STREAM):
        size = random.randint(1, 400)
        begin = max(0, place - random.choice((0, 0, 0, 50)))
        data = STREAM[begin : place + size]
        segments += [(begin, data, len(data))] * random.choice((1, 1, 1, 2))
        place += size
    order = sorted(range(len(segments)), key=lambda number: number + random.random() * 6)
    first = next(number for number in order if segments[number][0] == 0)
    return [segments[first], *(segments[number] for number in order)]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("start", [0, WHOLE - 2500])
def test_any_order_gives_the_stream(seed: int, start: int) -> None:
    """Late, repeated and overlapping segments make the same bytes, over the end of the sequence numbers too."""
    direction = StreamDirection()
    direction.begin((start - 1) % WHOLE)

    found = all_of(direction, shuffled(Random(seed)), start)

    assert STREAM == b"".join(one.data for one in found)
    assert {0} == {one.missing for one in found}
    assert (0, 0, 0) == (direction.gaps, direction.lost, direction.waiting_bytes)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_missing_is_told(seed: int) -> None:
    """Where segments are gone or cut, pieces say so: each byte is at its place or counted."""
    random = Random(seed)
    direction = StreamDirection()
    direction.begin(WHOLE - 1)
    segments = [(place, STREAM[place : place + 100], 100) for place in range(0, len(STREAM), 100)]
    cut = [(place, data[: random.choice((0, 40, 100, 100))], size) for place, data, size in segments]
    kept = [one for one in cut if random.random() < 0.8]

    place, right = 0, True
    for piece in all_of(direction, kept):
        right = right and piece.data == STREAM[place : place + len(piece.data)]
        place += len(piece.data) + piece.missing

    assert right
    assert place == kept[-1][0] + 100
    assert direction.lost == 100 * (place // 100 - len(kept))


def test_nobody_waits_for_ever() -> None:
    """A hole is given up after so many segments, or after so long, not before."""
    for count, step in ((MOST_WAITING + 1, 0.0), (2, LONGEST_WAIT + 1)):
        direction = StreamDirection()
        direction.begin(WHOLE - 1)
        assert not [piece for number in range(1, count) for piece in direction.receive(number * 10, b"x" * 10, 10, 0.0)]
        found = list(direction.receive(count * 10, b"x" * 10, 10, step))
        assert (b"", 10) == found[0][:2]
        assert count * 10 == len(b"".join(one.data for one in found))
        assert (1, 10, {}) == (direction.gaps, direction.lost, direction.waiting)


def test_keep_alives_and_late_beginnings() -> None:
    """A byte before the next one is no data; without a SYN the stream begins at the first segment."""
    direction = StreamDirection()

    found = [piece for place, data in ((500, b"abc"), (502, b"c"), (503, b"d"), (400, b"old"))
             for piece in direction.receive(place, data, len(data), 0.0)]  # fmt: skip

    assert [b"abc", b"d"] == [one.data for one in found]
