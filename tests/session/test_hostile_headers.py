"""Hostile bytes in front of a body, of clients and brokers: size, API key, correlation id, client id, header tags.

The tests count executed lines and gathered bytes, not time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import pack
from typing import Any

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.framing import MAX_ACKS_HEAD, MAX_HEADER_TAG_BYTES, MAX_HEADER_TAGS, acks_of, body_start, framed
from kproxy.protocol.primitives import write_uvarint
from kproxy.protocol.scan.sketch import Sketcher, decode_sketch
from kproxy.protocol.scan.walk import error_codes_in
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import API_VERSIONS, FETCH, METADATA, PRODUCE
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.redact import Redaction
from kproxy.record.exchange import Depth, Form, Frame, ObservedExchange
from kproxy.record.live_view.frame_steps import show_frame
from kproxy.record.observer.credentials import take_out
from kproxy.record.observer.observer import ConnectionObserver
from kproxy.record.observer.partition_rows import read_rows
from kproxy.session.commands import BROKER, CLIENT
from kproxy.tools.rehearse.dialogue import Dialogue, request
from tests.record.audit.exchanges import FakeWho
from tests.support.frames import message
from tests.support.line_count import LineCount

COUNT = 20_000
MOST_LINES = 6000
"""Lines for one frame with a rejected or unread header; one line for each tag would be 20,000 and more."""
MEGABYTE = 1 << 20
ANNOUNCED = 100 * MEGABYTE
NONE = ""
DENY = "rules: [{name: r, kind: deny, match: {topic: 'secret*'}}]"
RULES = [
    NONE,
    DENY,
    "rules: [{name: r, kind: prefix, prefix: tenant.}]",
    "rules: [{name: r, kind: delay, delay: 1ms, at: request}]",
    "rules: [{name: r, kind: error, error: 29, at: response, match: {topic: 'secret*'}}]",
    "rules: [{name: r, kind: quota, per: [client_id], requests: 1000/s, produce: 1MB/s}]",
]
BY_RULES = pytest.mark.parametrize("rules", RULES, ids=["none", "deny", "prefix", "delay", "error", "quota"])


def many(count: int) -> bytes:
    """Return a tag buffer with `count` empty fields in ascending order."""
    return write_uvarint(count) + b"".join(write_uvarint(tag) + b"\0" for tag in range(count))


def long(size: int) -> bytes:
    """Return a tag buffer with one field of `size` bytes."""
    return b"\x01\x00" + write_uvarint(size) + bytes(size)


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "many": many,
    "long": lambda count: long(count * 2),
    "count": lambda count: b"\xff\xff\xff\xff\x0f" + bytes(count * 2),
    "varint": lambda count: b"\xff" * count * 2,
    "size": lambda count: b"\x01\x00\xff\xff\xff\xff\x07" + bytes(count * 2),
}
BY_TAGS = pytest.mark.parametrize("tags", HOSTILE)


def flexible() -> Iterator[tuple[int, int, str]]:
    """Yield API key, newest version and direction of each frame with tags in its header."""
    for key in sorted(schema.paths()):
        api = schema.load(key)
        for direction, least in (("request", 2), ("response", 1)):
            if api.header_version(direction, api.versions.last) >= least:
                yield key, api.versions.last, direction


FRAMES = list(flexible())


def with_tags(frame: bytes, direction: str, tags: bytes) -> bytes:
    """Return the frame, given without its size, with these tags in place of its header's empty tag buffer."""
    at = 4
    if direction == "request":
        at = 10 + max(int.from_bytes(frame[8:10], "big", signed=True), 0)
    assert frame[at] == 0
    return frame[:at] + tags + frame[at + 1 :]


def hostile(key: int, version: int, direction: str, tags: bytes) -> bytes:
    """Return a frame without its size, with a default body and these header tags."""
    fields = {"acks": -1} if (key, direction) == (PRODUCE, "request") else {}
    return with_tags(message(key, version, direction, fields, 1), direction, tags)


def watched(rules: str, depth: Depth) -> tuple[Dialogue, ConnectionObserver]:
    """Return a dialogue, and an observer that the caller shows the same bytes."""
    return Dialogue(rules), ConnectionObserver(FakeWho(), lambda key, version: depth, lambda seen: None)


def kept(talk: Dialogue, observer: ConnectionObserver) -> int:
    """Return the bytes that the session and the observer gathered without a reservation."""
    lanes = (talk.session.requests, talk.session.responses)
    gathered = [len(lane.kept or b"") for lane in lanes if not lane.reserved]
    frames = [one.frame for one in (observer.incoming, observer.outgoing)]
    return max(*gathered, 0, *(len(one.data) for one in frames if one is not None and not one.settled))


def speak(
    rules: str, key: int, version: int, direction: str, frame: bytes, depth: Depth, chunk: int = 0
) -> Dialogue | None:
    """Feed one hostile frame, after its request if it is a response, and check what is gathered.

    Return None if the request of a response does not reach the broker as it came.
    """
    talk, observer = watched(rules, depth)
    buf = bytearray(frame)
    if direction == "response":
        asked = request(key, version, 1, **({"acks": -1} if key == PRODUCE else {}))
        observer.from_client(bytearray(asked), len(asked), 0.0)
        talk.client(asked).later(1)
        if talk.closed is not None or not talk.session.inflight.fifo:
            return None  # a rule or a rewrite answers this request, or asks the broker something first
    for at in range(0, len(frame), chunk or len(frame)):
        part = bytes(buf[at : at + (chunk or len(frame))])
        if talk.closed is not None:
            break
        if direction == "request":
            observer.from_client(bytearray(part), len(part), 0.0)
            talk.client(part).later(1)
        else:
            observer.to_client(bytearray(part), len(part), 0.0)
            talk.broker(part)
        assert kept(talk, observer) <= 2 * MAX_ACKS_HEAD
    return talk


@BY_RULES
@BY_TAGS
def test_hostile_header_tags_take_few_lines(rules: str, tags: str) -> None:
    """Every API, in both directions: either nothing reads the header, or the connection is closed."""
    few, lots = HOSTILE[tags](MAX_HEADER_TAGS + 1), HOSTILE[tags](COUNT)
    for key, version, direction in FRAMES:
        for depth in (Depth.FULL, Depth.ROWS):
            speak(rules, key, version, direction, framed(hostile(key, version, direction, few)), depth)  # compiles
            frame = framed(hostile(key, version, direction, lots))
            with LineCount() as count:
                talk = speak(rules, key, version, direction, frame, depth)
            where = f"{schema.load(key).name} {direction}, {depth.name}"
            assert count.total <= MOST_LINES, where
            side = CLIENT if direction == "response" else BROKER
            assert (
                talk is None
                or talk.closed is not None
                or frame in bytes(talk.out[side])
                or talk.read[1 - side] is False
            ), where


@BY_RULES
@pytest.mark.parametrize("way", ["request", "response"])
def test_header_of_an_announced_frame_is_not_gathered(rules: str, way: str) -> None:
    """The frame announces 100 MB, and its tags take all of them."""
    for key, version, direction in FRAMES:
        if direction == way:
            content = hostile(key, version, direction, long(MEGABYTE))
            frame = ANNOUNCED.to_bytes(4, "big") + content
            talk = speak(rules, key, version, direction, frame, Depth.FULL, chunk=40_000)
            if talk is not None:
                lanes = (talk.session.requests, talk.session.responses)
                assert sum(len(lane.kept or b"") for lane in lanes) <= 2 * MAX_ACKS_HEAD


@pytest.mark.parametrize("rules", [NONE, *RULES[3:4], RULES[5]])
@pytest.mark.parametrize("version", [8, 9, 13])
@pytest.mark.parametrize("first", [14, 40, 32_781, 33_000, 60_000])
def test_acks_after_long_names_are_found_in_few_steps(rules: str, version: int, first: int) -> None:
    """Client id and transactional id have 32,767 bytes each; the frame arrives in two parts."""
    frame = request(PRODUCE, version, 1, "c" * 32_767, transactional_id="t" * 32_767, topic_data=[])
    Dialogue(rules).client(frame, first)
    with LineCount() as count:
        talk = Dialogue(rules).client(frame[:first]).later(1).client(frame[first:]).later(1)
    assert talk.to_broker == frame
    assert count.total <= MOST_LINES


@BY_RULES
@pytest.mark.parametrize("direction", ["request", "response"])
def test_header_that_arrives_bytewise_takes_linear_work(rules: str, direction: str) -> None:
    """The longest header that is accepted, one byte at a time."""
    tags = long(MAX_HEADER_TAG_BYTES - 4)
    spent = []
    for part in (tags[: len(tags) // 4], tags):
        frame = framed(hostile(PRODUCE, 9, direction, tags))[: len(part)]
        speak(rules, PRODUCE, 9, direction, frame, Depth.FULL, chunk=1)
        with LineCount() as count:
            speak(rules, PRODUCE, 9, direction, frame, Depth.FULL, chunk=1)
        spent.append(count.total)
    assert spent[1] <= 6 * spent[0]


@pytest.mark.parametrize(
    ("tags", "text"),
    [
        (many(MAX_HEADER_TAGS + 1), "header at byte 16: 33 header tags, expected at most 32"),
        (long(MAX_HEADER_TAG_BYTES), "header at byte 16: 4100 bytes of header tags, expected at most 4096"),
    ],
)
@pytest.mark.parametrize("rules", RULES)
def test_hostile_produce_header_closes_with_both_numbers(rules: str, tags: bytes, text: str) -> None:
    talk = Dialogue(rules).client(framed(hostile(PRODUCE, 9, "request", tags)))
    if rules == RULES[3]:
        talk.later(1)
    assert talk.closed is not None
    assert talk.closed.cause == "decode"
    assert talk.closed.blame == "client"
    assert text in talk.closed.message
    assert not talk.to_broker


def test_hostile_response_header_closes_with_both_numbers() -> None:
    talk = Dialogue(RULES[2]).client(request(METADATA, 12, 1))
    talk.broker(framed(hostile(METADATA, 12, "response", many(MAX_HEADER_TAGS + 1))))
    assert talk.closed is not None
    assert talk.closed.cause == "decode"
    assert talk.closed.blame == "broker"
    assert "33 header tags, expected at most 32" in talk.closed.message


@BY_RULES
@pytest.mark.parametrize("tags", [many(MAX_HEADER_TAGS), long(MAX_HEADER_TAG_BYTES - 4)], ids=["many", "long"])
def test_header_tags_within_the_limits_pass_unchanged(rules: str, tags: bytes) -> None:
    asked = framed(hostile(PRODUCE, 9, "request", tags))
    said = framed(hostile(PRODUCE, 9, "response", tags))
    talk = Dialogue(rules).client(asked).later(1).broker(said)
    assert talk.closed is None
    assert talk.to_broker == asked
    assert talk.to_client == said


def exchange(key: int, version: int, asked: bytes, said: bytes) -> ObservedExchange:
    seen = ObservedExchange(FakeWho(), 1, key, version, 1, "tester", None)
    seen.request = Frame(len(asked) + 4, 0.0, 0.0, asked, Form.WHOLE)
    seen.response = Frame(len(said) + 4, 0.0, 0.0, said, Form.WHOLE)
    return seen


def read_all(key: int, version: int, direction: str, frame: bytes, *, sketch: bool) -> None:
    """Have every reader of single frames read this one."""
    known = {"request": b"", "response": b""} | {direction: frame}
    seen = exchange(key, version, known["request"], known["response"])
    part = seen.response if direction == "response" else seen.request
    assert part is not None
    readers: list[Callable[[], Any]] = [
        lambda: decode_request(frame) if direction == "request" else decode_response(frame, key, version),
        lambda: decode_sketch(frame, key, version, direction),
        lambda: body_start(frame, 0, len(frame), schema.load(key).header_version(direction, version), direction),
        lambda: acks_of(frame, version) if (key, direction) == (PRODUCE, "request") else None,
        lambda: take_out(frame, key, version, direction),
        lambda: Policy("none").kept(seen, part, response=direction == "response"),
        lambda: Redaction().frame(seen, part, direction),
        lambda: read_rows(key, version, direction, framed(frame), 0, len(frame) + 4),
        lambda: error_codes_in(key, version, frame, 0, len(frame)) if direction == "response" else None,
        lambda: show_frame(seen, direction, part, records=False, most=50),
    ]
    if sketch:
        readers.append(lambda: Sketcher(key, version, direction).feed(frame, 0, len(frame)))
    for read in readers:
        with suppress(DecodeError):
            read()


@BY_TAGS
def test_every_reader_of_a_frame_bounds_its_header_tags(tags: str) -> None:
    few, lots = HOSTILE[tags](MAX_HEADER_TAGS + 1), HOSTILE[tags](COUNT)
    for key, version, direction in FRAMES:
        read_all(key, version, direction, hostile(key, version, direction, few), sketch=True)
        with LineCount() as count:
            read_all(key, version, direction, hostile(key, version, direction, lots), sketch=True)
        assert count.total <= 2 * MOST_LINES, (schema.load(key).name, direction)


def test_values_behind_hostile_header_tags_are_withheld() -> None:
    """A broker accepts more header tags than kproxy reads, and the config values behind them."""
    configs = [{"name": "sasl.jaas.config", "value": "s3cret"}]
    resources = [{"resource_type": 2, "resource_name": "t", "configs": configs}]
    frame = message(33, 2, "request", {"resources": resources}, 1)
    data, why = take_out(with_tags(frame, "request", many(MAX_HEADER_TAGS + 1)), 33, 2, "request")
    assert b"s3cret" not in data
    assert why


BEGINNINGS = [
    *(pack(">ihhih", size, 0, 9, 1, -1) for size in (-(2**31), -1, 0, 9, 2**31 - 1)),
    *(pack(">ihhih", 100, key, version, 1, -1) for key in (-1, 93, 0x7FFF) for version in (-1, 0x7FFF)),
    *(pack(">ihhih", 100, API_VERSIONS, version, -(2**31), 0x7FFF) for version in (-1, 4, 99, 0x7FFF)),
    *(pack(">ihhih", ANNOUNCED, key, 0, 1, 0x7FFF) for key in (PRODUCE, FETCH, API_VERSIONS)),
]


@BY_RULES
@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("chunk", [0, 1])
def test_fixed_part_of_a_header_takes_few_lines(rules: str, beginning: bytes, chunk: int) -> None:
    data = beginning + bytes(500)
    speak(rules, PRODUCE, 9, "request", data, Depth.FULL, chunk)
    with LineCount() as count:
        talk = speak(rules, PRODUCE, 9, "request", data, Depth.FULL, chunk)
    assert count.total <= (len(data) * 400 if chunk else MOST_LINES)
    assert talk.closed is None or talk.closed.message
