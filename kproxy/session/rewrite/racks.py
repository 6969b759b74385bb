"""Racks that clients leave empty, filled in: brokers then know the zone in which a client is.

    Fetch 11+                        brokers name a follower in the client's rack to read from (KIP-392)
    heartbeats of the newer groups   brokers assign partitions by rack; only a member that joins says its rack, since
                                     null means "as before" later
    JoinGroup                        the leader assigns by rack, which stands in a consumer's subscription from its
                                     version 3 on (KIP-881); one of another version, or protocol, stays as it is

A Fetch is changed only for clients that name their library (KIP-511), as both came with Kafka 2.4: a library that does
not look for followers may send an empty rack all the same, and would ask the leader for ever, which sends it away.

What a client says of itself is never changed. Fetch, the one frequent request among them, has a shorter way of its
own, `fetch_racks.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kproxy.base.errors import DecodeError
from kproxy.protocol.breath import each
from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import Buffer, read_uvarint, write_uvarint
from kproxy.protocol.scan.walk import Hits, Walk, compile_walk, read_string, write_string
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import FETCH, JOIN_GROUP, NEW_HEARTBEATS

from .context import Context
from .rewriter import Apply, Rewrite

RACK, EPOCH = "rack_id", "member_epoch"
PROTOCOL_TYPE, SUBSCRIPTIONS = "protocol_type", "protocols[].metadata"
JOINING = bytes(4)
"""Epoch of a member that joins."""
CONSUMER = b"consumer"
SUBSCRIPTION, RACK_FROM = "consumer_subscription", 3
"""The consumer protocol's name of what a member sends, and the version in which it has a rack for the first time."""
PREFIX, LENGTH = 2, 4
"""Bytes of the version in front of a subscription, and of a length that is no varint."""
COUNTED = "racks"


def rack_rewrite(key: int, version: int, rack: bytes) -> Rewrite | None:
    """Return the rewrite that puts the rack into these requests; None: they have none, or none that is the client's.
    Raises KeyError for an API or version that the table lacks."""
    struct = layout.body(key, version, "request")
    if key == JOIN_GROUP:
        return SubscriptionRack(rack, struct.flexible)
    if key in NEW_HEARTBEATS or (key == FETCH and any(slot.path == RACK for slot in struct.slots)):
        return EmptyRack(write_string(rack, struct.flexible), struct.flexible, joining=key in NEW_HEARTBEATS)
    return None


@dataclass(frozen=True, slots=True)
class EmptyRack:
    """Rewrite of the rack at the top of a request. `joining`: only that of a member that joins its group."""

    encoded: bytes
    compact: bool
    joining: bool

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset((RACK, EPOCH) if self.joining else (RACK,))

    def bind(self, walk: Walk) -> Apply:
        rack, epoch = walk.find("value", RACK), walk.find("value", EPOCH)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            found = {number: (start, end) for number, start, end in hits if number in (rack, epoch)}
            if bytes(buf[slice(*found[epoch])]) != JOINING if self.joining else not context.names_library:
                return
            start, end = found[rack]
            if not read_string(buf, start, end, self.compact):
                edits.replace(start, end, self.encoded)
                context.rewrote(COUNTED)

        return apply


@dataclass(frozen=True, slots=True)
class SubscriptionRack:
    """Rewrite of the racks in a JoinGroup's subscriptions, which other rewrites may have replaced already."""

    rack: bytes
    compact: bool

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset((PROTOCOL_TYPE, SUBSCRIPTIONS))

    def bind(self, walk: Walk) -> Apply:
        kind, metadata = walk.find("value", PROTOCOL_TYPE), walk.find("value", SUBSCRIPTIONS)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            others = {(start, end): index for index, (start, end, *_) in enumerate(each(edits.changes))}
            for number, start, end in hits:
                if number == kind and read_string(buf, start, end, self.compact) != CONSUMER:
                    return
                if number == metadata:
                    self.fill(buf, start, end, others.get((start, end)), edits, context)

        return apply

    def fill(self, buf: Buffer, start: int, end: int, other: int | None, edits: Edits, context: Context) -> None:
        """Put the rack into the subscription at buf[start:end], or into what the change numbered `other` puts there."""
        encoded = bytes(buf[start:end]) if other is None else edits.changes[other][2]
        data = encoded[read_uvarint(encoded, 0)[1] if self.compact else LENGTH :]
        filled = self.filled(data)
        if filled is None:
            return
        length = write_uvarint(len(filled) + 1) if self.compact else len(filled).to_bytes(LENGTH, "big")
        context.rewrote(COUNTED)
        if other is None:
            edits.replace(start, end, length + filled)
        else:
            edits.changes[other] = (start, end, length + filled, *edits.changes[other][3:])

    def filled(self, data: bytes) -> bytes | None:
        """Return the subscription with the rack; None: it is no subscription, or has no rack, or one of its own."""
        if len(data) < PREFIX or int.from_bytes(data[:PREFIX], "big", signed=True) < RACK_FROM:
            return None
        hits: Hits = []
        try:
            subscription_walk().run(data, PREFIX, len(data), hits)
        except DecodeError:
            return None
        ((_, start, end),) = hits
        if read_string(data, start, end, compact=False):
            return None
        return data[:start] + write_string(self.rack, compact=False) + data[end:]


@cache
def subscription_walk() -> Walk:
    """Return the walk that finds the rack of a subscription; newer versions have more behind it."""
    return compile_walk(layout.embedded(SUBSCRIPTION, RACK_FROM), {RACK}, SUBSCRIPTION, RACK_FROM)
