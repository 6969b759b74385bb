"""Fields that may differ between two responses: `ignored_fields.yaml`, with a user's changes to it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kproxy.errors import InputError
from kproxy.wire.table.layout import Slot
from kproxy.wire.table.schema import read_yaml

TABLE = files("kproxy.replay") / "ignored_fields.yaml"


class NoSuchGroup(InputError):
    """Error for a group of fields that the table does not have."""


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Group of fields in the table, which are compared or left out together."""

    name: str
    means: str
    fields: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    compare: bool = False


@cache
def table() -> tuple[dict[str, FieldGroup], frozenset[str]]:
    """Return the groups by name, and the fields by which elements are found."""
    entries: dict[str, Any] = dict(read_yaml(TABLE))
    keys = frozenset(entries.pop("keys"))
    groups = {}
    for name, entry in entries.items():
        sets = {each: frozenset(entry.get(each, ())) for each in ("fields", "kinds")}
        groups[name] = FieldGroup(name, entry["means"], compare=entry.get("compare", False), **sets)
    return groups, keys


class IgnoredFields:
    """Fields to leave out when responses are compared. Raises NoSuchGroup for names that the table lacks."""

    def __init__(self, ignore: Collection[str] = (), compare: Collection[str] = ()) -> None:
        groups, self.keys = table()
        for name in (*ignore, *compare):
            if name not in groups:
                raise NoSuchGroup(f'no group of fields is called "{name}", there are: {", ".join(groups)}')
        self.ignored = [
            group for group in groups.values() if group.name in ignore or not (group.compare or group.name in compare)
        ]
        self.fields = frozenset().union(*(group.fields for group in self.ignored))
        self.kinds = frozenset().union(*(group.kinds for group in self.ignored))

    def leaves_out(self, api: str, slot: Slot) -> bool:
        """Return True if this field may differ."""
        return slot.name in self.fields or slot.kind in self.kinds or f"{api}.{slot.name}" in self.fields

    def tells_apart(self, slot: Slot) -> bool:
        """Return True if an element is found by this field."""
        return (slot.name in self.keys or slot.kind in self.keys) and slot.struct is None and not slot.array

    def ignores(self, name: str) -> bool:
        """Return True if this group is left out."""
        return any(one.name == name for one in self.ignored)


def groups_table() -> str:
    """Return the groups as a Markdown table, for the page about replays."""
    rows = (
        f"| `{group.name}` | {group.means} | {'compared' if group.compare else 'left out'} |\n"
        for group in table()[0].values()
    )
    return "| group | what its fields say | |\n|---|---|---|\n" + "".join(rows)
