"""Rates as a user writes them: `10MB/s`, `100kB/s`, `200/s`, `600/min`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from .units import parse_size

UNLIMITED = "unlimited"
Unlimited = Literal["unlimited"]
"""In an override: what it selects is not limited at all."""

_PERIODS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_byte_rate(value: Any) -> Any:
    """Return bytes per second from `10MB/s` or a plain number of them. Raises ValueError for text that is no such
    rate."""
    if not isinstance(value, str):
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    size, period = _split(value, "a rate is wanted, such as 10MB/s")
    return float(parse_size(size)) / period


def parse_count_rate(value: Any) -> Any:
    """Return the number per second from `200/s`, `600/min` or a plain number. Raises ValueError for text that is no
    rate."""
    if not isinstance(value, str):
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    wanted = "a rate is wanted, such as 200/s"
    number, period = _split(value, wanted)
    try:
        return float(number) / period
    except ValueError:
        raise ValueError(f'{wanted}, found text "{value}"') from None


def _split(text: str, wanted: str) -> tuple[str, float]:
    amount, slash, period = (part.strip() for part in text.partition("/"))
    if not slash or period not in _PERIODS:
        raise ValueError(f'{wanted} (per: {", ".join(_PERIODS)}), found text "{text}"')
    return amount, _PERIODS[period]


_Positive = Field(gt=0, allow_inf_nan=False)

ByteRate = Annotated[float, BeforeValidator(parse_byte_rate, json_schema_input_type=str | float), _Positive]
CountRate = Annotated[float, BeforeValidator(parse_count_rate, json_schema_input_type=str | float), _Positive]
