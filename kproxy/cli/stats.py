"""`kproxy stats`: counts the exchanges in captures and event files.

`record/events/column.py` and docs/audit-reports.md define the counts. One pass reads all files, with bounded memory:
names beyond a limit are counted together. Summaries have latency buckets only; the upper bound of each bucket is used.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from kproxy.base.errors import plural
from kproxy.base.terminal import output_option, print_json, print_rows, say
from kproxy.cli.exchange_input import Trouble, events, exchanges, kind_of, make_data, tell
from kproxy.cli.tail import passed_over, unjudged
from kproxy.record.events.column import CUT_OFF, READS, WRITES, is_stored, is_unconfirmed, partitions
from kproxy.record.events.schema import REQUEST_EVENT, SUMMARY_EVENT
from kproxy.record.filters import EventView, ExchangeView, Filter
from kproxy.record.observer.records import OF_FILES
from kproxy.record.observer.summary_rows import Latencies

from .filters import files_and_filter
from .tail import milliseconds, size

LINE = (
    *("requests", "errors", "unanswered", "throttled", "throttle_ms", "mute_ms", "request_bytes", "response_bytes"),
    *("p50_ms", "p90_ms", "p99_ms", "max_ms"),
)
TOPIC = (
    "partitions", "requests", "written_records", "written_bytes", "unconfirmed_records", "read_records", "read_bytes",
    "errors",
)  # fmt: skip


@click.command("stats")
@click.argument("words", metavar="FILE… [FILTER]", nargs=-1, required=True)
@output_option("table", "json")
@click.option("--top", type=click.IntRange(min=1), default=20, help="Rows of each table (default 20); json has all.")
def command(words: tuple[str, ...], output: str, top: int) -> None:
    """Count the exchanges in captures and event files by API, topic, client and error, with latencies.

    FILTER selects the exchanges to count. Summaries do not contain single exchanges, so they count only without FILTER.
    """
    files, wanted = files_and_filter(words)
    if not files:
        raise click.UsageError(f"file not found: {words[0]}")
    trouble, tally = Trouble(), ExchangeTally()
    for file in files:
        if kind_of(file) == "capture":
            count_capture(file, wanted, tally, trouble)
        else:
            count_events(file, wanted, tally, trouble)
    found = tally.shown()
    print_json(found) if output == "json" else print_tables(found, top)
    if tally.omitted:
        why = "partitions are missing by topic: their events were cut at audit.partitions"
        say(f"kproxy: {tally.omitted} {why}", err=True)
    tell(trouble)
    passed_over(trouble)
    unjudged(wanted.unknown, wanted.why)


def count_capture(file: str, wanted: Filter, tally: ExchangeTally, trouble: Trouble) -> None:
    for seen in exchanges(file, trouble):
        view = ExchangeView(seen, make_data, OF_FILES)
        if wanted.holds(view):
            tally.add(view.data, file)


def count_events(file: str, wanted: Filter, tally: ExchangeTally, trouble: Trouble) -> None:
    for kind, data, source, _ in events(file, trouble):
        if kind == REQUEST_EVENT.name:
            if wanted.holds(EventView(data)):
                tally.add(data, source)
        elif kind == SUMMARY_EVENT.name and not wanted:
            tally.add_summary(data, source)
        else:
            trouble.count(kind)


def print_tables(found: Mapping[str, Any], top: int) -> None:
    total = found["total"]
    say(
        f"{plural(total['requests'], 'exchange')} on {plural(found['connections'], 'connection')}, "
        f"{found['first'] or '-'} to {found['last'] or '-'}"
    )
    section("by API", ("api", *LINE), found["apis"], top)
    section("by topic", ("topic", *TOPIC), found["topics"], top)
    section("by client", ("client_id", *LINE), found["clients"], top)
    section("errors", ("api", "error", "level", "by", "count"), found["errors"], top)


def section(title: str, heads: Sequence[str], rows: Iterable[Mapping[str, Any]], top: int) -> None:
    """Print a title and the first `top` rows of a table; nothing if the table is empty."""
    rows = list(rows)
    if not rows:
        return
    more = f" (the first {top} of {len(rows)})" if len(rows) > top else ""
    say()
    say(f"{title}{more}", bold=sys.stdout.isatty())
    if not sys.stdout.isatty():
        say("\t".join(heads))
    print_rows(heads, [[cell(head, row[head]) for head in heads] for row in rows[:top]])


def cell(head: str, value: Any) -> Any:
    """Return a value for a table: times and sizes are short on a terminal, unchanged in pipes."""
    if not sys.stdout.isatty():
        return value
    return milliseconds(value) if head.endswith("_ms") else size(value) if head.endswith("bytes") else value


MOST_NAMES = 10_000
"""Names each of topics, clients and kinds of errors that are counted separately; those beyond count as OTHERS."""
OTHERS = "(others)"
Data = Mapping[str, Any]
ErrorKey = tuple[str, str | None, str, str]
"""(API, error, `request` or `partition`, source of the error: `broker` or `kproxy`)"""
L = TypeVar("L")


@dataclass(slots=True)
class ExchangeCounts:
    """Counts of the exchanges of one API or client, or of all."""

    requests: int = 0
    errors: int = 0
    unanswered: int = 0
    throttled: int = 0
    throttle_ms: int = 0
    mute_ms: float = 0.0
    request_bytes: int = 0
    response_bytes: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def add(self, data: Data, times: int) -> None:
        self.requests += times
        self.errors += times * (data.get("error") is not None)
        self.unanswered += times * (data.get("outcome") in CUT_OFF)
        throttle_ms = data.get("throttle_ms") or 0
        self.throttled += data.get("throttled") or (throttle_ms > 0)
        self.throttle_ms += throttle_ms
        self.mute_ms += data.get("mute_ms") or 0.0
        self.request_bytes += data.get("request_bytes") or 0
        self.response_bytes += data.get("response_bytes") or 0
        if data.get("latency_buckets"):
            self.latencies.add_buckets(data["latency_buckets"], data.get("latency_max_ms") or 0.0)
        elif data.get("latency_ms") is not None:
            self.latencies.add(data["latency_ms"])

    def shown(self) -> dict[str, Any]:
        """Return the counts by column, for tables and JSON."""
        return {
            "requests": self.requests, "errors": self.errors, "unanswered": self.unanswered,
            "throttled": self.throttled, "throttle_ms": self.throttle_ms, "mute_ms": round(self.mute_ms, 3),
            "request_bytes": self.request_bytes, "response_bytes": self.response_bytes, **self.latencies.shown(),
        }  # fmt: skip


@dataclass(slots=True)
class TopicCounts:
    """Counts of records written to one topic and read from it. `requests`: one for each of its partitions."""

    requests: int = 0
    written_records: int = 0
    written_bytes: int = 0
    unconfirmed_records: int = 0
    read_records: int = 0
    read_bytes: int = 0
    errors: int = 0
    partitions: set[int] = field(default_factory=set)

    def add(self, api: str, acks: int | None, part: Data, times: int = 1) -> None:
        records, size, error = part.get("records") or 0, part.get("bytes") or 0, part.get("error")
        self.requests += times
        self.errors += times * (error is not None)
        if api in WRITES and is_stored(acks, error):
            self.written_records += records
            self.written_bytes += size
        elif api in WRITES and is_unconfirmed(acks, error):
            self.unconfirmed_records += records
        elif api in READS and error is None:
            self.read_records += records
            self.read_bytes += size
        if part.get("partition") is not None:
            self.partitions.add(part["partition"])

    def shown(self) -> dict[str, Any]:
        """Return the counts by column, for tables and JSON."""
        return {
            "partitions": len(self.partitions), "requests": self.requests, "written_records": self.written_records,
            "written_bytes": self.written_bytes, "unconfirmed_records": self.unconfirmed_records,
            "read_records": self.read_records, "read_bytes": self.read_bytes, "errors": self.errors,
        }  # fmt: skip


class ExchangeTally:
    """Tally of exchanges and summaries: the counts that `kproxy stats` prints."""

    def __init__(self) -> None:
        self.total = ExchangeCounts()
        self.apis: dict[str, ExchangeCounts] = {}
        self.clients: dict[str, ExchangeCounts] = {}
        self.topics: dict[str, TopicCounts] = {}
        self.errors: Counter[ErrorKey] = Counter()
        self.connections: set[tuple[str, Any]] = set()
        self.first = self.last = ""
        self.omitted = 0
        """Written or read partitions that events only count; the rows by topic do not include them."""

    def add(self, data: Data, source: str) -> None:
        """Add one exchange. (`source`, connection number) identifies its connection."""
        self._common(data, source, 1)
        self._when(data.get("request_in"), data.get("request_in"))
        if data.get("api") in WRITES + READS:
            self.omitted += data.get("omitted_partitions") or 0
        for topic, part in partitions(data):
            self._part(data, topic, part, 1)

    def add_summary(self, data: Data, source: str) -> None:
        """Add one line of a summary event: several exchanges, or some of their partitions."""
        count = data.get("count") or 0
        self._when(data.get("first"), data.get("last"))
        if data.get("topic") is not None or data.get("topic_id") is not None:
            self._part(data, data, data, count)
            return
        self._common(data, source, count)
        if data.get("records"):  # records of topics beyond the limit of the summary
            _line(self.topics, OTHERS, TopicCounts).add(
                str(data.get("api")), data.get("acks"), {**data, "error": None}, 0
            )

    def _part(self, data: Data, topic: Data, part: Data, times: int) -> None:
        """Add one partition of an exchange, or of `times` exchanges that a summary counts in one line."""
        line = _line(self.topics, str(topic.get("topic") or topic.get("topic_id")), TopicCounts)
        line.add(str(data.get("api")), data.get("acks"), part, times)
        if part.get("error"):
            self._error(data, part["error"], "partition", part.get("error_by") or "broker", times)

    def _common(self, data: Data, source: str, times: int) -> None:
        for line in (
            self.total,
            _line(self.apis, str(data.get("api")), ExchangeCounts),
            _line(self.clients, str(data.get("client_id")), ExchangeCounts),
        ):
            line.add(data, times)
        by_kproxy = data.get("kproxy_errors") or ()
        for error in data.get("errors") or ([data["error"]] if data.get("error") else ()):
            self._error(data, error, "request", "kproxy" if error in by_kproxy else "broker", times)
        if len(self.connections) < MOST_NAMES * 10:
            self.connections.add((source, data.get("connection")))

    def _error(self, data: Data, error: str, level: str, by: str, times: int) -> None:
        key: ErrorKey = (str(data.get("api")), error, level, by)
        if key not in self.errors and len(self.errors) >= MOST_NAMES:
            key = OTHERS, None, level, by
        self.errors[key] += times

    def _when(self, first: str | None, last: str | None) -> None:
        if first and (not self.first or first < self.first):
            self.first = first
        if last and last > self.last:
            self.last = last

    def shown(self) -> dict[str, Any]:
        """Return all counts, for tables and JSON; each list starts with its largest entry."""
        by_bytes = sorted(self.topics.items(), key=lambda one: -one[1].written_bytes - one[1].read_bytes)
        return {
            "first": self.first or None, "last": self.last or None, "connections": len(self.connections),
            "total": self.total.shown(),
            "apis": [{"api": name, **line.shown()} for name, line in _most(self.apis)],
            "topics": [{"topic": name, **line.shown()} for name, line in by_bytes],
            "clients": [{"client_id": name, **line.shown()} for name, line in _most(self.clients)],
            "errors": [dict(zip(("api", "error", "level", "by"), key, strict=True)) | {"count": count}
                       for key, count in self.errors.most_common()],
        }  # fmt: skip


def _most(lines: dict[str, ExchangeCounts]) -> list[tuple[str, ExchangeCounts]]:
    return sorted(lines.items(), key=lambda one: -one[1].requests)


def _line(lines: dict[str, L], name: str, make: Callable[[], L]) -> L:
    """Return the line of this name, created on first use; the line of OTHERS beyond MOST_NAMES."""
    found = lines.get(name)
    if found is None:
        found = lines.setdefault(name if len(lines) < MOST_NAMES else OTHERS, make())
    return found
