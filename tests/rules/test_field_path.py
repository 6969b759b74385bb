"""Paths to fields, and values for them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.table import layout, schema
from kproxy.rules.kinds.base.fields import (
    EVERY,
    FieldFinder,
    PathStep,
    field_value,
    nearest_path,
    parse_path,
    plain,
    slot_at,
)

METADATA, PRODUCE, FETCH = 3, 0, 1


def test_a_path_is_names_and_indexes() -> None:
    """With brackets for arrays."""
    path = parse_path("topics[].partitions[12].leader_epoch")

    assert path == (PathStep("topics", EVERY), PathStep("partitions", 12), PathStep("leader_epoch"))
    assert ".".join(map(str, path)) == "topics[].partitions[12].leader_epoch"
    assert plain(path) == "topics[].partitions[].leader_epoch"


@pytest.mark.parametrize("text", ["", "a.", ".a", "a[-1]", "a[x]", "A", "a b", "a[]b", "a[1][2]", "[0]", "a..b"])
def test_all_else_is_no_path(text: str) -> None:
    """The message says how one looks."""
    with pytest.raises(ValueError, match="expected a path such as"):
        parse_path(text)


@pytest.mark.parametrize("key", schema.paths())
@pytest.mark.parametrize("direction", ["request", "response"])
def test_every_field_of_the_table_has_a_path(key: int, direction: str) -> None:
    """And leads to itself; its value fits there."""
    for version in (schema.load(key).versions[0], schema.load(key).versions[-1]):
        for slot in layout.body(key, version, direction).everywhere():
            path = parse_path(slot.path)
            assert slot_at(path, key, version, direction) is slot
            if slot.struct is None and slot.type not in ("bytes", "records"):
                value = slot.default()
                spelled = str(value) if isinstance(value, UUID) else value
                assert slot.array or field_value(slot, spelled, element=False) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topics[].partitions[].leader_epoh", "topics[].partitions[].leader_epoch"),
        ("topics.partitions.leader_epoch", "topics[].partitions[].leader_epoch"),
        ("partitions[].leader_epoch", "topics[].partitions[].leader_epoch"),
        ("brokers[].hosts", "brokers[].host"),
        ("zzz", None),
    ],
)
def test_the_nearest_path_is_found(text: str, expected: str | None) -> None:
    """By its last name, or by its spelling."""
    assert nearest_path(parse_path(text), METADATA, range(13), "response") == expected


BODY: dict[str, Any] = {
    "brokers": [],
    "topics": [
        {"partitions": [{"leader_epoch": 1, "isr_nodes": [1, 2]}, {"leader_epoch": 2, "isr_nodes": [3]}]},
        {"partitions": [{"leader_epoch": 3, "isr_nodes": []}]},
    ],
}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("topics[].partitions[].leader_epoch", [1, 2, 3]),
        ("topics[0].partitions[].leader_epoch", [1, 2]),
        ("topics[].partitions[0].leader_epoch", [1, 3]),
        ("topics[].partitions[1].leader_epoch", [2]),
        ("topics[7].partitions[].leader_epoch", []),
        ("topics[].partitions[].isr_nodes", [[1, 2], [3], []]),
        ("topics[].partitions[].isr_nodes[]", [1, 2, 3]),
        ("topics[].partitions[].isr_nodes[1]", [2]),
        ("brokers", [[]]),
    ],
)
def test_a_path_leads_to_all_its_places(text: str, values: list[Any]) -> None:
    """In the order of the body."""
    places = FieldFinder(layout.body(METADATA, 9, "response"), parse_path(text))

    assert [container[name] for container, name in places.find(BODY)] == values


def test_elements_can_be_left_out() -> None:
    """Whoever looks for places says which elements are meant."""
    places = FieldFinder(layout.body(METADATA, 9, "response"), parse_path("topics[].partitions[].leader_epoch"))

    assert [box[name] for box, name in places.find(BODY, lambda array, index: index == 0)] == [1]


def test_a_struct_that_is_not_there_gets_its_defaults() -> None:
    """Such as one that may be null; then its field is set."""
    places = FieldFinder(layout.body(75, 0, "response"), parse_path("next_cursor.partition_index"))
    body: dict[str, Any] = {"next_cursor": None}
    (found,) = places.find(body)

    assert found == (body["next_cursor"], "partition_index")
    assert body["next_cursor"] == {"topic_name": "", "partition_index": 0}


def slot(key: int, version: int, direction: str, text: str) -> Any:
    return slot_at(parse_path(text), key, version, direction)


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        ((METADATA, 9, "response", "topics[].partitions[].leader_epoch"), -1, -1),
        ((METADATA, 9, "response", "topics[].is_internal"), True, True),
        ((METADATA, 12, "response", "topics[].name"), None, None),
        ((METADATA, 12, "response", "topics[].topic_id"), "AAAAAAAAAAAAAAAAAAAABw", UUID(int=7)),
        ((METADATA, 9, "response", "topics[].partitions[].isr_nodes"), [1, 2], [1, 2]),
        ((METADATA, 9, "response", "brokers"), [], []),
        ((METADATA, 9, "request", "topics"), None, None),
        ((PRODUCE, 9, "request", "topic_data[].partition_data[].records"), "ab", b"ab"),
        ((PRODUCE, 9, "request", "topic_data[].partition_data[].records"), "hex:00ff", b"\x00\xff"),
        ((METADATA, 9, "response", "brokers"), [{"host": "h", "node_id": 3}],
         [{"node_id": 3, "host": "h", "port": 0, "rack": None}]),
        ((48, 1, "request", "components[].match_type"), 2, 2),
        ((48, 1, "response", "entries[].values[].value"), 5, 5.0),
    ],
)  # fmt: skip
def test_values_become_what_the_field_holds(place: tuple[int, int, str, str], value: Any, expected: Any) -> None:
    """Numbers, text, ids, bytes, lists, mappings whose other fields have their defaults."""
    assert field_value(slot(*place), value, element=False) == expected


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((METADATA, 9, "response", "topics[].error_code"), 32768, "expected int16 from -32768 to 32767 .*, got 32768"),
        ((METADATA, 9, "response", "topics[].error_code"), "5", 'expected a whole number .*, got text "5"'),
        ((METADATA, 9, "response", "topics[].error_code"), True, "expected a whole number"),
        ((METADATA, 9, "response", "topics[].is_internal"), 1, "expected true or false"),
        ((METADATA, 9, "response", "topics[].name"), None, "null is not legal for this field"),
        ((METADATA, 9, "response", "topics"), None, "null is not legal for this array"),
        ((METADATA, 9, "response", "topics"), 5, "expected a list"),
        ((METADATA, 9, "response", "brokers"), [{"hosts": "h"}], 'unknown field "hosts", did you mean "host"?'),
        ((METADATA, 9, "response", "brokers"), [5], "expected a mapping of fields"),
        ((METADATA, 9, "response", "topics[].partitions[].isr_nodes"), [None], "null is not legal for this element"),
        ((METADATA, 12, "response", "topics[].topic_id"), "x", "expected a topic id"),
        ((PRODUCE, 9, "request", "topic_data[].partition_data[].records"), 5, "expected text or hex:0a0b"),
        ((PRODUCE, 9, "request", "topic_data[].partition_data[].records"), "hex:0", "non-hexadecimal|odd"),
    ],
)
def test_values_that_do_not_fit_are_refused(place: tuple[int, int, str, str], value: Any, message: str) -> None:
    """By type, range, nullability and name."""
    with pytest.raises(ValueError, match=message):
        field_value(slot(*place), value, element=False)
