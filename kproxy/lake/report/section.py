"""Parts of a report: sections with headlines, first rows as cells, counts of what was left out, and charts.

Cells have values as people read them: numbers with thin spaces, bytes with units, parts as percent, times in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kproxy.lake.answer import GoldAnswer
from kproxy.record.events.column import Column

SHOWN = 50
"""Rows of an answer on the page: what somebody reads. The tables have all of them."""


@dataclass(frozen=True, slots=True)
class ReportCell:
    """Cell with a value as it is read, and as it is sorted. `words`: it is an array of findings or names."""

    text: str
    sort: str | float
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Headline:
    """Headline with a count of what `text` says; `calls`: it calls for a look if the count is not 0."""

    count: int
    text: str
    calls: bool

    @property
    def alarms(self) -> bool:
        return self.calls and self.count > 0


@dataclass(frozen=True, slots=True)
class Section:
    """Section of one answer. `chart` is HTML made by Plotly, or empty; `chart_text` says what it shows."""

    answer: GoldAnswer
    columns: tuple[Column, ...]
    rows: tuple[tuple[ReportCell, ...], ...]
    total: int
    headlines: tuple[Headline, ...]
    chart: str = ""
    chart_text: str = ""

    @property
    def left_out(self) -> int:
        """Return the number of the answer's rows that are not shown."""
        return self.total - len(self.rows)


@dataclass(frozen=True, slots=True)
class SourceCompleteness:
    """Completeness of the events of one source."""

    source: str
    events: int
    doubles: int
    missing: int


@dataclass(frozen=True, slots=True)
class Overview:
    """Overview of the whole report. Without any request `first_hour` and `last_hour` are empty."""

    days: tuple[str, ...]
    first_hour: str
    last_hour: str
    clusters: tuple[str, ...]
    figures: tuple[tuple[str, str], ...]
    """(what, how much), ready to be read."""
    sources: tuple[SourceCompleteness, ...]


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """Report with everything on the page."""

    overview: Overview
    sections: tuple[Section, ...]


THIN = "\u202f"
"""Narrow space that does not break."""
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def cell(value: Any, column: Column) -> ReportCell:
    """Return the cell of one value; null is an empty cell that sorts before all others."""
    if value is None:
        return ReportCell("", float("-inf") if is_number(column) else "")
    if isinstance(value, list):
        words = tuple(map(str, value))
        return ReportCell(", ".join(words), ", ".join(words), words)
    if isinstance(value, bool):
        return ReportCell("yes" if value else "no", float(value))
    if isinstance(value, datetime):
        return ReportCell(f"{value:%Y-%m-%d %H:%M:%S}", value.isoformat())
    if isinstance(value, int | float):
        return ReportCell(_number(value, column), float(value))
    return ReportCell(str(value), str(value))


def is_number(column: Column) -> bool:
    """Return True if the column's cells stand at the right."""
    return column.type in ("int", "long", "double") and not column.array


def _number(value: float, column: Column) -> str:
    if column.unit == "part":
        return percent(value)
    if column.unit == "bytes":
        return size(value)
    if column.type == "double":
        return grouped(value, 0 if value >= 1000 else 1 if value >= 10 else 2)
    if column.name in ("version", "minimum", "node", "partition", "largest_partition"):
        return str(value)
    return grouped(value)


def grouped(value: float, digits: int = 0) -> str:
    """Format a number with thin spaces: 1 234 567."""
    return f"{value:,.{digits}f}".replace(",", THIN)


def percent(part: float) -> str:
    """Format a part as percent: 0.0123 is 1.2 %; what is not quite nothing or all does not look so."""
    hundred = part * 100
    text = f"{hundred:.1f}".removesuffix(".0")
    if text == "0" and part > 0:
        text = "<0.1"
    if text == "100" and part < 1:
        text = ">99.9"
    return f"{text}{THIN}%"


def size(count: float) -> str:
    """Format a count of bytes: 12345678 is 12.3 MB; thousands, as disks are sold and networks measured."""
    for unit in _SIZES[:-1]:
        if count < 1000:
            return f"{count:.0f}{THIN}{unit}" if unit == "B" else f"{count:.1f}{THIN}{unit}"
        count /= 1000
    return f"{count:.1f}{THIN}{_SIZES[-1]}"
