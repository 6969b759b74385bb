"""Lines to columns: at once where all fits, line by line where something does not."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.lake.columnar import columns as reading
from kproxy.lake.columnar.columns import read
from kproxy.record.events.column import Column

COLUMNS = (
    Column("text", "string", ""),
    Column("flag", "boolean", ""),
    Column("small", "int", ""),
    Column("large", "long", ""),
    Column("ratio", "double", ""),
    Column("when", "timestamp", ""),
    Column("numbers", "long", "", array=True),
    Column("things", "struct", "", array=True, columns=(Column("name", "string", ""), Column("size", "int", ""))),
)
NOTHING = dict.fromkeys(column.name for column in COLUMNS)


def rows(*lines: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read(pa.array(lines, pa.string()), COLUMNS).to_pylist()
    return found


def line(**data: Any) -> str:
    return json.dumps({"id": "1", "data": data})


def test_what_fits_is_as_it_was_written() -> None:
    """Absent is null; what the schema does not name is passed over; times may have fractions or none."""
    things = [{"name": "a", "size": 3, "colour": "red"}, {}]
    found = rows(
        line(text="é", flag=True, small=-1, large=2**62, ratio=1, numbers=[1, None], things=things, other={"a": 1}),
        line(when="2026-11-21T10:00:01.25Z"),
        line(when="2026-11-21T10:00:01Z"),
        '{"id":"1"}',
        '{"data":null}',
    )

    assert found[0] == NOTHING | {
        "text": "é", "flag": True, "small": -1, "large": 2**62, "ratio": 1.0, "numbers": [1, None],
        "things": [{"name": "a", "size": 3}, {"name": None, "size": None}],
    }  # fmt: skip
    assert found[1]["when"] == datetime(2026, 11, 21, 10, 0, 1, 250_000, tzinfo=UTC)
    assert found[2]["when"] == datetime(2026, 11, 21, 10, 0, 1, tzinfo=UTC)
    assert found[3:] == [NOTHING, NOTHING]


@pytest.mark.parametrize(
    ("name", "value", "becomes"),
    [
        ("text", 5, "5"),
        ("text", {"a": [1]}, '{"a":[1]}'),
        ("flag", "yes", None),
        ("flag", 1, None),
        ("small", 2**31, None),
        ("small", -(2**31), -(2**31)),
        ("small", 3.5, None),
        ("small", True, None),
        ("large", 2**63, None),
        ("large", "12", None),
        ("ratio", "1.5", None),
        ("ratio", [1.5], None),
        ("when", "yesterday", None),
        ("when", 5, None),
        ("when", "2026-11-21T12:00:00.1234567+02:00", datetime(2026, 11, 21, 10, 0, 0, 123_456, tzinfo=UTC)),
        ("when", "2026-11-21T10:00:00", datetime(2026, 11, 21, 10, tzinfo=UTC)),
        ("numbers", 3, None),
        ("numbers", ["a", 4], [None, 4]),
        ("things", {"name": "a"}, None),
        ("things", ["a", {"size": "b", "name": 1}], [None, {"name": "1", "size": None}]),
    ],
)
def test_what_does_not_fit_is_absent_and_all_beside_it_stands(name: str, value: Any, becomes: Any) -> None:
    """In its line and in the others of its block. Where text is expected, it is the value's text."""
    first, second = rows(line(**{name: value}, ratio2=1), line(text="beside"))

    assert first == NOTHING | {name: becomes}
    assert second == NOTHING | {"text": "beside"}


def test_data_that_is_nested_without_end_has_no_columns() -> None:
    """The reader of JSON raises RecursionError for it."""
    assert reading._data('{"data": ' + "[" * 100_000) == {}


@pytest.mark.parametrize("data", ["[]", "3", '"text"', "true"])
def test_data_that_is_no_object_has_no_columns(data: str) -> None:
    """Such a line is a row of nulls."""
    assert rows(f'{{"data":{data}}}', line(small=1)) == [NOTHING, NOTHING | {"small": 1}]


def test_a_line_with_line_ends_in_it_is_one_row() -> None:
    """Events in a Kafka topic may be written so by others."""
    assert rows('{"data":\n{"small":\n4}}', line(small=5)) == [NOTHING | {"small": 4}, NOTHING | {"small": 5}]


def test_a_name_that_is_there_twice_counts_last() -> None:
    """As in most readers of JSON."""
    assert rows('{"data":{"small":4,"small":5}}') == [NOTHING | {"small": 5}]


def test_no_lines_are_no_rows() -> None:
    """With all columns."""
    assert read(pa.array([], pa.string()), COLUMNS).column_names == [column.name for column in COLUMNS]


FITTING = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(st.characters(codec="utf-8")),
        "flag": st.booleans(),
        "small": st.integers(-(2**31), 2**31 - 1),
        "large": st.integers(-(2**63), 2**63 - 1),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "numbers": st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
        "things": st.lists(st.fixed_dictionaries({"name": st.none() | st.text(st.characters(codec="utf-8"))})),
    },
)


@given(st.lists(FITTING, min_size=1, max_size=5))
def test_both_ways_of_reading_say_the_same(events: list[dict[str, Any]]) -> None:
    """Of all that fits."""
    lines = pa.array([line(**event) for event in events], pa.string())
    at_once = reading._at_once(lines, COLUMNS)

    assert at_once is not None
    assert at_once.to_pylist() == reading._line_by_line(lines, COLUMNS).to_pylist()
