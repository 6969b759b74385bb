"""Whole numbers as a user selects them: `3`, `"0-11"`, `">=4"`, and lists of these."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetPydanticSchema
from pydantic_core import core_schema

LARGEST = 2**31 - 1
_RANGE = re.compile(r"(-?[0-9]+)\s*-\s*(-?[0-9]+)")
_BOUND = re.compile(r"(>=|<=|>|<)\s*(-?[0-9]+)")


class Range(tuple[int, int]):
    """Range of numbers, first and last included."""

    __slots__ = ()

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self[0] <= number <= self[1]

    def __str__(self) -> str:
        return str(self[0]) if self[0] == self[1] else f"{self[0]}-{self[1]}"


def parse_range(value: Any) -> Range:
    """Read a number or text such as `0-11` or `>=4`. Raises ValueError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Range((value, value))
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch("-?[0-9]+", text):
            return Range((int(text), int(text)))
        if found := _RANGE.fullmatch(text):
            first, last = int(found[1]), int(found[2])
            if first > last:
                raise ValueError(f"the range {text} is empty, write {last}-{first}")
            return Range((first, last))
        if found := _BOUND.fullmatch(text):
            number = int(found[2])
            low = number + (found[1] == ">") if found[1].startswith(">") else -LARGEST
            high = number - (found[1] == "<") if found[1].startswith("<") else LARGEST
            return Range((low, high))
    raise ValueError(f"a number or a range such as 0-11 or >=4 is wanted, found {value!r}")


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


OneRange = Annotated[
    Range,
    GetPydanticSchema(
        lambda source, handler: core_schema.no_info_plain_validator_function(
            parse_range, serialization=core_schema.to_string_ser_schema()
        ),
        lambda schema, handler: {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    ),
]
Ranges = Annotated[
    list[OneRange],
    BeforeValidator(_as_list, json_schema_input_type=int | str | list[int | str]),
    Field(min_length=1),
]
