"""Quick checks of responses: compiled functions that say of most, in one go, that no endpoints are in them.

For what is wanted in tagged fields that are seldom there, such as NodeEndpoints in Produce and Fetch responses
(KIP-951). A check is a walk that gives up as soon as a tag buffer that could hold something wanted has any tag at all.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import cache
from struct import error
from typing import Any

from kproxy.base.errors import DecodeError
from kproxy.protocol.breath import FEW
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Slot, Struct

from .frames import CORRELATION_ID_ENDS
from .walk_source import WalkWriter
from .walk_support import Bad

MOST_ELEMENTS = 127
"""A compact count of one byte. It is its array's length plus one, and 0 is null."""

EndpointCheck = Callable[[Buffer, int, int], bool]


class EndpointCheckWriter(WalkWriter):
    """Writer of the lines of a check: a walk without hits."""

    def hit(self, what: str, path: str, slot: Slot | None, start: str, end: str) -> None:
        raise ValueError(f"{path} does not stand in a tagged field, the check would never say yes")

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
            self.put("breathe()")
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
    """Return fn(buf, pos, end): True if the response whose size is at `pos` ends at `end` and has nothing that is
    wanted.

    False also stands for "not soon told". Raises nothing for any bytes. Raises ValueError here when something is wanted
    that is no tagged field.
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
