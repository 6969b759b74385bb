"""Sink for all viewers of a process: keeps the exchanges, and gives each viewer the matching ones.

Strategy. What is expensive is paid from the budget (`config.py`) by whoever calls; here filters are asked, and what
fits waits for its viewer as it is. Rows are made when the viewer comes for them. The broker's side of an exchange is
found as in captures (`record/captures/pairs.py`); it is kept only where its bytes are others than the client's.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kproxy.protocol.table import schema
from kproxy.record.captures.pairs import SideMatcher
from kproxy.record.captures.running_captures import differ
from kproxy.record.exchange import Depth, Form, ObservedExchange, Who
from kproxy.record.filters import ExchangeView, Filter, MakeData
from kproxy.record.observer.partition_rows import read_rows
from kproxy.record.observer.response_errors import ROW_APIS, errors_of
from kproxy.record.observer.summary_rows import bucket_of

from .config import RowBucket
from .rows import ExchangeRing, KeptExchange, frames_size

LENGTH = bytes(4)
"""Stands for the length field, which kept frames lack."""
MOST_WAITING = 8 << 20
"""Bytes of exchanges that wait for one viewer; there are sixteen at most."""
MaskExchange = Callable[[ObservedExchange], ObservedExchange]
"""Returns an exchange as viewers see it, with masked records."""
UNKNOWN_API = "unknown"
"""Name of all APIs together that the protocol's table lacks, as in metrics: a client may send any of 65,536."""
MOST_ERRORS = 200
"""Different error codes that are counted; Kafka has some 130."""


@dataclass(slots=True)
class ApiCounts:
    """Counts of the exchanges of one API that were looked at."""

    exchanges: int = 0
    errors: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    buckets: Counter[int] = field(default_factory=Counter)
    """Answered exchanges by latency, as `record.observer.summary_rows` counts them, with the seconds of its parts."""
    kproxy_seconds: float = 0.0
    rule_seconds: float = 0.0
    broker_seconds: float = 0.0

    def add_latency(self, seen: ObservedExchange) -> None:
        parts = seen.parts
        if parts is None:
            return
        self.buckets[bucket_of(parts.latency * 1000)] += 1
        self.kproxy_seconds += seen.kproxy_seconds
        self.rule_seconds += sum(seen.rule_wait)
        self.broker_seconds += 0.0 if seen.answered_by_rule else parts.broker


@dataclass(slots=True)
class Looked:
    """Counts of all that was looked at in a process since it began. `errors`: exchanges by code in their responses."""

    exchanges: int = 0
    apis: dict[str, ApiCounts] = field(default_factory=dict)
    errors: Counter[int] = field(default_factory=Counter)
    throttle_ms: int = 0

    def add(self, seen: ObservedExchange, codes: Iterable[int]) -> None:
        self.exchanges += 1
        api = seen.api if seen.key in schema.paths() else UNKNOWN_API
        counts = self.apis.get(api)
        if counts is None:
            counts = self.apis[api] = ApiCounts()
        counts.exchanges += 1
        counts.add_latency(seen)
        counts.request_bytes += seen.request.size if seen.request else 0
        counts.response_bytes += seen.response.size if seen.response else 0
        failed = False
        for code in codes:
            failed = True
            if code in self.errors or len(self.errors) < MOST_ERRORS:
                self.errors[code] += 1
        counts.errors += failed


class Viewer:
    """One who looks: a page, or a terminal. `wake` is called when there is something for it. Waiting exchanges stay
    after their eviction from the ring, up to this many bytes.

    Counters of omitted rows: `too_many` in a second, `too_slow` reading; and of sent rows: `matched`.
    """

    def __init__(self, wanted: Filter, rows: int, now: float, wake: Callable[[], None]) -> None:
        self.wanted, self.wake = wanted, wake
        self.bucket = RowBucket(rows, now)
        self.most, self.most_bytes = 2 * rows, MOST_WAITING
        self.waiting: deque[KeptExchange] = deque()
        self.bytes = 0
        self.matched = self.too_many = self.too_slow = 0

    def offer(self, kept: KeptExchange, view: ExchangeView, now: float, important: bool) -> bool:
        """Take an exchange if it fits the filter and there is room; return whether it waits now."""
        if not self.wanted.holds(view):
            return False
        self.matched += kept.over
        if not self.bucket.take(now, important):
            self.too_many += 1
            return False
        if len(self.waiting) >= self.most or self.bytes + kept.size > self.most_bytes:
            self.too_slow += 1
            return False
        self.waiting.append(kept)
        self.bytes += kept.size
        self.wake()
        return True

    def take(self) -> KeptExchange:
        """Remove and return the exchange that has waited longest."""
        kept = self.waiting.popleft()
        self.bytes = max(0, self.bytes - kept.size) if self.waiting else 0  # its size may be another one by now
        return kept


class Resent:
    """Request that is resent for a viewer. `of`: id of the original exchange; `kept`: the new exchange in the ring,
    once observed."""

    __slots__ = ("kept", "of")

    def __init__(self, of: str) -> None:
        self.of = of
        self.kept: KeptExchange | None = None


class ViewSink:
    """Sink of all viewers of a process. `whole`: an exchange's data as filters see it; `clock`: monotonic seconds.
    `mask`: for filters about records."""

    broker_side = True

    def __init__(self, ring: ExchangeRing, whole: MakeData, clock: Callable[[], float]) -> None:
        self.ring, self.whole, self.clock = ring, whole, clock
        self.mask: MaskExchange = lambda seen: seen
        self.viewers: list[Viewer] = []
        self.looked = Looked()
        self.matcher = SideMatcher[KeptExchange, ObservedExchange](math.inf)
        self.early: dict[int, KeptExchange] = {}
        """By `id` of the exchange: exchanges that were reported in flight."""
        self.resent: dict[tuple[str, int], Resent] = {}
        """By the client's address of the connection that resends them."""

    def depth(self, key: int, version: int) -> Depth:
        """Return SKETCH, or more where a viewer's filter asks about records."""
        wanted = max((one.wanted.depth(key, version) for one in self.viewers), default=Depth.COUNT)
        return max(Depth.SKETCH, wanted)

    def take(self, seen: ObservedExchange) -> None:
        kept = self.early.pop(id(seen), None)
        if kept is None:
            kept = self._keep(seen)
        else:
            self.ring.end(kept)
        codes = error_codes(seen)
        self.looked.add(seen, codes)
        if not seen.answered_by_rule:
            self._settle(self.matcher.front(seen, kept, frames_size(seen)))
        self._offer(kept, bool(codes or seen.rules or seen.outcome in ("unanswered", "closed")))

    def take_behind(self, seen: ObservedExchange) -> None:
        self._settle(self.matcher.behind(seen, seen, frames_size(seen)))

    def under_way(self, seen: ObservedExchange) -> None:
        """Take an exchange that has been under way for long; `take` gets it once more when it is over."""
        if id(seen) in self.early:
            return
        if len(self.early) > 2 * len(self.ring):  # they were evicted from the ring
            self.early = {key: one for key, one in self.early.items() if self.ring.get(one.number) is not None}
        kept = self.early[id(seen)] = self._keep(seen, over=False)
        self._offer(kept, important=True)

    def opened(self, who: Who, now: float) -> None:
        """Do nothing: a connection begins with its first exchange."""

    def closed(self, who: Who, now: float) -> None:
        self.matcher.end(who.number)
        if self.resent:
            self.resent.pop((who.client_address, who.client_port), None)

    def forget_unmatched(self) -> None:
        """Discard exchanges whose counterpart passed while sampling was off."""
        self.matcher = SideMatcher(math.inf)

    def _keep(self, seen: ObservedExchange, *, over: bool = True) -> KeptExchange:
        kept = self.ring.add(seen, over=over)
        if self.resent:
            resent = self.resent.get((seen.who.client_address, seen.who.client_port))
            if resent is not None:
                kept.again_of, resent.kept = resent.of, kept
        return kept

    def _offer(self, kept: KeptExchange, important: bool) -> None:
        view, now, waits = ExchangeView(kept.seen, self.whole), self.clock(), False
        masked: ExchangeView | None = None
        for viewer in self.viewers:
            if not viewer.wanted.needs_records:
                waits |= viewer.offer(kept, view, now, important)
                continue
            if masked is None:
                seen = self.mask(kept.seen)
                masked = view if seen is kept.seen else ExchangeView(seen, self.whole)
            waits |= viewer.offer(kept, masked, now, important)
        if not waits:
            kept.seen.forget_bodies()

    def _settle(self, pairs: Iterable[tuple[KeptExchange | None, ObservedExchange | None]]) -> None:
        """Keep a broker-side exchange with its counterpart if they differ."""
        for kept, behind in pairs:
            if kept is not None and behind is not None and differ(kept.seen, behind):
                self.ring.put_behind(kept, behind)


def error_codes(seen: ObservedExchange) -> tuple[int, ...]:
    """Return the error codes in a response, each once; those at its top where it was not kept whole."""
    response = seen.answer
    if response is None:
        return ()
    if seen.key not in ROW_APIS or response.form is not Form.WHOLE:
        return errors_of(seen).codes
    frame = LENGTH + response.data
    rows = read_rows(seen.key, seen.version, "response", frame, 0, len(frame))
    found = dict.fromkeys(seen.known_errors.codes)
    if rows is not None:
        found |= dict.fromkeys(row[2] for row in rows[0] if row[2])
    return tuple(found)
