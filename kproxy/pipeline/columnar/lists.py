"""Columns of lists: taken apart, one row for each element, and made of columns of elements."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class ListElements(NamedTuple):
    """Elements of lists: for each the row whose list it is from, its index there from 0 on, and itself."""

    rows: Any
    places: Any
    values: Any


def list_elements(lists: Any) -> ListElements:
    """Return all elements of a column of lists, in their order."""
    rows = pc.list_parent_indices(lists).cast(pa.int64())
    starts = pa.array(_ends(lists)[:-1])
    places = pc.subtract(pa.array(np.arange(len(rows))), starts.take(rows))
    return ListElements(rows, places, pc.list_flatten(lists))


def of_each(lists: Any, name: str) -> Any:
    """Turn a column of lists of structs into one of lists of their field `name`."""
    values = pc.struct_field(pc.list_flatten(lists), name)
    return pa.ListArray.from_arrays(pa.array(_ends(lists), pa.int32()), values, mask=pc.is_null(lists))


def _ends(lists: Any) -> Any:
    """Return the index behind each list's last element among all elements, after a 0."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
