"""pcapng: the blocks and notes that kproxy writes, and a reader of packets from pcapng and pcap files of any program.

Writing: one function for each block, little-endian. kproxy's notes on a packet are in comments of the form
`kproxy {JSON}`, which Wireshark shows and the reader parses.

dpkt does not replace these functions. Its reader drops comments, interfaces and the length of cut packets, and
parses options in quadratic time. Its writer has no length besides the captured one, and takes 40 µs a block instead
of 1 µs.

Reading: blocks are read as they arrive, so a file may have any size, may still grow, and may be a pipe. An incomplete
last block ends it. Data that is in neither format, or is impossible, raises CaptureError with the offset.

Formats: draft-ietf-opsawg-pcapng, draft-ietf-opsawg-pcap.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from struct import Struct, pack
from typing import IO, Any, NamedTuple, cast

from kproxy.base.errors import CaptureError
from kproxy.base.named_file import open_named, reason
from kproxy.base.terminal import in_line

SECTION, INTERFACE, SIMPLE, NAMES, STATISTICS, PACKET = 0x0A0D0D0A, 1, 3, 4, 5, 6
BYTE_ORDER = 0x1A2B3C4D
COMMENT, APPLICATION, IF_NAME, IF_RESOLUTION, IF_OFFSET, IF_DROP = 1, 4, 2, 9, 14, 5
LINK_RAW = 101
"""Packets begin with their IP header, version 4 or 6."""
NANOSECONDS = 10**9
NOTE = "kproxy "
"""Beginning of the comments that are kproxy's own."""

BlockOptions = Sequence[tuple[int, bytes]]

_PACKET_HEAD = Struct("<IIIIIII").pack
_LENGTH = Struct("<I").pack
_ENDS = tuple(b"\0" * (-size % 4) for size in range(4))


def block(kind: int, body: bytes) -> bytes:
    """Return a block around its body, which has a whole number of 32-bit words."""
    length = _LENGTH(12 + len(body))
    return b"".join((_LENGTH(kind), length, body, length))


def options(given: BlockOptions) -> bytes:
    """Return options in the form for the end of a block; empty without options."""
    if not given:
        return b""
    parts = [pack("<HH", code, len(value)) + value + _ENDS[len(value) & 3] for code, value in given]
    return b"".join((*parts, b"\0\0\0\0"))


def section(application: str, comments: Sequence[str] = ()) -> bytes:
    given = [(APPLICATION, application.encode()), *((COMMENT, one.encode()) for one in comments)]
    return block(SECTION, pack("<IHHq", BYTE_ORDER, 1, 0, -1) + options(given))


def interface(name: str, snap_length: int = 0) -> bytes:
    """Return the block of an interface of raw IP packets with times in nanoseconds. `snap_length` 0: no limit."""
    given = [(IF_NAME, name.encode()), (IF_RESOLUTION, b"\x09")]
    return block(INTERFACE, pack("<HHI", LINK_RAW, 0, snap_length) + options(given))


def packet(number: int, time: float, data: bytes, length: int, comment: str = "") -> bytes:
    """Return the block of a packet at interface `number`; `data` is what is kept of its `length` bytes."""
    ticks = nanoseconds(time)
    size = len(data)
    body = data + _ENDS[size & 3]
    if comment:
        body += options([(COMMENT, comment.encode())])
    whole = 32 + len(body)
    head = _PACKET_HEAD(PACKET, whole, number, ticks >> 32, ticks & 0xFFFFFFFF, size, length)
    return b"".join((head, body, _LENGTH(whole)))


def host_name(address: bytes, name: str) -> bytes:
    value = address + name.encode() + b"\0"
    return block(NAMES, pack("<HH", 1, len(value)) + value + _ENDS[len(value) & 3] + b"\0\0\0\0")


def statistics(number: int, time: float, dropped: int, comment: str) -> bytes:
    """Return the block with an interface's end: the packets that were dropped because they came too fast, and a
    comment.
    """
    ticks = nanoseconds(time)
    given = [(COMMENT, comment.encode()), (IF_DROP, pack("<Q", dropped))]
    return block(STATISTICS, pack("<III", number, ticks >> 32, ticks & 0xFFFFFFFF) + options(given))


def nanoseconds(time: float) -> int:
    """Convert seconds since 1970 to nanoseconds. `seconds` gives back the same float."""
    whole = int(time)
    return whole * NANOSECONDS + round((time - whole) * NANOSECONDS)


def seconds(ticks: int, units: int = NANOSECONDS) -> float:
    """Convert ticks of 1/`units` s to seconds since 1970."""
    whole, rest = divmod(ticks, units)
    return whole + rest / units


def note(**fields: Any) -> str:
    """Return a comment for the reader; None values are left out, and without any other it is empty.

    Bytes of a client that were not UTF-8 become question marks.
    """
    present = {name: value for name, value in fields.items() if value is not None}
    if not present:
        return ""
    return NOTE + json.dumps(present, ensure_ascii=False, separators=(", ", ": ")).encode("utf-8", "replace").decode()


def read_note(comment: str) -> dict[str, Any]:
    """Return the fields of a note of kproxy's; empty for any other comment."""
    if not comment.startswith(NOTE + "{"):
        return {}
    try:
        fields = json.loads(comment[len(NOTE) :])
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


LONGEST_BLOCK = 64 << 20
"""Bytes. Packets have up to 256 KiB; a length above this is a damaged file, and would only fill the memory."""
MOST_INTERFACES = 1000
"""Interfaces of a section; kproxy has one for each side, and a machine some dozens."""
MOST_COMMENTS = 1000
"""Comments of sections, and as many of statistics, that are kept; kproxy writes one of each."""
OLD_UNITS = {0xA1B2C3D4: 10**6, 0xA1B23C4D: 10**9}
"""Magic numbers of pcap, and ticks of a second."""
GZIP = b"\x1f\x8b"
SECTION_BYTES = SECTION.to_bytes(4, "little")
"""Bytes that begin a section, the same in both byte orders."""
OPTION = {order: Struct(f"{order}HH").unpack_from for order in "<>"}


@dataclass(slots=True)
class Interface:
    """Interface of a capture that recorded packets.

    `units`: ticks of a second; `offset`: seconds to add to every time.
    """

    name: str
    link: int
    units: int = 10**6
    offset: int = 0


class Packet(NamedTuple):
    """Packet of a capture. `data` is what was kept of `length` bytes; `time` in seconds since 1970."""

    time: float
    data: bytes
    length: int
    interface: int
    link: int
    comment: str


class PacketFile:
    """Reader of the packets of a file (- for standard input), and of the `following` files of the same program.
    Iterating once yields the packets.

    Iteration fills `application`, `notes` (comments of the section), `interfaces`, `ends` (comments of the statistics),
    `dropped` (packets that the writer has lost) and `torn` (the last block of a file is not complete).
    """

    def __init__(self, path: str | Path, *following: str) -> None:
        self.path, self.following = path, following
        self.application = ""
        self.notes: list[str] = []
        self.interfaces: list[Interface] = []
        self.ends: list[str] = []
        self.dropped = 0
        self.torn = False
        self.offset = 0

    def __iter__(self) -> Iterator[Packet]:
        for path in (self.path, *self.following):
            self.path, self.offset = path, 0
            yield from self._file()

    def _file(self) -> Iterator[Packet]:
        with opened(self.path) as file:
            try:
                yield from self._packets(file)
            except (EOFError, gzip.BadGzipFile):
                self.torn = True
            except zlib.error as error:
                raise CaptureError(f"{self.path}: damaged gzip behind byte {self.offset}: {error}") from None

    def _packets(self, file: IO[bytes]) -> Iterator[Packet]:
        magic = self._read(file, 4)
        if magic is None:
            raise CaptureError(f"expected a capture, got {self.offset} bytes (at {self.path})")
        for order in "<>":
            number = Struct(f"{order}I").unpack(magic)[0]
            if number == SECTION:
                yield from self._blocks(file)
                return
            if number in OLD_UNITS:
                yield from self._records(file, order, OLD_UNITS[number])
                return
        raise CaptureError(f"expected pcapng or pcap, got {magic.hex()} (at {self.path})")

    def _read(self, file: IO[bytes], size: int) -> bytes | None:
        data = file.read(size)
        self.offset += len(data)
        if len(data) < size:
            self.torn |= bool(data)
            return None
        return data

    def _records(self, file: IO[bytes], order: str, units: int) -> Iterator[Packet]:
        """Yield the packets of a pcap file: a header for the file, and one for each packet."""
        head = self._read(file, 20)
        if head is None:
            return
        link = Struct(f"{order}I").unpack_from(head, 16)[0] & 0x0FFFFFFF
        self.interfaces = [Interface("", link, units)]
        record = Struct(f"{order}IIII")
        while (head := self._read(file, 16)) is not None:
            whole, rest, size, length = record.unpack(head)
            if size > LONGEST_BLOCK:
                raise self._too_long(size)
            data = self._read(file, size)
            if data is None:
                self.torn = True
                return
            yield Packet(whole + rest / units, data, length, 0, link, "")

    def _damage(self, problem: str) -> CaptureError:
        return CaptureError(f"{self.path}: damaged before byte {self.offset}: {problem}")

    def _too_long(self, size: int) -> CaptureError:
        return self._damage(f"{size} bytes in one piece, at most {LONGEST_BLOCK}")

    def _blocks(self, file: IO[bytes]) -> Iterator[Packet]:
        """Yield the packets of a pcapng file.

        A block is a type, a length, a body, and the length again; the first four bytes of the file have been read.
        """
        size_bytes = self._read(file, 4)
        if size_bytes is None:
            self.torn = True
            return
        begin: bytes | None = SECTION_BYTES + size_bytes
        order = "<"
        pair, head = Struct("<II"), Struct("<IIIII")
        while begin is not None:
            already = 8
            if begin[:4] == SECTION_BYTES:
                magic = self._read(file, 4)
                if magic is None:
                    self.torn = True
                    return
                order = "<" if magic == BYTE_ORDER.to_bytes(4, "little") else ">"
                pair, head = Struct(f"{order}II"), Struct(f"{order}IIIII")
                already = 12
                self.interfaces = []
            kind, size = pair.unpack(begin)
            if size > LONGEST_BLOCK:
                raise self._too_long(size)
            if size < already + 4 or size % 4:
                raise self._damage(f"a block of {size} bytes")
            body = self._read(file, size - already)
            if body is None:
                self.torn = True
                return
            if kind == PACKET:
                yield self._packet(body, head, order)
            elif kind == SIMPLE:
                yield self._simple(body, order)
            else:
                self._other(kind, body, order)
            begin = self._read(file, 8)

    def _packet(self, body: bytes, head: Struct, order: str) -> Packet:
        if len(body) < 24:
            raise self._damage(f"a packet block of {len(body) - 4} bytes")
        number, high, low, size, length = head.unpack_from(body)
        at = self._interface(number)
        end = 20 + size
        if end + 4 > len(body):
            raise self._damage(f"{size} bytes in a smaller block")
        comment = ""
        if len(body) - 4 > end + 3:
            comment = text(dict(options_of(body, (end + 3) & ~3, order)).get(COMMENT, b""))
        time = seconds(high << 32 | low, at.units) + at.offset
        return Packet(time, body[20:end], length, number, at.link, comment)

    def _simple(self, body: bytes, order: str) -> Packet:
        """Return a packet of the first interface, without a time."""
        length = Struct(f"{order}I").unpack_from(body)[0] if len(body) >= 8 else 0
        return Packet(0.0, body[4 : 4 + min(length, len(body) - 8)], length, 0, self._interface(0).link, "")

    def _interface(self, number: int) -> Interface:
        if number >= len(self.interfaces):
            raise self._damage(f"a packet of interface {number}, {len(self.interfaces)} are described")
        return self.interfaces[number]

    def _other(self, kind: int, body: bytes, order: str) -> None:
        """Take in a block that is not a packet: an interface, a section, or statistics."""
        if kind == INTERFACE and len(body) >= 12:
            if len(self.interfaces) >= MOST_INTERFACES:
                raise self._damage(f"more than {MOST_INTERFACES} interfaces")
            given = dict(options_of(body, 8, order))
            resolution = given.get(IF_RESOLUTION, b"\x06")[:1] or b"\x06"
            power = resolution[0] & 0x7F
            self.interfaces.append(
                Interface(
                    text(given.get(IF_NAME, b"")),
                    Struct(f"{order}H").unpack_from(body)[0],
                    2**power if resolution[0] & 0x80 else 10**power,
                    Struct(f"{order}q").unpack(given[IF_OFFSET])[0] if len(given.get(IF_OFFSET, b"")) == 8 else 0,
                )
            )
        elif kind == SECTION:
            for code, value in options_of(body, 12, order):
                if code == APPLICATION:
                    self.application = text(value)
                elif code == COMMENT and len(self.notes) < MOST_COMMENTS:
                    self.notes.append(text(value))
        elif kind == STATISTICS:
            for code, value in options_of(body, 12, order):
                if code == COMMENT:
                    self.ends = [*self.ends[1 - MOST_COMMENTS :], text(value)]
                elif code == IF_DROP and len(value) == 8:
                    self.dropped += Struct(f"{order}Q").unpack(value)[0]


def options_of(body: bytes, pos: int, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield the options from `pos` to the length at the end of a block."""
    head = OPTION[order]
    end = len(body) - 4
    while pos + 4 <= end:
        code, size = head(body, pos)
        if code == 0 or pos + 4 + size > end:
            return
        yield code, body[pos + 4 : pos + 4 + size]
        pos += 4 + (size + 3 & ~3)


def text(value: bytes) -> str:
    """Decode UTF-8, with a replacement for each byte that is not."""
    return value.decode("utf-8", "replace")


def opened(path: str | Path) -> IO[bytes]:
    """Open a file or standard input, unpacked if it is gzip. Raises CaptureError."""
    if str(path) == "-":
        return cast("IO[bytes]", standard_input())
    try:
        file = open_named(path)
    except OSError as error:
        raise CaptureError(f"{in_line(path)} cannot be read: {reason(error)}") from None
    if file.peek(2)[:2] == GZIP:
        file.close()
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return file


def standard_input() -> BufferedReader:
    """Return standard input, unpacked if it is gzip. Raises CaptureError if it was closed after reading."""
    file = _buffered(sys.stdin.buffer)
    if file.closed:
        raise CaptureError("standard input has been read already, - can be given once")
    return file


@lru_cache(maxsize=1)
def _buffered(source: Any) -> BufferedReader:
    """Return the only buffer of standard input. Bytes that one caller peeks stay there for the next one."""
    file = source if hasattr(source, "peek") else BufferedReader(source)  # a second buffer would wait until it is full
    is_gzip = not file.closed and file.peek(2)[:2] == GZIP
    return BufferedReader(gzip.GzipFile(fileobj=file)) if is_gzip else cast("BufferedReader", file)
