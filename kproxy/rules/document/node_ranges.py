"""The brokers that a rule is about: ids, ranges of them, or all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from .ranges import OneRange, Range

ALL = "all"
EVERY_ID = ">=0"


def _as_list(value: Any) -> Any:
    return [EVERY_ID if one == ALL else one for one in (value if isinstance(value, list) else [value])]


NodeRanges = Annotated[
    list[OneRange],
    BeforeValidator(_as_list, json_schema_input_type=int | str | list[int | str]),
    Field(min_length=1),
]
"""Broker ids: 2, [2, 3], "1-3", or all."""


def includes(nodes: Sequence[Range], node: int) -> bool:
    """Return True if one of the ranges holds this id."""
    return any(node in one for one in nodes)
