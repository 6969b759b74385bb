"""A stream cut into frames: whole, byte by byte, and with bytes of the next frame behind."""

from __future__ import annotations

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol.framing import MAX_FRAME, REQUEST_HEADER, Splitter, framed, split

FRAMES = [b"first frame", b"\x00" * 8, b"x" * 3000, b"last"]
STREAM = b"".join(map(framed, FRAMES))


def fed(pieces: list[bytes]) -> list[bytes]:
    splitter, found = Splitter(), []
    for piece in pieces:
        splitter.receive(piece)
        found += splitter.frames()
    splitter.finish()
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000, len(STREAM)])
def test_frames_come_out_whole_however_the_bytes_come(size: int) -> None:
    """Pieces of any size give the same frames."""
    assert fed([STREAM[start : start + size] for start in range(0, len(STREAM), size)]) == FRAMES


def test_a_frame_is_given_as_soon_as_it_is_here() -> None:
    """One byte less is None; bytes of the next frame stay for later."""
    splitter = Splitter()
    splitter.receive(STREAM[:14])
    assert splitter.maybe_frame() is None

    splitter.receive(STREAM[14:20])
    assert splitter.maybe_frame() == FRAMES[0]
    assert splitter.maybe_frame() is None

    splitter.receive(STREAM[20:])
    assert list(splitter.frames()) == FRAMES[1:]


@pytest.mark.parametrize("length", [-(2**31), -1, 0, REQUEST_HEADER - 1, MAX_FRAME + 1, 2**31 - 1])
def test_a_length_that_cannot_be_is_an_error_at_once(length: int) -> None:
    """Below zero, below a header, above the limit: known from the four bytes, and with both numbers in the message."""
    splitter = Splitter(smallest=REQUEST_HEADER)
    splitter.receive(framed(b"good frame") + length.to_bytes(4, "big", signed=True))

    assert splitter.maybe_frame() == b"good frame"
    for _ in range(2):
        with pytest.raises(DecodeError, match=rf"at byte 14: frame length {length}, expected 8 to {MAX_FRAME}"):
            splitter.maybe_frame()


def test_an_empty_frame_is_legal_where_it_is_allowed() -> None:
    """Raw SASL tokens may be empty."""
    assert list(split(bytes(8), smallest=0)) == [b"", b""]


@pytest.mark.parametrize("length", range(1, 15))
def test_a_stream_that_ends_in_a_frame_is_an_error(length: int) -> None:
    """The frames before it are given first."""
    frames = split(framed(b"whole") + STREAM[:length])

    assert next(frames) == b"whole"
    with pytest.raises(DecodeError, match=rf"at byte 9: stream ends after {length} bytes of a frame"):
        next(frames)
