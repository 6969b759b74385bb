"""No topic name anywhere in the protocol is left as it is."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kproxy.core.counters import Counters
from kproxy.core.names import CANNOT, topic_rewrite
from kproxy.core.rewrite import Context
from kproxy.rules.names import NameMap
from kproxy.testing.values import random_struct
from kproxy.wire import layout, schema
from kproxy.wire.codec import decode, encode
from kproxy.wire.edit import Edits
from kproxy.wire.layout import Struct
from kproxy.wire.walk import walk

CARRIERS = {
    "topic_name", "topic_regex", "config_resource_name", "acl_resource_name", "group_metadata", "group_assignment"
}  # fmt: skip
NOT_REWRITTEN: dict[tuple[str, str], str] = {}
"""(API, path) → why a field of these kinds stays as it is. None does."""
SPECIAL = {3, 75}  # their answers are tested in test_answers.py
ALL = [
    (api.key, version, direction)
    for api in schema.apis()
    for version in api.versions
    for direction in ("request", "response")
]
NAMES = NameMap.of({"orders": "prod.orders", "clicks-*": "prod.clicks-*"})
CLIENT_SIDE = ("orders", "clicks-", "clicks-1", "clicks-" + "x" * 130, "other", "__consumer_offsets", "")


def renamed(struct: Struct, value: Any, name: Any) -> Any:
    """The decoded value with `name` applied to every topic name."""
    if value is None:
        return None
    found = dict(value)
    for slot in (*struct.slots, *struct.tagged):
        item = found[slot.name]
        if slot.struct is not None:
            inner: Any = slot.struct
            found[slot.name] = (
                renamed(inner, item, name) if not slot.array else item and [renamed(inner, one, name) for one in item]
            )
        elif slot.kind == "topic_name":
            found[slot.name] = name(item) if not slot.array else item and [name(one) for one in item]
    return found


def other_side(name: str | None) -> str | None:
    return name and NAMES.to_broker(name.encode()).decode()


def bodies(key: int, version: int, direction: str) -> Iterator[dict[str, Any]]:
    """Random bodies whose topic names are ones that a client may use."""
    struct = layout.body(key, version, direction)
    for seed in range(4):
        rng = Random(seed)
        yield renamed(struct, random_struct(struct, rng), lambda name, rng=rng: name and rng.choice(CLIENT_SIDE))


def rewritten(key: int, version: int, direction: str, data: bytes) -> bytes:
    rewrite = topic_rewrite(key, version, direction, NAMES)
    assert rewrite is not None
    found = walk(key, version, direction, rewrite.wanted)
    hits: list[tuple[int, int, int]] = []
    found.run(data, 0, len(data), hits)
    edits = Edits(data, 0, len(data), found, hits)
    context = Context(Counters(), {})
    context.known_topics = []
    rewrite.bind(found)(data, hits, edits, context)
    return b"".join(edits.pieces())


def paths(struct: Struct, *kinds: str) -> set[str]:
    return {slot.path for slot in struct.everywhere() if slot.kind in kinds}


def test_every_carrier_of_a_name_is_wanted() -> None:
    """Walks the whole table: a field of a kind that holds topic names is looked at by the rewrite of its message."""
    missing = []
    for key, version, direction in ALL:
        rewrite = topic_rewrite(key, version, direction, NAMES)
        carried = paths(layout.body(key, version, direction), *CARRIERS)
        left = carried - (rewrite.wanted if rewrite else frozenset())
        missing += sorted({(schema.load(key).name, path) for path in left} - set(NOT_REWRITTEN))
        assert carried or rewrite is None
    assert missing == []
    assert not CANNOT


@pytest.mark.parametrize(
    ("key", "version", "direction"),
    [one for one in ALL if paths(layout.body(*one), "topic_name") and not (one[0] in SPECIAL and one[2] == "response")],
)
def test_names_change_and_nothing_else(key: int, version: int, direction: str) -> None:
    """A request leaves with the broker's names, a response with the client's; all other bytes are the same."""
    struct = layout.body(key, version, direction)
    for body in bodies(key, version, direction):
        client, broker = encode(struct, body), encode(struct, renamed(struct, body, other_side))
        if direction == "request":
            sent = rewritten(key, version, direction, client)
            assert without_patterns(struct, sent) == without_patterns(struct, broker)
        else:
            assert rewritten(key, version, direction, broker) == client


def without_patterns(struct: Struct, data: bytes) -> Any:
    """Regular expressions become others; test_regex.py says which."""
    if not paths(struct, "topic_regex"):
        return data
    body, _ = decode(struct, data)
    body.pop("subscribed_topic_regex", None)
    for one in (body.get("topology") or {}).get("subtopologies") or ():
        one.pop("source_topic_regex")
    return body
