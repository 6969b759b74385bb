"""Assignments of the consumer protocol."""

from __future__ import annotations

import pytest

from kproxy.protocol.codec import structs as codec
from kproxy.protocol.table import layout
from kproxy.rules.kinds.bad_assignment import empty, negative, rewritten


def written(*topics: tuple[str, list[int]], version: int = 0, rest: bytes = b"") -> bytes:
    said = {"assigned_partitions": [{"topic": name, "partitions": parts} for name, parts in topics], "user_data": b"u"}
    return version.to_bytes(2, "big") + codec.encode(layout.embedded("consumer_assignment", 0), said) + rest


@pytest.mark.parametrize("version", [0, 3, 9])
def test_topics_change_and_the_rest_stays(version: int) -> None:
    """Version, user data, and what a newer version has behind."""
    before = written(("a", [0, 3]), ("b", []), version=version, rest=b"new")

    assert rewritten(before, empty) == written(version=version, rest=b"new")
    assert rewritten(before, negative) == written(("a", [-1, -4]), ("b", []), version=version, rest=b"new")


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff" + written()[2:], written(("a", [0]))[:-9]])
def test_bytes_that_are_none(data: bytes) -> None:
    """Too short, or of a version below 0."""
    assert rewritten(data, empty) is None
