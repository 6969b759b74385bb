"""Topics and partitions of bodies against the protocol's own table."""

from __future__ import annotations

from uuid import UUID

import pytest

from kproxy.rules.bodies.topics import OF_ANSWER, OF_REQUEST, EntityIndex
from kproxy.rules.entity import Entity
from kproxy.wire import layout, schema

ID = UUID(int=7)


@pytest.mark.parametrize("key", OF_ANSWER)
def test_answers_have_these_arrays_in_every_version(key: int) -> None:
    """And topics have a name or an id."""
    has_arrays(key, "response", OF_ANSWER[key])


@pytest.mark.parametrize("key", OF_REQUEST)
def test_requests_have_these_arrays_in_every_version(key: int) -> None:
    """And topics have a name or an id."""
    has_arrays(key, "request", OF_REQUEST[key])


def has_arrays(key: int, direction: str, arrays: tuple[str, str, str]) -> None:
    outer, inner, number = arrays
    for version in schema.load(key).versions:
        paths = {slot.path for slot in layout.body(key, version, direction).everywhere()}
        assert {f"{outer}[]", f"{outer}[].{inner}[]", f"{outer}[].{inner}[].{number}"} <= paths
        assert paths & {f"{outer}[].name", f"{outer}[].topic", f"{outer}[].topic_id"}


def test_partitions_are_found_by_name_or_by_id() -> None:
    """Whichever both sides know; what neither names is nobody's."""
    named, by_id, both = Entity("a", None, 0), Entity(None, ID, 1), Entity("b", UUID(int=8), 2)
    wanted = EntityIndex([named, by_id, both, Entity(partition=3)])

    assert wanted.find(Entity("a", UUID(int=9), 0)) is named
    assert wanted.find(Entity("whatever", ID, 1)) is by_id
    assert wanted.find(Entity("b", None, 2)) is both
    assert wanted.find(Entity(None, UUID(int=8), 2)) is both
    assert wanted.find(Entity("a", None, 1)) is None
    assert wanted.find(Entity(None, None, 3)) is None
