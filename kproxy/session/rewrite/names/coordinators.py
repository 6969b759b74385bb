"""FindCoordinator: keys that are groups or transactional ids by the key type of the request.

Strategy. Versions up to 3 have one key, with its type behind it (or none: a group); later ones a list behind the type,
and keys in the response, which says nothing of their type: it is noted with the request. The key of a share partition
is `group:topic id:partition` (KIP-932), where the group may hold colons, too. What keys of other types are nobody can
tell: those of a tenant are taken for its groups, the rest stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import MAX_STRING, Buffer
from kproxy.protocol.scan.walk import Hits, Walk, read_string, write_string
from kproxy.rules.names.layer import GROUP, TRANSACTIONAL_ID, Namespace
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.rewriter import Apply

from .translator import NameTranslator

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
        """Replace one key. Responses hold what was asked for, so no hidden name comes back; should a broker name one,
        it is blanked."""
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
