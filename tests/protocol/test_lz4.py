"""The header of LZ4 frames, as the specification wants it and as Kafka's magic 0 does."""

from __future__ import annotations

import os

import lz4.frame
import pytest

from kproxy.base.errors import RecordsError
from kproxy.protocol.records.compression import break_lz4_header, mend_lz4_header, xxhash32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_xxhash32(text: bytes, expected: int) -> None:
    """xxHash32 gives the published values, below and above one stripe of 16 bytes."""
    assert expected == xxhash32(text)


@pytest.mark.parametrize("store_size", [True, False])
def test_frames_of_magic_0_are_unreadable_until_mended(store_size: bool) -> None:
    """A frame with Kafka's checksum is refused by LZ4's own library, and accepted after mending, unchanged."""
    frame = lz4.frame.compress(os.urandom(500), store_size=store_size)
    odd = break_lz4_header(frame)

    with pytest.raises(RuntimeError):
        lz4.frame.decompress(odd)
    assert frame == mend_lz4_header(odd)


def test_the_checksum_java_writes() -> None:
    """Kafka's own writer of magic 0 puts 0x1a behind FLG 0x60 and BD 0x40, where the specification wants 0x82."""
    assert 0x82 == mend_lz4_header(b"\x04\x22\x4d\x18\x60\x40\x00")[6]
    assert 0x1A == break_lz4_header(b"\x04\x22\x4d\x18\x60\x40\x00")[6]


@pytest.mark.parametrize("bad", [b"", b"\x04\x22\x4d\x18\x60\x40", b"\x04\x22\x4d\x18\x68\x40\x00", b"x" * 20])
def test_no_frame_header(bad: bytes) -> None:
    """Bytes that do not begin with a whole frame header are a RecordsError."""
    for change in (mend_lz4_header, break_lz4_header):
        with pytest.raises(RecordsError, match="lz4"):
            change(bad)
