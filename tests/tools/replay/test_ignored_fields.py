"""The table of what may differ."""

from __future__ import annotations

import pytest

from kproxy.protocol.table import layout, schema
from kproxy.tools.replay.compare import IgnoredFields, NoSuchGroup, table


def every_slot() -> list[layout.Slot]:
    """All fields of all answers in their newest version, and in their oldest."""
    return [
        slot
        for api in schema.apis()
        for version in (api.versions.first, api.versions.last)
        for slot in layout.body(api.key, version, "response").everywhere()
    ]


def test_every_field_and_kind_of_the_table_is_somewhere() -> None:
    """So that no line of it is without effect."""
    groups, keys = table()
    names = {slot.name for slot in every_slot()}
    kinds = {slot.kind for slot in every_slot()}

    for group in groups.values():
        assert group.fields <= names, group.name
        assert group.kinds <= kinds, group.name
        assert group.means
    assert keys <= names | kinds


def test_no_error_code_is_left_out() -> None:
    """By any group."""
    normal = IgnoredFields(ignore=list(table()[0]))
    out = [slot.path for slot in every_slot() if slot.kind == "error_code" and normal.leaves_out("X", slot)]

    assert out == []


def test_a_group_that_is_not_there_is_named() -> None:
    """With those that are."""
    with pytest.raises(NoSuchGroup, match='no group of fields is called "offset", there are: throttle, timestamps'):
        IgnoredFields(ignore=["offset"])
