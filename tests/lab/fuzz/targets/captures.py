"""Captures: files of any bytes, and packets of good conversations that are lost, doubled, cut or out of order.

- nothing is raised but CaptureError, and no frame is kept longer than was asked for
- what is counted is what was given out
- an exchange that was read can be taken to pieces for `tail` and `stats`, redacted, and written into another capture,
  which is read without complaint
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager

from kproxy.base.errors import CaptureError
from kproxy.cli.exchange_input import make_data
from kproxy.cli.stats import ExchangeTally
from kproxy.protocol.table import schema
from kproxy.record.captures import pcapng
from kproxy.record.captures.captured_connection import CapturedConnection
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.reader import Capture
from kproxy.record.captures.redact import Pseudonyms, Redaction
from kproxy.record.captures.writer import CaptureWriter, Conversation
from kproxy.record.exchange import ObservedExchange
from kproxy.tools.rehearse.dialogue import request, response
from tests.lab.fuzz.feed import FedRandom, Feed
from tests.record.observer.watching import CLIENT, random_talk
from tests.support.random_peers import Manners

APIS = sorted(schema.names())
ENDS = (b"\x0a\0\0\1", 40000), (b"\x0a\0\0\2", 9092)


def check(data: bytes) -> None:
    """One input."""
    feed = Feed(data)
    how, most = feed.below(2), feed.pick((20, 1 << 20))
    file = packets(feed) if how else feed.rest()
    found = read(file, most)
    tally = ExchangeTally()
    for seen in found:
        for frame in (seen.request, seen.response):
            assert frame is None or len(frame.data) <= most
        tally.add(make_data(seen), "f")
    tally.shown()
    if found:
        again(found)


def read(file: bytes, most: int) -> list[ObservedExchange]:
    """Its exchanges; as many as there were before it was found to be no capture."""
    found: list[ObservedExchange] = []
    with path_of(file) as path:
        try:
            capture = Capture(path, most=most, side="both")
            for seen in capture:
                found.append(seen)  # noqa: PERF402 -- those before a damaged place count
        except CaptureError:
            return found
    assert capture.counts.exchanges == len(found)
    return found


def again(found: list[ObservedExchange]) -> None:
    """Redacted and written, the capture has as many exchanges, and every frame is read back as it was written."""
    redaction, written = Redaction(Pseudonyms()), io.BytesIO()
    writer = CaptureWriter(written, Policy("full"), about={"redacted": "records, names"})
    for seen in found:
        shown = redaction.exchange(seen)
        assert isinstance(shown.who, CapturedConnection)
        writer.write(shown, (shown.who.server_address, shown.who.server_port), opened=shown.who.opened)
    writer.finish(0.0, "redacted")
    with path_of(written.getvalue()) as path:
        capture = Capture(path, most=1 << 26)
        count = sum(1 for _ in capture)
    assert count == len(found)
    assert not capture.file.torn


@contextmanager
def path_of(file: bytes) -> Iterator[str]:
    """A file without a disk."""
    number = os.memfd_create("capture")
    try:
        os.write(number, file)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)


def packets(feed: Feed) -> bytes:
    """A conversation of a random client and broker, whose packets the fuzzer handles badly."""
    conversation, blocks = Conversation(0, *ENDS, start=feed.below(1 << 32)), []
    if feed.below(4):
        blocks += conversation.open(1.0, "")
    random = FedRandom(feed.piece())
    for side, said in random_talk(random, [feed.pick(APIS) for _ in range(4)], 4, Manners(junk=0.1), mangle=0.1):
        kept = said[: feed.below(300)] if not feed.below(8) else said
        blocks += conversation.send(int(side != CLIENT), kept, len(said), 1.5, 1.5 + feed.below(2), "")
    blocks += conversation.close(2.0) if feed.below(2) else ()
    while feed and blocks:
        at = feed.below(len(blocks))
        match feed.below(6):
            case 0:
                del blocks[at]
            case 1:
                blocks.insert(feed.below(len(blocks)), blocks[at])
            case 2:
                blocks.insert(feed.below(len(blocks)), blocks.pop(at))
            case 3:
                place = feed.below(len(blocks[at]))
                blocks[at] = blocks[at][:place] + feed.take(1) + blocks[at][place + 1 :]
            case 4:
                blocks[at] = pcapng.packet(0, 1.0, feed.piece(), 60)
            case _:
                blocks.insert(at, pcapng.interface("x", feed.below(70000)))
    return b"".join((pcapng.section("somebody"), pcapng.interface("any"), *blocks))


def seeds() -> Iterator[bytes]:
    """Inputs to begin with."""
    conversation = Conversation(0, *ENDS)
    blocks = [*conversation.open(1.0, "")]
    for side, said in ((0, request(3, 9, 2, topics=[{"name": "a"}])), (1, response(3, 9, 2)), (0, request(17, 1, 3))):
        blocks += conversation.send(side, said, len(said), 1.5, 1.5, "")
    for application in ("kproxy", "other"):
        yield b"\0\1" + b"".join((pcapng.section(application), pcapng.interface("client"), *blocks))
    yield (
        b"\0\0\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\1\0\x65\0\0\0" + bytes(8) + b"\x28\0\0\0" * 2 + bytes(40)
    )
    for api in range(0, len(APIS), 9):
        yield bytes((1, 1, 0, 0, 0, 0, api % 4, 4, 1, 2, 3, api, api, (api + 1) % len(APIS), 0, 1)) + bytes(range(api))


WORDS = [
    b"\x0a\x0d\x0d\x0a",
    b"\x4d\x3c\x2b\x1a",
    b"\x1a\x2b\x3c\x4d",
    b"\x06\0\0\0",
    b"\x05\0\0\0",
    b"\xa1\xb2\x3c\x4d",
]
