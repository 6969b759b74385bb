"""The declarations themselves: names are good columns everywhere, and words are there."""

from __future__ import annotations

import re

from kproxy.record.events.column import walk_columns
from kproxy.record.events.schema import BY_NAME, EVENT_TYPES


def test_names_are_good_everywhere() -> None:
    """Lower case words that SQL takes without quotes, each once in its struct."""
    for one in EVENT_TYPES:
        paths = [path for path, _ in walk_columns(one.columns)]
        assert len(paths) == len(set(paths)), one.name
        for path in paths:
            assert re.fullmatch(r"([a-z][a-z0-9_]*(\[\])?\.)*[a-z][a-z0-9_]*", path), f"{one.name} {path}"


def test_every_column_says_what_it_is() -> None:
    """A meaning that is no sentence of its own, a known unit, columns exactly where it is a struct."""
    units = set()
    for one in EVENT_TYPES:
        for path, column in walk_columns(one.columns):
            assert column.meaning and not column.meaning.endswith("."), path
            assert bool(column.columns) == (column.type == "struct"), path
            units.add(column.unit)
    assert units <= {
        "", "bytes", "ms", "s", "requests", "responses", "records", "batches", "topics", "partitions", "resources",
        "frames", "rules", "events", "metrics", "points", "connections",
    }  # fmt: skip


def test_types_are_found_by_name() -> None:
    """The version is part of the name."""
    for one in EVENT_TYPES:
        assert BY_NAME[one.name] is one
        assert re.fullmatch(r"kproxy\.[a-z_]+\.v\d+", one.name)
        assert one.name == f"kproxy.{one.short}.v1"
