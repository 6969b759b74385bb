"""Report of a replay: counts, differences and times, API by API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kproxy.tools.replay.compare import FETCHES, IgnoredFields, ResponseComparison, ResponseDifference
from kproxy.tools.replay.recording import RecordedExchange, ReplayOutcome
from kproxy.tools.replay.routing import NOT_YET

from .compare import ReadRecords
from .recording import codes

SAMPLES = 5
"""Different fields of an API that are shown with an example each."""


@dataclass(slots=True)
class DifferenceSample:
    """Field that differs, how often, and the first time it did."""

    difference: ResponseDifference
    place: int
    count: int = 0


@dataclass(slots=True)
class ApiRow:
    """Counts of one API.

    `same`, `different`: responses that could be compared; `errors`: different responses with another error code;
    `uncompared`: responses without a recorded one.
    """

    api: str
    sent: int = 0
    same: int = 0
    different: int = 0
    errors: int = 0
    uncompared: int = 0
    silent: int = 0
    unanswered: int = 0
    not_sent: int = 0
    tries: int = 0
    """Requests sent again because the target was not ready."""
    recorded: list[float] = field(default_factory=list)
    now: list[float] = field(default_factory=list)
    """Seconds of the answers that there were on both sides, in the same order."""
    samples: dict[tuple[bool, str, str, str], DifferenceSample] = field(default_factory=dict)


class ReplayReport:
    """Report of one replay, which takes outcomes as they come. Reasons and notes are counted by text."""

    def __init__(
        self, normal: IgnoredFields, recorded_names: Mapping[UUID, str], name: Callable[[UUID], str | None]
    ) -> None:
        self.normal, self.names, self.name = normal, recorded_names, name
        self.comparison = ResponseComparison(normal, recorded_names.get, name)
        self.reading = ReadRecords(offsets=not normal.ignores("offsets"))
        self.rows: dict[str, ApiRow] = {}
        self.reasons: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()

    def add(self, outcome: ReplayOutcome) -> None:
        """Add the outcome of one more exchange."""
        exchange = outcome.exchange
        row = self.rows.setdefault(exchange.api, ApiRow(exchange.api))
        self.notes.update(set(outcome.notes))
        if outcome.how == "not sent":
            row.not_sent += 1
            self.reasons[f"{exchange.api} {exchange.version}: {outcome.reason}"] += 1
            return
        row.sent += 1
        row.tries += outcome.tries - 1
        if outcome.how == "silent":
            row.silent += 1
        elif outcome.how == "unanswered":
            self.unanswered(row, outcome)
        else:
            self.answered(row, outcome)

    def unanswered(self, row: ApiRow, outcome: ReplayOutcome) -> None:
        row.unanswered += 1
        if outcome.exchange.seen.response is not None:
            self.differs_in(row, outcome.exchange, [ResponseDifference("", "", "answered", outcome.reason, error=True)])

    def answered(self, row: ApiRow, outcome: ReplayOutcome) -> None:
        exchange = outcome.exchange
        if exchange.seconds is not None and outcome.seconds is not None:
            row.recorded.append(exchange.seconds)
            row.now.append(outcome.seconds)
        if exchange.response_frame is None:
            row.uncompared += 1
            return
        if was_not_ready(exchange, outcome):
            row.uncompared += 1
            self.notes[READY] += 1
            return
        differences = self.compared(exchange, outcome)
        if differences:
            self.differs_in(row, exchange, differences)
        else:
            row.same += 1

    def compared(self, exchange: RecordedExchange, outcome: ReplayOutcome) -> list[ResponseDifference]:
        """Return the differences of the two responses. Those that cannot be read are compared as bytes."""
        now, frame = outcome.message, outcome.frame or b""
        if now is None or exchange.response is None:
            same = exchange.response_frame is not None and exchange.response_frame[4:] == frame[4:]
            was, is_ = ("cannot be read" if one is None else "can be read" for one in (exchange.response, now))
            return [] if same else [ResponseDifference("", "", was, is_, error=True)]
        if exchange.key in FETCHES:
            self.reading.add(0, exchange.response, self.names.get)
            self.reading.add(1, now, self.name)
        return self.comparison.differences(exchange.response, now)

    def differs_in(self, row: ApiRow, exchange: RecordedExchange, differences: list[ResponseDifference]) -> None:
        row.different += 1
        row.errors += any(difference.error for difference in differences)
        for difference in differences:
            values = (difference.recorded, difference.now) if difference.error else ("", "")
            sample = row.samples.setdefault(
                (not difference.error, difference.field, *values), DifferenceSample(difference, exchange.place + 1)
            )
            sample.count += 1

    @property
    def differs(self) -> bool:
        return any(row.different for row in self.rows.values()) or any(self.reading.differences())

    def sorted(self) -> list[ApiRow]:
        """Return the APIs with error differences first, then other differences, then by name."""
        return sorted(self.rows.values(), key=lambda row: (-row.errors, -row.different, row.api))

    def as_json(self) -> dict[str, Any]:
        """Return the whole report as plain values."""
        read, now = self.reading.totals()
        return {
            "differs": self.differs,
            "apis": [row_json(row) for row in self.sorted()],
            "records_read": {"recorded": read, "now": now, "not_compared": self.reading.beyond, "differences": [
                {"topic": topic, "partition": number, "recorded": was, "now": is_, "missing": missing, "new": new}
                for (topic, number), was, is_, missing, new in self.reading.differences()
            ]},
            "not_sent": dict(self.reasons),
            "notes": dict(self.notes),
            "ignored": [one.name for one in self.normal.ignored],
        }  # fmt: skip


READY = "not compared: the recorded cluster was not ready yet, and the target is"


def was_not_ready(exchange: RecordedExchange, outcome: ReplayOutcome) -> bool:
    """Return True if the recorded cluster was not ready yet, and the target is. The client then retried."""
    if exchange.response is None or outcome.message is None:
        return False
    was = codes(exchange.response)
    return bool(was) and was <= NOT_YET and not codes(outcome.message)


def row_json(row: ApiRow) -> dict[str, Any]:
    counts = ("sent", "same", "different", "errors", "uncompared", "silent", "unanswered", "not_sent", "tries")
    return {
        "api": row.api,
        **{name: getattr(row, name) for name in counts},
        "recorded_ms": percentiles(row.recorded),
        "now_ms": percentiles(row.now),
        "samples": [
            {"path": sample.difference.path, "recorded": sample.difference.recorded, "now": sample.difference.now,
             "error": sample.difference.error, "count": sample.count, "request": sample.place}
            for sample in samples(row)
        ],
    }  # fmt: skip


def samples(row: ApiRow) -> list[DifferenceSample]:
    """Return the first samples of an API, errors first."""
    return [row.samples[key] for key in sorted(row.samples, key=lambda key: key[0])][:SAMPLES]


def percentiles(seconds: list[float]) -> dict[str, float] | None:
    """Return the median and the 99th percentile in milliseconds; None if there is nothing."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    return {
        f"p{part}": round(ordered[min(len(ordered) * part // 100, len(ordered) - 1)] * 1000, 3) for part in (50, 99)
    }
