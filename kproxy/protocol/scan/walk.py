"""Walks: the spans of the wanted fields of a message, found in one pass without decoding.

    found = walk(3, 12, "response", frozenset({"brokers[].host", "topics[]", "topics[].name"}))
    hits = []
    after = found.run(buf, body, end, hits)     # [(number of a mark, start, end), …] in wire order

Paths are those of `layout.Slot.path`. Hits of a path, by `HitMark.what`:

    value     the whole encoded value, its length included; of a struct after the hits inside it
    count     the count of a wanted array, before its elements (also when the array is null or empty)
    element   one struct of a wanted array, after the hits inside it; other elements are values
    tags      the count of a tag buffer, wanted as `<path of the struct>._tagged_fields`
    tag       a tagged field that is or contains a wanted field, from its number to the end of its value;
    size      its size follows, then the hits inside

Unwanted tagged fields are skipped by their size. Bytes after the last field are left to the caller. A short walk ends
after the last wanted field if long arrays follow: a Metadata response has its brokers before thousands of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import cache
from struct import error
from typing import Any, NoReturn

from kproxy.base.cooperative import FEW, free_list, yielding
from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.codec.trace import diagnosis
from kproxy.protocol.framing import CORRELATION_ID_ENDS, known_body_start
from kproxy.protocol.primitives import MAX_STRING, Buffer, read_uvarint, write_uvarint
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Slot, Struct

from .walk_source import HitMark, WalkWriter, is_long, make_walk, needed
from .walk_support import MOST_HITS, Bad, TooManyHits

__all__ = ["Hit", "HitMark", "Hits", "Walk", "compile_walk", "read_string", "walk", "write_string"]

Hit = tuple[int, int, int]
Hits = list[Hit]


class Walk:
    """Compiled walk. `marks[hit[0]]` is the meaning of a hit. `whole`: it reaches the end of the last field."""

    __slots__ = ("_walk", "label", "marks", "struct", "version", "wanted", "whole")

    def __init__(
        self, struct: layout.Struct, wanted: AbstractSet[str], label: str, version: int, *, short: bool = False
    ) -> None:
        self.struct, self.wanted, self.label, self.version = struct, frozenset(wanted), label, version
        self.whole = not short or not any(map(is_long, struct.slots[needed(struct, wanted) :]))
        self._walk, self.marks = make_walk(struct, wanted, f"{label} v{version}", short=not self.whole)

    def run(self, buf: Buffer, pos: int, end: int, hits: Hits) -> int:
        """Put the hits of the body at buf[pos:end] into `hits`; give the position after its last field.

        Raises DecodeError for bytes that do not follow the layout; its offset counts from `pos`. `hits` is empty then.
        """
        try:
            after: int = self._walk(buf, pos, end, hits)
        except TooManyHits:
            free_list(hits)
            problem = f"has more than {MOST_HITS} values that rules look at"
            raise DecodeError(problem, api=self.label, version=self.version) from None
        except (Bad, DecodeError, IndexError, error):
            after = end + 1
        if after > end:
            free_list(hits)
            self.explain(buf, pos, end)
        return after

    def explain(self, buf: Buffer, pos: int, end: int) -> NoReturn:
        """Read again with the slow decoder, and raise its DecodeError."""
        raise diagnosis(self.struct, memoryview(buf)[pos:end], 0, self.label, self.version)

    def find(self, what: str, path: str) -> int:
        """Return the number of this mark, -1 if the walk has none."""
        return next((i for i, mark in enumerate(self.marks) if mark.what == what and mark.path == path), -1)


def compile_walk(struct: layout.Struct, wanted: AbstractSet[str], label: str = "struct", version: int = -1) -> Walk:
    """Return a walk of any layout: embedded messages, the tail of a streamed response. Not cached."""
    return Walk(struct, wanted, label, version)


@cache
def walk(key: int, version: int, direction: str, wanted: frozenset[str], *, short: bool = False) -> Walk:
    """Return the walk of a body. Paths that this version does not have are ignored. Raises KeyError like
    `layout.body`."""
    label = f"{schema.load(key).name} {direction}"
    return Walk(layout.body(key, version, direction), wanted, label, version, short=short)


def read_string(buf: Buffer, start: int, end: int, compact: bool) -> bytes | None:
    """Return the string or bytes of the value hit [start, end), without its length. None: null."""
    if not compact:
        after = start + 2
        return None if buf[start] > 127 else bytes(buf[after:end])
    if buf[start] < 128:
        return bytes(buf[start + 1 : end]) if buf[start] else None
    raw, after = read_uvarint(buf, start)
    return bytes(buf[after:end]) if raw else None


def write_string(data: bytes | None, compact: bool) -> bytes:
    """Return the encoded form of a string given as bytes. Raises ValueError above 32,767 bytes."""
    if data is None:
        return b"\x00" if compact else b"\xff\xff"
    if len(data) > MAX_STRING:
        raise ValueError(f"string of {len(data)} bytes, expected at most {MAX_STRING}")
    return write_uvarint(len(data) + 1) + data if compact else len(data).to_bytes(2, "big") + data


RESPONSE = "response"


def code_slots(struct: Struct) -> Iterable[Slot]:
    """Return the slots of a struct that hold error codes, however deep, those of tagged fields among them."""
    return (slot for slot in struct.everywhere() if slot.kind == "error_code")


@cache
def top_code(key: int, version: int) -> str | None:
    """Return the top-level field of a response with an error code; None without one."""
    if key not in schema.paths() or version not in schema.load(key).versions:
        return None
    slots = layout.body(key, version, RESPONSE).slots
    return next((slot.name for slot in slots if slot.kind == "error_code" and not slot.array), None)


@cache
def error_walk(key: int, version: int) -> tuple[Walk, frozenset[int], int]:
    """Return the walk that finds the codes of a response, the marks of codes, and that of the one at the top (-1:
    none)."""
    struct = layout.body(key, version, RESPONSE)
    codes_walk = walk(key, version, RESPONSE, frozenset(slot.path for slot in code_slots(struct)))
    codes = {number for number, mark in enumerate(codes_walk.marks) if mark.what in ("value", "element")}
    top = top_code(key, version)
    return codes_walk, frozenset(codes), -1 if top is None else codes_walk.find("value", top)


def error_codes_in(key: int, version: int, buf: Buffer, pos: int, end: int) -> tuple[int, list[int]]:
    """Return the code at the top of the response in buf[pos:end], and all its codes in order; 0 and none if it is
    malformed."""
    start = known_body_start(buf, pos, end, header_version(key, version, RESPONSE), RESPONSE)
    if start is None:
        return 0, []
    codes_walk, marks, top = error_walk(key, version)
    hits: list[tuple[int, int, int]] = []
    try:
        codes_walk.run(buf, start, end, hits)
    except DecodeError:
        return 0, []
    first, codes = 0, []
    for mark, at, after in yielding(hits):
        if mark in marks and after - at == 2 and (buf[at] or buf[at + 1]):
            codes.append(int.from_bytes(buf[at:after], "big", signed=True))
            first = codes[-1] if mark == top else first
    free_list(hits)
    return first, codes


MOST_ELEMENTS = 127
"""A compact count of one byte. It is its array's length plus one, and 0 is null."""

EndpointCheck = Callable[[Buffer, int, int], bool]


class EndpointCheckWriter(WalkWriter):
    """Writer of the lines of a check: a walk without hits."""

    def hit(self, what: str, path: str, slot: Slot | None, start: str, end: str) -> None:
        raise ValueError(f"expected a path in a tagged field, got {path}")

    def loop(self, slot: Slot) -> None:
        """Write a loop that counts down, which costs less than a range: most arrays are empty or of one element. Long
        ones are not looked at."""
        if not slot.compact:
            super().loop(slot)
            return
        left = self.put.fresh("left")
        self.put(f"{left} = buf[{self.at()}]")
        with self.put.block(f"if {left} > {MOST_ELEMENTS}:"):
            self.put("return False")
        self.move(1)
        with self.put.block(f"if {left} > {FEW}:"):
            self.put("yield_point()")
        with self.put.block(f"while {left} > 1:"):
            self.put(f"{left} -= 1")
            self.element(slot, wanted=False)

    def tag_buffer(self, struct: Struct, path: str) -> None:
        if not any(self.touches(slot) for slot in struct.tagged):
            super().tag_buffer(struct, path)
            return
        with self.put.block(f"if buf[{self.at()}]:"):
            self.put("return False")
        self.behind += 1


@cache
def has_no_endpoints(key: int, version: int, wanted: AbstractSet[str]) -> EndpointCheck:
    """Return fn(buf, pos, end): True if the response at `pos`, size included, ends at `end` without wanted fields.

    A fast check for tagged fields that are rarely present, such as NodeEndpoints in Produce and Fetch responses
    (KIP-951). It returns False as soon as a tag buffer that could hold a wanted field is not empty, and for long arrays
    or malformed bytes. Raises ValueError here if a wanted field is not tagged.
    """
    api = schema.load(key)
    maker = EndpointCheckWriter(wanted)
    put = maker.put
    put.names.update(Wrong=(Bad, DecodeError, IndexError, error))
    with put.block("def check(buf, p, end):"):
        with put.block("try:"):
            maker.behind = CORRELATION_ID_ENDS
            if api.header_version("response", version):
                with put.block(f"if buf[{maker.at()}]:"):
                    put("return False")
                maker.behind += 1
            maker.struct(layout.body(key, version, "response"), "")
            put(f"return {maker.at()} == end")
        with put.block("except Wrong:"):
            put("return False")
    check: Any = put.build("check", f"{api.name} v{version} endpoint check")
    return check  # type: ignore[no-any-return]
