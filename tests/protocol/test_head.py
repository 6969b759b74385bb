"""The readers of a frame's head give what decoding gives, and None for every frame that is cut before it."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from kproxy.protocol.codec.structs import encode
from kproxy.protocol.framing import body_start, plain_head, produce_acks, single_topic
from kproxy.protocol.scan.walk import read_string
from kproxy.protocol.table import layout, schema
from tests.support.random_values import random_struct

HEADERS = [("request", version) for version in (0, 1, 2)] + [("response", version) for version in (0, 1)]

TOPIC_ID = UUID(int=7)


@pytest.mark.parametrize(("direction", "version"), HEADERS)
def test_body_starts_where_the_header_ends(direction: str, version: int) -> None:
    """In every header version, with and without client id and tagged fields; None while a byte is missing."""
    struct = layout.header(direction, version)
    for seed in range(60):
        header = encode(struct, random_struct(struct, Random(seed)))
        buf = b"before" + header + b"body"
        assert body_start(buf, 6, len(buf), version, direction) == 6 + len(header)
        assert body_start(memoryview(buf), 6, 6 + len(header), version, direction) == 6 + len(header)
        for end in range(6, 6 + len(header)):
            assert body_start(buf, 6, end, version, direction) is None


@pytest.mark.parametrize("version", list(schema.load(0).versions))
def test_produce_acks(version: int) -> None:
    """acks is read from the head of the frame alone, whatever client id, header tags, transactional id precede it."""
    header_version = schema.load(0).header_version("request", version)
    header, body = layout.header("request", header_version), layout.body(0, version, "request")
    acks = produce_acks(version)
    for seed in range(60):
        rng = Random(seed)
        head = random_struct(header, rng) | {"client_id": rng.choice((None, "", "client"))}
        value = random_struct(body, rng) | {"acks": rng.choice((0, 1, -1)), "topic_data": []}
        raw = encode(header, head)
        buf = b"x" + raw + encode(body, value)
        length = int.from_bytes(buf[9:11], "big", signed=True)
        assert acks(buf, 1, len(buf), length) == value["acks"]
        first = next(end for end in range(1, len(buf) + 1) if acks(buf, 1, end, length) is not None)
        assert acks(buf, 1, first, length) == value["acks"]
        assert first == 1 + len(raw) + 2 + transactional(version, value)


def transactional(version: int, value: dict[str, object]) -> int:
    """Bytes of transactional_id."""
    text = value.get("transactional_id")
    length = len(str(text).encode("utf-8", "surrogateescape")) if text is not None else 0
    return 0 if version < 3 else 2 + length if version < 9 else length + (1 if length < 127 else 2)


@pytest.mark.parametrize(("key", "direction"), [(0, "request"), (1, "response")])
@pytest.mark.parametrize("version", range(14))
def test_the_lone_topic_of_a_message(key: int, direction: str, version: int) -> None:
    """The last span is that of the only topic's name or id; None for several, and for bytes cut before its end.

    Those before it are the strings in front of the topics, the transactional id of a Produce request.
    """
    struct = layout.body(key, version, direction)
    array = next(slot for slot in struct.slots if slot.array)
    assert array.struct is not None
    name, by_id = array.struct.slots[0].name, array.struct.slots[0].kind == "topic_id"
    find = single_topic(key, version, direction)
    random = Random(f"{key} {version}")
    for count in (0, 1, 1, 1, 2):
        body = random_struct(struct, random)
        value = TOPIC_ID if by_id else "orders"
        body[array.name] = [random_struct(array.struct, random) | {name: value} for _ in range(count)]
        data = b"before" + encode(struct, body) + b"after"
        spans = find(data, 6, len(data) - 5)
        assert (spans is not None) == (count == 1)
        if spans is not None:
            *strings, span = spans
            found = data[slice(*span)] if by_id else read_string(data, *span, struct.flexible)
            assert found == (TOPIC_ID.bytes if by_id else b"orders")
            texts = [body[slot.name] for slot in struct.slots if slot.type == "string" and not slot.array]
            assert [read_string(data, *one, struct.flexible) for one in strings] == [
                text if text is None else text.encode("utf-8", "surrogateescape") for text in texts
            ]
            assert all(find(data, 6, end) is None for end in range(6, span[1]))
            assert find(data, 6, span[1]) == spans


@pytest.mark.parametrize("direction", ["request", "response"])
@pytest.mark.parametrize(
    ("key", "version"), [(key, version) for key in (0, 1) for version in schema.load(key).versions]
)
def test_a_plain_head_tells_no_more_than_is_true(key: int, version: int, direction: str) -> None:
    """It finds the topic where `single_topic` does, in heads with nothing optional; it finds none in all others, and in
    what is cut. Of long names it may say nothing."""
    struct = layout.body(key, version, direction)
    array = next(slot for slot in struct.slots if slot.array)
    assert array.struct is not None
    named, by_id = array.struct.slots[0].name, array.struct.slots[0].kind == "topic_id"
    header_version = schema.load(key).header_version(direction, version)
    tagged = header_version >= (2 if direction == "request" else 1)
    plain, find = plain_head(key, version, direction), single_topic(key, version, direction)
    random = Random(f"{key} {version}")
    found = 0
    for size in (1, 6, 126, 127, 128, 249):
        for tags, optional, count in ((b"\0", None, 1), (b"\0", "text", 1), (b"\1\5\1x", None, 1), (b"\0", None, 2)):
            body = random_struct(struct, random)
            body |= {slot.name: optional for slot in struct.slots if slot.type == "string" and not slot.array}
            value = TOPIC_ID if by_id else "n" * size
            body[array.name] = [random_struct(array.struct, random) | {named: value} for _ in range(count)]
            head = tags if tagged else b""
            data = b"before" + head + encode(struct, body) + b"after"
            spans, topic = find(data, 6 + len(head), len(data) - 5), plain.topic(data, 6, len(data) - 5)
            assert topic is None or (spans is not None and topic == spans[-1])
            if topic is not None:
                found += 1
                assert plain.topic(data, 6, topic[1]) == topic
                assert all(plain.topic(data, 6, end) is None for end in range(6, topic[1]))
    assert found >= 2
