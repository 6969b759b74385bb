"""`kproxy audit clean`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from kproxy.pipeline.commands.common import job

if TYPE_CHECKING:
    from kproxy.pipeline.run import Run


@click.command("clean")
@click.option("--keep", metavar="DAYS", help="Delete days of bronze and silver that are older, such as 90d.")
@click.option("--delete-consumed", is_flag=True, help="Delete event files that bronze has taken over.")
@job
def command(run: Run, keep: str | None, delete_consumed: bool) -> None:
    """Delete days that are too old, and event files that have been taken over."""
    from kproxy.pipeline.jobs import clean

    if not keep and not delete_consumed:
        raise click.UsageError("--keep or --delete-consumed says what to delete")
    if keep:
        before = datetime.now(UTC).date() - timedelta(days=_days(keep))
        run.tell(f"clean: {clean.drop_old(run, before)} tables of days before {before} deleted")
    if delete_consumed:
        run.tell(f"clean: {clean.delete_consumed(run)} event files deleted")


def _days(text: str) -> int:
    match = re.fullmatch(r"(\d+)d?", text)
    if match is None:
        raise click.UsageError(f"--keep {text}: a number of days is expected, such as 90d")
    return int(match[1])
