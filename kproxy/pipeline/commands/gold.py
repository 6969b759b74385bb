"""`kproxy audit gold`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kproxy.pipeline.commands.common import job

if TYPE_CHECKING:
    from kproxy.pipeline.run import Run


@click.command("gold")
@click.option("--again", is_flag=True, help="Make all days again, as after silver was typed again.")
@job
def command(run: Run, again: bool) -> None:
    """Make the answers of what silver holds.

    Only days whose silver has changed are made anew; late events of an old day change that day.
    """
    from kproxy.pipeline.jobs.gold import gold

    result = gold(run, again=again)
    run.tell(f"gold: {len(result.days)} days made, answers {'result anew' if result.combined else 'as they were'}")
