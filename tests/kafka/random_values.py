"""Random messages made from the table's layouts, with values that every reader accepts."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from kproxy.protocol.codec.message import Message
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import INTEGERS, Slot, Struct
from kproxy.protocol.table.schema import Api

BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
WORDS = ("", "orders", "a.b-c_d", "Ünïcödé", "語", "\U0001f600", "\x00", '"\\\n')
FLOATS = (0.0, -0.0, 1.5, -1e300, 5e-324, float("inf"))


def random_message(chance: random.Random, api: Api, version: int, direction: str) -> Message:
    """A request or response with every field of that version filled, or null where that is legal."""
    header = random_struct(chance, layout.header(direction, api.header_version(direction, version)))
    if direction == "request":
        header |= {"request_api_key": api.key, "request_api_version": version}
    return Message(api, version, header, random_struct(chance, layout.body(api.key, version, direction)))


def random_struct(chance: random.Random, struct: Struct) -> dict[str, Any]:
    """Tagged fields one time in two; unknown tags, which are to be kept, one time in eight."""
    made = {slot.name: random_field(chance, slot) for slot in struct.slots}
    made |= {slot.name: random_field(chance, slot) for slot in struct.tagged if chance.random() < 0.5}
    if struct.flexible and chance.random() < 0.125:
        first = chance.randint(100, 200)
        made["_tagged_fields"] = [
            (first, chance.randbytes(3)),
            (chance.randint(first + 1, 10**6), chance.randbytes(200)),
        ]
    return made


def random_field(chance: random.Random, slot: Slot) -> Any:
    if slot.nullable and chance.random() < 0.2:
        return None
    if slot.array:
        count = 150 if slot.struct is None and chance.random() < 0.02 else chance.randrange(3)
        return [random_value(chance, slot) for _ in range(count)]
    return random_value(chance, slot)


def random_value(chance: random.Random, slot: Slot) -> Any:
    if slot.struct is not None:
        return random_struct(chance, slot.struct)
    if slot.type in INTEGERS:
        return random_integer(chance, slot.type)
    if slot.type == "string":
        return chance.choice(WORDS) + "x" * (chance.choice((0, 1, 5, 130)) if chance.random() < 0.5 else 0)
    if slot.type in ("bytes", "records"):
        return chance.randbytes(chance.choice((0, 1, 9, 126, 127, 128, 300)))
    if slot.type == "uuid":
        return UUID(int=chance.getrandbits(128) if chance.random() < 0.8 else 0)
    return chance.choice(FLOATS) if slot.type == "float64" else chance.random() < 0.5


def random_integer(chance: random.Random, kind: str) -> int:
    value = chance.choice((0, 1, chance.getrandbits(8), chance.getrandbits(64))) % (1 << BITS[kind])
    return value if kind.startswith("u") or value < 1 << BITS[kind] - 1 else value - (1 << BITS[kind])
