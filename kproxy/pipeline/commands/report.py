"""`kproxy audit report`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kproxy.pipeline.commands.common import job
from kproxy.terminal import console, say

if TYPE_CHECKING:
    from kproxy.pipeline.run import Run

DAY = click.DateTime(["%Y-%m-%d"])


@click.command("report")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write an HTML page."
)
@click.option("--from", "first", type=DAY, metavar="DATE", help="First day, UTC.")
@click.option("--to", "last", type=DAY, metavar="DATE", help="Last day, UTC.")
@click.option("--rows", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Rows of each table.")
@job
def command(run: Run, output: Path | None, first: datetime | None, last: datetime | None, rows: int) -> None:
    """Tell what gold knows: headlines here, everything on one HTML page with -o.

    The page is one file of some 5 MB that loads nothing: it may be sent, kept and printed.
    """

    from kproxy.pipeline.gold_lake import GoldLake
    from kproxy.pipeline.report.page import page
    from kproxy.pipeline.report.report_builder import Period, build_report
    from kproxy.pipeline.report.terminal import show

    period = Period(first and first.date(), last and last.date())
    if period.first and period.last and period.first > period.last:
        raise click.UsageError(f"--from {period.first} is later than --to {period.last}")
    report = build_report(GoldLake(run.lake), period, shown=rows)
    show(report, period, console())
    if output is not None:
        output.write_text(page(report, period), encoding="utf-8")
        say(f"\n{output}: {output.stat().st_size / 1e6:.1f} MB")
