"""Sketches say what whole frames say, but for the inside of record batches."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.message import decode_request, decode_response
from kproxy.protocol.codec.structs import encode, write_header
from kproxy.protocol.scan.sketch import Sketcher, decode_sketch
from kproxy.protocol.table import layout, schema
from tests.protocol.golden.frames import golden
from tests.protocol.random_records import expected, random_field
from tests.support.random_values import random_struct

WITH_RECORDS = [
    (key, version, direction)
    for key, direction in ((0, "request"), (1, "response"), (59, "response"), (78, "response"))
    for version in schema.load(key).versions
]
OTHERS = [
    (key, version, direction)
    for key in schema.paths()
    for version in schema.load(key).versions
    for direction in ("request", "response")
    if (key, version, direction) not in WITH_RECORDS
]


def fill(struct: layout.Struct, value: dict[str, Any], random: Random) -> None:
    """Puts random record fields where records belong."""
    for slot in struct.slots:
        if slot.type == "records":
            value[slot.name] = random_field(random)
        elif slot.struct is not None and value[slot.name] is not None:
            for element in value[slot.name] if slot.array else (value[slot.name],):
                fill(slot.struct, element, random)


def digested(struct: layout.Struct, value: dict[str, Any]) -> dict[str, Any]:
    """The body with digests for records."""
    found = dict(value)
    for slot in struct.slots:
        if slot.type == "records":
            found[slot.name] = expected(value[slot.name])
        elif slot.struct is not None and value[slot.name] is not None:
            inner = slot.struct
            elements = value[slot.name]
            found[slot.name] = [digested(inner, one) for one in elements] if slot.array else digested(inner, elements)
    return found


def random_frame(key: int, version: int, direction: str, random: Random) -> bytes:
    api = schema.load(key)
    header: dict[str, Any] = {"correlation_id": 7}
    if direction == "request":
        header |= {"request_api_key": key, "request_api_version": version}
        if api.header_version("request", version):
            header["client_id"] = random.choice((None, "", "client", "x" * 200))
    struct = layout.body(key, version, direction)
    value = random_struct(struct, random)
    fill(struct, value, random)
    return write_header(api, version, direction, header) + encode(struct, value)


def whole(frame: bytes, key: int, version: int, direction: str) -> dict[str, Any]:
    """The body as the full decoder reads it, digested by the test's own means."""
    message = decode_request(frame) if direction == "request" else decode_response(frame, key, version)
    return digested(layout.body(key, message.version, direction), message.body)


def sketched(frame: bytes, key: int, version: int, direction: str, random: Random, longest: int) -> bytes:
    """What a Sketcher keeps of a frame that comes in chunks of random sizes, in buffers that are used again."""
    sketcher = Sketcher(key, version, direction, most=1 << 30)
    buffer = bytearray(longest + 8)
    position = 0
    while position < len(frame):
        chunk = frame[position : position + random.randrange(longest + 1)]
        buffer[:] = b"\xee" * len(buffer)
        buffer[3 : 3 + len(chunk)] = chunk
        sketcher.feed(buffer, 3, 3 + len(chunk))
        position += len(chunk)
    assert not sketcher.failed
    return sketcher.data()


@pytest.mark.parametrize(("key", "version", "direction"), WITH_RECORDS)
def test_records_become_digests(key: int, version: int, direction: str) -> None:
    """All fields are those of the full decoder, and a digest is what its entries, read one by one, amount to."""
    for seed in range(20):
        frame = random_frame(key, version, direction, Random(seed))
        assert decode_sketch(frame, key, version, direction) == whole(frame, key, version, direction)


@pytest.mark.parametrize(("key", "version", "direction"), WITH_RECORDS)
@pytest.mark.parametrize("longest", [1, 7, 90, 100_000])
def test_sketch_says_what_the_frame_says(key: int, version: int, direction: str, longest: int) -> None:
    """However a frame is cut on its way, its sketch is read as the frame itself."""
    for seed in range(8):
        random = Random(seed)
        frame = random_frame(key, version, direction, random)
        sketch = sketched(frame, key, version, direction, random, longest)
        assert decode_sketch(sketch, key, version, direction, sketched=True) == decode_sketch(
            frame, key, version, direction
        )
        assert len(sketch) <= len(frame)


def test_other_messages_are_kept_as_they_are() -> None:
    """What has no records is its own sketch, and is read as by the full decoder."""
    for key, version, direction in OTHERS:
        random = Random(version)
        frame = random_frame(key, version, direction, random)
        assert decode_sketch(frame, key, version, direction) == whole(frame, key, version, direction)
        assert sketched(frame, key, version, direction, random, 50) == frame


def test_golden_frames() -> None:
    """What real clients and brokers sent is read by its headers, whole and sketched, and sketches are small."""
    for one in golden():
        body = decode_sketch(one.frame, one.key, one.version, one.direction)
        assert body == whole(one.frame, one.key, one.version, one.direction), str(one)
        sketch = sketched(one.frame, one.key, one.version, one.direction, Random(1), 40)
        assert decode_sketch(sketch, one.key, one.version, one.direction, sketched=True) == body, str(one)


@pytest.mark.parametrize(("key", "version", "direction"), [(0, 3, "request"), (0, 12, "request"), (1, 17, "response")])
def test_bytes_behind_the_last_field_are_passed_over(key: int, version: int, direction: str) -> None:
    """Real clients send some: they change nothing."""
    frame = random_frame(key, version, direction, Random(3))
    longer = frame + b"\x01\x02\x03"
    assert decode_sketch(longer, key, version, direction) == decode_sketch(frame, key, version, direction)
    sketch = sketched(longer, key, version, direction, Random(1), 30)
    assert decode_sketch(sketch, key, version, direction, sketched=True) == decode_sketch(
        frame, key, version, direction
    )


def test_fallback_of_api_versions() -> None:
    """A broker that lacks the version of ApiVersions answers in the form of version 0 (KIP-511)."""
    frame = bytes(4) + b"\x00\x23" + b"\x00\x00\x00\x01" + b"\x00\x12\x00\x00\x00\x04"
    body = decode_sketch(frame, 18, 3, "response")
    assert body == decode_response(frame, 18, 3).body
    assert decode_sketch(frame, 18, 99, "response") == body


@pytest.mark.parametrize("sketch", [False, True])
def test_cut_frames_raise_decode_error(sketch: bool) -> None:
    """A frame whose end is missing is a DecodeError that names the message."""
    for seed in range(5):
        random = Random(seed)
        for key, version, direction in WITH_RECORDS:
            frame = random_frame(key, version, direction, random)
            data = sketched(frame, key, version, direction, random, 99) if sketch else frame
            cut = data[: random.randrange(len(data))]
            with pytest.raises(DecodeError, match=schema.load(key).name):
                decode_sketch(cut, key, version, direction, sketched=sketch)


def test_noise_raises_nothing_else() -> None:
    """Random bytes in a good frame are read, or are a DecodeError."""
    for seed in range(400):
        random = Random(seed)
        key, version, direction = random.choice(WITH_RECORDS)
        frame = bytearray(random_frame(key, version, direction, random))
        for _ in range(random.randrange(1, 5)):
            frame[random.randrange(len(frame))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        for sketch in (False, True):
            try:
                decode_sketch(bytes(frame), key, version, direction, sketched=sketch)
            except DecodeError:
                continue


def test_unknown_messages() -> None:
    """An API or a version that the table lacks is a DecodeError."""
    for key, version in ((999, 0), (0, 99)):
        with pytest.raises(DecodeError):
            decode_sketch(bytes(40), key, version, "request")
