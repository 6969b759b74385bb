"""Every field that the table marks `is topic_name`.

Strategy. The innermost array around a name is what a hidden topic is removed from: the whole element if the name is a
field of it, the name alone if the array is one of names. A hidden name in no array stays. Names that are null or empty
are no names. The same code serves whole messages and those inside bytes fields: it asks only for a layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kproxy.core.rewrite import Apply, Buffer, Context, Hits
from kproxy.wire.edit import Edits
from kproxy.wire.layout import Struct
from kproxy.wire.walk import Hit, Walk, read_string, write_string

from .spell import Spelling

NAME, ITEM, COUNT, ELEMENT = range(4)
Roles = Mapping[int, tuple[int, str]]  # mark number → what it is, and its innermost array ("" if there is none)


def innermost(path: str) -> str:
    """The innermost array around a field: `topics[].partitions[].index` → `topics[].partitions[]`."""
    return path[: path.rindex("[]") + 2] if "[]" in path else ""


def name_paths(struct: Struct) -> frozenset[str]:
    """The topic names of a layout."""
    return frozenset(slot.path for slot in struct.everywhere() if slot.kind == "topic_name")


@dataclass(frozen=True, slots=True)
class PlainNames:
    """Rewrites the names at `paths`."""

    paths: frozenset[str]
    spelling: Spelling
    compact: bool

    @property
    def wanted(self) -> frozenset[str]:
        if self.spelling.direction == "request":
            return self.paths
        return self.paths | {innermost(path) for path in self.paths if "[]" in path}

    def bind(self, walk: Walk) -> Apply:
        roles: dict[int, tuple[int, str]] = {}
        arrays = {innermost(path) for path in self.paths}
        for number, mark in enumerate(walk.marks):
            if mark.what == "value" and mark.path in self.paths:
                assert mark.slot is not None
                roles[number] = (ITEM if mark.slot.array else NAME, innermost(mark.path))
            elif mark.what in ("count", "element") and mark.path in arrays:
                roles[number] = (COUNT if mark.what == "count" else ELEMENT, mark.path)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            self.rewrite(buf, hits, edits, context, roles)

        return apply

    def rewrite(self, buf: Buffer, hits: Hits, edits: Edits, context: Context, roles: Roles) -> None:
        counts: dict[str, Hit] = {}
        hidden: set[str] = set()
        changed, compact, translate = 0, self.compact, self.spelling.translate
        for hit in hits:
            number, start, end = hit
            if number not in roles:
                continue
            role, array = roles[number]
            if role <= ITEM:
                name = read_string(buf, start, end, compact)
                if not name:
                    continue
                other = translate(name, context)
                if other is None:
                    if role == ITEM:
                        edits.remove(start, end, counts[array])
                        context.count("topics_hidden")
                    else:
                        hidden.add(array)
                elif other != name:
                    edits.replace(start, end, write_string(other, compact))
                    changed += 1
            elif role == COUNT:
                counts[array] = hit
            elif array in hidden:
                edits.remove(start, end, counts[array])
                hidden.discard(array)
                context.count("topics_hidden")
        if changed:
            context.rewrote("topic_names", changed)
