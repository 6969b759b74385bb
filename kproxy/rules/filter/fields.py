"""Fields of the filter language, and tables of them. `exchange_fields` and `record_fields` have the two tables.

Strategy: a field gives the values that an exchange or a record has of it, none, one or many; a test holds when it holds
for any of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Protocol

from .kinds import Kind


class View(Protocol):
    """View of one exchange that a filter judges."""

    def get(self, column: str) -> Any:
        """Return the value of this column of the request event, None where it is absent."""
        ...

    def records(self) -> Iterable[Any]:
        """Return the records of the exchange (`RecordView`), up to a limit. Raises NotKept if they were not kept."""
        ...


Read = Callable[[Any], Iterable[Any]]
"""Returns the values of a view; the views of one table have one type."""


class FieldDepth(IntEnum):
    """Amount of an exchange's frames that a field needs: none, all but the inside of record batches, or all."""

    AT_ONCE, FIELDS, RECORDS = range(3)


@dataclass(frozen=True, slots=True)
class Field:
    """Field of the filter language: `name` as in `name == value`, `short` as in `~short value` ("" for none).

    `group`: its heading in the help. `read`: gives the values of an exchange. `depth`: how much of frames that needs.
    """

    group: str
    name: str
    short: str
    kind: Kind
    meaning: str
    example: str
    read: Read
    depth: FieldDepth


def as_text(data: bytes | None) -> Iterable[str]:
    """Return bytes as text, with a mark for each byte that is not UTF-8; nothing for null."""
    return () if data is None else (data.decode("utf-8", "replace"),)


class FieldTable:
    """Fields of one language. `paths`: fields with a path, by their first word, such as `value` of `value.country`;
    each gets the rest of the name, and raises ValueError for a wrong path. `records`: the table of the records of an
    exchange, whose fields are read from each record, unless `fields` has a field with that name."""

    def __init__(
        self, fields: Iterable[Field], paths: Mapping[str, Callable[[str], Field]] = MappingProxyType({}),
        records: FieldTable | None = None,
    ) -> None:  # fmt: skip
        self.fields = tuple(fields)
        self.by_name = {field.name: field for field in self.fields}
        self.by_short = {field.short: field for field in self.fields if field.short}
        self.paths, self.records = paths, records

    def __getitem__(self, name: str) -> Field:
        """Return the field with this name, as `FieldTest` has it."""
        found = self.by_name.get(name)
        if found is not None:
            return found
        root, rest = split_path(name)
        return self.paths[root](rest)

    def is_of_records(self, name: str) -> bool:
        """Return True for a field of an exchange that is read from its records."""
        return self.records is not None and self[name].depth is FieldDepth.RECORDS


PATH_ROOT = re.compile(r"[a-z_]+(?=[.\[])")


def split_path(name: str) -> tuple[str, str]:
    """Return the first word of a name with a path, and the path; the whole name and nothing if it has no path."""
    found = PATH_ROOT.match(name)
    return (found[0], name[found.end() :]) if found else (name, "")
