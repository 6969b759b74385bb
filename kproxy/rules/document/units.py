"""Durations and sizes as a user writes them: `10s`, `200ms`, `64KiB`, `100MB`."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

_DURATIONS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)")


def parse_duration(value: Any) -> Any:
    """Return seconds from `10s` or a plain number of seconds. Raises ValueError for text that is no duration."""
    if isinstance(value, str):
        return _quantity(value, _DURATIONS, "a duration is wanted, such as 10s")
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def parse_size(value: Any) -> Any:
    """Return bytes from `64KiB` (binary), `100MB` (decimal) or a plain number. Raises ValueError for text that is no
    size."""
    return int(_quantity(value, _SIZES, "a size is wanted, such as 64KiB")) if isinstance(value, str) else value


def _quantity(text: str, units: dict[str, Any], wanted: str) -> float:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise ValueError(f'{wanted} (units: {", ".join(units)}), found text "{text}"')
    return float(match[1]) * float(units[match[2]])


Seconds = Annotated[
    float,
    BeforeValidator(parse_duration, json_schema_input_type=str | float),
    Field(ge=0, allow_inf_nan=False),
]
ByteCount = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=str | int), Field(ge=0)]
