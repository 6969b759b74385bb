"""Values as people read them."""

from datetime import datetime

import pytest

from kproxy.lake.report.report_builder import cell, grouped, percent, size
from kproxy.record.events.column import Column


@pytest.mark.parametrize(
    ("value", "column", "expected"),
    [
        (None, Column("n", "long", ""), ""),
        (1234567, Column("n", "long", ""), "1 234 567"),
        (3900, Column("node", "int", ""), "3900"),
        (2_500_000, Column("n", "long", "", "bytes"), "2.5 MB"),
        (0.125, Column("n", "double", "", "part"), "12.5 %"),
        (1.23456, Column("n", "double", "", "ms"), "1.23"),
        (12345.6, Column("n", "double", "", "ms"), "12 346"),
        (True, Column("n", "boolean", ""), "yes"),
        (["a", "b"], Column("n", "string", "", array=True), "a, b"),
        (datetime.fromisoformat("2026-11-20T01:02:03.000004"), Column("n", "timestamp", ""), "2026-11-20 01:02:03"),
    ],
)
def test_values_are_written_by_type_and_unit(value, column, expected):
    """Numbers in groups of three, ids as they are, bytes in thousands, parts in percent."""
    assert expected == cell(value, column).text.replace("\u202f", " ")


def test_cells_sort_by_their_values():
    """Not by their texts: 9 kB stands before 10 kB, and nothing before both."""
    column = Column("n", "long", "", "bytes")
    cells = sorted((cell(value, column) for value in (10_000, None, 9_000)), key=lambda one: one.sort)

    assert ["", "9.0 kB", "10.0 kB"] == [one.text.replace("\u202f", " ") for one in cells]


@pytest.mark.parametrize(("part", "text"), [(0, "0 %"), (0.0001, "<0.1 %"), (0.9999, ">99.9 %"), (1, "100 %")])
def test_what_is_not_all_or_nothing_does_not_look_so(part, text):
    """Rounding to 0 or 100 would hide the one that matters."""
    assert text == percent(part).replace("\u202f", " ")


def test_large_sizes_and_numbers():
    """The largest unit takes whatever is larger."""
    assert ("999 B", "5000.0 PB", "-1 234") == tuple(
        text.replace("\u202f", " ") for text in (size(999), size(5e18), grouped(-1234))
    )
