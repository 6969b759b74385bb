"""Cells of a summary, the counters of one minute, their lines, and latencies in buckets.

Buckets of `Latencies` are a twentieth apart, so percentiles of any number of latencies are correct within 5 %.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, log
from typing import NamedTuple

from kproxy.record.events.schema import LATENCY_BOUNDS_MS

STEP = 1.05
"""Bucket `n` counts latencies above STEP ** (n - 1) ms, up to STEP ** n ms."""
NEVER_MS, LONGEST_MS = 1e-3, 3.6e6
"""Shorter and longer latencies count as these: at most 452 buckets, whatever clients and brokers do."""


def bucket_of(ms: float) -> int:
    return ceil(log(min(max(ms, NEVER_MS), LONGEST_MS)) / log(STEP))


class Latencies:
    """Distribution of latencies, in milliseconds."""

    def __init__(self) -> None:
        self.buckets: Counter[int] = Counter()
        self.longest = 0.0

    def add(self, ms: float, times: int = 1) -> None:
        self.buckets[bucket_of(ms)] += times
        self.longest = max(self.longest, ms)

    def add_buckets(self, counts: Iterable[int], longest: float) -> None:
        """Add the latencies of a summary's line: how many fell into each of the audit's buckets, and the longest."""
        for times, bound in zip(counts, (*LATENCY_BOUNDS_MS, longest), strict=False):
            if times:
                self.add(min(bound, longest), times)

    def percentile(self, share: float) -> float | None:
        """Return the milliseconds that a share (0 to 1) of the latencies did not exceed, the longest at most; None
        without latencies."""
        left = ceil(sum(self.buckets.values()) * share)
        for bucket in sorted(self.buckets):
            left -= self.buckets[bucket]
            if left <= 0:
                return round(min(self.longest, STEP**bucket), 3)
        return None

    def shown(self) -> dict[str, float | None]:
        """Return percentiles and maximum in milliseconds, for tables and JSON."""
        found = {f"p{share}_ms": self.percentile(share / 100) for share in (50, 90, 99)}
        return found | {"max_ms": round(self.longest, 3) if self.buckets else None}


BOUNDS = tuple(bound / 1000 for bound in LATENCY_BOUNDS_MS)
"""Upper bounds of the latency buckets in seconds, inclusive."""


@dataclass(slots=True)
class SummaryRow:
    """Line of a summary with the fields of `SUMMARY_EVENT`, without those of its connection. None: absent.

    `topic`: also absent for a `topic_id` with an unknown name.

    `minute`, `first` and `last` are seconds since 1970. An exchange belongs to the minute of its end; its request may
    be of the previous one.
    """

    minute: float
    first: float
    last: float
    api: str | None
    version: int | None
    client_id: str | None = None
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    outcome: str | None = None
    responder: str | None = None
    error: str | None = None
    errors: list[str] | None = None
    kproxy_errors: list[str] | None = None
    error_level: str | None = None
    error_by: str | None = None
    acks: int | None = None
    codec: str | None = None
    idempotent: bool | None = None
    count: int = 0
    records: int | None = None
    bytes: int | None = None
    batches: int | None = None
    last_offset: int | None = None
    high_watermark: int | None = None
    empty: int | None = None
    request_bytes: int | None = None
    response_bytes: int | None = None
    latency_ms: float | None = None
    latency_max_ms: float | None = None
    latency_buckets: list[int] | None = None
    rule_ms: float | None = None
    wait_ms: float | None = None
    throttle_rule: str | None = None
    throttled: int | None = None
    throttle_ms: int | None = None
    mute_ms: float | None = None


class Ending(NamedTuple):
    """Outcome of an exchange with its error codes.

    `codes`: the errors in its response, the one at the top first; `own`: those of them that kproxy made. `top`: True if
    the first one is at the top of the response. `responder`: `broker` or `kproxy`, empty without a response.
    `throttler`: the rule that throttled the exchange, empty if none did.
    """

    outcome: str
    responder: str = ""
    codes: tuple[int, ...] = ()
    own: tuple[int, ...] = ()
    top: bool = False
    throttler: str = ""


WELL = Ending("answered", "broker")
"""Ending of an exchange that the broker answered without any error."""
SILENT = Ending("no_answer_due")
"""Ending of a Produce with acks=0, which has no response."""

ApiKey = tuple[int | None, int | None, str | None, Ending, int | None]
"""(API key, version, client id, ending, acks) of exchanges that one cell counts; None: of several, or without any."""

OWN = 1 << 20
"""Added to the error code of a partition where kproxy made it: codes have 16 bits."""

PartitionKey = tuple[int | None, int | None, str | None, str | bytes, int | None, int, int | None, str, bool | None]
"""(API key, version, client id, topic's name or id, partition, error code, acks, codec, idempotent) of a cell."""


NOTHING_REPORTED = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Reported numbers of a new cell."""


@dataclass(slots=True)
class ApiCounters:
    """Counters of the exchanges of one API in one minute. Times are of the observer's clock, latencies in seconds.

    `records`, `bytes`, `batches`: of partitions without a cell of their own; `told`: they exist. `rule`, `wait`:
    seconds of waits in kproxy, by rules and for other causes. `throttled`: responses that reported a throttle time,
    `throttle`: its sum in ms, `mute`: seconds of mutes by rules. `throttle_seconds`: waits for quotas, and of each
    exchange the larger of mute and reported throttle time. `reported`: the numbers that the summary's reader has taken.
    """

    key: ApiKey
    first: float
    last: float
    count: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    latency: float = 0.0
    latency_max: float = 0.0
    rule: float = 0.0
    wait: float = 0.0
    throttled: int = 0
    throttle: int = 0
    mute: float = 0.0
    throttle_seconds: float = 0.0
    empty: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    told: bool = False
    records: int = 0
    bytes: int = 0
    batches: int = 0
    reported: tuple[float, ...] = NOTHING_REPORTED

    def answered(self, seconds: float) -> None:
        """Count the latency of one exchange, in `seconds`, in the sum, the maximum and a bucket."""
        self.latency += seconds
        self.latency_max = max(self.latency_max, seconds)
        self.buckets[bisect_left(BOUNDS, seconds)] += 1

    def answered_all(self, latencies: list[float]) -> None:
        """Count the latencies of many exchanges, which are put in order for that."""
        self.latency += sum(latencies)
        latencies.sort()
        self.latency_max = max(self.latency_max, latencies[-1])
        done, least = 0, bisect_left(BOUNDS, latencies[0])
        for at, bound in enumerate(BOUNDS[least:], least):
            before, done = done, bisect_right(latencies, bound)
            self.buckets[at] += done - before
            if done == len(latencies):
                return
        self.buckets[-1] += len(latencies) - done


@dataclass(slots=True)
class PartitionCounters:
    """Counters of one minute for one partition, or for all partitions of a topic that have no cell of their own.

    `offset_at`, `mark_at`: times of the requests of `last_offset` and `high_watermark`. `reported`: numbers that the
    summary's reader has received.
    """

    key: PartitionKey
    first: float
    last: float
    count: int = 0
    records: int = 0
    bytes: int = 0
    batches: int = 0
    last_offset: int = -1
    high_watermark: int = -1
    offset_at: float = float("-inf")
    mark_at: float = float("-inf")
    empty: int = 0
    reported: tuple[float, ...] = NOTHING_REPORTED

    def update(self, offset: int | None, mark: int | None, begun: float) -> None:
        """Take the last offset and the high watermark that the exchange of a request which came at `begun` had.

        Those of the latest request stay; of several requests at the same time, the highest.
        """
        if offset is not None and (begun > self.offset_at or (begun == self.offset_at and offset > self.last_offset)):
            self.last_offset, self.offset_at = offset, begun
        if mark is not None and (begun > self.mark_at or (begun == self.mark_at and mark > self.high_watermark)):
            self.high_watermark, self.mark_at = mark, begun
