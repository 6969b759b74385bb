"""Parts of a report: sections with headlines, first rows as cells, counts of what was left out, and charts."""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.events.column import Column
from kproxy.pipeline.answer import GoldAnswer


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
