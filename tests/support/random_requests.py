"""Random requests whose entities can be told apart, and what a broker that finds nothing wrong answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from kproxy.protocol import Message
from kproxy.protocol.elements import request_elements
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.protocol.table.schema import Api
from kproxy.protocol.table.shapes import Level, Shape, shape
from tests.support.random_values import random_struct

Make = Callable[[Struct, Random], dict[str, Any]]


def random_request(api: Api, version: int, random: Random, *, full: bool = False) -> Message:
    """Return a request in which no two elements of an array have the same keys. `full`: no array of its levels is
    empty."""
    body = random_struct(layout.body(api.key, version, "request"), random)
    header = {"request_api_key": api.key, "request_api_version": version, "correlation_id": random.randrange(1 << 31)}
    request = Message(api, version, header, body)
    tell_apart(request, random, full=full)
    return request


def tell_apart(request: Message, random: Random, *, full: bool, make: Make = random_struct) -> None:
    """Give distinct keys to all elements that make entities, in place.

    `full`: fill arrays that are empty or null, with elements that `make` makes.
    """
    form = shape(request.api.key, request.version)
    struct = layout.body(request.api.key, request.version, "request")
    spread = 200 if len(form.response) < len(form.request) else 0  # keys of a level that responses lack
    Filler(random, full, make, spread).fill(form.request, request.body, struct)


@dataclass(frozen=True, slots=True)
class Filler:
    """Numbering of the elements of one request, by which its entities differ. Elements inside of neighbouring elements
    begin `spread` apart."""

    random: Random
    full: bool
    make: Make
    spread: int

    def fill(self, levels: tuple[Level, ...], parent: dict[str, Any], struct: Struct, number: int = 0) -> None:
        """Give the elements of these levels the numbers from `number` on."""
        if not levels:
            return
        level, deeper = levels[0], levels[1:]
        for array in level.arrays:
            slot = next(slot for slot in struct.slots if slot.name == array)
            if self.full and not parent[array]:
                parent[array] = [self.made(slot) for _ in range(self.random.randrange(1, 4))]
            elements = parent[array] or ()
            if slot.struct is None and elements:
                parent[array] = [distinct(slot, number + place) for place in range(len(elements))]
                continue
            for element in elements:
                for inner in slot.struct.slots if slot.struct else ():
                    if any(inner.name == field for _, field in level.keys):
                        element[inner.name] = distinct(inner, number)
                assert slot.struct is not None
                self.fill(deeper, element, slot.struct, self.spread * number)
                number += 1

    def made(self, slot: Slot) -> Any:
        return None if slot.struct is None else self.make(slot.struct, self.random)


def distinct(slot: Slot, number: int) -> Any:
    """Return a value of this slot that belongs to `number`, and to no other one."""
    if slot.struct is not None:
        return [{one.name: distinct(one, number) for one in slot.struct.slots}]
    if slot.type == "string":
        return f"name-{number}"
    return UUID(int=number + 1) if slot.type == "uuid" else number


def answered(request: Message, random: Random) -> Message:
    """Return a response with an element for each entity of the request, in its order, none of them failed."""
    form = shape(request.api.key, request.version)
    body = random_struct(layout.body(request.api.key, request.version, "response"), random)
    for array in {level.array for level in (*form.response[:1], *form.lists[:1])}:
        body[array] = []
    good(body, form.code, form.text)
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for roles, where, _ in request_elements(request):
        insert(form, body, roles, where, random, seen)
    header = {"correlation_id": request.header["correlation_id"]}
    return Message(request.api, request.version, header, body)


def insert(
    form: Shape, parent: dict[str, Any], roles: Any, where: tuple[int, ...], random: Random,
    seen: dict[tuple[Any, ...], dict[str, Any]],
) -> None:  # fmt: skip
    """Add to the response the elements for the entity with these roles, at each level that has none for it yet."""
    path: tuple[Any, ...] = ()
    for depth, level in enumerate(form.response):
        if any(role not in roles for role, _ in level.keys):
            return
        assert level.struct is not None
        path = (*path, where[0] if form.positional else str([roles[role] for role, _ in level.keys]))
        if path not in seen:
            one = seen[path] = random_struct(level.struct, random)
            one |= {field: roles[role] for role, field in level.keys}
            good(one, level.code, level.text)
            if depth + 1 < len(form.response):
                one[form.response[depth + 1].array] = []
            parent[level.array].append(one)
        parent = seen[path]


def good(struct: dict[str, Any], code: str | None, text: str | None) -> None:
    """Set the fields of `struct` that hold an error code and its text to no error."""
    if code is not None:
        struct[code] = 0
    if text is not None:
        struct[text] = None
