"""Random values for any layout: what property tests, the differential test and mutation runs start from.

Strategy: everything is asked of a `random.Random`, so that a seed, or hypothesis's `st.randoms()`, decides. Edges
(null, empty, limits, bytes that are not UTF-8, NaN, unknown tags) come up often.
"""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from kproxy.protocol.table.layout import Slot, Struct

BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
TEXTS = ("", "a", "topic-1", "größe", "\udcff\udc80", "\N{SNOWMAN}" * 50, "x" * 130)


def random_struct(struct: Struct, random: Random, size: int = 3) -> dict[str, Any]:
    """Return a random value of this struct; arrays have at most `size` elements (those of numbers sometimes 70)."""
    found = {slot.name: random_slot(slot, random, size) for slot in struct.slots}
    for slot in struct.tagged:
        found[slot.name] = random_slot(slot, random, size) if random.randrange(2) else slot.default()
    if struct.flexible and not random.randrange(8):
        known = {slot.tag for slot in struct.tagged}
        numbers = {random.choice((7, 100, 300, 0x7FFFFFFF)) for _ in range(2)} - known
        found["_tagged_fields"] = [(number, random_bytes(random)) for number in sorted(numbers)]
    return found


def random_slot(slot: Slot, random: Random, size: int) -> Any:
    if not slot.array:
        null = slot.struct is not None and slot.nullable and not random.randrange(3)
        return None if null else random_element(slot, random, size)
    if not random.randrange(10):
        return None
    count = random.randrange(size + 1)
    if slot.type in BITS and not random.randrange(20):
        count = 70
    return [random_element(slot, random, size) for _ in range(count)]


def random_element(slot: Slot, random: Random, size: int) -> Any:
    if slot.struct is not None:
        return random_struct(slot.struct, random, size)
    if slot.type in BITS:
        return random_integer(slot.type, random)
    match slot.type:
        case "bool":
            return bool(random.randrange(2))
        case "float64":
            return random.choice((0.0, -0.0, 1.5, -1e300, float("inf")))
        case "uuid":
            return UUID(int=random.choice((0, 1, random.randrange(1 << 128))))
        case "string":
            return random.choice((None, *TEXTS))
        case _:
            return random.choice((None, random_bytes(random)))


def random_integer(name: str, random: Random) -> int:
    bits = BITS[name]
    low = 0 if name.startswith("u") else -1 << (bits - 1)
    high = low + (1 << bits) - 1
    return random.choice((low, high, 0, 1, random.randrange(low, high + 1)))


def random_bytes(random: Random) -> bytes:
    return random.choice((b"", b"\x00", b"\xff" * 200, bytes(random.randrange(256) for _ in range(5))))
