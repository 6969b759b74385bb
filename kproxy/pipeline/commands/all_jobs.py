"""`kproxy audit all`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kproxy.pipeline.commands.common import job
from kproxy.pipeline.commands.source import from_source, source_of

if TYPE_CHECKING:
    from kproxy.pipeline.run import Run


@click.command("all")
@from_source
@job
def command(run: Run, **given: Any) -> None:
    """Take events over, type them, and make the answers, once."""
    from kproxy.pipeline.jobs.bronze import bronze
    from kproxy.pipeline.jobs.gold import gold
    from kproxy.pipeline.jobs.silver import silver

    bronze(run, source_of(given))
    silver(run)
    gold(run)
