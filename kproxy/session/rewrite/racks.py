"""Rack ids for clients that leave them empty: brokers then know the client's zone.

    Fetch 11+                        brokers name a follower in the client's rack to read from (KIP-392)
    heartbeats of the newer groups   brokers assign partitions by rack; only a joining member sends its rack, since
                                     later null means "as before"
    JoinGroup                        the leader assigns by rack, a field of the consumer's subscription from version 3
                                     on (KIP-881); other versions and protocols are not changed

A rack that the client has set is never changed. A Fetch is changed only for clients that name their library (KIP-511),
as both came with Kafka 2.4. A library without support for followers may still send an empty rack. It would ask the
leader forever, which redirects it each time.

Strategy. Fetch is the only frequent request among them, and its racks are filled in inside the buffer. The position of
the rack in a request follows from its counts, lengths and tags. If these equal the ones of an earlier request, the rack
has the same position, for any offsets and partitions. So a template is a mask over the body that selects these bytes,
and any names. One template matches all requests of a consumer with the same number of partitions, by one `&` and a
comparison of two numbers (some tenths of a microsecond). The rack is the last field, so inserting it moves a byte or
two if no later request was read. A request without a matching template is walked, and a template is made from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.cooperative import yielding
from kproxy.base.errors import DecodeError
from kproxy.protocol.edit import Edits
from kproxy.protocol.framing import FIXED_HEAD, known_body_start
from kproxy.protocol.primitives import Buffer, read_uvarint, write_uvarint
from kproxy.protocol.scan.walk import Hits, Walk, compile_walk, read_string, walk, write_string
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import FETCH, JOIN_GROUP, NEW_HEARTBEATS
from kproxy.protocol.table.layout import FIXED

from .context import Context
from .rewriter import Apply, Rewrite, Splice

RACK, EPOCH = "rack_id", "member_epoch"
PROTOCOL_TYPE, SUBSCRIPTIONS = "protocol_type", "protocols[].metadata"
JOINING = bytes(4)
"""Epoch of a member that joins."""
CONSUMER = b"consumer"
SUBSCRIPTION, RACK_FROM = "consumer_subscription", 3
"""The consumer protocol's struct for JoinGroup, and its first version with a rack."""
PREFIX, LENGTH = 2, 4
"""Bytes of the version before a subscription, and of a length that is not a varint."""
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
            others = {(start, end): index for index, (start, end, *_) in enumerate(yielding(edits.changes))}
            for number, start, end in hits:
                if number == kind and read_string(buf, start, end, self.compact) != CONSUMER:
                    return
                if number == metadata:
                    self.fill(buf, start, end, others.get((start, end)), edits, context)

        return apply

    def fill(self, buf: Buffer, start: int, end: int, other: int | None, edits: Edits, context: Context) -> None:
        """Put the rack into the subscription at buf[start:end], or into the replacement in the change numbered
        `other`."""
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
        """Return the subscription with the rack; None: it is not a subscription, has no rack field, or the client has
        set its own rack."""
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
    """Return the walk that finds the rack of a subscription; newer versions have more fields after it."""
    return compile_walk(layout.embedded(SUBSCRIPTION, RACK_FROM), {RACK}, SUBSCRIPTION, RACK_FROM)


LONGEST = 1024
"""Bytes of a body that a template is made of: some thirty partitions. Numbers that are much longer take as long to
compare as a walk does."""
MOST_KNOWN = 64
"""Maximum lengths of bodies with a template, each at most 2 kB."""
PATIENCE = 16
"""Consecutive template misses; after that only one miss in as many is learned, because learning costs more than a
walk."""


class BodyTemplate(NamedTuple):
    """Template of a body: the bytes in `mask` have to equal `value`. The rack begins at `start`, and is empty up to
    `stop`; both are 0 if the client has set its own."""

    mask: int
    value: int
    start: int
    stop: int


class FetchRacks:
    """Racks of the Fetch requests of one version, on all connections with the same rules."""

    __slots__ = ("encoded", "flexible", "header_version", "known", "misses", "numbers", "walk")

    def __init__(self, version: int, rack: bytes) -> None:
        api, struct = schema.load(FETCH), layout.body(FETCH, version, "request")
        self.flexible, self.header_version = version in api.flexible, api.header_version("request", version)
        self.walk = walk(FETCH, version, "request", frozenset((RACK,)))
        fixed = frozenset(slot.path for slot in struct.everywhere() if slot.type in FIXED)
        self.numbers = walk(FETCH, version, "request", fixed)
        self.encoded = write_string(rack, self.flexible)
        self.known = BoundedMap[int, BodyTemplate](MOST_KNOWN)
        self.misses = 0

    def fill(
        self, buf: Buffer, pos: int, n: int, size: int, id_length: int, commands: Sequence[object], context: Context
    ) -> int:
        """Fill in the rack of the frame at `pos`, buffered as buf[pos:n]; return the new end of the frame.

        0: the frame needs the slower path, since no template matches, or the buffer has no room for its rack.
        """
        end = pos + LENGTH + size
        body = pos + LENGTH + FIXED_HEAD + id_length if id_length > 0 else pos + LENGTH + FIXED_HEAD
        if end > n or body >= end:
            return 0
        if self.flexible:
            if buf[body]:  # tags in the header
                return 0
            body += 1
        place = self.known_place(buf, body, end)
        if place is None:
            return 0
        start, stop = place
        if not start or not context.names_library:
            return end
        encoded = self.encoded
        grown = end + len(encoded) - (stop - start)
        if end != n or grown > len(buf) or commands or not isinstance(buf, memoryview):
            return 0
        buf[body + start : grown] = encoded + bytes(buf[body + stop : end])
        buf[pos : pos + LENGTH] = (grown - pos - LENGTH).to_bytes(LENGTH, "big")
        context.rewrote(COUNTED)
        return grown

    def splice(self, buf: Buffer, pos: int, end: int, context: Context) -> Splice | None:
        """Return the change of the frame with its size at `pos`; buf[pos:end] has arrived. None: the entire frame is
        needed."""
        if end - pos != LENGTH + int.from_bytes(buf[pos : pos + LENGTH], "big"):
            return None
        body = known_body_start(buf, pos + LENGTH, end, self.header_version, "request")
        place = None if body is None else self.known_place(buf, body, end) or self.find_place(buf, body, end)
        if body is None or place is None:
            return None
        start, stop = place
        if not start or not context.names_library:
            return pos, pos, b""
        context.rewrote(COUNTED)
        return body + start, body + stop, self.encoded

    def known_place(self, buf: Buffer, body: int, end: int) -> tuple[int, int] | None:
        """Return the span of the empty rack in the body at buf[body:end], (0, 0) if the client has set its own; None:
        no matching template."""
        known = self.known.get(end - body)
        if known is None or int.from_bytes(buf[body:end], "big") & known.mask != known.value:
            return None
        self.misses = 0
        return known.start, known.stop

    def find_place(self, buf: Buffer, body: int, end: int) -> tuple[int, int] | None:
        """Return the same by a walk, and learn it; None: the body does not follow its grammar, or has bytes after the
        last field."""
        hits: Hits = []
        try:
            if self.walk.run(buf, body, end, hits) != end:
                return None
        except DecodeError:
            return None
        ((_, start, stop),) = hits
        place = (0, 0) if read_string(buf, start, stop, self.flexible) else (start - body, stop - body)
        self.misses += 1
        if end - body <= LONGEST and (self.misses <= PATIENCE or not self.misses % PATIENCE):
            self.learn(buf, body, end, place)
        return place

    def learn(self, buf: Buffer, body: int, end: int, place: tuple[int, int]) -> None:
        """Make a template of the body at buf[body:end], which is good."""
        size = end - body
        hits: Hits = []
        self.numbers.run(buf, body, end, hits)
        mask = bytearray(b"\xff" * size)
        marks = self.numbers.marks
        for number, start, stop in hits:
            if marks[number].what == "value":
                mask[start - body : stop - body] = bytes(stop - start)
        left = int.from_bytes(mask, "big")
        self.known[size] = BodyTemplate(left, int.from_bytes(buf[body:end], "big") & left, *place)
