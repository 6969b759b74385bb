"""`kproxy audit compact`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from kproxy.pipeline.commands.common import job

if TYPE_CHECKING:
    from kproxy.pipeline.run import Run


@click.command("compact")
@click.option("--dt", "days", multiple=True, type=click.DateTime(["%Y-%m-%d"]), help="Only this day; may be repeated.")
@job
def command(run: Run, days: tuple[datetime, ...]) -> None:
    """Bring the files of a day together, and take out duplicates exactly.

    Readers see the old files or the new ones, whenever the job ends. To be run when silver is not.
    """
    from kproxy.pipeline.jobs.compact import compact

    done = compact(run, [day.date() for day in days] or None)
    run.tell(f"compact: {done} tables of days")
