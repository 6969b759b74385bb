"""Translation of names in one direction: topic names, group ids and transactional ids.

Strategy. The protocol table marks the fields with names. A hidden name is removed with the element of the innermost
array around it; in an array of names, only the name is removed. A hidden name outside arrays stays. Null is not a name.
The same code serves entire messages and those inside bytes fields, because it needs only a layout.

The key type of a FindCoordinator request determines the meaning of its keys. Versions up to 3 have one key, followed by
its type (no type: a group). Later versions have a list after the type. Their responses contain the keys without the
type, so the type is noted with the request. The key of a share partition is `group:topic id:partition` (KIP-932); the
group may also contain colons. Keys of unknown types count as groups for a tenant, and are not changed otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import MAX_STRING, Buffer
from kproxy.protocol.scan.walk import Hit, Hits, Walk, read_string, write_string
from kproxy.protocol.table.layout import Struct
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import GROUP, TOPIC, TRANSACTIONAL_ID, Namespace
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.rewriter import Apply

SPACES: Mapping[str, Namespace] = {"topic_name": TOPIC, "group_id": GROUP, "transactional_id": TRANSACTIONAL_ID}
"""Namespace of a field's names, by its kind in the table."""


@dataclass(frozen=True, slots=True)
class NameTranslator:
    """Translation of names to the other side: towards the broker in requests, towards the client in responses."""

    names: NameMap
    direction: str

    @property
    def space(self) -> Namespace:
        return self.names.space

    def escapes(self, name: bytes) -> bool:
        """Return True if the broker gets a name that reaches nothing, because the client's name would reach a foreign
        resource."""
        return self.direction == "request" and self.names.is_escaped(self.names.to_broker(name))

    def translate(self, name: bytes, context: Context) -> bytes | None:
        """Return the name on the other side. None: hidden from clients.

        A name that becomes too long is truncated, which reaches nothing outside the client's names. A name that is too
        long for a topic is not changed.
        """
        if self.direction == "response":
            return self.names.to_client(name)
        found = self.names.to_broker(name)
        if self.names.is_escaped(found):
            context.count(self.space.unreachable)
        if len(found) <= MAX_STRING:
            return found
        return name if len(name) > self.space.longest else found[:MAX_STRING]


Translators = Mapping[Namespace, NameTranslator]


def name_translators(names: NameMaps, direction: str) -> dict[Namespace, NameTranslator]:
    """Return a translator for each namespace that rules are about."""
    return {one.space: NameTranslator(one, direction) for one in names.maps}


NAME, ITEM, COUNT, ELEMENT = range(4)
MarkRoles = Mapping[int, tuple[int, str, NameTranslator | None]]
"""Mark number → its kind, its innermost array ("" without an array), and for a name its translator."""


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


GROUP_KEY, TRANSACTION_KEY, SHARE_KEY = 0, 1, 2  # CoordinatorType of FindCoordinatorRequest.java
KEY_TYPE = "coordinator_key_type"
KEYS = {"request": ("key", "coordinator_keys[]"), "response": ("coordinators[].key",)}


@dataclass(frozen=True, slots=True)
class CoordinatorKeys:
    """Rewrite of the coordinators' keys in messages of one direction."""

    translators: Mapping[Namespace, NameTranslator]
    direction: str
    compact: bool

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset((*KEYS[self.direction], *(("key_type",) if self.direction == "request" else ())))

    def bind(self, walk: Walk) -> Apply:
        keys = {number for number, mark in enumerate(walk.marks) if mark.path in KEYS[self.direction]}
        keys = {number for number in keys if walk.marks[number].what == "value"}
        kind_mark = walk.find("value", "key_type")

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            kind = (context.note or {}).get(KEY_TYPE, GROUP_KEY)
            if self.direction == "request":
                kind = next((buf[start] for mark, start, _ in hits if mark == kind_mark), GROUP_KEY)
                note = context.note = context.note or {}
                note[KEY_TYPE] = kind
            for mark, start, end in hits:
                if mark in keys:
                    self.one(buf, start, end, kind, edits, context)

        return apply

    def one(self, buf: Buffer, start: int, end: int, kind: int, edits: Edits, context: Context) -> None:
        """Replace one key. Responses contain only requested names, so they do not contain hidden ones; if a broker
        names one, it is blanked."""
        translator = self.translators.get(TRANSACTIONAL_ID if kind == TRANSACTION_KEY else GROUP)
        old = read_string(buf, start, end, self.compact)
        if old is None or translator is None:
            return
        if kind not in (GROUP_KEY, TRANSACTION_KEY, SHARE_KEY) and not translator.names.isolates:
            return
        name, *rest = old.rsplit(b":", 2) if kind == SHARE_KEY else [old]
        other = translator.translate(name, context)
        if other is None and translator.names.isolates:
            other, rest = b"", []
        if other is not None and other != name:
            edits.replace(start, end, write_string(b":".join((other, *rest))[:MAX_STRING], self.compact))
            context.rewrote(translator.space.changed)
