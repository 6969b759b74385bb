"""Exchanges that are not over, and how responses find theirs."""

from __future__ import annotations

from collections import deque
from operator import itemgetter
from typing import Any

from kproxy.record.exchange import Depth, Form, Frame, ObservedExchange, Who
from kproxy.session.inflight import IdIndex

from .credentials import REQUEST, RESPONSE, header_end, take_out
from .frames import SIZE_BYTES, PartialFrame
from .observation import Observation
from .partition_rows import ProducedRow

MOST_OPEN = 2000
"""Requests that may be open at a time; kproxy itself lets a client have `max_in_flight` (1,000) and what came with them
in one read. More in a capture are requests whose responses are missing there."""
DIRECTIONS = (REQUEST, RESPONSE)
CUT_SECRET = "config values in a frame that is too long to be looked at as a whole"

OpenEntry = tuple[Any, ...]
"""(correlation id, OpenExchange or template of the request, time, size, records); the last two mean something only
beside a template, where nothing else was kept of the request."""


class OpenExchange:
    """Exchange of one connection that is under way. `seen` is None where only the number of frames is wanted."""

    __slots__ = ("arriving", "asked", "correlation", "kept", "seen", "wanted")
    response_template = None
    """An open exchange has no template for its response; a class attribute, so that the loop need not tell apart what
    an entry holds."""

    def __init__(self, correlation: int, wanted: Observation, seen: ObservedExchange | None) -> None:
        self.correlation, self.wanted, self.seen = correlation, wanted, seen
        self.arriving: PartialFrame | None = None  # the request, as long as it is not whole
        self.kept = 0  # bytes of the connection's `room` that it has
        self.asked: list[ProducedRow] | None = None  # the request's rows, if they are known already

    def materialise(self, _who: Who, _entry: OpenEntry) -> OpenExchange:
        """Return the open exchange itself, as templates return one that they make of an entry."""
        return self

    def take_request(self, now: float) -> None:
        """Put into the exchange as much as was kept of the request under way, which ends or is cut at `now`."""
        frame, self.arriving = self.arriving, None
        if frame is not None and self.seen is not None:
            self.seen.request = self.frame_of(frame, 0, now)

    def take_response(self, frame: PartialFrame, now: float) -> None:
        """Put into the exchange as much as was kept of its response, which ends or is cut at `now`."""
        if self.seen is not None:
            self.seen.response = self.frame_of(frame, 1, now)

    def frame_of(self, frame: PartialFrame, which: int, now: float) -> Frame:
        """Return the `Frame` that was kept of a request (`which` 0) or response (1); its last byte came at `now`."""
        made, wanted = Frame(frame.total, frame.first, now), self.wanted
        if wanted.depths[which] < Depth.SKETCH:
            return made
        data = bytes(memoryview(frame.data)[SIZE_BYTES:])
        sketcher, whole = frame.sketcher, frame.whole
        if frame.secret:
            made.data, made.form, made.withheld = data, Form.HEAD, frame.secret
        elif not whole and wanted.values[which]:
            made.data = data[: header_end(data, wanted.key, wanted.version, DIRECTIONS[which])]
            made.form, made.withheld = Form.HEAD, CUT_SECRET
        elif len(frame.data) == frame.total:
            made.data, made.withheld = take_out(data, wanted.key, wanted.version, DIRECTIONS[which])
            made.form = Form.WHOLE if len(made.data) == len(data) else Form.HEAD
        elif sketcher is None:
            made.data, made.form = data, Form.HEAD
        elif data:  # the first bytes and a sketch were wanted
            made.data, made.form = data, Form.HEAD
            if whole and not sketcher.failed:
                made.sketch = sketcher.data()
        else:
            made.data = sketcher.data()
            made.form = Form.SKETCH if whole and not sketcher.failed else Form.HEAD
        if sketcher is not None and sketcher.failed and self.seen is not None:
            self.seen.unread = sketcher.failed
        return made


class OpenExchanges(deque[Any]):
    """Queue of the open exchanges of one connection, the oldest first."""

    places: IdIndex | None = None
    """Index by correlation id, made at the first question about an entry that is not the oldest."""

    def find(self, correlation: int) -> Any:
        """Take out and return the oldest entry with this correlation id; None if there is none."""
        if self and self[0][0] == correlation:
            return self.popleft()
        if not self:
            return None
        if self.places is None:
            self.places = IdIndex(itemgetter(0))
        return self.places.take(self, correlation)

    def replace(self, at: int, entry: OpenEntry) -> None:
        """Put another entry with the same id in the place of the one at `at`."""
        if self.places is not None and self.places.last is self[at]:
            self.places.last = entry
        self[at] = entry

    def place(self, correlation: int, older: int) -> int:
        """Return the index of the entry with this id that has `older` ones with it before it, -1 if none has the id.

        The newest one with this id counts if there are not so many.
        """
        if not older and self and self[0][0] == correlation:
            return 0
        if self.places is None:
            self.places = IdIndex(itemgetter(0))
        return self.places.place(self, correlation, older)
