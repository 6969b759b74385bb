"""What may differ: `normal.yaml`, read, with what a user wants otherwise."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kproxy.errors import TheyDidWrong
from kproxy.wire.layout import Slot
from kproxy.wire.schema import read_yaml

TABLE = files("kproxy.replay") / "normal.yaml"


class NoSuchGroup(TheyDidWrong):
    """A group of fields that the table does not have."""


@dataclass(frozen=True, slots=True)
class Group:
    """One entry of the table."""

    name: str
    means: str
    fields: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    compare: bool = False


@cache
def table() -> tuple[dict[str, Group], frozenset[str]]:
    """The groups by name, and what elements are found by."""
    found: dict[str, Any] = dict(read_yaml(TABLE))
    keys = frozenset(found.pop("keys"))
    groups = {}
    for name, entry in found.items():
        sets = {each: frozenset(entry.get(each, ())) for each in ("fields", "kinds")}
        groups[name] = Group(name, entry["means"], compare=entry.get("compare", False), **sets)
    return groups, keys


class Normal:
    """Which fields are left out when answers are compared. Raises NoSuchGroup for names that the table lacks."""

    def __init__(self, ignore: Collection[str] = (), compare: Collection[str] = ()) -> None:
        groups, self.keys = table()
        for name in (*ignore, *compare):
            if name not in groups:
                raise NoSuchGroup(f'no group of fields is called "{name}", there are: {", ".join(groups)}')
        self.ignored = [
            one for one in groups.values() if one.name in ignore or not (one.compare or one.name in compare)
        ]
        self.fields = frozenset().union(*(one.fields for one in self.ignored))
        self.kinds = frozenset().union(*(one.kinds for one in self.ignored))

    def leaves_out(self, api: str, slot: Slot) -> bool:
        """Whether this field may differ."""
        return slot.name in self.fields or slot.kind in self.kinds or f"{api}.{slot.name}" in self.fields

    def tells_apart(self, slot: Slot) -> bool:
        """Whether an element is found by this field."""
        return (slot.name in self.keys or slot.kind in self.keys) and slot.struct is None and not slot.array

    def ignores(self, name: str) -> bool:
        """Whether this group is left out."""
        return any(one.name == name for one in self.ignored)


def groups_table() -> str:
    """The groups as a Markdown table, for the page about replays."""
    rows = (
        f"| `{one.name}` | {one.means} | {'compared' if one.compare else 'left out'} |\n" for one in table()[0].values()
    )
    return "| group | what its fields say | |\n|---|---|---|\n" + "".join(rows)
