"""Edits change what they name, and the counts and sizes around it; every other byte stays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from kproxy.protocol.codec.structs import decode, encode
from kproxy.protocol.codec.trace import trace
from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import COMPACT_WRITERS, WRITERS, read_uvarint
from kproxy.protocol.scan.walk import Hit, compile_walk, walk, write_string
from kproxy.protocol.scan.walk_source import tags_path
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Slot, Struct
from tests.support.random_values import random_element, random_slot, random_struct

ALL = [
    (api.key, version, direction)
    for api in schema.apis()
    for version in api.versions
    for direction in ("request", "response")
]
SAMPLE = ALL if os.environ.get("KPROXY_TEST_ALL") else ALL[::7]
Place = tuple[str, Any, Any]  # what, container, key
Todo = list[Callable[[], None]]


def everything(struct: Struct, path: str = "") -> Iterator[str]:
    """Every path that can be wanted of a layout."""
    if struct.flexible:
        yield tags_path(path)
    for slot in struct.all_slots:
        yield slot.path
        if slot.struct is not None:
            yield from everything(slot.struct, slot.path)


def places(struct: Struct, value: dict[str, Any]) -> Iterator[Place]:
    """Where in the decoded value each hit's value is, in the order of the hits."""
    for slot in struct.slots:
        yield from slot_places(slot, value)
    if struct.flexible:
        yield "tags", value, struct
        for slot in struct.tagged:
            if value[slot.name] != slot.default():
                yield "tag", value, slot.name
                yield "size", value, slot.name
                yield from slot_places(slot, value)


def slot_places(slot: Slot, value: dict[str, Any]) -> Iterator[Place]:
    if not slot.array:
        if slot.struct is not None and value[slot.name] is not None:
            yield from places(slot.struct, value[slot.name])
        yield "value", value, slot.name
        return
    yield "count", value, slot.name
    for index, element in enumerate(value[slot.name] or ()):
        if slot.struct is not None:
            yield from places(slot.struct, element)
        yield "element" if slot.struct is not None else "value", value[slot.name], index


def raw(slot: Slot, value: Any) -> bytes:
    """One value or element as it stands on the wire."""
    if slot.struct is not None:
        return encode(slot.struct, value)
    return (COMPACT_WRITERS if slot.compact else WRITERS)[slot.type](value)


class Changes:
    """Random changes, made both ways: as edits of the frame, and on the decoded value."""

    def __init__(self, rng: Random, edits: Edits, hits: list[Hit], found: list[Place]) -> None:
        self.rng, self.edits = rng, edits
        self.lists: dict[int, tuple[Any, Any, set[int], dict[int, list[Any]]]] = {}
        self.last: Todo = []
        for hit, place in zip(hits, found, strict=True):
            slot = edits.walk.marks[hit[0]].slot
            if place[0] == "count":
                assert slot is not None
                self.count(hit, slot, place)
            elif place[0] == "tags":
                self.tags(hit, place)
            elif rng.random() < 0.25 and slot is not None and place[0] in ("value", "element"):
                self.change(hit, slot, place, hits)
        for container, key, removed, added in self.lists.values():
            old = list(container[key] or ())
            new = list(added.get(0, ()))
            for index, item in enumerate(old):
                new += ([] if index in removed else [item]) + added.get(index + 1, [])
            if container[key] is not None or new:
                container[key] = new
        for step in self.last:
            step()

    def count(self, hit: Hit, slot: Slot, place: Place) -> None:
        _, container, key = place
        removed: set[int] = set()
        added: dict[int, list[Any]] = {}
        self.lists[id(container[key])] = (container, key, removed, added)
        if container[key] is None:
            self.lists[id(hit)] = self.lists.pop(id(None))
        if self.rng.random() < 0.25:
            for _ in range(self.rng.choice((1, 2, 130))):
                item = random_element(slot, self.rng, 1)
                added.setdefault(0, []).append(item)
                self.edits.insert(hit, hit[2], raw(slot, item))
        if container[key] is not None:
            self.counts = {**getattr(self, "counts", {}), id(container[key]): hit}

    def change(self, hit: Hit, slot: Slot, place: Place, hits: list[Hit]) -> None:
        what, container, key = place
        _, start, end = hit
        if slot.array:
            count = self.counts[id(container)]
            _, _, removed, added = self.lists[id(container)]
            choice = self.rng.choice(("remove", "insert", "replace"))
            if choice == "remove":
                self.edits.remove(start, end, count)
                removed.add(key)
                return
            if choice == "insert":
                item = random_element(slot, self.rng, 1)
                self.edits.insert(count, end, raw(slot, item))
                added.setdefault(key + 1, []).append(item)
                return
            if what == "element":
                return
        elif slot.struct is not None:
            if slot.nullable:
                self.edits.replace(start, end, b"\xff")
                self.last.append(lambda: container.__setitem__(key, None))
            return
        item = random_element(slot, self.rng, 1) if slot.array else random_slot(slot, self.rng, 1)
        self.edits.replace(start, end, raw(slot, item))
        container[key] = item

    def tags(self, hit: Hit, place: Place) -> None:
        _, container, struct = place
        unknown = dict(container.get("_tagged_fields", ()))
        for number in (*unknown, 77, 300):
            if self.rng.random() < 0.2:
                unknown[number] = self.rng.randbytes(self.rng.choice((0, 3, 200)))
                self.edits.set_tag(hit, number, unknown[number])
            elif self.rng.random() < 0.2:
                unknown.pop(number, None)
                self.edits.drop_tag(hit, number)
        container.pop("_tagged_fields", None)
        if unknown:
            container["_tagged_fields"] = sorted(unknown.items())
        for slot in struct.tagged:
            if self.rng.random() < 0.1:
                self.edits.drop_tag(hit, slot.tag)
                self.last.append(lambda slot=slot: container.__setitem__(slot.name, slot.default()))


@pytest.mark.parametrize(("key", "version", "direction"), SAMPLE)
def test_edits_equal_the_same_change_of_the_decoded_value(key: int, version: int, direction: str) -> None:
    """Replacing, removing, inserting, setting and dropping tags, in any mixture, equals changing the value."""
    struct = layout.body(key, version, direction)
    found = walk(key, version, direction, frozenset(everything(struct)))
    for seed in range(6):
        rng = Random(seed)
        value = random_struct(struct, rng)
        data = encode(struct, value)
        model = decode(struct, data)[0]
        buf, end = b"head" + data + b"tail!", 4 + len(data)
        hits: list[Hit] = []
        found.run(buf, 4, end, hits)
        edits = Edits(buf, 0, end + 1, found, hits)
        Changes(rng, edits, hits, list(places(struct, model)))
        pieces = edits.pieces()
        edited = b"".join(pieces)
        assert (edited[:4], edited[-1:]) == (b"head", b"t")
        assert decode(struct, edited[4:-1]) == (decode(struct, encode(struct, model))[0], len(edited) - 5)


@pytest.mark.parametrize(("key", "version", "direction"), SAMPLE)
def test_no_edits_and_same_bytes_are_the_same_frame(key: int, version: int, direction: str) -> None:
    """Without edits the frame is one view of itself; every value replaced by its own bytes gives the same frame."""
    struct = layout.body(key, version, direction)
    found = walk(key, version, direction, frozenset(everything(struct)))
    data = encode(struct, random_struct(struct, Random(9)))
    hits: list[Hit] = []
    found.run(data, 0, len(data), hits)
    edits = Edits(data, 0, len(data), found, hits)
    assert not edits
    assert edits.pieces() == [data]
    for hit in hits:
        if found.marks[hit[0]].what == "value":
            edits.replace(hit[1], hit[2], data[hit[1] : hit[2]])
    assert b"".join(edits.pieces()) == data


def endpoints(*hosts: str) -> list[dict[str, Any]]:
    return [{"node_id": 1, "host": host, "port": 9092, "rack": None} for host in hosts]


def fetch(*hosts: str, rest: Any = ()) -> tuple[bytes, Edits]:
    """A Fetch 17 response with these endpoints, and its edits."""
    struct = layout.body(1, 17, "response")
    value: dict[str, Any] = {"node_endpoints": endpoints(*hosts)}
    if rest:
        value["_tagged_fields"] = list(rest)
    data = encode(struct, value)
    found = walk(1, 17, "response", frozenset({"node_endpoints[]", "node_endpoints[].host", "_tagged_fields"}))
    hits: list[Hit] = []
    found.run(data, 0, len(data), hits)
    return data, Edits(data, 0, len(data), found, hits)


def spans(edits: Edits, what: str) -> list[Hit]:
    return [hit for hit in edits.hits if edits.walk.marks[hit[0]].what == what]


def test_size_of_a_tagged_field_grows_with_what_is_in_it() -> None:
    """A longer host in Fetch's NodeEndpoints takes the tag's size from one byte to two, and nothing else changes."""
    data, edits = fetch("short", rest=[(9, b"new in some later version")])
    (host,) = spans(edits, "value")
    edits.replace(host[1], host[2], write_string(b"h" * 200, True))
    expected, _ = fetch("h" * 200, rest=[(9, b"new in some later version")])
    assert b"".join(edits.pieces()) == expected
    assert len(expected) > len(data) + 195


def test_new_element_at_the_end_belongs_to_its_tag_and_a_new_tag_does_not() -> None:
    """Two insertions at one position: an element of a tagged array counts in its size, a tag after it does not."""
    _, edits = fetch("a")
    (tags,), (count,), (element,) = spans(edits, "tags"), spans(edits, "count"), spans(edits, "element")
    slot = edits.walk.marks[count[0]].slot
    assert slot is not None and slot.struct is not None
    edits.set_tag(tags, 8, b"eight")
    edits.insert(count, element[2], encode(slot.struct, endpoints("b")[0]))
    assert b"".join(edits.pieces()) == fetch("a", "b", rest=[(8, b"eight")])[0]


def test_dropping_a_tag_swallows_the_edits_in_it() -> None:
    """A rewrite may have changed a host before another one drops the field; dropping what is not there is nothing."""
    _, edits = fetch("a")
    (tags,), (host,) = spans(edits, "tags"), spans(edits, "value")
    edits.replace(host[1], host[2], write_string(b"other", True))
    edits.drop_tag(tags, 0)
    assert b"".join(edits.pieces()) == fetch()[0]
    _, edits = fetch()
    edits.drop_tag(spans(edits, "tags")[0], 0)
    assert not edits


def test_removing_twice_counts_once() -> None:
    """Two rewrites may agree that an element has to go."""
    _, edits = fetch("a", "b")
    (count,), elements = spans(edits, "count"), spans(edits, "element")
    edits.remove(*elements[0][1:], count)
    edits.remove(*elements[0][1:], count)
    assert b"".join(edits.pieces()) == fetch("b")[0]


@pytest.mark.parametrize(("key", "version"), [(3, 12), (69, 1), (9, 9), (32, 4)])
def test_unknown_tags_and_overlong_varints_elsewhere_survive(key: int, version: int) -> None:
    """Where nothing was edited the bytes are those that came, even if kproxy would write them shorter."""
    struct = layout.body(key, version, "response")
    names = {slot.path for slot in struct.everywhere() if slot.kind in ("topic_name", "config_resource_name")}
    for seed in range(20):
        value = random_struct(struct, Random(seed))
        for name in ("topics", "groups", "results"):
            if name in value:
                value[name] = (value[name] or [])[:2]
        data = encode(struct, value)
        odd = overlong(struct, data)
        found = compile_walk(struct, names)
        hits: list[Hit] = []
        assert found.run(odd, 0, len(odd), hits) == len(odd)
        edits = Edits(odd, 0, len(odd), found, hits)
        for number, start, end in hits:
            if found.marks[number].what == "value":
                edits.replace(start, end, write_string(b"renamed", True))
        pieces = edits.pieces()
        kept = [piece for piece in pieces if isinstance(piece, memoryview)]
        assert sum(map(len, kept)) == len(odd) - sum(end - start for start, end, *_ in edits.changes)
        assert decode(struct, b"".join(pieces))[1] == len(b"".join(pieces))


def overlong(struct: Struct, data: bytes) -> bytes:
    """The same message with every count and string length outside tagged fields a byte longer than it needs."""
    inside = 0
    places: list[int] = []
    for step in trace(struct, data):
        if step.what == "tag":
            size, _ = read_uvarint(data, read_uvarint(data, step.start)[1])
            inside = step.end + size
        text = step.what == "value" and step.slot is not None and step.slot.type == "string"
        if step.start >= inside and (text or step.what == "count") and data[step.start] < 0x80:
            places.append(step.start)
    odd = bytearray(data)
    for place in reversed(places):
        odd[place : place + 1] = bytes((odd[place] | 0x80, 0x00))
    return bytes(odd)
