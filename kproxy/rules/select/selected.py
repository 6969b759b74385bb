"""Types of selectors that are not text: APIs, errors, acks, sizes, topic ids. Also the APIs and versions that a rule
selects, for checks at load."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, Field

from kproxy.protocol.table import errors as error_codes
from kproxy.protocol.table import schema
from kproxy.rules.values.quantities import LARGEST, Range, as_list, parse_range, parse_size, read_by
from kproxy.rules.values.source import Where, nearest

from .match import text_test

ANY = "any"
NUMBER = re.compile(r"-?[0-9]{1,19}")
"""ASCII digits. Python accepts other digits that do not form a number."""
_BOUNDED = re.compile(r"(>=|<=|>|<)\s*(.+)")


# ---- APIs


def number_in(text: str) -> int | None:
    """Return the number that a text of digits is, with a minus or without; None for any other text, and for numbers
    that are longer than any of Kafka's."""
    return int(text) if NUMBER.fullmatch(text) else None


def keys_of(text: str | int) -> frozenset[int]:
    """Return the API keys that match a name, glob, expression or number. Raises ValueError without a match."""
    names = schema.names()
    number = number_in(text) if isinstance(text, str) else text
    if number is not None and number in schema.paths():
        return frozenset((number,))
    if number is not None or not isinstance(text, str):
        raise ValueError(f"expected an API key from {min(schema.paths())} to {max(schema.paths())}, got {text}")
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
    """Return the API keys that match a list of names, globs, expressions or numbers."""
    return frozenset[int]().union(*(keys_of(text) for text in texts))


def _api(text: str | int) -> str | int:
    keys_of(text)
    return text


ApiName = Annotated[str | int, AfterValidator(_api)]
ApiNames = Annotated[
    list[ApiName],
    BeforeValidator(as_list, json_schema_input_type=str | int | list[str | int]),
    Field(min_length=1),
]


# ---- errors


def error_number(value: Any) -> int:
    """Return the number of an error given by name or number. Raises ValueError for one that Kafka does not have."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value not in error_codes.numbers():
            known = error_codes.numbers()
            raise ValueError(f"expected an error code from {min(known)} to {max(known)}, got {value}")
        return value
    if isinstance(value, str):
        if value in error_codes.names():
            return error_codes.by_name(value).code
        close = nearest(value, error_codes.names())
        hint = f', did you mean "{close}"?' if close else ""
        raise ValueError(f'unknown error "{value}"{hint}')
    raise ValueError(f"expected an error name or number, got {value!r}")


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
    BeforeValidator(as_list, json_schema_input_type=str | int | list[str | int]),
    Field(min_length=1),
]


# ---- acks, sizes, topic ids


def acks_number(value: Any) -> int:
    """Return -1, 0 or 1; `all` is -1. Raises ValueError."""
    if value == "all":
        return -1
    if type(value) is int and value in (-1, 0, 1):
        return value
    raise ValueError(f"expected acks 0, 1 or all, got {value!r}")


AcksValues = Annotated[
    list[Annotated[int, BeforeValidator(acks_number, json_schema_input_type=str | int)]],
    BeforeValidator(as_list, json_schema_input_type=str | int | list[str | int]),
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
        raise ValueError(f"expected a size such as >1MB or 1kB-64kB, got {value!r}")
    return Range((number, number))


Sizes = Annotated[
    list[Annotated[Range, read_by(parse_sizes)]],
    BeforeValidator(as_list, json_schema_input_type=str | int | list[str | int]),
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
    raise ValueError(f"expected a topic id of 22 characters, got {value!r}")


TopicIds = Annotated[
    list[Annotated[UUID, BeforeValidator(topic_id, json_schema_input_type=str)]],
    BeforeValidator(as_list, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]


class SelectedVersions(NamedTuple):
    """Selected versions of one API. where: line of the selector. by_name: the line selects only this API, without a
    pattern."""

    api: schema.Api
    versions: tuple[int, ...]
    where: Where
    by_name: bool


def chosen(raw: dict[Any, Any]) -> list[SelectedVersions]:
    """Return the APIs that `match: {api: …}` selects; none if it selects no API, as far as it can be read.

    Errors in the selectors themselves are reported by their own types.
    """
    match = raw.get("match")
    if not isinstance(match, dict) or match.get("api") is None:
        return []
    listed = isinstance(match["api"], list)
    texts = match["api"] if listed else [match["api"]]
    selected = []
    for index, text in enumerate(texts):
        where = ("match", "api", index) if listed else ("match", "api")
        keys = keys_or_none(text)
        by_name = len(keys) == 1 and (
            not isinstance(text, str) or number_in(text) is not None or text in schema.names()
        )
        for key in sorted(keys):
            api = schema.load(key)
            selected.append(SelectedVersions(api, versions_of(api, match.get("version")), where, by_name))
    return selected


def keys_or_none(text: Any) -> frozenset[int]:
    try:
        return keys_of(text) if isinstance(text, str | int) and not isinstance(text, bool) else frozenset()
    except ValueError:
        return frozenset()


def versions_of(api: schema.Api, selected: Any) -> tuple[int, ...]:
    """Return the versions of this API that a `version` selector leaves."""
    if selected is None:
        return tuple(api.versions)
    try:
        ranges = [parse_range(one) for one in (selected if isinstance(selected, list) else [selected])]
    except ValueError:
        return tuple(api.versions)
    return tuple(version for version in api.versions if any(version in one for one in ranges))


def spans(versions: Iterable[int]) -> str:
    """Return versions in words, such as `0-2,5`, from ascending numbers."""
    ranges: list[tuple[int, int]] = []
    for version in versions:
        if ranges and version == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], version
        else:
            ranges.append((version, version))
    return str(schema.Versions(tuple(ranges)))
