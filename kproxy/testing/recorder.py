"""Tape of a test: the exchanges of its clients with all bytes, at the clients and at the brokers.

Strategy. The tape is a sink of the fan-out at RAW depth. So it has
the view of the clients after all rules, and that of the brokers. It has no effect on the traffic. Frames are decoded on
access, by the accessing thread.

A full tape evicts the largest and least useful bytes first: of the oldest long frames it keeps all fields and the
headers of record batches (`protocol/scan/sketch.py`), so that each exchange keeps its place and its size. If that is
not enough, the oldest exchanges are evicted.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from kproxy.protocol.scan.sketch import Sketcher
from kproxy.record.exchange import Depth, Form, Frame, ObservedExchange, Who
from kproxy.record.observer.observation import SIZE_BYTES

from .mock_rules import NAMES as MOCK_RULES

if TYPE_CHECKING:
    from kproxy.runtime.connection_view import ConnectionInfo
    from kproxy.runtime.tap import Tap

MOST_BYTES = 64 << 20  # of all kept frames; tests usually move far less
MOST_FRAMES = 100_000  # exchanges; with the objects around them some 100 MB
MOST_BEHIND = 32 << 20  # bytes of frames of the broker side
LARGEST = 100 << 20  # kept bytes of a frame; brokers reject larger frames
LONG = 4096  # least bytes of frames whose records are evicted first
HEAD = 1024  # kept bytes of a long frame with an invalid structure: its header, mostly
OWN = "own"
"""Name of the listener for test setup and checks: only rules about names act there, and nothing is taped."""
FRONT, BEHIND = 0, 1


class TapedExchange:
    """Exchange on the tape. `read`: its decoded form, kept here by its reader. `left`: the client has closed the
    connection, but the proxy does not read from it."""

    __slots__ = ("left", "read", "seen")

    def __init__(self, seen: ObservedExchange, *, left: bool = False) -> None:
        self.seen, self.left = seen, left
        self.read: Any = None

    @property
    def who(self) -> ConnectionInfo:
        who: Any = self.seen.who
        return who  # type: ignore[no-any-return]  # observers of the proxy make no other

    @property
    def request(self) -> Frame:
        assert self.seen.request is not None, "the tape keeps no exchange without a request"
        return self.seen.request

    @property
    def answered(self) -> float | None:
        """Return when the response was sent, in monotonic seconds; None without one."""
        return None if self.seen.answer is None else self.seen.answer.last

    @property
    def rules(self) -> list[str]:
        """Return the names of the rules that fired, without those of the mock cluster."""
        return [name for name in self.seen.rules if name not in MOCK_RULES]

    @property
    def cut_by(self) -> str:
        """Return why the connection ended before the response was sent, such as `client_closed`; empty otherwise."""
        if self.seen.outcome in ("answered", "no_answer_due"):
            return ""
        end = self.who.end
        return end.cause if end is not None else "client_closed" if self.left else ""

    @property
    def size(self) -> int:
        return sum(len(frame.data) for frame in (self.seen.request, self.seen.response) if frame is not None)

    def thin(self) -> int:
        """Evict the records. Return the number of evicted bytes."""
        before, seen = self.size, self.seen
        seen.request = thinned(seen.request, seen, "request")
        seen.response = thinned(seen.response, seen, "response")
        return before - self.size


def thinned(frame: Frame | None, seen: ObservedExchange, direction: str) -> Frame | None:
    """Return a long frame without its records, or its beginning if its structure cannot be parsed; others unchanged."""
    if frame is None or frame.form is not Form.WHOLE or len(frame.data) < LONG:
        return frame
    sketcher = Sketcher(seen.key, seen.version, direction)
    sketcher.feed(frame.data, 0, len(frame.data))
    if sketcher.failed:
        return replace(frame, data=frame.data[:HEAD], form=Form.HEAD)
    data = sketcher.data()
    return frame if len(data) == len(frame.data) else replace(frame, data=data, form=Form.SKETCH)


class TapeSide:
    """Exchanges of one side, in the order of their ends. `forgotten`: number of evicted exchanges."""

    def __init__(self, most_bytes: int, most_frames: int) -> None:
        self.most_bytes, self.most_frames = most_bytes, most_frames
        self.taken: deque[TapedExchange] = deque()
        self.long: OrderedDict[TapedExchange, None] = OrderedDict()  # exchanges whose records may be evicted
        self.invalid: dict[tuple[int, str], int] = {}  # frame lengths by connection and direction
        self.bytes = self.forgotten = 0

    def keep(self, taken: TapedExchange) -> None:
        """Add an exchange. Evict the oldest records, then the oldest exchanges, until the limits hold."""
        self.taken.append(taken)
        size = taken.size
        self.bytes += size
        if size >= LONG:
            self.long[taken] = None
        while self.bytes > self.most_bytes and self.long:
            self.bytes -= self.long.popitem(last=False)[0].thin()
        while self.bytes > self.most_bytes or len(self.taken) > self.most_frames:
            old = self.taken.popleft()
            self.bytes -= old.size
            self.forgotten += 1
            self.long.pop(old, None)

    def clear(self) -> None:
        self.taken.clear()
        self.long.clear()
        self.invalid.clear()
        self.bytes = self.forgotten = 0


class Tape:
    """Tape of a proxy, to be added to its fan-out; all methods run in the proxy's thread.

    `front`, `behind`: exchanges as the clients and as the brokers saw them. `began_before`: the proxy had traffic
    before the start of the tape, or traffic that is not on it. `taps`: the taps of all open connections.
    """

    broker_side = True

    def __init__(
        self, most_bytes: int = MOST_BYTES, most_frames: int = MOST_FRAMES, most_behind: int = MOST_BEHIND
    ) -> None:
        self.front, self.behind = TapeSide(most_bytes, most_frames), TapeSide(most_behind, most_frames)
        self.began_before = False
        self.since = -math.inf  # earlier requests are not kept
        self.taps: Callable[[], Iterable[Tap]] = tuple

    # ---- as a sink

    def depth(self, key: int, version: int) -> Depth:
        return Depth.RAW

    def take(self, seen: ObservedExchange) -> None:
        if self.is_wanted(seen):
            self.front.keep(TapedExchange(seen))

    def take_behind(self, seen: ObservedExchange) -> None:
        if self.is_wanted(seen):
            self.behind.keep(TapedExchange(seen))

    def opened(self, who: Who, now: float) -> None:
        self.began_before |= who.listener == OWN

    def closed(self, who: Any, now: float) -> None:
        self.note_invalid(who, who.invalid)

    def is_wanted(self, seen: ObservedExchange) -> bool:
        """Return True for an exchange of a test's client, with a complete request, that began after `clear`."""
        request = seen.request
        if request is None or request.last < self.since or seen.who.listener == OWN:
            return False
        return seen.outcome in ("answered", "no_answer_due") or request.form is not Form.HEAD  # HEAD: cut by the end

    def note_invalid(self, who: ConnectionInfo, invalid: Iterable[Any]) -> None:
        if who.listener != OWN:
            for side, lengths in zip((self.front, self.behind), invalid, strict=True):
                for direction, length in lengths.items():
                    side.invalid.setdefault((who.number, direction), length)

    # ---- for readers

    def exchanges(self, which: int) -> list[TapedExchange]:
        """Return the exchanges of the front (0) or the broker side (1) in the order of their requests, with those that
        are pending."""
        side = self.behind if which else self.front
        found = [*side.taken, *self.pending(which)]
        found.sort(key=lambda one: (one.request.last, one.seen.who.number, one.seen.number))
        return found

    def pending(self, which: int) -> Iterator[TapedExchange]:
        """Yield copies of the exchanges without a response on open connections; note their invalid lengths."""
        for tap in self.taps():
            observer = tap.behind if which else tap.observer
            self.note_invalid(tap.who, tap.invalid)
            left = tap.connection.client_left
            for seen in () if observer is None else observer.pending():
                if self.is_wanted(seen):
                    yield TapedExchange(replace(seen, rules=[*seen.rules]), left=left)

    def snapshot(self) -> tuple[list[TapedExchange], int, dict[tuple[int, str], int]]:
        """Return the exchanges of the clients, the number of evicted ones, and the invalid lengths."""
        return self.exchanges(FRONT), self.front.forgotten, dict(self.front.invalid)

    def clear(self) -> None:
        """Discard all exchanges; those of requests that were received before are not kept."""
        self.began_before, self.since = True, monotonic()
        self.front.clear()
        self.behind.clear()


def complete_size(frame: Frame) -> int:
    """Return the bytes of a frame without its length field."""
    return frame.size - SIZE_BYTES
