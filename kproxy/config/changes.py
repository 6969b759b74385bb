"""Differences between two config documents, to tell a user who has edited one that a restart is needed.

A running kproxy takes over changes of its rule files only, and none of its config.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel

from .document import Config

MOST = 20
"""Places that are named at most; those beyond are only counted."""


class Origin(NamedTuple):
    """Origin of a config: a name for people, and a function that reads it once more (None if it cannot change)."""

    name: str = "flags"
    reread: Callable[[], Config] | None = None


FLAGS = Origin()


def changed_places(before: Config, after: Config) -> list[str]:
    """Return the places that differ, such as `limits.max_connections` and `listeners.outside.bind`."""
    found = list(dict.fromkeys(_differences(before, after, "")))
    if len(found) > MOST:
        return [*found[:MOST], f"{len(found) - MOST} more"]
    return found


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if before == after:
        return
    one, two = _parts(before), _parts(after)
    if one is None or two is None or (path and type(before) is not type(after)):
        yield path
        return
    for name in dict.fromkeys([*one, *two]):
        where = f"{path}.{name}" if path else name
        if name in one and name in two:
            yield from _differences(one[name], two[name], where)
        else:
            yield where


def _parts(value: Any) -> dict[str, Any] | None:
    """Return the parts of a value by name: fields of a model, values of a mapping, items of a list of named models.

    None for a value that has no such parts.
    """
    if isinstance(value, BaseModel):
        return {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {str(name): part for name, part in value.items()}
    if isinstance(value, list) and value and all(isinstance(one, BaseModel) and hasattr(one, "name") for one in value):
        return {one.name: one for one in value}
    return None
