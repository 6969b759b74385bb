"""Codecs: every framing that clients send is read, bombs stop at the limit, bad bytes raise RecordsError only."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
from aiokafka import codec as aiokafka_codec

from kproxy.base.errors import RecordsError
from kproxy.protocol.records.compression import CODECS, GZIP, LZ4, SNAPPY, ZSTD, compress, decompress

pytestmark = pytest.mark.process
TEXTS = [b"", b"x", b"the same again and again " * 4000, random.Random(3).randbytes(100_000)]
PACKED = (GZIP, SNAPPY, LZ4, ZSTD)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("text", TEXTS, ids=len)
def test_there_and_back(codec: int, magic: int, text: bytes) -> None:
    """What is compressed comes back, for every codec that the magic has; zstd came with magic 2 (KIP-110)."""
    if codec == ZSTD and magic < 2:
        with pytest.raises(RecordsError, match="zstd codec 4 in an entry of magic"):
            compress(codec, text, magic)
        with pytest.raises(RecordsError, match="zstd codec 4 in an entry of magic"):
            decompress(codec, text, magic=magic)
    else:
        assert text == bytes(decompress(codec, compress(codec, text, magic), magic=magic))


WRITERS: list[tuple[str, int, Callable[[bytes], bytes]]] = [
    ("python gzip", GZIP, gzip.compress),
    ("raw snappy, as librdkafka", SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    ("aiokafka snappy", SNAPPY, aiokafka_codec.snappy_encode),
    ("two xerial streams in a row", SNAPPY, lambda data: compress(SNAPPY, data[:9]) + compress(SNAPPY, data[9:])),
    ("aiokafka lz4", LZ4, aiokafka_codec.lz4_encode),
    ("lz4, linked blocks", LZ4, lambda data: lz4.frame.compress(data, block_linked=True, store_size=False)),
    ("lz4, all checksums", LZ4, lambda data: lz4.frame.compress(data, block_checksum=True, content_checksum=True)),
    ("lz4, 4 MB blocks", LZ4, lambda data: lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    ("aiokafka zstd", ZSTD, aiokafka_codec.zstd_encode),
    ("zstd 19", ZSTD, lambda data: bytes(cramjam.zstd.compress(data, 19))),
]


@pytest.mark.parametrize(("codec", "writer"), [row[1:] for row in WRITERS], ids=[row[0] for row in WRITERS])
@pytest.mark.parametrize("text", TEXTS, ids=len)
def test_what_others_write_is_read(codec: int, writer: Callable[[bytes], bytes], text: bytes) -> None:
    """Every framing in use is understood, also from a memoryview."""
    assert text == bytes(decompress(codec, memoryview(writer(text))))


READERS: list[tuple[int, Callable[[bytes], bytes]]] = [
    (GZIP, gzip.decompress),
    (SNAPPY, aiokafka_codec.snappy_decode),
    (LZ4, lz4.frame.decompress),
    (ZSTD, aiokafka_codec.zstd_decode),
]


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(("codec", "reader"), READERS, ids=[CODECS[row[0]] for row in READERS])
@pytest.mark.parametrize("text", TEXTS, ids=len)
def test_others_read_what_is_written(codec: int, reader: Callable[[bytes], bytes], text: bytes, fast: bool) -> None:
    packed = compress(codec, text, fast=fast)

    # aiokafka takes an xerial header for one only if a block follows it, an empty set has none
    assert text == (reader(packed) if text or codec != SNAPPY else bytes(decompress(codec, packed)))


def test_lz4_blocks_are_independent() -> None:
    """The bit in FLG that Java wants is set, for data of more than one block."""
    assert compress(LZ4, os.urandom(300_000))[4] & 0x20


def zeros(codec: int, megabytes: int) -> bytes:
    """A stream of zeros, made piece by piece."""
    piece = bytes(1 << 20)
    if codec == SNAPPY:
        return compress(SNAPPY, piece * megabytes)
    if codec == GZIP:
        packer = zlib.compressobj(1, wbits=31)
        return b"".join(packer.compress(piece) for _ in range(megabytes)) + packer.flush()
    if codec == LZ4:
        with lz4.frame.LZ4FrameCompressor(block_linked=False) as maker:
            return maker.begin() + b"".join(maker.compress(piece) for _ in range(megabytes)) + maker.flush()
    stream = cramjam.zstd.Compressor()
    for _ in range(megabytes):
        stream.compress(piece)
    return bytes(stream.finish())


@pytest.mark.parametrize("codec", PACKED, ids=CODECS.get)
def test_a_limit_is_exact(codec: int) -> None:
    """Output of exactly the limit is fine, one byte less is not enough."""
    packed = compress(codec, bytes(50_000))

    assert 50_000 == len(decompress(codec, packed, 50_000))
    with pytest.raises(RecordsError, match="longer than"):
        decompress(codec, packed, 49_999)


@pytest.mark.parametrize("codec", PACKED, ids=CODECS.get)
def test_a_bomb_costs_no_more_than_the_limit(codec: int) -> None:
    """64 MB that should stay below 1 MB are refused, and never more than the limit is allocated. The least of three
    is taken: what another thread of the tests allocates meanwhile is traced, too."""
    bomb = zeros(codec, 64)
    peaks = []
    for _ in range(3):
        tracemalloc.start()
        with pytest.raises(RecordsError, match="longer than"):
            decompress(codec, bomb, 1 << 20)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert min(peaks) < 1.3 * (1 << 20)


BOMBS = """
import resource, sys
from kproxy.base.errors import RecordsError
from kproxy.protocol.records.compression import decompress
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for line in sys.stdin:
    codec, data = line.split()
    try:
        decompress(int(codec), bytes.fromhex(data), 1 << 20)
    except RecordsError:
        continue
    sys.exit("no error")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_bomb_does_not_grow_the_process() -> None:
    """The libraries below keep no more either: the whole process stays within a few MB, in kilobytes of RSS."""
    bombs = "\n".join(f"{codec} {zeros(codec, 64).hex()}" for codec in (GZIP, LZ4, ZSTD))
    done = subprocess.run([sys.executable, "-c", BOMBS], input=bombs, capture_output=True, text=True, check=True)

    assert int(done.stdout) < 8192


@pytest.mark.parametrize(
    "claim",
    [b"\xff\xff\xff\xff\x0fabc", b"\xff\xff\xff\xff\x07abc", b"\x80\x80\x80\x20" + b"a" * 100],
    ids=["2**32-1", "2**31-1", "64 MB"],
)
def test_a_size_in_front_is_not_believed(claim: bytes) -> None:
    """Raw snappy that claims more than it can hold is refused before anything is allocated."""
    tracemalloc.start()
    with pytest.raises(RecordsError, match="claims to hold"):
        decompress(SNAPPY, claim)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 100_000


@pytest.mark.parametrize("codec", PACKED, ids=CODECS.get)
@pytest.mark.parametrize("magic", [0, 2])
def test_cut_or_changed_bytes_raise_records_error_only(codec: int, magic: int) -> None:
    """Cut at every byte, and with bytes changed at random, data is decompressed or refused with RecordsError."""
    packed = compress(codec, b"some text, some text, some bytes " * 8 + os.urandom(20), 2 if codec == ZSTD else magic)
    chance = random.Random(codec)
    damaged = [packed[:length] for length in range(len(packed))]
    for _ in range(400):
        changed = bytearray(packed)
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        damaged.append(bytes(changed))
    refused = 0
    for data in damaged:
        try:
            decompress(codec, data, 1 << 20, magic=magic)
        except RecordsError:
            refused += 1

    assert refused > len(packed) // 2


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codecs(codec: int) -> None:
    """A codec that nobody has assigned is named."""
    with pytest.raises(RecordsError, match=f"unknown codec {codec}"):
        decompress(codec, b"x")
    with pytest.raises(RecordsError, match=f"unknown codec {codec}"):
        compress(codec, b"x")


def test_bad_xerial_framing() -> None:
    """A block that is longer than what is left, and a version from the future, are named with both numbers."""
    good = compress(SNAPPY, b"text " * 20)

    with pytest.raises(RecordsError, match="block of 1000 bytes where"):
        decompress(SNAPPY, good[:16] + (1000).to_bytes(4, "big") + good[20:])
    with pytest.raises(RecordsError, match="version 1, compatible with 2"):
        decompress(SNAPPY, good[:15] + b"\x02" + good[16:])
