"""Racks of Fetch requests: filled in where the frame lies, by templates of requests that were met before.

Strategy. Where the rack of a request stands follows from its counts, lengths and tags. As long as these are what they
were in a request before, whatever offsets and partitions it asks for, its rack stands where it stood there. So a
template is a mask over the body that leaves these bytes, and any names: one `&` and a comparison of two numbers, some
tenths of a microsecond for all requests of a consumer that fetches so many partitions. The rack is the last field, so
what is put in moves a byte or two if nothing was read behind the request.

A request that no template knows is walked, and one is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kproxy.base.errors import DecodeError
from kproxy.protocol.framing import FIXED_HEAD, known_body_start
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, read_string, walk, write_string
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import FETCH
from kproxy.protocol.table.layout import FIXED

from .context import Context
from .racks import COUNTED, LENGTH, RACK
from .rewriter import Splice

LONGEST = 1024
"""Bytes of a body that a template is made of: some thirty partitions. Numbers that are much longer take as long to
compare as a walk does."""
MOST_KNOWN = 64
"""Lengths of bodies of which a template is kept, 2 kB each at most; beyond, all are learnt anew."""
PATIENCE = 16
"""Requests in a row that no template knows, after which only one in as many is learnt: that is dearer than a walk."""


class BodyTemplate(NamedTuple):
    """Template of a body: `mask` leaves of it what has to be `value`. The rack begins at `start`, and is empty up to
    `stop`; these are 0 where it is the client's own."""

    mask: int
    value: int
    start: int
    stop: int


class FetchRacks:
    """Racks of the Fetch requests of one version, on all connections for which the same rules hold."""

    __slots__ = ("encoded", "flexible", "header_version", "known", "misses", "numbers", "walk")

    def __init__(self, version: int, rack: bytes) -> None:
        api, struct = schema.load(FETCH), layout.body(FETCH, version, "request")
        self.flexible, self.header_version = version in api.flexible, api.header_version("request", version)
        self.walk = walk(FETCH, version, "request", frozenset((RACK,)))
        fixed = frozenset(slot.path for slot in struct.everywhere() if slot.type in FIXED)
        self.numbers = walk(FETCH, version, "request", fixed)
        self.encoded = write_string(rack, self.flexible)
        self.known: dict[int, BodyTemplate] = {}
        self.misses = 0

    def fill(
        self, buf: Buffer, pos: int, n: int, size: int, id_length: int, commands: Sequence[object], context: Context
    ) -> int:
        """Fill in the rack of the frame at `pos`, of which buf[pos:n] is here; return where it ends then.

        0: it has to be looked at in another way, as no template knows it, or there is no room for its rack.
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
        """Return what is to change of the frame whose size is at `pos` and of which buf[pos:end] is here. None: it is
        to be looked at whole."""
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
        """Return where the empty rack stands in the body at buf[body:end], (0, 0) if it is the client's own; None: no
        template knows it."""
        known = self.known.get(end - body)
        if known is None or int.from_bytes(buf[body:end], "big") & known.mask != known.value:
            return None
        self.misses = 0
        return known.start, known.stop

    def find_place(self, buf: Buffer, body: int, end: int) -> tuple[int, int] | None:
        """Return the same by a walk, and learn it; None: the body does not follow its grammar, or has bytes behind."""
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
        known, size = self.known, end - body
        hits: Hits = []
        self.numbers.run(buf, body, end, hits)
        mask = bytearray(b"\xff" * size)
        marks = self.numbers.marks
        for number, start, stop in hits:
            if marks[number].what == "value":
                mask[start - body : stop - body] = bytes(stop - start)
        if len(known) >= MOST_KNOWN:
            known.clear()
        left = int.from_bytes(mask, "big")
        known[size] = BodyTemplate(left, int.from_bytes(buf[body:end], "big") & left, *place)
