"""Topic names inside the bytes of the classic group protocol: JoinGroup, SyncGroup, DescribeGroups.

Strategy. The bytes are the consumer protocol's only if the group's protocol type says so. Where a version does not
carry the type it comes from the request of the same exchange, or from the JoinGroup that this connection sent for the
group before. If nobody said, bytes that fill the consumer protocol's grammar exactly are taken as such; of a tenant all
that can be read as such.

Brokers read these bytes when a group changes over to the newer protocol (KIP-848), and tell what is assigned. So of a
tenant none leave that kproxy cannot read: an empty list of topics goes in their place.
"""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.core.rewrite import Apply, Buffer, Context, Hits
from kproxy.wire.edit import Edits
from kproxy.wire.primitives import read_uvarint, write_uvarint
from kproxy.wire.scan.walk import Walk, read_string

from .consumer_bytes import ASSIGNMENT, SUBSCRIPTION, rewrite_consumer_bytes
from .remembered import MAX_GROUP_BYTES, MAX_PROTOCOLS, PROTOCOLS, recall, remember
from .spell import Spelling

CONSUMER = b"consumer"
NO_TOPICS = bytes(6) + b"\xff" * 4
"""A subscription or an assignment of version 0, with no topics and null for user data."""
GROUP, TYPE, ASSIGNOR = "group", "type", "assignor"
PLACES: dict[tuple[int, str], dict[str, str]] = {
    (11, "request"): {
        "group_id": GROUP, "protocol_type": TYPE, "protocols[].name": ASSIGNOR, "protocols[].metadata": SUBSCRIPTION
    },
    (11, "response"): {"protocol_type": TYPE, "protocol_name": ASSIGNOR, "members[].metadata": SUBSCRIPTION},
    (14, "request"): {
        "group_id": GROUP, "protocol_type": TYPE, "protocol_name": ASSIGNOR, "assignments[].assignment": ASSIGNMENT
    },
    (14, "response"): {"protocol_type": TYPE, "protocol_name": ASSIGNOR, "assignment": ASSIGNMENT},
    (15, "response"): {
        "groups[].protocol_type": TYPE,
        "groups[].protocol_data": ASSIGNOR,
        "groups[].members[].member_metadata": SUBSCRIPTION,
        "groups[].members[].member_assignment": ASSIGNMENT,
    },
}  # fmt: skip
"""Meaning of each field, in wire order: the type always precedes the bytes."""


@dataclass(frozen=True, slots=True)
class GroupBytes:
    """Rewrite of the group bytes of one message: subscriptions or assignments."""

    key: int
    spelling: Spelling
    compact: bool

    @property
    def places(self) -> dict[str, str]:
        return PLACES[self.key, self.spelling.direction]

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset(self.places)

    def bind(self, walk: Walk) -> Apply:
        places = self.places
        roles = {
            number: places[mark.path]
            for number, mark in enumerate(walk.marks)
            if mark.what == "value" and mark.path in places
        }

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            self.rewrite(buf, hits, edits, context, roles)

        return apply

    def rewrite(self, buf: Buffer, hits: Hits, edits: Edits, context: Context, roles: dict[int, str]) -> None:
        found: dict[str, bytes | None] = {}
        for mark, start, end in hits:
            role = roles.get(mark)
            if role is None:
                continue
            if role in (GROUP, TYPE, ASSIGNOR):
                found[role] = read_string(buf, start, end, self.compact)
                continue
            kind = found.get(TYPE) or self.known_type(found.get(GROUP), context)
            if kind in (CONSUMER, None):
                self.bytes_at(buf, start, end, role, found.get(ASSIGNOR) or b"", kind is None, edits, context)
        if self.spelling.direction == "request":
            self.learn(found, context)

    def known_type(self, group: bytes | None, context: Context) -> bytes | None:
        """Return the protocol type that earlier messages of this connection told. Of a tenant's group, only that it is
        consumers': a group may have refused who said another, or have changed by other connections."""
        if self.spelling.direction == "response":
            return (context.note or {}).get(PROTOCOLS)
        kept: bytes | None = recall(context.memory, PROTOCOLS).get(group)
        return None if self.spelling.names.isolates and kept != CONSUMER else kept

    def learn(self, found: dict[str, bytes | None], context: Context) -> None:
        """Remember the protocol type for the response, which need not say it, and for the group's next requests."""
        group, kind = found.get(GROUP), found.get(TYPE)
        kept = recall(context.memory, PROTOCOLS)
        if kind and len(group or b"") + len(kind) <= MAX_GROUP_BYTES:
            remember(kept, group, kind, MAX_PROTOCOLS)
        note = context.note = context.note or {}
        note[PROTOCOLS] = kind or self.known_type(group, context)

    def bytes_at(
        self, buf: Buffer, start: int, end: int, what: str, assignor: bytes, guess: bool, edits: Edits, context: Context
    ) -> None:
        """Rewrite one bytes field; `guess`: it is not known to be the consumer protocol's."""
        value = read_uvarint(buf, start)[1] if self.compact else start + 4
        data = bytes(buf[value:end])
        if not data:
            return
        strict = self.spelling.names.isolates and self.spelling.direction == "request"
        new = rewrite_consumer_bytes(data, what, self.spelling, assignor, context, exactly=guess and not strict)
        if new is None and not guess:
            context.count("group_bytes_unreadable")
            new = NO_TOPICS if strict else None
        if new is not None and new != data:
            length = write_uvarint(len(new) + 1) if self.compact else len(new).to_bytes(4, "big")
            edits.replace(start, end, length + new)
