"""Report on a terminal: the period, some figures, and the headlines."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kproxy.pipeline.report.cells import grouped
from kproxy.pipeline.report.page import nothing, span
from kproxy.pipeline.report.report_builder import Period
from kproxy.pipeline.report.section import AnswerReport


def show(report: AnswerReport, period: Period, console: Console) -> None:
    """Print the report's overview and headlines; what calls for a look has a mark and a colour."""
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
    console.print(f"{grouped(missing)} events missing, of {len(overview.sources)} sources\n", highlight=False)
    console.print(headlines(report))


def headlines(report: AnswerReport) -> Table:
    """Return a table with a line for each headline that has a number."""
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
