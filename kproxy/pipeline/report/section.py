"""What is shown of one answer: its headline, its first rows as cells, how many were left out, a chart."""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.events.column import Column
from kproxy.pipeline.answer import Answer


@dataclass(frozen=True, slots=True)
class Cell:
    """A value as it is read, and as it is sorted. `words`: it is an array of findings or names."""

    text: str
    sort: str | float
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Headline:
    """`count` things of which `text` tells; `calls`: somebody should look if there are any."""

    count: int
    text: str
    calls: bool

    @property
    def alarms(self) -> bool:
        return self.calls and self.count > 0


@dataclass(frozen=True, slots=True)
class Section:
    """One answer. `chart` is HTML made by Plotly, or empty; `chart_text` says what it shows."""

    answer: Answer
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: int
    headlines: tuple[Headline, ...]
    chart: str = ""
    chart_text: str = ""

    @property
    def left_out(self) -> int:
        """Rows of the answer that are not shown."""
        return self.total - len(self.rows)


@dataclass(frozen=True, slots=True)
class Source:
    """How complete the events of one source are."""

    source: str
    events: int
    doubles: int
    missing: int


@dataclass(frozen=True, slots=True)
class Overview:
    """What the whole report is about. Without any request `first_hour` and `last_hour` are empty."""

    days: tuple[str, ...]
    first_hour: str
    last_hour: str
    clusters: tuple[str, ...]
    figures: tuple[tuple[str, str], ...]
    """(what, how much), ready to be read."""
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything on the page."""

    overview: Overview
    sections: tuple[Section, ...]
