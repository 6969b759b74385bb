"""`decode` and `encode` of any struct, by code that is compiled at its first use; the encoder; frame headers.

Compiled code detects errors without a description. Then the slow functions (`trace`, `complete`) describe them.
`decode` raises only DecodeError, `encode` only EncodeError.

The compiled encoder expects a dict with exactly the layout's names. Other names and types raise one of `BAD_VALUES`. A
tagged field that equals its default is not written (KIP-482); unknown tags are merged by number.

Headers: a request has header 2 if its version is flexible, otherwise 1; a response has 1 or 0 (KIP-482). The table
lists the exceptions. ControlledShutdown v0 requests have header 0, without a client id. ApiVersions responses have
header 0, readable before versions are agreed (KIP-511). SaslHandshake is never flexible. The client id of header 2 is
classic.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from kproxy.base.cooperative import yield_point, yielding, yielding_sort
from kproxy.base.errors import DecodeError, EncodeError, plural
from kproxy.protocol.framing import body_start
from kproxy.protocol.primitives import (
    MAX_LENGTH,
    Buffer,
    read_int16,
    write_compact_string,
    write_int32,
    write_string,
    write_uvarint,
)
from kproxy.protocol.table import schema
from kproxy.protocol.table.layout import FIXED, Slot, Struct, header
from kproxy.protocol.table.schema import Api

from .decoder import FAILURES as BAD_BYTES
from .decoder import SourceCode, TooManyElements, make_decoder, packer
from .trace import complete, diagnosis

BAD_VALUES = (KeyError, TypeError, AttributeError, ValueError, OverflowError, struct.error, EncodeError)
SHORT_ARRAY = 64
"""Arrays of fixed width below this length are written, with their count, by one prepared `struct.Struct`."""
BOOLS = {True: True, False: False}
Add = Callable[[Buffer], None]


def listed(value: Any) -> Sequence[Any]:
    """Return the value if it is a list or a tuple; a str or a dict would pass for an array otherwise. Raises
    EncodeError."""
    if isinstance(value, (list, tuple)):
        return value
    raise EncodeError("not a list")


def add_bytes(add: Add, value: Any, compact: bool) -> None:
    """Add bytes after their length, without a copy. Raises EncodeError for other types."""
    if value is None:
        add(b"\x00" if compact else b"\xff\xff\xff\xff")
        return
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise EncodeError("not bytes")
    if type(value) is memoryview and (value.itemsize != 1 or not value.c_contiguous):
        value = bytes(value)
    add(write_uvarint(len(value) + 1) if compact else write_int32(len(value)))
    add(value)


def others(value: dict[str, Any], known: int) -> Iterable[tuple[int, bytes]]:
    """Return the unknown tags of a dict that has more names than `known`."""
    if len(value) == known + 1:
        return value["_tagged_fields"] or ()
    raise EncodeError("not the names of this version")


def spare(tags: Iterable[tuple[int, Buffer]], known: frozenset[int]) -> list[tuple[int, Buffer]]:
    """Return the unknown tags. Raises EncodeError if one has the number of a known field."""
    listed_tags = list(tags)
    if any(tag in known for tag, _ in yielding(listed_tags)):
        raise EncodeError("a known tag among the unknown")
    return listed_tags


def add_tags(add: Add, tags: Iterable[tuple[int, Buffer]]) -> None:
    """Add a tag buffer, by ascending number. Raises EncodeError for a bad tag."""
    all_tags = list(yielding_sort(tags, lambda pair: pair[0]))
    add(write_uvarint(len(all_tags)))
    last = -1
    for tag, data in yielding(all_tags):
        if not last < tag <= MAX_LENGTH or not isinstance(data, (bytes, bytearray, memoryview)):
            raise EncodeError("bad tag")
        last = tag
        add(write_uvarint(tag))
        add(write_uvarint(len(data)))
        add(bytes(data))


@cache
def packers(code: str, compact: bool) -> tuple[Any, ...]:
    count = "B" if compact else "i"
    return tuple(packer(f"{count}{length}{code}") for length in range(SHORT_ARRAY))


@cache
def long_packer(code: str, compact: bool) -> Callable[[Sequence[Any]], bytes]:
    def pack(values: Sequence[Any]) -> bytes:
        count = write_uvarint(len(values) + 1) if compact else write_int32(len(values))
        return count + struct.pack(f">{len(values)}{code}", *values)

    return pack


NAMES = {
    "BOOLS": BOOLS,
    "EncodeError": EncodeError,
    "add_bytes": add_bytes,
    "add_tags": add_tags,
    "listed": listed,
    "others": others,
    "spare": spare,
    "write_int32": write_int32,
    "write_string": write_string,
    "write_compact_string": write_compact_string,
    "write_uvarint": write_uvarint,
}


def number(slot: Slot, value: str) -> str:
    """Return the expression that `struct` takes for a value of fixed width."""
    return f"BOOLS[{value}]" if slot.type == "bool" else f"{value}.bytes" if slot.type == "uuid" else value


class EncoderWriter:
    """Writer of the lines that write one thing; `value` is always the expression that holds it."""

    def __init__(self) -> None:
        self.put = SourceCode()
        self.put.names.update(NAMES, yield_point=yield_point, yielding=yielding)
        self.tagged: list[tuple[str, Struct]] = []  # tag functions still to be written

    def struct(self, layout: Struct, value: str) -> None:
        run: list[Slot] = []
        for slot in layout.slots:
            if not slot.array and slot.type in FIXED:
                run.append(slot)
                continue
            self.run(run, value)
            run = []
            self.slot(slot, f"{value}[{slot.name!r}]")
        self.run(run, value)
        self.tags(layout, value)

    def run(self, slots: list[Slot], value: str) -> None:
        if slots:
            pack = self.put.refer(packer("".join(FIXED[slot.type][0] for slot in slots)), "S")
            values = (number(slot, f"{value}[{slot.name!r}]") for slot in slots)
            self.put(f"add({pack}({', '.join(values)}))")

    def slot(self, slot: Slot, value: str) -> None:
        put = self.put
        if slot.array:
            self.array(slot, value)
        elif slot.struct is None or not slot.nullable:
            self.element(slot, value)
        else:
            inner = put.fresh("v")
            put(f"{inner} = {value}")
            absent, present = (b"\xff", b"\x01") if slot.tag is None else (b"\x00", b"\x01")
            with put.block(f"if {inner} is None:"):
                put(f"add({absent!r})")
            with put.block("else:"):
                put(f"add({present!r})")
                self.struct(slot.struct, inner)

    def element(self, slot: Slot, value: str) -> None:
        put = self.put
        if slot.struct is not None:
            inner = put.fresh("v")
            put(f"{inner} = {value}")
            self.struct(slot.struct, inner)
        elif slot.type == "string":
            put(f"add({'write_compact_string' if slot.compact else 'write_string'}({value}))")
        elif slot.type in FIXED:
            put(f"add({put.refer(packer(FIXED[slot.type][0]), 'S')}({number(slot, value)}))")
        else:
            put(f"add_bytes(add, {value}, {slot.compact})")

    def array(self, slot: Slot, value: str) -> None:
        put, items = self.put, self.put.fresh("a")
        null = b"\x00" if slot.compact else b"\xff\xff\xff\xff"
        put(f"{items} = {value}")
        with put.block(f"if {items} is None:"):
            put(f"add({null!r})")
        with put.block("else:"):
            with put.block(f"if type({items}) is not list:"):
                put(f"{items} = listed({items})")
            if slot.type in FIXED and slot.type != "uuid":
                self.numbers(slot, items)
                return
            put(f"add({f'write_uvarint(len({items}) + 1)' if slot.compact else f'write_int32(len({items}))'})")
            one = put.fresh("e")
            with put.block(f"for {one} in {items if slot.nests else f'yielding({items})'}:"):
                if slot.nests:
                    put("yield_point()")
                self.element(slot, one)

    def numbers(self, slot: Slot, items: str) -> None:
        put, code = self.put, FIXED[slot.type][0]
        if slot.type == "bool":
            put(f"{items} = [{number(slot, 'e')} for e in {items}]")
        size = self.put.fresh("n")
        put(f"{size} = len({items})")
        with put.block(f"if {size} < {SHORT_ARRAY}:"):
            count = f"{size} + 1" if slot.compact else size
            put(f"add({put.refer(packers(code, slot.compact), 'T')}[{size}]({count}, *{items}))")
        with put.block("else:"):
            put(f"add({put.refer(long_packer(code, slot.compact), 'L')}({items}))")

    def tags(self, layout: Struct, value: str) -> None:
        """Write the end of a struct: its tag buffer, and the check that the dict has no other names."""
        put, known = self.put, len(layout.slots) + len(layout.tagged)
        if not layout.flexible:
            with put.block(f"if len({value}) != {known}:"):
                put("raise EncodeError('not the names of this version')")
        elif layout.tagged:
            name = put.fresh("tags")
            self.tagged.append((name, layout))
            put(f"{name}({value}, () if len({value}) == {known} else others({value}, {known}), add)")
        else:
            with put.block(f"if len({value}) == {known}:"):
                put("add(b'\\x00')")
            with put.block("else:"):
                put(f"add_tags(add, others({value}, {known}))")

    def tag_function(self, name: str, layout: Struct) -> None:
        """Write the function that adds a tag buffer with those known fields that differ from their defaults."""
        put = self.put
        with put.block(f"def {name}(value, unknown, out):"):
            known = put.refer(frozenset(slot.tag for slot in layout.tagged), "tags")
            put(f"found = spare(unknown, {known})")
            for slot in layout.tagged:
                default = put.refer(slot.default(), "D")
                put(f"x = value[{slot.name!r}]")
                if slot.array:
                    with put.block("if x is not None and type(x) is not list:"):
                        put("x = list(listed(x))")
                with put.block(f"if x != {default}:"):
                    put("pieces = []")
                    put("add = pieces.append")
                    self.slot(slot, "x")
                    put(f"found.append(({slot.tag}, b''.join(pieces)))")
            put("add_tags(out, found)")


def make_encoder(layout: Struct, label: str) -> Any:
    """Return the function `encode(value: dict, add) -> None` of this layout."""
    maker = EncoderWriter()
    with maker.put.block("def encode(value, add):"):
        maker.struct(layout, "value")
    while maker.tagged:
        maker.tag_function(*maker.tagged.pop(0))
    return maker.put.build("encode", f"{label} encode")


@cache
def decoder(layout: Struct, label: str) -> Any:
    """Return the function `decode(buf: bytes, pos, end) -> (dict, position)` of this layout."""
    return make_decoder(layout, label)


@cache
def encoder(layout: Struct, label: str) -> Any:
    """Return the function `encode(value, add) -> None` of this layout."""
    return make_encoder(layout, label)


def decode(
    layout: Struct, buf: Buffer, pos: int = 0, *, api: str = "struct", version: int = 0, path: str = ""
) -> tuple[dict[str, Any], int]:
    """Read one struct at `pos`, up to the end of `buf`. Returns (dict, position after it).

    Bytes and records are views into the frame, or into a copy if `buf` is not `bytes`. `api` and `version` name the
    message in errors and tracebacks; `path` is the prefix of field paths in errors.
    """
    data = buf if type(buf) is bytes else bytes(buf)
    try:
        result: tuple[dict[str, Any], int] = decoder(layout, f"{api} v{version}")(data, pos, len(data))
    except TooManyElements as problem:
        raise DecodeError(str(problem), api=api, version=version, path=path) from None
    except BAD_BYTES:
        raise diagnosis(layout, data, pos, api, version, path) from None
    return result


def encode(layout: Struct, value: Any, *, api: str = "struct", version: int = 0) -> bytes:
    """Write one struct. Names left out get their defaults; names the layout lacks are an error."""
    written = bytearray()  # no list of pieces: a million of them would be freed in one go
    write = encoder(layout, f"{api} v{version}")
    try:
        write(value, written.extend)
    except BAD_VALUES:
        written.clear()
        try:
            write(complete(layout, value), written.extend)
        except BAD_VALUES as mistake:
            raise EncodeError(f"{api} v{version} {mistake}") from None
    return bytes(written)


NEWEST_WRITTEN = 99
"""The table writes exceptions for versions up to here; newer ones have the same header as this one."""


def find(key: int) -> Api:
    """Return the API of this key. Raises DecodeError for an unknown key."""
    try:
        return schema.load(key)
    except KeyError:
        raise DecodeError(f"api key {key} is not known", expected=f"0 to {max(schema.paths())}") from None


def header_version(key: int, version: int, direction: str) -> int:
    """Return the header version of a frame, for versions that the table lacks too: they are taken to be flexible.

    An ApiVersions request of a version from the future thus has header 2, as brokers read it (KIP-511).
    """
    return find(key).header_version(direction, min(version, NEWEST_WRITTEN))


def read_request_header(frame: Buffer) -> tuple[Api, int, dict[str, Any], int]:
    """Return the api, its version, the header and the offset of the body. Raises DecodeError.

    The version may be one that the table lacks.
    """
    if len(frame) < 4:
        raise DecodeError(
            f"{plural(len(frame), 'byte')} left", path="header", expected="4 bytes of api key and version"
        )
    key, _ = read_int16(frame, 0)
    version, _ = read_int16(frame, 2)
    api = find(key)
    form = header_version(key, version, "request")
    body_start(frame, 0, len(frame), form, "request")  # raises for too many tags
    value, pos = decode(header("request", form), frame, api=api.name, version=version, path="header")
    return api, version, value, pos


def read_response_header(frame: Buffer, api: Api, version: int) -> tuple[dict[str, Any], int]:
    """Return header and offset of the body of a response to a request of this version. Raises DecodeError."""
    form = header_version(api.key, version, "response")
    body_start(frame, 0, len(frame), form, "response")  # raises for too many tags
    return decode(header("response", form), frame, api=api.name, version=version, path="header")


def write_header(api: Api, version: int, direction: str, value: dict[str, Any]) -> bytes:
    """Return the header's bytes, in the header version that belongs to the api's."""
    layout = header(direction, header_version(api.key, version, direction))
    return encode(layout, value, api=f"{api.name} header", version=version)
