"""Rows as a table declares them, put together from columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kproxy.pipeline.columnar.types import arrow_schema
from kproxy.pipeline.lake_table import LakeTable

ArrowColumns = dict[str, Any]
"""Arrow arrays of the same length by name: those of bronze that go into every table, and those of the event's data."""


def shaped(columns: Mapping[str, Any], table: LakeTable) -> Any:
    """Return exactly the table's columns, in its types; those that are not among `columns` are null."""
    schema = arrow_schema(table)
    count = len(columns["time"])
    return pa.Table.from_arrays(
        [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in schema
        ],
        schema=schema,
    )


def all_the_same(value: Any, like: Any) -> Any:
    """Return a column with one value in all rows, of as many as `like` has."""
    return pa.repeat(pa.scalar(value), len(like))
