"""What becomes of the frames of one API and version: how much of them is kept, and by which way."""

from __future__ import annotations

from collections.abc import Callable

from kproxy.wire import schema
from kproxy.wire.api_keys import CONTROLLED_SHUTDOWN, FETCH, PRODUCE, SASL_HANDSHAKE, SHARE_FETCH
from kproxy.wire.head import AcksReader, produce_acks

from .credentials import REQUEST, RESPONSE, secret_paths, withheld_body
from .error_places import has_errors_inside
from .seen import Depth

RECORDS = frozenset(((PRODUCE, REQUEST), (FETCH, RESPONSE), (SHARE_FETCH, RESPONSE)))
"""Messages with record batches in them that a summary wants the rows of."""
SMALL = 65536
"""Bytes up to which a frame with records is kept as it is and looked at as a whole; longer ones are sketched."""
HEAD_KEPT = 1024
"""Bytes kept of a frame for which a connection's memory does not suffice."""


class Wanted:
    """Of one (api key, version). `counted`: the summary wants it. `taken`: somebody takes its exchanges.

    `nested`: it is counted only, and its responses have to be walked for the errors in them. `lined`: those who take
    its exchanges want nothing but a line of text of each.
    """

    __slots__ = ("acks", "counted", "depth", "depths", "key", "lined", "nested", "plain", "secret", "small", "taken",
                 "values", "version")  # fmt: skip

    def __init__(self, key: int, version: int, depth: Depth, counted: bool) -> None:
        lined = depth == Depth.LINES
        depth = Depth.SKETCH if lined else depth
        self.key, self.version, self.depth, self.counted = key, version, depth, counted
        self.taken = depth >= Depth.SKETCH
        known = key in schema.paths()
        self.acks: AcksReader | None = None
        if key == PRODUCE and version in schema.load(key).versions:
            self.acks = produce_acks(version)
        self.secret = tuple(withheld_body(key, version, one) for one in (REQUEST, RESPONSE))
        self.values = tuple(bool(known and secret_paths(key, one)) for one in (REQUEST, RESPONSE))
        self.nested = counted and depth == Depth.ROWS and not self.secret[1] and has_errors_inside(key, version)
        self.depths = (self._depth(REQUEST), self._depth(RESPONSE))
        # whole frames are kept as they are; produce requests have to say whether an answer is due
        odd = key in (SASL_HANDSHAKE, CONTROLLED_SHUTDOWN) or (key == PRODUCE and self.acks is None)
        self.plain = tuple(self.taken and not odd and not self.secret[at] and not self.values[at] for at in (0, 1))
        self.lined = lined and not counted and all(self.plain) and version in schema.load(key).versions
        sketched = depth == Depth.SKETCH
        self.small = tuple(sketched and (key, one) in RECORDS for one in (REQUEST, RESPONSE))  # kept up to SMALL only

    def _depth(self, direction: str) -> Depth:
        """How much of the frames of one direction: rows are made from sketches."""
        if self.depth != Depth.ROWS:
            return self.depth
        rows = self.counted and (self.key == PRODUCE or (self.key, direction) in RECORDS)
        rows |= self.nested and direction == RESPONSE
        return Depth.SKETCH if rows else Depth.COUNT


class Plan(dict[int, Wanted]):
    """api key << 16 | version → what is wanted; both as they stand on the wire, without sign."""

    def __init__(self, interest: Callable[[int, int], Depth], counts: Callable[[int, int], bool] | None) -> None:
        self.interest, self.counts = interest, counts

    def __missing__(self, code: int) -> Wanted:
        key, version = signed(code >> 16), signed(code & 0xFFFF)
        counted = self.counts is not None and self.counts(key, version)
        found = Wanted(key, version, self.interest(key, version), counted)
        if len(self) < MOST_PLANNED:
            self[code] = found
        return found


MOST_PLANNED = 2000
"""Remembered answers of a connection; there are some 600 pairs of API and version, and a client uses twenty."""


def signed(number: int) -> int:
    return number - 0x10000 if number >= 0x8000 else number


def code_of(key: int, version: int) -> int:
    """As it stands in a request's header."""
    return (key & 0xFFFF) << 16 | version & 0xFFFF
