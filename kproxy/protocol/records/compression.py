"""Codecs of record batches, all through cramjam, with limited output.

Strategy: decompressed sizes in headers are not trusted. The output buffer starts small and grows fourfold up to the
limit; a longer stream is a RecordsError, so a bomb costs at most the limit in memory. Snappy's own size is accepted up
to snappy's best ratio. Long buffers are pages that the kernel clears at their first write: clearing 100 MB at once
would block the event loop.

Framings: gzip and zstd have their own. Snappy is raw (librdkafka) or in xerial's framing (Java, Python clients); both
are read, xerial is written. lz4 is the frame format with independent blocks, since Java rejects linked ones;
`break_lz4_header` handles the header of magic 0.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct, error
from typing import Any

import cramjam

from kproxy.base.cooperative import run_in_thread, yield_now, yield_point
from kproxy.base.errors import RecordsError
from kproxy.protocol.primitives import Buffer

MAGIC_NUMBER = b"\x04\x22\x4d\x18"
CONTENT_SIZE, DICTIONARY = 0x08, 0x01  # bits of FLG

_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_WORD = 0xFFFFFFFF


def mend_lz4_header(frame: bytes | bytearray | memoryview) -> bytes:
    """Return the frame with the header checksum that LZ4's specification wants."""
    end = descriptor_end(frame)
    return b"".join((frame[:end], checksum(frame[4:end]), frame[end + 1 :]))


def break_lz4_header(frame: bytes | bytearray | memoryview) -> bytes:
    """Return the frame with the header checksum that Kafka wants in entries of magic 0."""
    end = descriptor_end(frame)
    return b"".join((frame[:end], checksum(frame[:end]), frame[end + 1 :]))


def descriptor_end(frame: bytes | bytearray | memoryview) -> int:
    if len(frame) < 7 or bytes(frame[:4]) != MAGIC_NUMBER:
        raise RecordsError(f"lz4 data of {len(frame)} bytes does not begin with a frame header")
    end = 6 + (8 if frame[4] & CONTENT_SIZE else 0) + (4 if frame[4] & DICTIONARY else 0)
    if len(frame) <= end:
        raise RecordsError(f"expected {end + 1} bytes of lz4 frame header, got {len(frame)}")
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


NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}  # bits 0-2 of the attributes

DECOMPRESSED_LIMIT = 104857600
"""Bytes, as many as the largest frame has: a batch that is larger uncompressed could never have been sent so."""

SHORT = 1 << 20
"""Bytes, unpacked, that take a few milliseconds at most; more are left to a thread where there is one."""
SHORT_TO_PACK = 1 << 17
"""The same of packing, which takes longer."""
PIECE = 1 << 23
"""Bytes of a long buffer that are freed at a time, in at most 3 ms; a multiple of the page size."""
FIRST_BUFFER = 4096
GROWTH = 4

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_VERSIONS = Struct(">ii")  # version, oldest compatible version: both 1
XERIAL_BLOCK = 32 * 1024  # snappy-java's default
SNAPPY_AT_BEST = 22
"""Three bytes of raw snappy make at most 64; a size in front that claims more than 22 times the input is false."""

INT32 = Struct(">i")


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_LIMIT, magic: int = 2) -> Buffer:
    """Return the decompressed `data` of an entry of this `magic`.

    Raises RecordsError for an unknown codec, for bad bytes, and for output longer than `limit`.
    """
    reader = READERS.get(codec)
    if reader is None or (codec == ZSTD and magic < 2):
        raise RecordsError(f"{CODECS.get(codec, 'unknown')} codec {codec} in an entry of magic {magic}")
    if codec == LZ4 and magic == 0:
        data = mend_lz4_header(data)
    try:
        return reader(data, limit)
    except (cramjam.DecompressionError, error) as problem:
        raise RecordsError(f"bad {CODECS[codec]} data of {len(data)} bytes: {problem}") from problem


def compress(codec: int, data: Buffer, magic: int = 2, *, fast: bool = False) -> bytes:
    """Return `data` in the framing that every client can read. Raises RecordsError for a codec that `magic` does not
    have. `fast`: the fastest level of gzip and zstd, for data that is not stored."""
    writer = WRITERS.get(codec)
    if writer is None or (codec == ZSTD and magic < 2):
        raise RecordsError(f"{CODECS.get(codec, 'unknown')} codec {codec} in an entry of magic {magic}")
    packed = writer(data, fast) if len(data) <= SHORT_TO_PACK else run_in_thread(partial(writer, data, fast))
    return break_lz4_header(packed) if codec == LZ4 and magic == 0 else packed


def too_long(limit: int) -> RecordsError:
    return RecordsError(f"decompressed data is longer than {limit} bytes")


PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None)


def pages(size: int) -> mmap.mmap:
    """Buffer of `size` zero bytes, as pages that the kernel clears at their first write.

    The pages are private if possible. Shared pages, mmap's default, take three times as long to free.
    """
    return mmap.mmap(-1, size, flags=PRIVATE) if PRIVATE else mmap.mmap(-1, size)


def free_pages(buffer: mmap.mmap, start: int, size: int) -> None:
    """Return these bytes to the kernel. No operation on Windows, which frees them with the whole buffer."""
    if DONTNEED is not None:
        buffer.madvise(DONTNEED, start, size)


def room(size: int) -> bytearray | mmap.mmap:
    return bytearray(size) if size <= SHORT else pages(size)


def give_back(buffer: bytearray | mmap.mmap) -> None:
    """Give the pages of a buffer back in pieces: at once, those of a hundred megabytes take up to 20 ms."""
    if isinstance(buffer, mmap.mmap):
        for start in range(0, len(buffer), PIECE):
            free_pages(buffer, start, min(PIECE, len(buffer) - start))
            yield_now()


def growing(module: Any) -> Callable[[Buffer, int], Buffer]:
    """Return a reader of streams without a reliable size."""

    def read(data: Buffer, limit: int) -> Buffer:
        size = min(limit, max(FIRST_BUFFER, GROWTH * len(data)))
        while True:
            output = room(size)
            unpack = partial(module.decompress_into, data, output)
            try:
                length = unpack() if size <= SHORT else run_in_thread(unpack)
            except cramjam.DecompressionError as problem:
                give_back(output)
                if "write whole buffer" not in str(problem):  # Rust's io::ErrorKind::WriteZero: the buffer is full
                    raise
                if size == limit:
                    raise too_long(limit) from None
                del output, unpack  # free the small buffer before the next is made
                size = min(limit, size * GROWTH)
                continue
            return memoryview(output)[:length].toreadonly()

    return read


def read_snappy(data: Buffer, limit: int) -> Buffer:
    blocks = xerial_blocks(memoryview(data)) if bytes(data[:8]) == XERIAL_MAGIC else iter((data,))
    sized = [(block, raw_length(block)) for block in blocks]
    size = sum(length for _, length in sized)
    if size > limit:
        raise too_long(limit)
    buffer = room(size)
    output, position = memoryview(buffer), 0
    for block, length in sized:
        unpack = partial(cramjam.snappy.decompress_raw_into, block, output[position : position + length])
        try:
            unpack() if length <= SHORT else run_in_thread(unpack)
        except cramjam.DecompressionError:
            give_back(buffer)
            raise
        position += length
        yield_point()
    return output.toreadonly()


def xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    """Yield the raw blocks: int32 length, block. A header in the middle is a second stream, as snappy-java appends
    them."""
    position = 0
    while position < len(data):
        yield_point()
        if data[position : position + 8] == XERIAL_MAGIC:
            version, oldest = XERIAL_VERSIONS.unpack_from(data, position + 8)
            if version < 1 or oldest != 1:
                raise RecordsError(f"xerial framing version {version}, compatible with {oldest}, expected 1 and 1")
            position += 16
            continue
        (length,) = INT32.unpack_from(data, position)
        position += 4
        if not 0 <= length <= len(data) - position:
            raise RecordsError(f"xerial block of {length} bytes where {len(data) - position} are left")
        yield data[position : position + length]
        position += length
        yield_point()


def raw_length(data: Buffer) -> int:
    """Return the stated size of a block of raw snappy. Raises RecordsError above SNAPPY_AT_BEST times its bytes."""
    size = int(cramjam.snappy.decompress_raw_len(data))
    if size > SNAPPY_AT_BEST * len(data):
        raise RecordsError(f"snappy data of {len(data)} bytes claims to hold {size}")
    return size


def write_xerial(data: Buffer, fast: bool) -> bytes:
    view = memoryview(data)
    pieces = [XERIAL_MAGIC, XERIAL_VERSIONS.pack(1, 1)]
    for start in range(0, len(view), XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK]))
        pieces += (INT32.pack(len(block)), block)
    return b"".join(pieces)


def write_lz4(data: Buffer, fast: bool) -> bytes:
    # Levels from 3 on use LZ4_HC: 6 % fewer bytes of JSON for 20 times the CPU time.
    packer = cramjam.lz4.Compressor(1, False, False)  # level, content checksum, linked blocks
    packer.compress(bytes(data))
    return bytes(packer.finish())


READERS: dict[int, Callable[[Buffer, int], Buffer]] = {
    NONE: lambda data, limit: data,
    GZIP: growing(cramjam.gzip),
    SNAPPY: read_snappy,
    LZ4: growing(cramjam.lz4),
    ZSTD: growing(cramjam.zstd),
}
WRITERS: dict[int, Callable[[Buffer, bool], bytes]] = {
    NONE: lambda data, fast: bytes(data),
    GZIP: lambda data, fast: bytes(cramjam.gzip.compress(data, 1 if fast else 6)),
    SNAPPY: write_xerial,
    LZ4: write_lz4,
    ZSTD: lambda data, fast: bytes(cramjam.zstd.compress(data, 1 if fast else 3)),
}
"""Functions of data and `fast`. The slow levels are the defaults of zlib and zstd, as in Java's client."""
