"""Which brokers a rule is about: ids, ranges of them, or all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from kproxy.rules.ranges import OneRange


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) or value == "all" else [value]


Nodes = Annotated[
    Literal["all"] | Annotated[list[OneRange], Field(min_length=1)],
    BeforeValidator(_as_list, json_schema_input_type=int | str | list[int | str]),
]
"""Broker ids: 2, [2, 3], "1-3", or all."""


def names(nodes: Literal["all"] | Sequence[Any], node: int) -> bool:
    """Whether this broker is meant."""
    return nodes == "all" or any(node in one for one in nodes)
