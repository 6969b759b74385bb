"""Topics and partitions of bodies, with the entities that they are."""

from __future__ import annotations

from uuid import UUID

from kproxy.rules.bodies import EntityIndex
from kproxy.rules.entity import Entity

ID = UUID(int=7)


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
