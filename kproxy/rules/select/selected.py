"""Types of selectors that are no plain text: APIs, errors, acks, sizes, topic ids."""

from __future__ import annotations

import base64
import re
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, Field, GetPydanticSchema
from pydantic_core import core_schema

from kproxy.rules.document.hints import nearest
from kproxy.rules.document.ranges import LARGEST, Range
from kproxy.rules.document.units import parse_size
from kproxy.wire.table import errors as error_codes
from kproxy.wire.table import schema

from .match import text_test

ANY = "any"
_BOUNDED = re.compile(r"(>=|<=|>|<)\s*(.+)")


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


# ---- APIs


def keys_of(text: str | int) -> frozenset[int]:
    """Return the API keys that a name, glob, expression or number stands for. Raises ValueError when there are none."""
    names = schema.names()
    if isinstance(text, int) or text.isdigit():
        if int(text) not in schema.paths():
            raise ValueError(
                f"there is no API with key {text}, known are {min(schema.paths())} to {max(schema.paths())}"
            )
        return frozenset((int(text),))
    if text in names:
        return frozenset((names[text],))
    test = text_test(text)  # today's names only: Offset* is not about ListOffsets, which once was Offset
    keys = frozenset(key for key in schema.paths() if test(schema.load(key).name))
    if not keys:
        close = nearest(text, names)
        hint = f', did you mean "{close}"?' if close else f', "kproxy protocol" lists all {len(names)}'
        raise ValueError(f'unknown API "{text}"{hint}')
    return keys


def api_keys(texts: list[str | int]) -> frozenset[int]:
    """Return the API keys that a list of names, globs, expressions or numbers stands for."""
    return frozenset[int]().union(*(keys_of(text) for text in texts))


def _api(text: str | int) -> str | int:
    keys_of(text)
    return text


ApiName = Annotated[str | int, AfterValidator(_api)]
ApiNames = Annotated[
    list[ApiName],
    BeforeValidator(_as_list, json_schema_input_type=str | int | list[str | int]),
    Field(min_length=1),
]


# ---- errors


def error_number(value: Any) -> int:
    """Return the number of an error given by name or number. Raises ValueError for one that Kafka does not have."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value not in error_codes.numbers():
            known = error_codes.numbers()
            raise ValueError(f"there is no error {value}, known are {min(known)} to {max(known)}")
        return value
    if isinstance(value, str):
        if value in error_codes.names():
            return error_codes.by_name(value).code
        close = nearest(value, error_codes.names())
        hint = f', did you mean "{close}"?' if close else ""
        raise ValueError(f'unknown error "{value}"{hint}')
    raise ValueError(f"an error is wanted, by name or number, found {value!r}")


def _error(value: Any) -> Any:
    if value != ANY:
        error_number(value)
    return value


def error_numbers(values: list[str | int]) -> frozenset[int]:
    """Return the numbers of these errors; `any` is all but 0."""
    if ANY in values:
        return frozenset(code for code in error_codes.numbers() if code)
    return frozenset(map(error_number, values))


Error = Annotated[int, BeforeValidator(error_number, json_schema_input_type=str | int)]
"""An error by name or number; the value is the number."""
ErrorNames = Annotated[
    list[Annotated[str | int, AfterValidator(_error)]],
    BeforeValidator(_as_list, json_schema_input_type=str | int | list[str | int]),
    Field(min_length=1),
]


# ---- acks, sizes, topic ids


def acks_number(value: Any) -> int:
    """Return -1, 0 or 1; `all` is -1. Raises ValueError."""
    if value == "all":
        return -1
    if type(value) is int and value in (-1, 0, 1):
        return value
    raise ValueError(f"acks are 0, 1 or all, found {value!r}")


AcksValues = Annotated[
    list[Annotated[int, BeforeValidator(acks_number, json_schema_input_type=str | int)]],
    BeforeValidator(_as_list, json_schema_input_type=str | int | list[str | int]),
    Field(min_length=1),
]


def parse_sizes(value: Any) -> Range:
    """Read `>1MB`, `<=100B`, `1kB-64kB`, or an exact size. Raises ValueError."""
    if isinstance(value, str):
        if found := _BOUNDED.fullmatch(value.strip()):
            number = parse_size(found[2])
            return Range({
                ">": (number + 1, LARGEST), ">=": (number, LARGEST), "<": (0, number - 1), "<=": (0, number),
            }[found[1]])  # fmt: skip
        first, dash, last = value.partition("-")
        if dash:
            return Range((parse_size(first), parse_size(last)))
    number = parse_size(value)
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"a size is wanted, such as >1MB or 1kB-64kB, found {value!r}")
    return Range((number, number))


Sizes = Annotated[
    list[
        Annotated[
            Range,
            GetPydanticSchema(
                lambda source, handler: core_schema.no_info_plain_validator_function(
                    parse_sizes, serialization=core_schema.to_string_ser_schema()
                ),
                lambda schema, handler: {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            ),
        ]
    ],
    BeforeValidator(_as_list, json_schema_input_type=str | int | list[str | int]),
    Field(min_length=1),
]


def topic_id(value: Any) -> UUID:
    """Read Kafka's own spelling (URL-safe base64 of 16 bytes, 22 characters) or a UUID's. Raises ValueError."""
    if isinstance(value, UUID):
        return value
    if isinstance(value, str):
        try:
            return UUID(bytes=base64.urlsafe_b64decode(value + "==")) if len(value) == 22 else UUID(value)
        except ValueError:
            pass
    raise ValueError(f"a topic id is wanted, 22 characters as Kafka's tools print it, found {value!r}")


TopicIds = Annotated[
    list[Annotated[UUID, BeforeValidator(topic_id, json_schema_input_type=str)]],
    BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]
