"""`kproxy audit silver`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kproxy.pipeline.commands.common import job

if TYPE_CHECKING:
    from kproxy.pipeline.run import Run


@click.command("silver")
@click.option("--again", is_flag=True, help="Type all batches again, as after an upgrade with new columns.")
@job
def command(run: Run, again: bool) -> None:
    """Type what bronze holds: one table per kind of thing."""
    from kproxy.pipeline.jobs.silver import silver

    run.tell(f"silver: {silver(run, again=again)} batches")
