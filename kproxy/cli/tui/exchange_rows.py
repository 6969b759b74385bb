"""Rows of the list of exchanges: a bounded store, the columns that fit the terminal, and the text of each cell.

Rows have the columns of the view's stream (`/api/view`). Another version of kproxy or another server may have sent a
row, so an invalid value is shown as `?`. The store evicts its oldest rows in batches of a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from kproxy.cli.tail import milliseconds, size

from .widgets import TextPart, fit

StreamRow = Sequence[Any]
"""Values of one exchange, in the order of the stream's columns."""


class ColumnReader:
    """Reader of row values by column name; None for an unknown column."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.places: Mapping[str, int] = {name: place for place, name in enumerate(columns)}

    def __call__(self, row: StreamRow, name: str) -> Any:
        place = self.places.get(name)
        return row[place] if place is not None and place < len(row) else None


ReadValue = Callable[[str], Any]
"""Returns the value of a named column of one row."""


@dataclass(frozen=True, slots=True)
class TerminalColumn:
    """Column of the list. `width`: cells; a negative number aligns to the right. `rank`: columns with low ranks are
    shown first. `most`: widest width if the line has room."""

    head: str
    width: int
    rank: int
    text: Callable[[ReadValue], str | None]
    most: int = 0


def clock_time(seconds: Any) -> str:
    """Return the time of day in UTC of seconds since 1970, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3]


def outcome(get: ReadValue) -> str:
    """Return the end of an exchange as text: its errors, otherwise its outcome, or the rules that acted, or ""."""
    errors = get("errors")
    if errors:
        return ",".join(errors)
    said = get("outcome")
    if said == "answered":
        rules = joined(get("rules"))
        plain = "sent again" if get("again_of") else ""
        return "by kproxy" if get("responder") == "kproxy" else f"rule {rules}" if rules else plain
    return "under way" if said is None else str(said).replace("_", " ")


def joined(value: Any) -> str | None:
    """Return a list's values separated by commas, a single value as text, None for an empty value."""
    return ",".join(map(str, value)) or None if isinstance(value, (list, tuple)) else value and str(value)


def named(name: str) -> Callable[[ReadValue], str | None]:
    def text(get: ReadValue) -> str | None:
        value = get(name)
        return None if value is None else joined(value)

    return text


def sized(name: str) -> Callable[[ReadValue], str | None]:
    """Return a function that formats a column's bytes in a few characters."""
    return lambda get: size(get(name))


def lasting(name: str) -> Callable[[ReadValue], str | None]:
    """Return a function that formats a column's milliseconds in a few characters; 0 is empty."""
    return lambda get: milliseconds(get(name) or None)


LAST_TO_GROW = 6
"""Highest rank of the columns that grow first: the outcome and the subject. Among them, higher ranks grow first."""

COLUMNS = (
    TerminalColumn("id", 8, 12, named("id")),
    TerminalColumn("time", 12, 1, lambda get: clock_time(get("time"))),
    TerminalColumn("conn", -4, 2, named("connection")),
    TerminalColumn("client", 8, 3, named("client"), 20),
    TerminalColumn("api", 14, 0, lambda get: f"{get('api')} v{get('version')}", 20),
    TerminalColumn("about", 11, 4, named("about"), 40),
    TerminalColumn("records", -7, 9, named("records")),
    TerminalColumn("request", -7, 10, sized("request")),
    TerminalColumn("response", -8, 11, sized("response")),
    TerminalColumn("latency", -7, 5, lambda get: milliseconds(get("latency"))),
    TerminalColumn("throttle", -8, 13, lasting("throttle")),
    TerminalColumn("outcome", 10, 6, outcome, 24),
    TerminalColumn("rules", 12, 8, named("rules"), 24),
    TerminalColumn("at broker", -9, 14, lasting("broker_ms")),
    TerminalColumn("by rules", -8, 15, lasting("rule_ms")),
    TerminalColumn("principal", 12, 20, named("principal")),
    TerminalColumn("address", 21, 21, named("address")),
    TerminalColumn("software", 18, 22, named("software")),
    TerminalColumn("node", -4, 23, named("node")),
    TerminalColumn("group", 12, 24, named("group")),
    TerminalColumn("member", 12, 25, named("member")),
    TerminalColumn("transaction", 12, 26, named("transactional_id")),
    TerminalColumn("producer", -9, 27, named("producer_id")),
    TerminalColumn("codec", 6, 28, named("codec")),
    TerminalColumn("listener", 10, 29, named("listener")),
    TerminalColumn("depth", 6, 30, named("depth")),
    TerminalColumn("again of", 8, 31, named("again_of")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """Column with the width that it has on this terminal."""

    column: TerminalColumn
    width: int


@lru_cache(maxsize=50)
def placed(columns: tuple[TerminalColumn, ...], width: int, first: int = 0, room: int = 0) -> tuple[PlacedColumn, ...]:
    """Return the columns that fit into `width` cells, in their order.

    `first`: number of columns scrolled away. Columns of rank 0 and 1 always stay. `room`: cells reserved for columns up
    to rank LAST_TO_GROW before columns of higher ranks are shown.
    """
    there = [one for number, one in enumerate(columns) if number >= first or one.rank < 2]
    chosen: list[TerminalColumn] = []
    left = width
    for one in sorted(there, key=lambda column: (column.rank > 1, column.rank if column.rank < 2 or not first else 0)):
        need = abs(one.width) + 1
        if need + (room if one.rank > LAST_TO_GROW else 0) <= left:
            chosen.append(one)
            left -= need
    widths = {one: abs(one.width) for one in chosen}
    for one in sorted(chosen, key=lambda column: (column.rank > LAST_TO_GROW, -column.rank)):
        more = max(0, min(left, one.most - widths[one]))
        widths[one] += more
        left -= more
    return tuple(PlacedColumn(one, widths[one] if one.width > 0 else -widths[one]) for one in there if one in widths)


def cells(columns: Sequence[PlacedColumn], get: ReadValue) -> list[TextPart]:
    """Return the cells of one line, each followed by a blank."""
    return [(fit(cell(one.column, get), one.width) + " ", "") for one in columns]


def heads(columns: Sequence[PlacedColumn]) -> list[TextPart]:
    """Return the column heads, each followed by a blank."""
    return [(fit(one.column.head, one.width) + " ", "") for one in columns]


def cell(column: TerminalColumn, get: ReadValue) -> str:
    """Return the text of one cell, `?` for a value of another type."""
    try:
        return column.text(get) or ""
    except (TypeError, ValueError, OverflowError, OSError, AttributeError):
        return "?"


def colour(get: ReadValue) -> str:
    """Return the rich style of an exchange's line. The outcome column shows the same fact as text."""
    if get("responder") == "kproxy":
        return "cyan"
    if get("errors"):
        return "red"
    if get("outcome") in ("unanswered", "closed"):
        return "yellow"
    if get("outcome") is None:
        return "bright_yellow"
    return "magenta" if get("rules") else ""


MOST_ROWS = 200_000
"""Capacity of the store: about 200 MB if every column has a value of its own."""
MOST_MARKED = 1000
STEP = 1000
"""Rows that are evicted at a time."""


class ExchangeStore:
    """Rows of exchanges in order of arrival; `gone` counts evicted rows."""

    def __init__(self, most: int = MOST_ROWS) -> None:
        self.most, self.gone = most, 0
        self.read = ColumnReader(())
        self.rows: list[StreamRow] = []
        self.places: dict[str, int] = {}
        self.marked: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def clear(self) -> None:
        self.rows, self.places, self.gone = [], {}, 0
        self.marked = {}

    def begin(self, columns: Sequence[str]) -> None:
        """Set the column names of the rows that follow. Rows with other columns are discarded."""
        if tuple(columns) != self.read.columns:
            self.clear()
            self.read = ColumnReader(columns)

    def getter(self, index: int) -> Callable[[str], Any]:
        """Return a function that reads the row at this index by column name."""
        row, read = self.rows[index], self.read
        return lambda name: read(row, name)

    def ident(self, index: int) -> str:
        return str(self.read(self.rows[index], "id"))

    def add(self, rows: Iterable[StreamRow]) -> int:
        """Append rows; a row with a known id replaces the old one. Return the number of evicted rows."""
        for row in rows:
            if not isinstance(row, (list, tuple)):
                continue
            ident = str(self.read(row, "id"))
            place = self.places.get(ident)
            if place is None:
                self.places[ident] = len(self.rows) + self.gone
                self.rows.append(row)
            else:
                self.rows[place - self.gone] = row
        went = 0
        while len(self.rows) > self.most:
            went += self._drop(min(STEP, len(self.rows)))
        return went

    def _drop(self, count: int) -> int:
        for row in self.rows[:count]:
            ident = str(self.read(row, "id"))
            self.places.pop(ident, None)
            self.marked.pop(ident, None)
        del self.rows[:count]
        self.gone += count
        return count

    def place(self, ident: str) -> int | None:
        """Return the index of the row with this id, None if the store does not contain it."""
        found = self.places.get(ident)
        return None if found is None else found - self.gone

    def mark(self, ident: str) -> None:
        if ident in self.marked:
            del self.marked[ident]
        elif len(self.marked) < MOST_MARKED:
            self.marked[ident] = None
