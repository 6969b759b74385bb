"""Every field that the table marks as a topic name, a group id or a transactional id.

Strategy. The innermost array around a name is what a hidden name is removed from: the whole element if the name is a
field of it, the name alone if the array is one of names. A hidden name in no array stays. Null is no name. The same
code serves whole messages and those inside bytes fields: it asks only for a layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hit, Hits, Walk, read_string, write_string
from kproxy.protocol.table.layout import Struct
from kproxy.rules.names.layer import Namespace
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.rewriter import Apply

from .translator import SPACES, NameTranslator

NAME, ITEM, COUNT, ELEMENT = range(4)
MarkRoles = Mapping[int, tuple[int, str, NameTranslator | None]]
"""Mark number → what it is, its innermost array ("" if there is none), and of a name its translator."""


def innermost(path: str) -> str:
    """Return the innermost array around a field: `topics[].partitions[].index` → `topics[].partitions[]`."""
    return path[: path.rindex("[]") + 2] if "[]" in path else ""


def name_paths(struct: Struct, translators: Mapping[Namespace, NameTranslator]) -> dict[str, NameTranslator]:
    """Return the paths of the names in a layout in these namespaces, each with its translator."""
    spaces = {slot.path: SPACES.get(slot.kind or "") for slot in struct.everywhere()}
    return {path: translators[space] for path, space in spaces.items() if space is not None and space in translators}


@dataclass(frozen=True, slots=True)
class PlainNames:
    """Rewrite of the names at `paths`, all of one direction."""

    paths: Mapping[str, NameTranslator]
    compact: bool

    @property
    def wanted(self) -> frozenset[str]:
        paths = frozenset(self.paths)
        if all(translator.direction == "request" for translator in self.paths.values()):
            return paths
        return paths | {innermost(path) for path in paths if "[]" in path}

    def bind(self, walk: Walk) -> Apply:
        roles: dict[int, tuple[int, str, NameTranslator | None]] = {}
        arrays = {innermost(path) for path in self.paths}
        for number, mark in enumerate(walk.marks):
            if mark.what == "value" and mark.path in self.paths:
                assert mark.slot is not None
                roles[number] = (ITEM if mark.slot.array else NAME, innermost(mark.path), self.paths[mark.path])
            elif mark.what in ("count", "element") and mark.path in arrays:
                roles[number] = (COUNT if mark.what == "count" else ELEMENT, mark.path, None)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            self.rewrite(buf, hits, edits, context, roles)

        return apply

    def rewrite(self, buf: Buffer, hits: Hits, edits: Edits, context: Context, roles: MarkRoles) -> None:
        counts: dict[str, Hit] = {}
        hidden: dict[str, str] = {}  # array → the counter for the element that is to go
        changed: Counter[str] = Counter()
        compact = self.compact
        for hit in hits:
            number, start, end = hit
            if number not in roles:
                continue
            role, array, translator = roles[number]
            if translator is not None:
                name = read_string(buf, start, end, compact)
                if name is None:
                    continue
                other = translator.translate(name, context)
                if other is None:
                    if role == ITEM:
                        edits.remove(start, end, counts[array])
                        context.count(translator.space.hidden)
                    else:
                        hidden[array] = translator.space.hidden
                elif other != name:
                    edits.replace(start, end, write_string(other, compact))
                    changed[translator.space.changed] += 1
            elif role == COUNT:
                counts[array] = hit
            elif array in hidden:
                edits.remove(start, end, counts[array])
                context.count(hidden.pop(array))
        for what, number in changed.items():
            context.rewrote(what, number)
