"""One message through its name rewrite: values in, values out, and the bytes in between compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproxy.protocol.codec.structs import decode, encode
from kproxy.protocol.edit import Edits
from kproxy.protocol.scan.walk import walk
from kproxy.protocol.table import layout
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.session.counters import Counters
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.names import name_rewrite

Through = Callable[..., Any]


@pytest.fixture
def names() -> NameMaps:
    """Topics orders ↔ prod.orders, and everything that begins with clicks- ↔ prod.clicks-."""
    return NameMaps(topics=NameMap.of({"orders": "prod.orders", "clicks-*": "prod.clicks-*"}))


@pytest.fixture
def context() -> Context:
    return Context(Counters(), {})


@pytest.fixture
def through(names: NameMaps, context: Context) -> Through:
    """through(key, version, direction, **fields) → the body on the other side."""

    def run(key: int, version: int, direction: str, /, **values: Any) -> dict[str, Any]:
        struct = layout.body(key, version, direction)
        data = encode(struct, values)
        rewrite = name_rewrite(key, version, direction, names)
        assert rewrite is not None
        found = walk(key, version, direction, rewrite.wanted)
        hits: list[tuple[int, int, int]] = []
        assert found.run(data, 0, len(data), hits) == len(data)
        edits = Edits(data, 0, len(data), found, hits)
        rewrite.bind(found)(data, hits, edits, context)
        out = b"".join(edits.pieces())
        assert bool(edits) or out == data
        body, end = decode(struct, out)
        assert end == len(out)
        return body

    return run
