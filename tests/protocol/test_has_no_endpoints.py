"""Checks for endpoints: they say yes only of responses in which nothing is wanted, and raise for no bytes."""

from __future__ import annotations

import os
from random import Random

import pytest

from kproxy.protocol import Message, encode
from kproxy.protocol.scan.walk import has_no_endpoints, walk
from kproxy.protocol.table import layout, schema
from tests.support.random_values import random_struct

WANTED = frozenset(("node_endpoints[]", "node_endpoints[].host", "node_endpoints[].port"))
CASES = [(0, version) for version in (10, 11, 12, 13)] + [(1, version) for version in (16, 17, 18)]
ROUNDS = 2000 if os.environ.get("KPROXY_TEST_ALL") else 100


def framed(key: int, version: int, body: dict[str, object]) -> bytes:
    frame = encode(Message(schema.load(key), version, {"correlation_id": 7}, body))
    return len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize(("key", "version"), CASES)
def test_the_check_agrees_with_the_walk(key: int, version: int) -> None:
    """Yes means that the walk finds nothing and ends at the frame's end; without any top-level tag it is yes."""
    random = Random(f"{key} {version}")
    struct = layout.body(key, version, "response")
    says = has_no_endpoints(key, version, WANTED)
    yes = 0
    for turn in range(ROUNDS):
        body = random_struct(struct, random)
        if turn % 2:
            body["node_endpoints"] = []
            body.pop("_tagged_fields", None)
        frame = framed(key, version, body)
        hits: list[tuple[int, int, int]] = []
        after = walk(key, version, "response", WANTED).run(frame, 9, len(frame), hits)
        said = says(b"before" + frame + b"\x00" * 30, 6, 6 + len(frame))
        assert said <= (not hits and after == len(frame))
        yes += said
    assert yes >= ROUNDS // 2 - ROUNDS // 20


@pytest.mark.parametrize(("key", "version"), CASES)
def test_the_check_raises_for_no_bytes(key: int, version: int) -> None:
    """Frames cut anywhere or with changed bytes are at most not decided; bytes left over are not overlooked."""
    random = Random(f"bytes {key} {version}")
    says = has_no_endpoints(key, version, WANTED)
    frame = framed(key, version, random_struct(layout.body(key, version, "response"), random))
    for end in range(len(frame)):
        says(frame[:end], 0, end)
    for _ in range(ROUNDS):
        changed = bytearray(frame)
        changed[random.randrange(8, len(changed))] = random.randrange(256)
        says(changed, 0, len(changed))
    empty = framed(key, version, {})
    assert says(empty, 0, len(empty))
    assert not says(empty + b"\x00", 0, len(empty) + 1)


def test_what_always_stands_in_a_response_is_refused() -> None:
    """A check for something that is no tagged field would never say yes, and is a mistake of ours."""
    with pytest.raises(ValueError, match="throttle_time_ms"):
        has_no_endpoints(0, 12, frozenset(("throttle_time_ms",)))
