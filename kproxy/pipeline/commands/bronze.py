"""`kproxy audit bronze`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kproxy.pipeline.commands.common import job
from kproxy.pipeline.commands.source import from_source, source_of

if TYPE_CHECKING:
    from kproxy.pipeline.run import Run


@click.command("bronze")
@from_source
@click.option("--once", is_flag=True, help="Take over what there is, then end; so it is without --every, too.")
@click.option("--every", metavar="TIME", help="Go on: look for new events as often as this, such as '30 seconds'.")
@job
def command(run: Run, once: bool, every: str | None, **given: Any) -> None:
    """Take events over into the lake as they were written.

    Lines that are no events go to bronze_corrupt and are counted. A run that was killed is begun again by the next one,
    with the same result.
    """
    from kproxy.pipeline.jobs.bronze import bronze

    if once and every:
        raise click.UsageError("--once and --every exclude each other")
    taken = bronze(run, source_of(given), every)
    run.tell(f"bronze: {taken.batches} batches, {taken.lines:,} lines, {taken.corrupt:,} of them corrupt")
