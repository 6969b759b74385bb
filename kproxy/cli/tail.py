"""`kproxy tail`: prints exchanges line by line, from a running proxy, captures or event files.

On a terminal, columns have fixed widths, as the longest value is not yet known. In a pipe, cells are separated by tabs,
uncut and without a header. Colours show if an exchange was unanswered, failed, or answered by kproxy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from io import TextIOWrapper
from typing import Any

import click
import msgspec

from kproxy.base.errors import plural
from kproxy.base.terminal import cell_text, output_option, raw, say
from kproxy.cli.admin_client import Admin, with_admin
from kproxy.cli.exchange_input import AnyView, NoInput, Trouble, kind_of, tell, views
from kproxy.record.filters import ExchangeView, Filter, ViewedEvent, errors, software, topics

from .filters import files_and_filter

FORMS = ("table", "wide", "json")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@click.command("tail")
@click.argument("words", metavar="[FILE…] [FILTER]", nargs=-1)
@output_option("table", "wide", "json")
@click.option("-n", "--number", type=click.IntRange(min=1), help="Stop after this number of exchanges.")
@click.option("--body", is_flag=True, help="Add all fields of the messages and decoded records (with -o json).")
@click.option("--config", metavar="FILE", help="Config document with the schema registries, for FILEs with --body.")
@click.option("--help-filter", is_flag=True, help="Print the fields of the filter language.")
@with_admin
def command(
    admin: Admin, *, words: tuple[str, ...], output: str, number: int | None, body: bool, config: str | None,
    help_filter: bool,
) -> None:  # fmt: skip
    """Print exchanges as they pass through a running proxy, or those in FILEs: captures, event files, directories.

    Rows of FILEs begin with the number that `kproxy show FILE NUMBER` expects. FILTER selects exchanges, such as
    '~k produce ~t orders' or 'error and latency > 200ms'; write it in quotes. JSON lines are the data of request
    events, as in the audit. With --body they also have `request` and `response`.
    """
    if help_filter:
        from .filters import print_help

        print_help()
        return
    files, wanted = files_and_filter(words)
    if body and output != "json":
        raise click.UsageError("--body needs -o json")
    if config is not None and not (files and body):
        raise click.UsageError("--config needs FILEs and --body: a running proxy has its own registries")
    show = shown_as(output, numbered=bool(files))
    left = number or sys.maxsize
    out = raw(err=False)
    if not files and isinstance(out, TextIOWrapper):
        out.reconfigure(line_buffering=True)  # pipes also get each exchange at once
    try:
        found_in = whole_messages(files, wanted, config) if body else from_files(files, wanted)
        with closing(found_in if files else live(admin, wanted, body)) as found:
            for place, data in found:
                show(data, place)
                left -= 1
                if not left:
                    break
    except KeyboardInterrupt:
        pass  # Ctrl-C is the normal end, not a failure


def shown_as(output: str, *, numbered: bool) -> Callable[[ViewedEvent, int], None]:
    """Return the function that prints an exchange's data and number in this form."""
    if output == "json":
        return lambda data, number: say(_encode(data).decode())
    return Rows(output == "wide", numbered).show


def from_files(
    files: list[str], wanted: Filter, data_of: Callable[[AnyView], ViewedEvent] = lambda view: view.data
) -> Generator[tuple[int, ViewedEvent]]:
    """Yield number and data of the matching exchanges of these files, one file after the other. The number is that of
    `kproxy show`: it counts all exchanges of the file, from 1."""
    trouble = Trouble()
    try:
        for file in files:
            for place, view in enumerate(views(file, trouble), 1):
                if wanted.holds(view):
                    yield place, data_of(view)
    finally:
        tell(trouble)
        passed_over(trouble)
        unjudged(wanted.unknown, wanted.why)


def whole_messages(files: list[str], wanted: Filter, config: str | None) -> Generator[tuple[int, ViewedEvent]]:
    """Yield the exchanges of captures with their messages, as `from_files` does. Raises NoInput for event files."""
    from kproxy.record.live_view.messages import messages_of

    from .registries import FileRegistries

    for file in files:
        if kind_of(file) != "capture":
            raise NoInput(f"{file} has events, which contain no messages: --body needs a capture")
    registries = FileRegistries(config)

    def add(view: AnyView) -> ViewedEvent:
        assert isinstance(view, ExchangeView)
        return {**view.data, **messages_of(view.seen, registries.cache(view.seen.who.cluster))}

    try:
        yield from from_files(files, wanted, add)
    finally:
        registries.tell()


def passed_over(trouble: Trouble) -> None:
    """Print to standard error the number of skipped events, which are not about a single exchange."""
    if trouble.other:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(trouble.other.items()))
        say(f"kproxy: skipped events: {kinds}; only `kproxy stats` without a filter counts summaries", err=True)


def unjudged(number: int, why: str) -> None:
    """Print to standard error the number of exchanges that the filter could not judge, with the last reason."""
    if number:
        exchanges = plural(number, "exchange")
        say(f"kproxy: {exchanges} could not be judged by the filter, the last: {why}", err=True)


def live(admin: Admin, wanted: Filter, body: bool = False) -> Generator[tuple[int, ViewedEvent]]:
    """Yield the data of matching new exchanges, each with the number 0. Standard error counts the omitted ones."""
    for line in admin.stream("/api/tail", {"filter": str(wanted) or None, "body": "true" if body else None}):
        try:
            said = _decode(line)
        except msgspec.DecodeError:
            raise admin.other_server("a line that is not an event") from None
        if "request" in said:
            yield 0, said["request"]
        elif "dropped" in said:
            say(
                f"kproxy: {plural(said['dropped'], 'exchange')} left out, they come faster than they are read",
                err=True,
            )
        elif "unknown" in said:
            unjudged(said["unknown"], said["why"])


MOST_PARTITIONS = 6
"""Partitions of a topic that a cell shows on a terminal."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Column of a row. `width` in characters on a terminal: negative aligns to the right, 0 leaves cells uncut."""

    head: str
    width: int
    read: Callable[[ViewedEvent], Any]


def milliseconds(value: Any) -> str | None:
    """Return milliseconds in a few characters: `0.21ms`, `250ms`, `2.50s`; None for None."""
    if value is None:
        return None
    if value >= 1000:
        return f"{value / 1000:.2f}s"
    return f"{value:.2f}ms" if value < 10 else f"{value:.0f}ms"


def size(value: int | None) -> str | None:
    """Return a number of bytes in a few characters: `80`, `1.2k`, `3.0M`; None for None."""
    if value is None:
        return None
    for unit, factor in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= factor:
            return f"{value / factor:.1f}{unit}"
    return str(value)


def _state(data: ViewedEvent) -> str | None:
    """Return the errors of an exchange, otherwise its outcome as text; None for a normal answer."""
    outcome = data.get("outcome", "answered")
    return ",".join(errors(data)) or {"answered": None, "no_answer_due": "no answer due"}.get(outcome, outcome)


def _codecs(data: ViewedEvent) -> str | None:
    found = {part["codec"] for topic in data.get("topics") or () for part in topic.get("partitions") or ()
             if "codec" in part}  # fmt: skip
    return ",".join(sorted(found)) or None


def _node(data: ViewedEvent) -> str:
    return "bootstrap" if data.get("node") is None else str(data["node"])


def _acks(data: ViewedEvent) -> str | None:
    return {None: None, -1: "all"}.get(data.get("acks"), str(data.get("acks")))


def _column(name: str) -> Callable[[ViewedEvent], Any]:
    return lambda data: data.get(name)


NUMBER = Cell("#", -6, lambda data: None)
TIME = Cell("time", 12, lambda data: (data.get("request_in") or "")[11:23])
WHOLE_TIME = Cell("time", 27, _column("request_in"))
TABLE = (
    TIME,
    Cell("conn", -5, _column("connection")),
    Cell("client", 16, _column("client_id")),
    Cell("node", 9, _node),
    Cell("api", 22, lambda data: f"{data.get('api')} v{data.get('version')}"),
    Cell("topics", 28, topics),
    Cell("records", -7, _column("total_records")),
    Cell("req", -6, lambda data: size(data.get("request_bytes"))),
    Cell("resp", -6, lambda data: size(data.get("response_bytes"))),
    Cell("acks", 4, _acks),
    Cell("latency", -8, lambda data: milliseconds(data.get("latency_ms"))),
    Cell("throttle", -8, lambda data: milliseconds(data.get("throttle_ms") or None)),
    Cell("error", 0, _state),
    Cell("rules", 0, lambda data: ",".join(data.get("rules") or ())),
)
"""Columns of a row that fit a terminal of 160 characters."""
WIDE = (
    WHOLE_TIME,
    *TABLE[1:3],
    Cell("address", 21, lambda data: f"{data.get('client_address')}:{data.get('client_port')}"),
    Cell("principal", 12, _column("principal")),
    Cell("software", 20, software),
    TABLE[3],
    Cell("broker", 20, _column("broker")),
    TABLE[4],
    Cell("topics", 40, topics),
    Cell("group", 16, _column("group")),
    Cell("transaction", 12, _column("transactional_id")),
    *TABLE[6:9],
    Cell("codec", 6, _codecs),
    TABLE[9],
    Cell("outcome", 13, _column("outcome")),
    TABLE[10],
    Cell("at broker", -9, lambda data: milliseconds(data.get("broker_ms"))),
    Cell("by rules", -8, lambda data: milliseconds(data.get("rule_ms") or None)),
    *TABLE[11:],
)
"""Columns of a wide row: all columns."""
PIPED = (WHOLE_TIME, *TABLE[1:])


class Rows:
    """Printer of exchanges as rows. `wide`: all columns; `numbered`: first the exchange's number in its file."""

    def __init__(self, wide: bool, numbered: bool = False) -> None:
        self.people = sys.stdout.isatty()
        self.cells: Sequence[Cell] = WIDE if wide else TABLE if self.people else PIPED
        self.numbered, self.headed = numbered, False

    def show(self, data: ViewedEvent, number: int = 0) -> None:
        """Print a row. `number`: the exchange's number for `kproxy show FILE NUMBER`, 0 if it is not in a file."""
        cells = [cell_text(cell.read(data) or None) for cell in self.cells]
        if self.numbered:
            cells.insert(0, str(number))
        if not self.people:
            say("\t".join(cells))
            return
        if not self.headed:
            self.headed = True
            say(self._line([*([NUMBER.head] if self.numbered else []), *(cell.head for cell in self.cells)]), bold=True)
        say(self._line(cells), fg=colour(data))

    def _line(self, values: Sequence[str]) -> str:
        cells = [NUMBER, *self.cells] if self.numbered else self.cells
        return " ".join(fitted(value, cell.width) for cell, value in zip(cells, values, strict=True)).rstrip()


def fitted(value: str, width: int) -> str:
    """Return the text cut or padded to a column's width; an ellipsis marks a cut."""
    most = abs(width)
    if not most:
        return value
    if len(value) > most:
        value = f"{value[: most - 1]}…"
    return value.rjust(most) if width < 0 else value.ljust(most)


def colour(data: ViewedEvent) -> str | None:
    """Return the colour of an exchange's row by its outcome; None for a normal answer."""
    if data.get("decode_error"):
        return "magenta"
    if data.get("responder") == "kproxy":
        return "cyan"
    if data.get("error") or data.get("errors"):
        return "red"
    return "yellow" if data.get("outcome") in ("unanswered", "closed") else None
