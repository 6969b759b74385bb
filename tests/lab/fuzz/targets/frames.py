"""Streams cut into frames, and what is read of a frame that is not all here.

- however a stream is cut, the same frames come out, in order, and the same complaint at the same offset
- the frames with their lengths, and what is left over, are the stream
- a reader of beginnings says "more, please" or the same as with all bytes, and never looks beyond what is here
- what skips to the tail of a streamed answer finds it at the same byte however the body comes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kproxy.base.errors import DecodeError
from kproxy.protocol.framing import FrameCutter, body_start, framed, produce_acks, single_topic
from kproxy.protocol.scan.response_tail import PrefixSkipper
from kproxy.protocol.table import schema
from kproxy.tools.rehearse.dialogue import request, response
from tests.lab.fuzz.feed import Feed

STREAMED = [(1, 16), (1, 17), (1, 18), (78, 1), (78, 2)]


def check(data: bytes) -> None:
    """One input."""
    feed = Feed(data)
    (split, begin, skip)[feed.below(3)](feed)


def split(feed: Feed) -> None:
    smallest, largest = feed.pick((0, 4, 8)), feed.pick((20, 1000, 1 << 27))
    cuts, stream = feed.piece(), feed.rest()
    whole, pieces = FrameCutter(smallest, largest), FrameCutter(smallest, largest)
    expected = given(whole, [stream])
    assert given(pieces, cut(stream, cuts)) == expected
    frames, _ = expected
    assert b"".join(map(framed, frames)) == stream[: whole.offset]
    assert whole.offset == pieces.offset
    assert whole.offset + whole.pending == len(stream) or whole.lost
    assert all(smallest <= len(frame) <= largest for frame in frames)


def given(cutter: FrameCutter, parts: list[bytes]) -> tuple[list[bytes], str]:
    """Return the frames, and the error. Bytes after an invalid length are discarded."""
    frames, problem = [], ""
    for part in parts:
        try:
            for frame in cutter.frames(part):
                frames.append(frame)  # noqa: PERF402 -- those before a bad length count
        except DecodeError as error:
            problem = str(error)
    return frames, problem


def cut(data: bytes, sizes: bytes) -> list[bytes]:
    """In pieces of these sizes, the last one for all that is left."""
    parts, at = [], 0
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    return [*parts, data[at:]]


def outcome(read: Callable[[bytes, int], object], buf: bytes, end: int) -> object:
    """Return the result of a reader, None if it needs more bytes, or the text of its error."""
    try:
        return read(buf, end)
    except DecodeError as error:
        return str(error)


def begin(feed: Feed) -> None:
    version, direction = feed.below(3), feed.pick(("request", "response"))
    header = min(version, 1) if direction == "response" else version
    produce, named = feed.below(14), feed.pick([(0, 12, "request"), (1, 12, "response"), (1, 17, "response")])
    length = feed.below(300) - 1
    data = feed.rest()
    readers = (
        lambda buf, end: body_start(buf, 0, end, header, direction),
        lambda buf, end: produce_acks(produce)(buf, 0, end, length),
        lambda buf, end: single_topic(*named)(buf, 0, end),
    )
    for read in readers:
        results = [outcome(read, data[:end], end) for end in range(min(len(data), 60) + 1)]
        beyond = [outcome(read, data[:end] + b"\xff" * 40, end) for end in range(len(results))]
        assert results == beyond, "it looked beyond the end"
        known = [one for one in results if one is not None]
        assert all(one == known[0] for one in known), "more bytes made it change its mind"


def skip(feed: Feed) -> None:
    key, version = feed.pick(STREAMED)
    cuts, body = feed.piece(), feed.rest()
    assert tail_at(key, version, [body]) == tail_at(key, version, cut(body, cuts))


def tail_at(key: int, version: int, parts: list[bytes]) -> tuple[int, bool, str]:
    """How many bytes stand before the tail as far as is known, whether it was found, and what is wrong."""
    skipper, fed = PrefixSkipper(key, version), 0
    for part in parts:
        try:
            fed += skipper.feed(part, 0, len(part)) if part else 0
        except DecodeError as error:
            return 0, False, str(error)
    return fed, skipper.done, ""


def seeds() -> Iterator[bytes]:
    """Inputs to begin with."""
    stream = request(0, 9, 1, acks=1) + response(3, 12, 2) + request(18, 3, 3)
    yield b"\0\0\0\x03\x01\x02\x05" + stream
    yield b"\0\1\0\0" + stream + b"\xff\xff\xff\xff"
    for version in (2, 8, 9):
        yield b"\x01\x02\x00" + bytes((version, 0, 0, 7)) + request(0, version, 1, acks=-1)[4:]
    for key, version in STREAMED:
        part = {"partition_index": 1, "records": b"r" * 30}
        said = response(key, version, 1, responses=[{"partitions": [part]}], node_endpoints=[])
        yield bytes((2, STREAMED.index((key, version)), 3, 1, 2, 50)) + said[9:]


WORDS = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x80\x00", *(schema.load(0).name.encode(),)]
