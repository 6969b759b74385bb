"""`kproxy stats`: counts the exchanges in captures and event files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from kproxy.base.terminal import print_json, print_rows, say
from kproxy.cli.exchange_input import Trouble, events, exchanges, kind_of, make_data, tell
from kproxy.cli.exchange_rows import milliseconds, size
from kproxy.cli.filters import files_and_filter
from kproxy.cli.tail import passed_over, unjudged
from kproxy.cli.tally import ExchangeTally
from kproxy.record.events.schema import REQUEST_EVENT, SUMMARY_EVENT
from kproxy.record.filter.filter import Filter
from kproxy.record.filter.view import EventView, ExchangeView
from kproxy.record.observer.records import OF_FILES

FORMS = ("table", "json")
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
@click.option("-o", "--output", type=click.Choice(FORMS), default="table", help="How to print them.")
@click.option("--top", type=click.IntRange(min=1), default=20, help="Rows of each table (default 20); json has all.")
def command(words: tuple[str, ...], output: str, top: int) -> None:
    """Count what is in captures and event files: by API, topic, client and error, with latencies.

    FILTER says which exchanges count; summaries tell of no single ones and count only without it.
    """
    files, wanted = files_and_filter(words)
    if not files:
        raise click.UsageError(f"there is no file {words[0]}")
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
        f"{total['requests']} exchanges on {found['connections']} connections, "
        f"{found['first'] or '-'} to {found['last'] or '-'}"
    )
    section("by API", ("api", *LINE), found["apis"], top)
    section("by topic", ("topic", *TOPIC), found["topics"], top)
    section("by client", ("client_id", *LINE), found["clients"], top)
    section("errors", ("api", "error", "level", "by", "count"), found["errors"], top)


def section(title: str, heads: Sequence[str], rows: Iterable[Mapping[str, Any]], top: int) -> None:
    """Print the first `top` rows of a table below its title, if it has any rows."""
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
    """Return a value for a table: times and sizes short on a terminal, unchanged in pipes."""
    if not sys.stdout.isatty():
        return value
    return milliseconds(value) if head.endswith("_ms") else size(value) if head.endswith("bytes") else value
