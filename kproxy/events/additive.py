"""Whether a change of the schema is one that readers can live with: types and columns are added, nothing else.

A *release* is what was promised: event type → path of a column → its type and unit, as one text. It is committed beside
the tests, and grows when new columns are there to stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .column import EventType
from .reference import walk

Release = Mapping[str, Mapping[str, str]]

ADVICE = (
    "Readers of months of files rely on it. Put it back; what means another thing, or has another type or unit, gets a "
    "new column; if that cannot be, a new event type, kproxy.….v2, beside the old one."
)


def release_of(types: Iterable[EventType]) -> dict[str, dict[str, str]]:
    """What these types promise."""
    return {
        one.name: {
            path: f"{column.type}{'[]' if column.array else ''}{f', {column.unit}' if column.unit else ''}"
            for path, column in walk(one.columns)
        }
        for one in types
    }


def broken_promises(released: Release, types: Iterable[EventType]) -> list[str]:
    """What was released and is not there any more, or is another thing; empty if all changes are additions."""
    now = release_of(types)
    found = []
    for name, columns in released.items():
        if name not in now:
            found.append(f"event type {name} is gone. {ADVICE}")
            continue
        for path, form in columns.items():
            new = now[name].get(path)
            if new is None:
                found.append(f"{name}: column {path} is gone. {ADVICE}")
            elif new != form:
                found.append(f"{name}: column {path} was {form!r} and is {new!r} now. {ADVICE}")
    return found
