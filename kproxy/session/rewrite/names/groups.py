"""Topic names inside the bytes of the classic group protocol: JoinGroup, SyncGroup, DescribeGroups.

Strategy. The bytes follow the consumer protocol only if the group's protocol type is `consumer`. Where a version does
not carry the type it comes from the request of the same exchange, or from the JoinGroup that this connection sent for
the group before. If the type is unknown, bytes that fill the consumer protocol's grammar exactly are taken as such; for
a tenant, all bytes that can be read as such.

Brokers read these bytes when a group changes over to the newer protocol (KIP-848), and list the assigned topics in
responses. So of a tenant none leave that kproxy cannot read: an empty list of topics goes in their place.

The bytes are read by the same walk and edits as entire messages. A version above 3 is read as 3 and the bytes after it
are kept, as `ConsumerProtocol.java` does. Some clients write a version and leave out what it added; such bytes are read
as the newest version that they fill exactly. Bytes that fit no version are returned unchanged.

The `sticky` assignor (StickyAssignor.java) keeps the previous assignment in user_data: topics with their partitions,
then a generation that older ones lack. Other assignors keep no topic names there, or (Kafka Streams) in bytes of their
own that clients alone read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kproxy.base.cooperative import free_list, yielding_list
from kproxy.base.errors import DecodeError
from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import Buffer, read_uvarint, write_uvarint
from kproxy.protocol.scan.walk import Hits, Walk, compile_walk, read_string
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import DESCRIBE_GROUPS, JOIN_GROUP, SYNC_GROUP
from kproxy.protocol.table.layout import Struct
from kproxy.session.rewrite.context import MAX_GROUP_BYTES, PROTOCOLS, Context, session_lru
from kproxy.session.rewrite.rewriter import Apply

from .translator import NameTranslator, PlainNames, innermost

SUBSCRIPTION, ASSIGNMENT = "consumer_subscription", "consumer_assignment"
STICKY = b"sticky"
PREFIX = 2  # the version, INT16, in front
LENGTH = 4  # bytes of the length in front of a bytes field
STICKY_FIELDS = {"previous_assignment []struct 0+": ["topic string 0+ is topic_name", "partitions []int32 0+"]}
USER_DATA = "user_data"


@cache
def sticky_struct() -> Struct:
    return layout.build((schema.parse_field(STICKY_FIELDS),), 0, False)


@cache
def embedded_walk(name: str, version: int) -> tuple[Walk, frozenset[str]]:
    """Return a walk that finds all topic names, and their paths."""
    struct = sticky_struct() if name == "sticky" else layout.embedded(name, version)
    paths = struct.paths("topic_name")
    return compile_walk(struct, paths | {innermost(path) for path in paths} | {USER_DATA}, name, version), paths


def rewrite_struct(
    data: bytes,
    start: int,
    name: str,
    version: int,
    translator: NameTranslator,
    assignor: bytes,
    context: Context,
    whole: bool,
) -> bytes:
    """Return the bytes with the names of the other side. Raises DecodeError if they are not this struct.

    `whole`: also refuse bytes after the last field.
    """
    walk, paths = embedded_walk(name, version)
    hits: Hits = []
    after = walk.run(data, start, len(data), hits)
    if whole and after != len(data):
        raise DecodeError(f"{len(data) - after} bytes after the last field", api=name, version=version, offset=after)
    hits = yielding_list(hits)
    edits = Edits(data, 0, len(data), walk, hits)
    PlainNames(dict.fromkeys(paths, translator), compact=False).bind(walk)(data, hits, edits, context)
    if assignor == STICKY:
        number = walk.find("value", USER_DATA)
        for mark, begin, end in hits:
            if mark == number and end > begin + LENGTH:
                inner = rewrite_user_data(data[begin + LENGTH : end], translator, context)
                edits.replace(begin, end, len(inner).to_bytes(LENGTH, "big") + inner)
    rewritten = b"".join(edits.pieces()) if edits else data
    edits.free()
    free_list(hits)
    return rewritten


def rewrite_user_data(data: bytes, translator: NameTranslator, context: Context) -> bytes:
    """Return the sticky assignor's remembered assignment with the names of the other side; a generation and other bytes
    after it stay. Bytes that cannot be read are counted and returned as they are."""
    try:
        return rewrite_struct(data, 0, "sticky", 0, translator, b"", context, False)
    except DecodeError:
        context.count("group_bytes_unreadable")
        return data


def rewrite_consumer_bytes(
    data: bytes, name: str, translator: NameTranslator, assignor: bytes, context: Context, exactly: bool = False
) -> bytes | None:
    """Return a subscription or assignment with the names of the other side. None: it cannot be read as one.

    `exactly`: refuse bytes after the last field; for bytes that may not follow the consumer protocol.
    """
    version = int.from_bytes(data[:PREFIX], "big", signed=True)
    if len(data) < PREFIX or version < 0:
        return None
    newest = schema.embedded()[name].versions.last
    first = min(version, newest)
    for candidate in range(first, -1, -1):
        whole = candidate < first or (exactly and version <= newest)
        try:
            return rewrite_struct(data, PREFIX, name, candidate, translator, assignor, context, whole)
        except DecodeError:
            continue
    return None


CONSUMER = b"consumer"
NO_TOPICS = bytes(6) + b"\xff" * 4
"""A subscription or an assignment of version 0, with no topics and null for user data."""
GROUP, TYPE, ASSIGNOR = "group", "type", "assignor"
GROUP_FIELDS: dict[tuple[int, str], dict[str, str]] = {
    (JOIN_GROUP, "request"): {
        "group_id": GROUP, "protocol_type": TYPE, "protocols[].name": ASSIGNOR, "protocols[].metadata": SUBSCRIPTION
    },
    (JOIN_GROUP, "response"): {"protocol_type": TYPE, "protocol_name": ASSIGNOR, "members[].metadata": SUBSCRIPTION},
    (SYNC_GROUP, "request"): {
        "group_id": GROUP, "protocol_type": TYPE, "protocol_name": ASSIGNOR, "assignments[].assignment": ASSIGNMENT
    },
    (SYNC_GROUP, "response"): {"protocol_type": TYPE, "protocol_name": ASSIGNOR, "assignment": ASSIGNMENT},
    (DESCRIBE_GROUPS, "response"): {
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
    translator: NameTranslator
    compact: bool

    @property
    def fields(self) -> dict[str, str]:
        return GROUP_FIELDS[self.key, self.translator.direction]

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset(self.fields)

    def bind(self, walk: Walk) -> Apply:
        fields = self.fields
        roles = {
            number: fields[mark.path]
            for number, mark in enumerate(walk.marks)
            if mark.what == "value" and mark.path in fields
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
        if self.translator.direction == "request":
            self.learn(found, context)

    def known_type(self, group: bytes | None, context: Context) -> bytes | None:
        """Return the protocol type from earlier messages of this connection. For a tenant's group, only `consumer` is
        returned: the group may have refused a member with another type, or other connections may have changed its
        type."""
        if self.translator.direction == "response":
            return (context.note or {}).get(PROTOCOLS)
        kept: bytes | None = session_lru(context.memory, PROTOCOLS).get(group)
        return None if self.translator.names.isolates and kept != CONSUMER else kept

    def learn(self, found: dict[str, bytes | None], context: Context) -> None:
        """Remember the protocol type for the response, which may lack it, and for the group's next requests."""
        group, kind = found.get(GROUP), found.get(TYPE)
        kept = session_lru(context.memory, PROTOCOLS)
        if kind and len(group or b"") + len(kind) <= MAX_GROUP_BYTES:
            kept[group] = kind
        note = context.note = context.note or {}
        note[PROTOCOLS] = kind or self.known_type(group, context)

    def bytes_at(
        self, buf: Buffer, start: int, end: int, what: str, assignor: bytes, guess: bool, edits: Edits, context: Context
    ) -> None:
        """Rewrite one bytes field; `guess`: the bytes may not follow the consumer protocol."""
        value = read_uvarint(buf, start)[1] if self.compact else start + 4
        data = bytes(buf[value:end])
        if not data:
            return
        strict = self.translator.names.isolates and self.translator.direction == "request"
        new = rewrite_consumer_bytes(data, what, self.translator, assignor, context, exactly=guess and not strict)
        if new is None and not guess:
            context.count("group_bytes_unreadable")
            new = NO_TOPICS if strict else None
        if new is not None and new != data:
            length = write_uvarint(len(new) + 1) if self.compact else len(new).to_bytes(4, "big")
            edits.replace(start, end, length + new)
