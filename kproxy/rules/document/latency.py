"""Lengths of delays: always the same, or drawn from a distribution.

A draw needs exactly one `random()` and is computed from it by formula, so that a seed gives the same delays with every
version of Python, which promises that for `random()` alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import Annotated, Any

from pydantic import GetPydanticSchema
from pydantic_core import core_schema

from .model import found, unknown
from .units import parse_duration

LONGEST = 3600.0
"""Seconds. A lognormal draw has no bound, and one in a million must not hold a connection for days."""
SMALLEST_DRAW = 2.0**-54
"""For a draw of exactly 0, of which the normal distributions have no quantile."""

_FORMS = {
    "uniform": "[least, most]",
    "normal": "[mean, standard deviation]",
    "lognormal": "[median, sigma]",
}


@dataclass(frozen=True, slots=True)
class Latency:
    """Length of a delay. `form` is fixed, uniform, normal or lognormal; `first` and `second` in seconds, but for
    sigma."""

    form: str
    first: float
    second: float = 0.0

    def draw(self, random: Random) -> float:
        """Return seconds, 0 or more. A fixed one draws nothing."""
        if self.form == "fixed":
            return self.first
        chance = random.random() or SMALLEST_DRAW
        if self.form == "uniform":
            return self.first + (self.second - self.first) * chance
        if not self.second:
            return self.first
        if self.form == "normal":
            drawn = NormalDist(self.first, self.second).inv_cdf(chance)
        else:
            drawn = self.first * math.exp(min(NormalDist(0, self.second).inv_cdf(chance), 50.0))
        return min(max(drawn, 0.0), LONGEST)

    def __str__(self) -> str:
        return f"{self.first:g}s" if self.form == "fixed" else f"{self.form} {self.first:g}s {self.second:g}"


def parse_latency(value: Any) -> Latency:
    """Read `200ms`, a number of seconds, or a mapping such as `{normal: [200ms, 50ms]}`. Raises ValueError."""
    if isinstance(value, Latency):
        return value
    if not isinstance(value, dict):
        return Latency("fixed", _seconds(value))
    if len(value) != 1:
        raise ValueError(f"one distribution is wanted, {', '.join(_FORMS)}, found {len(value)}")
    ((form, numbers),) = value.items()
    if form not in _FORMS:
        raise ValueError(unknown("distribution", form, _FORMS))
    if not isinstance(numbers, list) or len(numbers) != 2:
        raise ValueError(f"{form} is written {_FORMS[form]}, found {found(numbers)}")
    first = _seconds(numbers[0])
    second = _sigma(numbers[1]) if form == "lognormal" else _seconds(numbers[1])
    if form == "uniform" and first > second:
        raise ValueError(f"uniform is written {_FORMS[form]}, and {numbers[0]} is more than {numbers[1]}")
    return Latency(form, first, second)


def _seconds(value: Any) -> float:
    number = parse_duration(value)
    if not isinstance(number, float) or not 0 <= number <= LONGEST:
        raise ValueError(f"a duration of 0 to {LONGEST:g}s is wanted, such as 200ms, found {found(value)}")
    return number


def _sigma(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10:
        raise ValueError(f"sigma is a plain number, 0 to 10, such as 0.4, found {found(value)}")
    return float(value)


_PAIR = {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": ["string", "number"]}}
_SCHEMA: Any = {
    "anyOf": [
        {"type": ["string", "number"]},
        *({"type": "object", "properties": {form: _PAIR}, "required": [form], "additionalProperties": False}
          for form in _FORMS),
    ]
}  # fmt: skip

LatencyField = Annotated[
    Latency,
    GetPydanticSchema(
        lambda source, handler: core_schema.no_info_plain_validator_function(
            parse_latency, serialization=core_schema.to_string_ser_schema()
        ),
        lambda schema, handler: _SCHEMA,
    ),
]
