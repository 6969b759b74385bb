"""Headers of LZ4 frames, and what Kafka 0.8 did to them.

    magic number  4 bytes  04 22 4d 18
    descriptor    FLG 1, BD 1, content size 8 if FLG bit 3, dictionary id 4 if FLG bit 0
    checksum      1 byte   second byte of xxHash32 over the descriptor

Kafka's first writer took the checksum over the magic number as well, and its readers had come to rely on it, so entries
of magic 0 keep that (KAFKA-3160). Java reads them without looking at the checksum; `mended` does the same.
"""

from __future__ import annotations

from kproxy.errors import RecordsError

MAGIC_NUMBER = b"\x04\x22\x4d\x18"
CONTENT_SIZE, DICTIONARY = 0x08, 0x01  # bits of FLG

_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_WORD = 0xFFFFFFFF


def mended(frame: bytes | bytearray | memoryview) -> bytes:
    """Return the frame with the header checksum that LZ4's specification wants."""
    end = descriptor_end(frame)
    return b"".join((frame[:end], checksum(frame[4:end]), frame[end + 1 :]))


def broken(frame: bytes | bytearray | memoryview) -> bytes:
    """Return the frame with the header checksum that Kafka wants in entries of magic 0."""
    end = descriptor_end(frame)
    return b"".join((frame[:end], checksum(frame[:end]), frame[end + 1 :]))


def descriptor_end(frame: bytes | bytearray | memoryview) -> int:
    if len(frame) < 7 or bytes(frame[:4]) != MAGIC_NUMBER:
        raise RecordsError(f"lz4 data of {len(frame)} bytes does not begin with a frame header")
    end = 6 + (8 if frame[4] & CONTENT_SIZE else 0) + (4 if frame[4] & DICTIONARY else 0)
    if len(frame) <= end:
        raise RecordsError(f"lz4 frame header needs {end + 1} bytes, found {len(frame)}")
    return end


def checksum(header: bytes | bytearray | memoryview) -> bytes:
    return bytes(((xxhash32(bytes(header)) >> 8) & 0xFF,))


def xxhash32(data: bytes) -> int:
    """Compute xxHash32 with seed 0 (its specification: github.com/Cyan4973/xxHash, doc/xxhash_spec.md)."""
    lanes = [(_P1 + _P2) & _WORD, _P2, 0, -_P1 & _WORD]
    whole = len(data) & ~15
    for start in range(0, whole, 16):
        for lane in range(4):
            word = int.from_bytes(data[start + 4 * lane : start + 4 * lane + 4], "little")
            lanes[lane] = _rotate(lanes[lane] + word * _P2, 13) * _P1 & _WORD
    hashed = sum(map(_rotate, lanes, (1, 7, 12, 18))) if whole else _P5
    hashed += len(data)
    words = (len(data) - whole) & ~3
    for start in range(whole, whole + words, 4):
        hashed = _rotate(hashed + int.from_bytes(data[start : start + 4], "little") * _P3, 17) * _P4
    for byte in data[whole + words :]:
        hashed = _rotate(hashed + byte * _P5, 11) * _P1
    hashed &= _WORD
    hashed = (hashed ^ hashed >> 15) * _P2 & _WORD
    hashed = (hashed ^ hashed >> 13) * _P3 & _WORD
    return hashed ^ hashed >> 16


def _rotate(word: int, bits: int) -> int:
    word &= _WORD
    return (word << bits | word >> (32 - bits)) & _WORD
