"""Every layout there and back, and the corners of the codec on small layouts made by hand."""

from __future__ import annotations

import os
import struct
import traceback
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kproxy.base.errors import DecodeError, EncodeError
from kproxy.protocol.codec import structs as codec
from kproxy.protocol.codec.trace import smallest, trace
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Struct
from tests.support.random_values import random_struct

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
MESSAGES = [
    (api.key, version, direction)
    for api in schema.apis()
    for version in api.versions
    for direction in ("request", "response")
]
EMBEDDED = [(name, version) for name, entry in schema.embedded().items() for version in entry.versions]


def there_and_back(struct: Struct, value: dict[str, Any]) -> None:
    """Equal values, equal bytes, and a trace that ends where the message does."""
    data = codec.encode(struct, value)
    decoded, end = codec.decode(struct, data)
    steps = list(trace(struct, data))

    assert end == len(data)
    assert decoded == value
    assert list(decoded)[: len(struct.slots)] == [slot.name for slot in struct.slots]
    assert codec.encode(struct, decoded) == data
    assert [0, *(step.end for step in steps)] == [*(step.start for step in steps), len(data)]


@pytest.mark.parametrize("key", list(schema.paths()), ids=lambda key: schema.load(key).name)
def test_every_version_survives_both_ways(key: int) -> None:
    """Random values of every version of an api, requests and responses: encode, decode, encode."""
    random = Random(key)
    for _, version, direction in (message for message in MESSAGES if message[0] == key):
        for _ in range(20 if EVERYTHING else 3):
            struct = layout.body(key, version, direction)
            there_and_back(struct, random_struct(struct, random))


@pytest.mark.parametrize(("name", "version"), EMBEDDED)
def test_embedded_messages_survive_both_ways(name: str, version: int) -> None:
    """What stands in bytes fields and control records has the same codec."""
    struct = layout.embedded(name, version)
    for seed in range(5):
        there_and_back(struct, random_struct(struct, Random(seed)))


@settings(max_examples=20_000 if EVERYTHING else 300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(MESSAGES), st.randoms(use_true_random=False))
def test_any_value_survives_both_ways(message: tuple[int, int, str], random: Random) -> None:
    """The same property, with values that hypothesis chooses and makes smaller when one fails."""
    struct = layout.body(*message)
    there_and_back(struct, random_struct(struct, random, 2))


def test_no_array_element_is_empty() -> None:
    """Every element takes bytes, so the bytes that remain bound what a count can make us allocate."""
    empty = [
        (*message, slot.path)
        for message in MESSAGES
        for slot in layout.body(*message).everywhere()
        if slot.array and smallest(slot) == 0
    ]

    assert empty == []


def made(*lines: Any, flexible: bool = True) -> Struct:
    return layout.build(schema.parse_fields(lines), 0, flexible)


def encoded(struct: Struct, value: Any) -> str:
    return codec.encode(struct, value).hex(" ")


def decoded(struct: Struct, text: str) -> Any:
    data = bytes.fromhex(text)
    value, end = codec.decode(struct, data)
    assert end == len(data)
    return value


CASES: list[tuple[str, Struct, Any, str]] = [
    ("nothing", made(flexible=False), {}, ""),
    ("only tags", made(), {}, "00"),
    ("numbers", made("a int8 0+", "b int16 0+", "c bool 0+"), {"a": -1, "b": 2, "c": True}, "ff 00 02 01 00"),
    ("null array", made("a []int32 0+"), {"a": None}, "00 00"),
    ("empty array", made("a []int32 0+"), {"a": []}, "01 00"),
    ("classic null array", made("a []int32 0+", flexible=False), {"a": None}, "ff ff ff ff"),
    ("array of bools", made("a []bool 0+"), {"a": [True, False]}, "03 01 00 00"),
    ("array of strings", made("a []string 0+"), {"a": ["x", None]}, "03 02 78 00 00"),
    ("array of bytes", made("a []bytes 0+", flexible=False), {"a": [b"x"]}, "00 00 00 01 00 00 00 01 78"),
    ("struct in struct", made({"a struct 0+": ["b int8 0+"]}), {"a": {"b": 1}}, "01 00 00"),
    ("null struct", made({"a struct 0+ null 0+": ["b int8 0+"]}), {"a": None}, "ff 00"),
    ("struct that may be null", made({"a struct 0+ null 0+": ["b int8 0+"]}), {"a": {"b": 5}}, "01 05 00 00"),
    ("tag at its default", made("a int32 0+ tag 0 default 7"), {"a": 7}, "00"),
    ("tag", made("a int8 0+ tag 0", "b string 0+ tag 3"), {"a": 1, "b": "x"}, "02 00 01 01 03 02 02 78"),
    ("null tag", made("a string 0+ null 0+ tag 1"), {"a": None}, "01 01 01 00"),
    ("tagged array", made("a []int16 0+ tag 1"), {"a": [1]}, "01 01 03 02 00 01"),
    ("tagged struct", made({"a struct 0+ tag 0": ["b int8 0+"]}), {"a": {"b": 1}}, "01 00 02 01 00"),
    (
        "tagged null struct has a varint in front",
        made({"a struct 0+ null 0+ tag 0": ["b int8 0+"]}),
        {"a": None},
        "01 00 01 00",
    ),
    (
        "tagged struct that may be null",
        made({"a struct 0+ null 0+ tag 0 default null": ["b int8 0+"]}),
        {"a": {"b": 1}},
        "01 00 03 01 01 00",
    ),
    (
        "unknown tags around a known one",
        made("a int8 0+ tag 5"),
        {"a": 1, "_tagged_fields": [(2, b"xy"), (300, b"")]},
        "03 02 02 78 79 05 01 01 ac 02 00",
    ),
]


@pytest.mark.parametrize(("struct", "value", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_value_has_these_bytes(struct: Struct, value: Any, text: str) -> None:
    """Null and empty differ, tags ascend, and a tagged field is written only if it differs from its default."""
    assert encoded(struct, value) == text
    assert decoded(struct, text) == value


def test_what_is_read_is_written_in_its_canonical_form() -> None:
    """Overlong varints, bools of 2 and a nullable struct's 5 are read, and become short, 1 and 1."""
    struct = made("a string 0+", "b bool 0+", {"c struct 0+ null 0+": ["d int8 0+"]})

    value = decoded(struct, "82 00 78 02 05 07 00 00")

    assert value == {"a": "x", "b": True, "c": {"d": 7}}
    assert encoded(struct, value) == "02 78 01 01 07 00 00"


def test_a_nan_keeps_its_bits() -> None:
    """A payload in a float survives reading and writing."""
    struct = made("a float64 0+", flexible=False)
    data = bytes.fromhex("7ff8 0000 dead beef")

    assert codec.encode(struct, codec.decode(struct, data)[0]) == data


def test_bytes_are_views_and_nothing_else_is_kept() -> None:
    """A bytes value is a view into the frame; a frame that may change is copied first."""
    struct = made("a bytes 0+", flexible=False)
    frame = bytearray.fromhex("00 00 00 01 78")

    value, _ = codec.decode(struct, frame)
    frame[4] = 0

    assert isinstance(value["a"], memoryview)
    assert value["a"] == b"x"


BAD_BYTES: list[tuple[str, Struct, str, str, int]] = [
    ("nothing there", made("a int32 0+"), "", "a", 0),
    ("a count above the bytes", made("a []int8 0+", flexible=False), "7f ff ff ff", "a", 0),
    ("a compact count above the bytes", made("a []int64 0+"), "ff ff ff ff 07", "a", 0),
    ("a count of structs", made({"a []struct 0+": ["b int8 0+"]}), "03 01 00", "a", 0),
    ("a count of -2", made("a []int8 0+", flexible=False), "ff ff ff fe", "a", 0),
    ("a count with the top bit", made("a []int8 0+"), "80 80 80 80 08", "a", 0),
    ("a string that is cut", made("a string 0+"), "05 78", "a", 1),
    ("a string above 32767", made("a string 0+"), "81 80 02" + "78" * 32768, "a", 0),
    ("bytes of -2", made("a bytes 0+", flexible=False), "ff ff ff fe", "a", 0),
    ("no tag buffer", made("a int8 0+"), "01", "_tagged_fields", 1),
    ("more tags than bytes", made(), "ff ff ff ff 07 00 00", "_tagged_fields", 0),
    ("tags that descend", made(), "02 05 00 04 00", "_tagged_fields", 3),
    ("a tag twice", made("a int8 0+ tag 1"), "02 01 01 00 01 01 00", "_tagged_fields", 4),
    ("a tag longer than its value", made("a int8 0+ tag 1"), "01 01 02 00 00", "a", 3),
    ("a tag shorter than its value", made("a int16 0+ tag 1"), "01 01 01 00 00", "a", 3),
    ("a tag above the bytes", made(), "01 01 05 00", "_tagged_fields", 2),
    ("in the third element", made({"a []struct 0+": ["b []int8 0+"]}), "04 01 00 01 00 09 00", "a[2].b", 5),
]


@pytest.mark.parametrize(
    ("struct", "text", "path", "offset"), [case[1:] for case in BAD_BYTES], ids=[case[0] for case in BAD_BYTES]
)
def test_bad_bytes_are_a_decode_error_with_their_place(struct: Struct, text: str, path: str, offset: int) -> None:
    with pytest.raises(DecodeError) as caught:
        codec.decode(struct, bytes.fromhex(text), api="Thing", version=3)

    error = caught.value
    assert (error.api, error.version, error.path, error.offset) == ("Thing", 3, path, offset)
    assert str(error).startswith(f"Thing v3 {path} at byte {offset}: ")


THING = made(
    "id int16 0+",
    "name string 0+",
    {"parts []struct 0+": ["size int8 0+", "ids []int32 0+ null 0+", "on bool 0+", "key uuid 0+", "data bytes 0+"]},
    "label string 0+ tag 0 default null null 0+",
)
BAD_VALUES: list[tuple[str, Any]] = [
    ("message", None),
    ("message", [1]),
    ("id", {"id": 40_000}),
    ("id", {"id": "1"}),
    ("id", {"id": None}),
    ("name", {"name": b"x"}),
    ("name", {"name": "\ud800"}),
    ("name", {"name": "x" * 40_000}),
    ("nam", {"nam": "x"}),
    ("parts", {"parts": "abc"}),
    ("parts", {"parts": {"size": 1}}),
    ("parts[1]", {"parts": [{}, None]}),
    ("parts[0].size", {"parts": [{"size": 200}]}),
    ("parts[0].ids", {"parts": [{"ids": b"\x01"}]}),
    ("parts[0].ids[1]", {"parts": [{"ids": [1, "2"]}]}),
    ("parts[0].on", {"parts": [{"on": "yes"}]}),
    ("parts[0].key", {"parts": [{"key": b"0" * 16}]}),
    ("parts[0].data", {"parts": [{"data": "text"}]}),
    ("parts[0]._tagged_fields", {"parts": [{"_tagged_fields": [(1, "x")]}]}),
    ("_tagged_fields", {"_tagged_fields": [(0, b"a known number")]}),
    ("_tagged_fields", {"_tagged_fields": [(1, b""), (1, b"")]}),
    ("_tagged_fields", {"_tagged_fields": [(-1, b"")]}),
    ("_tagged_fields", {"_tagged_fields": 5}),
    ("label", {"label": 5}),
]


@pytest.mark.parametrize(("path", "value"), BAD_VALUES)
def test_bad_values_are_an_encode_error_with_their_path(path: str, value: Any) -> None:
    """The error names message and field path, whether the other fields are there or not."""
    whole = {"id": 1, "name": "", "parts": [], "label": None}
    for given_value in (value, whole | value if isinstance(value, dict) else value):
        with pytest.raises(EncodeError) as caught:
            codec.encode(THING, given_value, api="Thing", version=3)

        assert str(caught.value).startswith(f"Thing v3 {path}: ")


def test_what_is_left_out_gets_its_default() -> None:
    """A message can be written from the fields that matter."""
    value = {"id": 1, "parts": [{"size": 2}]}

    assert codec.decode(THING, codec.encode(THING, value))[0] == {
        "id": 1,
        "name": "",
        "parts": [{"size": 2, "ids": [], "on": False, "key": layout.ZERO_UUID, "data": b""}],
        "label": None,
    }
    assert value == {"id": 1, "parts": [{"size": 2}]}


def test_tuples_pass_for_lists() -> None:
    """A tuple of the same elements gives the same bytes, also in a tag buffer."""
    struct = made("a []int8 0+", "b []int8 0+ tag 0")

    assert encoded(struct, {"a": (1,), "b": (2,)}) == encoded(struct, {"a": [1], "b": [2]})
    assert encoded(struct, {"a": (), "b": ()}) == encoded(struct, {"a": [], "b": []})


def test_a_struct_without_tag_buffer_takes_no_unknown_tags() -> None:
    """Only flexible versions have a place for them."""
    with pytest.raises(EncodeError, match="_tagged_fields"):
        codec.encode(made("a int8 0+", flexible=False), {"a": 1, "_tagged_fields": [(1, b"")]})


def test_made_source_shows_in_tracebacks() -> None:
    """The compiled functions have their lines in linecache."""
    decode = codec.decoder(made("a int32 0+"), "Shown v1")
    with pytest.raises(struct.error) as caught:
        decode(b"", 0, 0)

    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert "Shown v1 decode" in last.filename
    assert "(buf, p)" in (last.line or "")
