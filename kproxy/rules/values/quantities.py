"""Quantities as a user writes them: durations `200ms`, sizes `64KiB`, rates `10MB/s`, ranges `0-11` and `>=4` and lists
of them, broker ids, seeds, and lengths of delays, which may be drawn from a distribution.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, GetPydanticSchema
from pydantic_core import core_schema

from kproxy.rules.values.model import found, unknown

_DURATIONS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)")


def parse_duration(value: Any) -> Any:
    """Return seconds from `10s` or a plain number of seconds. Raises ValueError."""
    if isinstance(value, str):
        return _quantity(value, _DURATIONS, "a duration such as 10s")
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def parse_size(value: Any) -> Any:
    """Return bytes from `64KiB` (binary), `100MB` (decimal) or a plain number. Raises ValueError."""
    return int(_quantity(value, _SIZES, "a size such as 64KiB")) if isinstance(value, str) else value


def _quantity(text: str, units: dict[str, Any], wanted: str) -> float:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise ValueError(f'expected {wanted} (units: {", ".join(units)}), got text "{text}"')
    return float(match[1]) * float(units[match[2]])


Seconds = Annotated[
    float,
    BeforeValidator(parse_duration, json_schema_input_type=str | float),
    Field(ge=0, allow_inf_nan=False),
]
ByteCount = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=str | int), Field(ge=0)]

# ---- rates

UNLIMITED = "unlimited"
Unlimited = Literal["unlimited"]
"""In an override: no limit."""

_PERIODS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_byte_rate(value: Any) -> Any:
    """Return bytes per second from `10MB/s` or a plain number. Raises ValueError."""
    if not isinstance(value, str):
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    size, period = _split(value, "a rate such as 10MB/s")
    return float(parse_size(size)) / period


def parse_count_rate(value: Any) -> Any:
    """Return the number per second from `200/s`, `600/min` or a plain number. Raises ValueError."""
    if not isinstance(value, str):
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    wanted = "a rate such as 200/s"
    number, period = _split(value, wanted)
    try:
        return float(number) / period
    except ValueError:
        raise ValueError(f'expected {wanted}, got text "{value}"') from None


def _split(text: str, wanted: str) -> tuple[str, float]:
    amount, slash, period = (part.strip() for part in text.partition("/"))
    if not slash or period not in _PERIODS:
        raise ValueError(f'expected {wanted} (per: {", ".join(_PERIODS)}), got text "{text}"')
    return amount, _PERIODS[period]


_Positive = Field(gt=0, allow_inf_nan=False)

ByteRate = Annotated[float, BeforeValidator(parse_byte_rate, json_schema_input_type=str | float), _Positive]
CountRate = Annotated[float, BeforeValidator(parse_count_rate, json_schema_input_type=str | float), _Positive]

# ---- ranges

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
    raise ValueError(f"expected a number or a range such as 0-11 or >=4, got {value!r}")


LARGEST_OFFSET = 2**63 - 1


def parse_offsets(value: Any) -> Range:
    """Read offsets as `parse_range` reads numbers; they are 64 bits wide. Raises ValueError for anything else."""
    first, last = parse_range(value)
    bounded = isinstance(value, str) and _BOUND.fullmatch(value.strip())
    if bounded and bounded[1].startswith(">"):
        last = LARGEST_OFFSET
    elif bounded:
        first = -LARGEST_OFFSET - 1
    return Range((first, last))


def as_list(value: Any) -> Any:
    """Return a list: the value, or one that has nothing but the value in it."""
    return value if isinstance(value, list) else [value]


NUMBER_OR_TEXT = {"anyOf": [{"type": "integer"}, {"type": "string"}]}


def read_by(parse: Callable[[Any], Any], schema: dict[str, Any] = NUMBER_OR_TEXT) -> GetPydanticSchema:
    """Return an annotation: pydantic parses with this function, serializes as text, and uses this JSON schema."""
    return GetPydanticSchema(
        lambda source, handler: core_schema.no_info_plain_validator_function(
            parse, serialization=core_schema.to_string_ser_schema()
        ),
        lambda source, handler: schema,
    )


OneRange = Annotated[Range, read_by(parse_range)]
Ranges = Annotated[
    list[OneRange],
    BeforeValidator(as_list, json_schema_input_type=int | str | list[int | str]),
    Field(min_length=1),
]
OffsetRanges = Annotated[
    list[Annotated[Range, read_by(parse_offsets)]],
    BeforeValidator(as_list, json_schema_input_type=int | str | list[int | str]),
    Field(min_length=1),
]

ALL = "all"
EVERY_ID = ">=0"


def _node_list(value: Any) -> Any:
    return [EVERY_ID if one == ALL else one for one in as_list(value)]


NodeRanges = Annotated[
    list[OneRange],
    BeforeValidator(_node_list, json_schema_input_type=int | str | list[int | str]),
    Field(min_length=1),
]
"""Broker ids: 2, [2, 3], "1-3", or all."""


def includes(nodes: Sequence[Range], node: int) -> bool:
    """Return True if one of the ranges holds this id."""
    return any(node in one for one in nodes)


# ---- seeds

LEAST_SEED, LARGEST_SEED = -(2**63), 2**63 - 1
"""Messages to workers carry seeds as 64-bit integers."""


def checked_seed(number: int) -> int:
    """Return the number. Raises ValueError when it has more than 64 bits."""
    if not LEAST_SEED <= number <= LARGEST_SEED:
        raise ValueError(f"expected a number of at most 64 bits, {LEAST_SEED} to {LARGEST_SEED}, got {number}")
    return number


Seed = Annotated[int, AfterValidator(checked_seed)]

# ---- delays

LONGEST = 3600.0
"""Seconds. A lognormal draw has no bound, and one in a million must not hold a connection for days."""
SMALLEST_DRAW = 2.0**-54
"""Replaces a draw of exactly 0: normal distributions have no quantile for it."""

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
        """Return seconds, 0 or more. A fixed latency draws nothing. Others are computed from exactly one `random()`,
        the only method with a sequence that Python guarantees for a seed."""
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
        raise ValueError(f"expected one distribution of {', '.join(_FORMS)}, got {len(value)}")
    ((form, numbers),) = value.items()
    if form not in _FORMS:
        raise ValueError(unknown("distribution", form, _FORMS))
    if not isinstance(numbers, list) or len(numbers) != 2:
        raise ValueError(f"expected {form} as {_FORMS[form]}, got {found(numbers)}")
    first = _seconds(numbers[0])
    second = _sigma(numbers[1]) if form == "lognormal" else _seconds(numbers[1])
    if form == "uniform" and first > second:
        raise ValueError(f"uniform is written {_FORMS[form]}, and {numbers[0]} is more than {numbers[1]}")
    return Latency(form, first, second)


def _seconds(value: Any) -> float:
    number = parse_duration(value)
    if not isinstance(number, float) or not 0 <= number <= LONGEST:
        raise ValueError(f"expected a duration of 0 to {LONGEST:g}s such as 200ms, got {found(value)}")
    return number


def _sigma(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10:
        raise ValueError(f"expected a plain number for sigma (0 to 10), got {found(value)}")
    return float(value)


_PAIR = {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": ["string", "number"]}}
_SCHEMA: Any = {
    "anyOf": [
        {"type": ["string", "number"]},
        *({"type": "object", "properties": {form: _PAIR}, "required": [form], "additionalProperties": False}
          for form in _FORMS),
    ]
}  # fmt: skip

LatencyField = Annotated[Latency, read_by(parse_latency, _SCHEMA)]
