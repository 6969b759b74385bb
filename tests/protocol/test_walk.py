"""A walk finds every wanted field where decoding finds its value, and refuses what is not a message."""

from __future__ import annotations

import contextlib
import os
import struct as binary
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.structs import decode, encode
from kproxy.protocol.primitives import COMPACT_READERS, READERS, write_uvarint
from kproxy.protocol.scan.walk import Walk, compile_walk, read_string, walk, write_string
from kproxy.protocol.scan.walk_source import tags_path
from kproxy.protocol.scan.walk_support import MOST_HITS
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Slot, Struct
from tests.support.line_count import LineCount
from tests.support.random_values import random_struct

ALL = [
    (api.key, version, direction)
    for api in schema.apis()
    for version in api.versions
    for direction in ("request", "response")
]
SAMPLE = ALL if os.environ.get("KPROXY_TEST_ALL") else ALL[::7]


def everything(struct: Struct, path: str = "") -> Iterator[str]:
    """Every path that can be wanted of a layout."""
    if struct.flexible:
        yield tags_path(path)
    for slot in struct.all_slots:
        yield slot.path
        if slot.struct is not None:
            yield from everything(slot.struct, slot.path)


def expected(struct: Struct, value: dict[str, Any], path: str = "") -> Iterator[tuple[str, str, Any]]:
    """What a walk that wants everything hits, in order, from the decoded value: (what, path, value)."""
    for slot in struct.slots:
        yield from expected_slot(slot, value[slot.name])
    if not struct.flexible:
        return
    known = {slot.tag: slot for slot in struct.tagged if value[slot.name] != slot.default()}
    yield "tags", tags_path(path), len(known) + len(value.get("_tagged_fields", ()))
    for slot in known.values():
        yield "tag", slot.path, slot.tag
        yield "size", slot.path, None
        yield from expected_slot(slot, value[slot.name])


def expected_slot(slot: Slot, value: Any) -> Iterator[tuple[str, str, Any]]:
    if not slot.array:
        if slot.struct is not None and value is not None:
            yield from expected(slot.struct, value, slot.path)
        yield "value", slot.path, value
        return
    yield "count", slot.path, value
    for element in value or ():
        if slot.struct is not None:
            yield from expected(slot.struct, element, slot.path)
        yield "value" if slot.struct is None else "element", slot.path, element


def read_back(slot: Slot, data: bytes) -> Any:
    """The value of a scalar's hit."""
    value, end = (COMPACT_READERS if slot.compact else READERS)[slot.type](data, 0)
    assert end == len(data)
    return value


@pytest.mark.parametrize(("key", "version", "direction"), SAMPLE)
def test_hits_are_the_decoded_values_in_wire_order(key: int, version: int, direction: str) -> None:
    """Wanting everything gives one hit for each value, count, element, tag buffer and tag, at its very bytes."""
    struct = layout.body(key, version, direction)
    found = walk(key, version, direction, frozenset(everything(struct)))
    nothing = walk(key, version, direction, frozenset())
    for seed in range(3):
        value = random_struct(struct, Random(seed))
        data = encode(struct, value)
        buf, pos = b"\x9e" * 5 + data + b"\x9e" * 9, 5
        hits: list[tuple[int, int, int]] = []
        assert found.run(buf, pos, pos + len(data), hits) == pos + len(data)
        assert nothing.run(memoryview(buf), pos, pos + len(data), []) == pos + len(data)
        marks = [found.marks[hit[0]] for hit in hits]
        wanted = list(expected(struct, value))
        assert [(mark.what, mark.path) for mark in marks] == [(what, path) for what, path, _ in wanted]
        for mark, (_, start, end), (what, _, item) in zip(marks, hits, wanted, strict=True):
            if mark.slot is None or what not in ("value", "element"):
                continue
            if mark.slot.struct is None:
                assert read_back(mark.slot, buf[start:end]) == item
            elif what == "element":
                assert decode(mark.slot.struct, buf[:end], start) == (item, end)


@pytest.mark.parametrize(("key", "version", "direction"), SAMPLE)
def test_bytes_walk_or_raise_decode_error(key: int, version: int, direction: str) -> None:
    """Cut or changed bytes give a position inside the frame or a DecodeError that names what is wrong; never less."""
    struct = layout.body(key, version, direction)
    walks = [walk(key, version, direction, frozenset(wanted)) for wanted in ((), everything(struct))]
    rng = Random(key * 100 + version)
    data = encode(struct, random_struct(struct, rng))[:2000]
    for _ in range(40):
        bad = bytearray(data[: rng.randrange(len(data) + 1)])
        for _ in range(rng.randrange(4)):
            if bad:
                bad[rng.randrange(len(bad))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        end = len(bad)
        buf = bytes(bad) + data  # a neighbour, into which nothing may reach
        reached: int | None = None
        with contextlib.suppress(DecodeError):
            reached = decode(struct, bytes(bad))[1]
        for each in walks:
            after, mistake = outcome(each, buf, end)
            if mistake is None:
                assert 0 <= after <= end
                assert reached in (None, after)
            else:
                assert reached is None
                assert "do not follow" not in str(mistake)
                assert mistake.api
                assert 0 <= mistake.offset <= end


def outcome(each: Walk, buf: bytes, end: int) -> tuple[int, DecodeError | None]:
    try:
        return each.run(buf, 0, end, []), None
    except DecodeError as mistake:
        return -1, mistake


def test_walk_of_random_bytes_takes_linear_work() -> None:
    """128 KiB of noise, of zeros, or of the greatest counts."""
    rng = Random(5)
    noises = [
        rng.randbytes(1 << 17),
        bytes(1 << 17),
        b"\x7f\xff\xff\xff" * (1 << 15),
        b"\xff\xff\xff\xff\x07" * 25_000,
    ]
    for key, version in ((3, 8), (3, 12), (1, 11), (1, 17), (69, 1)):
        struct = layout.body(key, version, "response")
        for each in (walk(key, version, "response", frozenset(wanted)) for wanted in ((), everything(struct))):
            for noise in noises:
                with LineCount() as count, contextlib.suppress(DecodeError):
                    assert each.run(noise, 0, len(noise), []) <= len(noise)
                assert count.total < 10 * len(noise)


def test_error_names_path_and_offset() -> None:
    """The slow re-read after a failure says which field of which element, and at which byte."""
    struct = layout.body(3, 12, "response")
    value = random_struct(struct, Random(1)) | {"brokers": [{"node_id": 7, "host": "h", "port": 1, "rack": None}] * 3}
    data = encode(struct, value)
    with pytest.raises(DecodeError) as caught:
        walk(3, 12, "response", frozenset({"brokers[].host"})).run(data, 0, 30, [])
    assert str(caught.value).startswith("Metadata response v12 brokers")
    assert caught.value.offset <= 30


def test_huge_count_is_refused_before_its_loop() -> None:
    """A count of 2³¹−1 is measured against the bytes that remain."""
    data = binary.pack(">ii", 0, 0x7FFFFFFF) + bytes(100)
    with pytest.raises(DecodeError, match="2147483647"):
        walk(3, 3, "response", frozenset({"brokers[].host"})).run(data, 0, len(data), [])


def test_trailing_bytes_are_left_to_the_caller() -> None:
    """Bytes after the last field are no error (librdkafka's mock sends one in Metadata 13)."""
    struct = layout.body(60, 1, "response")
    data = encode(struct, random_struct(struct, Random(3)))
    assert walk(60, 1, "response", frozenset({"brokers[].host"})).run(data + b"\x00", 0, len(data) + 1, []) == len(data)


def test_overlong_varints_are_read() -> None:
    """A length written with more bytes than it needs is legal, as in Java's reader."""
    struct = layout.body(10, 3, "response")
    value = {"error_message": "why", "node_id": 1, "host": "broker", "port": 9092}
    data = encode(struct, value)
    at = data.index(b"\x07broker")
    buf = data[:at] + b"\x87\x80\x00" + data[at + 1 :]
    hits: list[tuple[int, int, int]] = []
    assert walk(10, 3, "response", frozenset({"host"})).run(buf, 0, len(buf), hits) == len(buf)
    assert read_string(buf, *hits[0][1:], True) == b"broker"


def test_tag_that_lies_about_its_size_is_refused() -> None:
    """A wanted tagged field has to end where its size says, or an address could hide behind it."""
    struct = layout.body(1, 17, "response")
    endpoint = {"node_id": 1, "host": "h", "port": 2, "rack": None}
    data = encode(struct, {"node_endpoints": [endpoint]})
    found = walk(1, 17, "response", frozenset({"node_endpoints[].host"}))
    size = data.index(b"\x02h") - 6
    assert found.run(data, 0, len(data), []) == len(data)
    with pytest.raises(DecodeError):
        found.run(data[:size] + bytes((data[size] - 1,)) + data[size + 1 :], 0, len(data), [])
    longer = data[:size] + bytes((data[size] + 1,)) + data[size + 1 :] + b"\x00"
    with pytest.raises(DecodeError):
        found.run(longer, 0, len(longer), [])


def test_walks_are_made_once_and_show_their_source() -> None:
    """The same wants give the same compiled walk; a traceback through it shows lines."""
    import inspect

    one = walk(3, 12, "response", frozenset({"topics[].name"}))
    assert one is walk(3, 12, "response", frozenset({"topics[].name"}))
    assert "def walk(buf, p, end, hits)" in inspect.getsource(one._walk)
    assert one.find("value", "topics[].name") == 0
    assert one.find("element", "topics[]") == -1


def test_any_layout_can_be_walked() -> None:
    """Embedded messages, like the consumer subscription in JoinGroup, have walks too."""
    struct = layout.embedded("consumer_subscription", 3)
    data = encode(struct, {"topics": ["a", "b"], "owned_partitions": [{"topic": "c", "partitions": [1]}]})
    found: Walk = compile_walk(struct, {"topics[]", "owned_partitions[].topic"}, "consumer_subscription", 3)
    hits: list[tuple[int, int, int]] = []
    assert found.run(data, 0, len(data), hits) == len(data)
    names = [read_string(data, start, end, False) for mark, start, end in hits if found.marks[mark].what == "value"]
    assert names == [b"a", b"b", b"c"]


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("data", [None, b"", b"a", b"x" * 126, b"x" * 127, b"x" * 300, b"x" * 32767])
def test_strings_come_back(data: bytes | None, compact: bool) -> None:
    """write_string and read_string are inverse, null and empty kept apart."""
    raw = write_string(data, compact)
    assert read_string(b"??" + raw, 2, 2 + len(raw), compact) == data


def test_a_message_with_far_too_much_in_it_is_refused_soon() -> None:
    """Half a million wanted values are no message of a client; listing tens of millions would take gigabytes."""
    many = MOST_HITS + 10
    body = write_uvarint(many + 1) + (bytes(16) + b"\x02a\x00") * many + b"\x00\x00\x00"
    hits: list[tuple[int, int, int]] = []

    with pytest.raises(DecodeError, match=str(MOST_HITS)):
        walk(3, 12, "request", frozenset(("topics[].name",))).run(body, 0, len(body), hits)

    assert len(hits) <= MOST_HITS + 1


@pytest.mark.parametrize(("key", "version", "direction"), SAMPLE)
def test_a_short_walk_hits_the_same(key: int, version: int, direction: str) -> None:
    """Whatever is wanted, it gives the hits of the whole walk; what it does not need may be anything."""
    struct = layout.body(key, version, direction)
    for seed in range(4):
        random = Random(seed)
        paths = sorted(everything(struct))
        wanted = frozenset(random.sample(paths, min(len(paths), random.choice((0, 1, 1, 2)))))
        whole, short = (walk(key, version, direction, wanted, short=short) for short in (False, True))
        data = encode(struct, random_struct(struct, random))
        expected, hits = [], list[tuple[int, int, int]]()
        end = whole.run(data, 0, len(data), expected)
        after = short.run(data, 0, len(data), hits)
        assert named(short, hits) == named(whole, expected)
        assert after == end or (after < end and not short.whole)
        if not short.whole:
            noise: list[tuple[int, int, int]] = []
            assert short.run(data[:after] + b"\xff" * 20, 0, after + 20, noise) == after
            assert noise == hits


def named(found: Walk, hits: list[tuple[int, int, int]]) -> list[Any]:
    return [(found.marks[mark].what, found.marks[mark].path, start, end) for mark, start, end in hits]


def test_the_brokers_of_a_metadata_answer_are_found_without_its_topics() -> None:
    """In every version, since they stand in front."""
    for version in schema.load(3).versions:
        short = walk(3, version, "response", frozenset({"brokers[].host", "brokers[].port"}), short=True)
        assert not short.whole, version
    assert walk(3, 12, "response", frozenset({"topics[].name"}), short=True).whole


TAGGED = [one for one in ALL if any(slot.tag is not None for slot in layout.body(*one).everywhere())]


def spans_of_tags(key: int, version: int, direction: str, data: bytes) -> list[tuple[int, int, int, int]]:
    """(start of the tag, of its size, of its value, end) for each known tag in the message."""
    struct = layout.body(key, version, direction)
    paths = {slot.path for slot in struct.everywhere() if slot.tag is not None}
    found = compile_walk(struct, paths)
    hits: list[tuple[int, int, int]] = []
    found.run(data, 0, len(data), hits)
    tags = [hit for hit in hits if found.marks[hit[0]].what == "tag"]
    sizes = [hit for hit in hits if found.marks[hit[0]].what == "size"]
    return [(tag[1], size[1], size[2], tag[2]) for tag, size in zip(tags, sizes, strict=True)]


@pytest.mark.parametrize(("key", "version", "direction"), TAGGED)
def test_a_tag_that_is_longer_than_its_value_is_refused_where_nothing_is_wanted_of_it(
    key: int, version: int, direction: str
) -> None:
    """Brokers never look at the size of a tag that they know: bytes behind its value would be fields to them."""
    struct = layout.body(key, version, direction)
    nothing = compile_walk(struct, frozenset())
    rng = Random(f"{key} {version} {direction}")
    tried = 0
    for _ in range(20):
        data = encode(struct, random_struct(struct, rng))
        assert nothing.run(data, 0, len(data), []) == len(data)
        for _, size_at, value_at, end in spans_of_tags(key, version, direction, data):
            for more in (b"\0", b"\1\2\3"):
                longer = data[:size_at] + write_uvarint(end - value_at + len(more)) + data[value_at:end] + more
                with pytest.raises(DecodeError):
                    nothing.run(longer + data[end:], 0, len(longer + data[end:]), [])
            if end > value_at:
                shorter = data[:size_at] + write_uvarint(end - value_at - 1) + data[value_at:]
                with pytest.raises(DecodeError):
                    nothing.run(shorter, 0, len(shorter), [])
            tried += 1
        if tried > 10:
            return
    assert tried
