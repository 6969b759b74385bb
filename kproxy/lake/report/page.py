"""Report as an HTML page and on a terminal. The page is one file without external resources; 4.8 MB of it are Plotly's
library.

Names come from clients and may contain anything. Jinja escapes all inserted values, and the page's content security
policy forbids external loads.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kproxy.base.distribution import own_version
from kproxy.base.errors import plural
from kproxy.base.terminal import console, say
from kproxy.lake.answers import SHOWN
from kproxy.lake.gold_lake import GoldLake
from kproxy.lake.lake import Lake
from kproxy.lake.report.report_builder import AnswerReport, Period, build_report, grouped, is_number

BAD = ("breaks", "old software", "unused", "never read", "authentication", "authorization")
"""Highlighted verdicts and kinds."""
PLAIN = (
    *("verdict", "kind", "level", "check", "scope", "activity", "api", "error", "day"),
    *("software_version", "client_address"),
)
"""Columns of short words, which are not wrapped."""
NAMES = ("client_id", "topic", "broker_topic", "group", "broker_group", "rule")
"""Columns of long names, which are wider."""


def page(report: AnswerReport) -> str:
    """Return the page of a report with at least one day."""
    return _template().render(
        overview=report.overview,
        sections=report.sections,
        period=span(report),
        plotly=Markup(get_plotlyjs()),
        version=own_version(),
        grouped=grouped,
        is_number=is_number,
        bad=BAD,
        plain=PLAIN,
        names=NAMES,
    )


def span(report: AnswerReport) -> str:
    days = report.overview.days
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}, {plural(len(days), 'day')}"


def nothing(period: Period) -> str:
    """Return the reason for an empty report, as text."""
    if period.whole:
        return "the gold tables are empty; fill them with `kproxy audit run`"
    return f"gold has no day from {period.first or 'the first'} to {period.last or 'the last'}"


def coded(text: str) -> Markup:
    """Return text as HTML, with backticks converted to code elements."""
    parts = re.split(r"`([^`]*)`", text)
    pieces = [Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)]
    return Markup("").join(pieces)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["coded"] = coded
    text = (files("kproxy.lake.report") / "page.html.j2").read_text("utf-8")
    return environment.from_string(text)


def write_report(lake: Lake, period: Period, output: Path | None, rows: int = SHOWN) -> None:
    """Print the headlines of a period, and write the page to `output` unless it is None or there are no days."""
    report = build_report(GoldLake(lake), period, shown=rows)
    show(report, period, console())
    if output is not None and not report.overview.days:
        say(f"{output}: not written")
    elif output is not None:
        output.write_text(page(report), encoding="utf-8")
        say(f"\n{output}: {output.stat().st_size / 1e6:.1f} MB")


def show(report: AnswerReport, period: Period, console: Console) -> None:
    """Print the report's overview and headlines; headlines that need attention have a mark and a colour."""
    overview = report.overview
    if not overview.days:
        console.print(f"There is nothing to report: {nothing(period)}.", highlight=False)
        return
    console.print(Text(f"What went through kproxy, {span(report)} (UTC)", style="bold"))
    figures = Table(box=None, show_header=False, pad_edge=False)
    for what, count in overview.figures:
        figures.add_row(Text(count, justify="right"), Text(what))
    console.print(figures)
    missing = sum(source.missing for source in overview.sources)
    console.print(
        f"{plural(missing, 'event')} missing, of {plural(len(overview.sources), 'source')}\n", highlight=False
    )
    console.print(headline_table(report))


def headline_table(report: AnswerReport) -> Table:
    """Return a table with a line for each headline with a number."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("", "left"), ("", "right"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for section in report.sections:
        title = section.answer.title
        for head in section.headlines:
            if head.count:
                style = "bold red" if head.alarms else ""
                table.add_row(
                    Text(title), Text(f"{'! ' if head.alarms else ''}{grouped(head.count)}", style), Text(head.text)
                )
                title = ""
    return table
