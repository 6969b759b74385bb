"""Check that a change of the schema is one that readers can live with: types and columns are added, nothing else.

A *release* is what was promised: event type → path of a column → its type and unit, as one text. It is committed beside
the tests, and grows when new columns are there to stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kproxy.record.events.column import EventType, walk_columns

Release = Mapping[str, Mapping[str, str]]

ADVICE = (
    "Readers of months of files rely on it. Put it back; what means another thing, or has another type or unit, gets a "
    "new column; if that cannot be, a new event type, kproxy.….v2, beside the old one."
)


def release_of(types: Iterable[EventType]) -> dict[str, dict[str, str]]:
    """Return the promises of these types: each column's type and unit by event type and path."""
    return {
        event_type.name: {
            path: f"{column.type}{'[]' if column.array else ''}{f', {column.unit}' if column.unit else ''}"
            for path, column in walk_columns(event_type.columns)
        }
        for event_type in types
    }


def broken_promises(released: Release, types: Iterable[EventType]) -> list[str]:
    """Return a message for each released column that is gone or changed; empty if all changes are additions."""
    now = release_of(types)
    broken = []
    for name, columns in released.items():
        if name not in now:
            broken.append(f"event type {name} is gone. {ADVICE}")
            continue
        for path, form in columns.items():
            new = now[name].get(path)
            if new is None:
                broken.append(f"{name}: column {path} is gone. {ADVICE}")
            elif new != form:
                broken.append(f"{name}: column {path} was {form!r} and is {new!r} now. {ADVICE}")
    return broken
