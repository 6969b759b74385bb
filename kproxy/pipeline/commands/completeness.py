"""`kproxy audit completeness`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kproxy.pipeline.commands.common import job
from kproxy.terminal import say

if TYPE_CHECKING:
    from kproxy.pipeline.run import Run


@click.command("completeness")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
@click.option("--ranges", is_flag=True, help="Tell which ids are missing, a range a line, instead of how many.")
@job
def command(run: Run, as_json: bool, ranges: bool) -> None:
    """Say which events are missing, or came twice, of each source.

    A source numbers its events without gaps; what is missing between the first and the last was lost, or has not been
    taken over yet. Also told: lines that were no events.
    """
    from kproxy.pipeline.jobs.completeness import completeness_of, corrupt_of, missing_of

    if ranges:
        for source, (first, last) in missing_of(run):
            fields = {"source": source, "first": first, "last": last}
            say(json.dumps(fields) if as_json else f"{source}: {first:,} to {last:,}, {last - first + 1:,} missing")
        return
    for row in completeness_of(run).toLocalIterator():
        fields = row.asDict()
        if as_json:
            say(json.dumps(fields, default=str))
        else:
            say(
                f"{fields['source']}: {fields['events']:,} events, {fields['missing']:,} missing, "
                f"{fields['doubles']:,} doubled, ids {fields['first_id']:,} to {fields['last_id']:,}, "
                f"{fields['first']} to {fields['last']}"
            )
    for row in corrupt_of(run).collect():
        say(f"corrupt: {row['reason']}: {row['lines']:,} lines", err=as_json)
