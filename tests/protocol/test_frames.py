"""Streams cut into frames: in pieces of any size, with invalid lengths, with missing bytes."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol.framing import MAX_FRAME, REQUEST_HEADER, CutFrame, FrameCutter, framed, split

FRAMES = [b"first frame", b"\x00" * 8, b"x" * 3000, b"last"]


def joined(frames: list[bytes]) -> bytes:
    return b"".join(map(framed, frames))


STREAM = joined(FRAMES)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, REQUEST_HEADER - 1, MAX_FRAME + 1, 2**31 - 1])
@pytest.mark.parametrize("step", [1, 3, 100])
def test_cutter_invalid_length_raises_after_frames(length: int, step: int) -> None:
    """The error follows the frames before it and is repeated; later bytes are discarded."""
    cutter, found = FrameCutter(REQUEST_HEADER), list[bytes]()
    data = framed(b"good frame") + length.to_bytes(4, "big", signed=True)
    for at in range(0, len(data), step):
        with suppress(DecodeError):
            for frame in cutter.frames(data[at : at + step]):
                found.append(frame)  # a list would lose the frames before the error
    assert found == [b"good frame"]
    with pytest.raises(DecodeError, match=rf"at byte 14: frame length {length}, expected 8 to {MAX_FRAME}"):
        list(cutter.frames(framed(b"good frame")))
    assert (cutter.offset, cutter.pending, bytes(cutter.body)) == (14, 0, b"")


def test_split_empty_frames_where_allowed_returns_them() -> None:
    """Raw SASL tokens may be empty."""
    assert list(split(bytes(8), smallest=0)) == [b"", b""]


@pytest.mark.parametrize("length", range(1, 15))
def test_split_incomplete_frame_raises_after_frames(length: int) -> None:
    """The error has the position of the incomplete frame and the number of its bytes."""
    frames = split(framed(b"whole") + STREAM[:length])

    assert next(frames) == b"whole"
    with pytest.raises(DecodeError, match=rf"at byte 9: stream ends after {length} bytes of a frame"):
        next(frames)


SIZES = (0, 1, 4, 8, 30, 300, 5000)


def marked(data: bytes) -> bool:
    """Return True for a length and an M, with which the frames of these tests begin."""
    return len(data) >= 5 and data[4:5] == b"M"


def marked_frames(random: Random, count: int = 12) -> list[bytes]:
    """Return random frames without their lengths."""
    return [(b"M" + random.randbytes(size))[:size] for size in random.choices(SIZES, k=count)]


@pytest.mark.parametrize("seed", range(40))
def test_cutter_any_pieces_gives_same_frames_and_times(seed: int) -> None:
    """The frames do not depend on the pieces; each has the times of its first and last byte."""
    random = Random(seed)
    wanted = marked_frames(random)
    data = joined(wanted)
    cutter = FrameCutter(0, gaps=marked)
    found: list[CutFrame] = []
    pos = 0
    while pos < len(data):
        size = random.choice((1, 2, 3, 5, 100, 4000))
        found += cutter.receive(data[pos : pos + size], 0, float(pos))
        pos += size
        assert cutter.offset == sum(one.size for one in found)
    cutter.finish()

    assert wanted == [one.data for one in found]
    assert all(one.whole for one in found)
    begin = 0
    for one in found:
        assert one.first <= begin <= one.first + 4000
        begin += one.size
        assert one.last < begin <= one.last + 4000


def test_cutter_long_frame_keeps_its_beginning() -> None:
    """`keep` bytes are kept, in one piece or in many; the next frame is whole."""
    data = joined([b"M" + b"x" * 5000, b"Mabc"])
    for step in (1, 100, 10_000):
        cutter = FrameCutter(0, keep=1000, gaps=marked)
        found = [cut for pos in range(0, len(data), step) for cut in cutter.receive(data[pos : pos + step], 0, 0.0)]
        assert [(5005, 1000, False), (8, 4, True)] == [(one.size, len(one.data), one.whole) for one in found]


def test_cutter_gap_within_frame_shortens_that_frame() -> None:
    """The frame keeps its size and the bytes before the gap; the next frame is whole."""
    data = joined([b"M" + b"a" * 100, b"Mnext"])
    cutter = FrameCutter(0, gaps=marked)

    found = cutter.receive(data[:20], 50, 1.0) + cutter.receive(data[70:], 0, 2.0)

    assert [(105, b"M" + b"a" * 15, 1.0, 2.0), (9, b"Mnext", 2.0, 2.0)] == [tuple(one) for one in found]
    assert 0 == cutter.lost_places


def test_cutter_gap_up_to_frame_end_keeps_position() -> None:
    """Captures that contain only heads give all frames with their sizes."""
    cutter = FrameCutter(0, gaps=marked)

    found = [cut for _ in range(3) for cut in cutter.receive(joined([b"M" * 100])[:10], 94, 1.0)]

    assert [(104, b"M" * 6)] * 3 == [(one.size, one.data) for one in found]


def test_cutter_gap_over_frame_end_skips_to_next_start() -> None:
    """The frame with the gap is returned. Bytes are skipped until a piece begins like a frame."""
    whole = joined([b"Mabc"])
    cutter = FrameCutter(0, gaps=marked)

    found = cutter.receive(whole + joined([b"Mdef"])[:6], 10, 1.0)
    assert cutter.lost
    found += cutter.receive(b"in the middle of it", 0, 2.0)
    found += cutter.receive(whole, 0, 3.0)

    assert [(8, b"Mabc", 1.0), (8, b"Md", 1.0), (8, b"Mabc", 3.0)] == [(one.size, one.data, one.last) for one in found]
    assert 1 == cutter.lost_places


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET "])
@pytest.mark.parametrize("step", [1, 100])
def test_cutter_invalid_length_with_gaps_keeps_nothing(size: bytes, step: int) -> None:
    """A negative length, and one above the limit of brokers: no byte is kept."""
    cutter = FrameCutter(0, gaps=marked)
    data = size + b"x" * 96

    found = [cut for pos in range(0, 100, step) for cut in cutter.receive(data[pos : pos + step], 0, 0.0)]

    assert [] == found
    assert cutter.lost and not cutter.body
