"""Frames out of pieces of a stream."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.record.captures.tcp_stream import CutFrame, Framer, StreamPiece

SIZES = (0, 1, 4, 8, 30, 300, 5000)


def marked(data: bytes) -> bool:
    """Frames of these tests begin with their length and an M."""
    return len(data) >= 5 and data[4:5] == b"M"


def frames(random: Random, count: int = 12) -> list[bytes]:
    """Without their lengths."""
    return [(b"M" + random.randbytes(size))[:size] for size in random.choices(SIZES, k=count)]


def stream(found: list[bytes]) -> bytes:
    return b"".join(len(one).to_bytes(4, "big") + one for one in found)


@pytest.mark.parametrize("seed", range(40))
def test_frames_are_cut_at_any_place(seed: int) -> None:
    """Whatever the pieces are, the frames are the same, with the times of their first and last bytes."""
    random = Random(seed)
    wanted = frames(random)
    data = stream(wanted)
    framer = Framer(marked, 1 << 20, lost=False)
    found: list[CutFrame] = []
    pos = 0
    while pos < len(data):
        size = random.choice((1, 2, 3, 5, 100, 4000))
        found += framer.receive(StreamPiece(data[pos : pos + size], 0, float(pos)))
        pos += size

    assert wanted == [one.data for one in found]
    assert all(one.whole for one in found)
    begin = 0
    for one in found:
        assert one.first <= begin <= one.first + 4000
        begin += one.size
        assert one.last < begin <= one.last + 4000


def test_long_frames_are_kept_in_part() -> None:
    """At most so many bytes are kept of one, in one piece or in many, and what follows is found."""
    data = stream([b"M" + b"x" * 5000, b"Mabc"])
    for step in (1, 100, 10_000):
        framer = Framer(marked, 1000, lost=False)
        found = [
            cut
            for pos in range(0, len(data), step)
            for cut in framer.receive(StreamPiece(data[pos : pos + step], 0, 0.0))
        ]
        assert [(5005, 1000, False), (8, 4, True)] == [(one.size, len(one.data), one.whole) for one in found]


def test_missing_bytes_inside_of_a_frame_cost_only_these() -> None:
    """The frame has its beginning and its size, the next one is whole; what came behind the hole is not kept."""
    data = stream([b"M" + b"a" * 100, b"Mnext"])
    framer = Framer(marked, 1 << 20, lost=False)

    found = framer.receive(StreamPiece(data[:20], 50, 1.0)) + framer.receive(StreamPiece(data[70:], 0, 2.0))

    assert [(105, b"M" + b"a" * 15, 1.0, 2.0), (9, b"Mnext", 2.0, 2.0)] == [tuple(one) for one in found]
    assert 0 == framer.lost_places


def test_a_frame_may_end_with_what_is_missing() -> None:
    """As in captures that keep only heads: every frame is there, by its size."""
    framer = Framer(marked, 1 << 20, lost=False)

    found = [cut for _ in range(3) for cut in framer.receive(StreamPiece(stream([b"M" * 100])[:10], 94, 1.0))]

    assert [(104, b"M" * 6)] * 3 == [(one.size, one.data) for one in found]


def test_a_lost_place_is_found_again_where_a_segment_begins_like_a_frame() -> None:
    """Behind a hole over the end of a frame nothing is taken until then; the frame with the hole is still told."""
    whole = stream([b"Mabc"])
    framer = Framer(marked, 1 << 20, lost=False)

    found = framer.receive(StreamPiece(whole + stream([b"Mdef"])[:6], 10, 1.0))
    assert framer.lost
    found += framer.receive(StreamPiece(b"in the middle of it", 0, 2.0))
    found += framer.receive(StreamPiece(whole, 0, 3.0))

    assert [(8, b"Mabc", 1.0), (8, b"Md", 1.0), (8, b"Mabc", 3.0)] == [(one.size, one.data, one.last) for one in found]
    assert 1 == framer.lost_places


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET "])
@pytest.mark.parametrize("step", [1, 100])
def test_a_length_that_cannot_be_loses_the_place(size: bytes, step: int) -> None:
    """Negative, or longer than any broker takes: nothing is kept, nothing grows."""
    framer = Framer(marked, 1 << 20, lost=False)
    data = size + b"x" * 96

    found = [cut for pos in range(0, 100, step) for cut in framer.receive(StreamPiece(data[pos : pos + step], 0, 0.0))]

    assert [] == found
    assert framer.lost and not framer.body
