"""Commands of `kproxy audit` that fill the lake and look after it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kproxy.base.terminal import say

from .common import from_source, job, page_option, source_of

if TYPE_CHECKING:
    from kproxy.lake.spark import Run


@click.command("bronze")
@from_source
@click.option("--once", is_flag=True, help="Take over what there is, then end; so it is without --every, too.")
@click.option("--every", metavar="TIME", help="Go on: look for new events as often as this, such as '30 seconds'.")
@job
def bronze_command(run: Run, once: bool, every: str | None, **given: Any) -> None:
    """Take events over into the lake as they were written.

    Lines that are no events go to bronze_corrupt and are counted. A run that was killed is begun again by the next one,
    with the same result.
    """
    from kproxy.lake.jobs.bronze import bronze

    if once and every:
        raise click.UsageError("--once and --every exclude each other")
    taken = bronze(run, source_of(given), every)
    run.tell(f"bronze: {taken.batches} batches, {taken.lines:,} lines, {taken.corrupt:,} of them corrupt")


@click.command("silver")
@click.option("--again", is_flag=True, help="Type all batches again, as after an upgrade with new columns.")
@job
def silver_command(run: Run, again: bool) -> None:
    """Type what bronze holds: one table per kind of thing."""
    from kproxy.lake.jobs.silver import silver

    run.tell(f"silver: {silver(run, again=again)} batches")


@click.command("gold")
@click.option("--again", is_flag=True, help="Make all days again, as after silver was typed again.")
@job
def gold_command(run: Run, again: bool) -> None:
    """Make the answers of what silver holds.

    Only days whose silver has changed are made anew; late events of an old day change that day.
    """
    from kproxy.lake.jobs.gold import gold

    result = gold(run, again=again)
    run.tell(f"gold: {len(result.days)} days made, answers {'made anew' if result.combined else 'as they were'}")


@click.command("all")
@from_source
@page_option("--report", text="Tell the answers, too, and write them on this HTML page, in the same run of Spark.")
@job
def all_command(run: Run, report: Path | None, **given: Any) -> None:
    """Take events over, type them, and make the answers, once."""
    from kproxy.lake.jobs.bronze import bronze
    from kproxy.lake.jobs.gold import gold
    from kproxy.lake.jobs.silver import silver

    bronze(run, source_of(given))
    silver(run)
    gold(run)
    if report is not None:
        from kproxy.lake.report.report_builder import Period

        from .answers import tell_report

        tell_report(run, Period(), report)


@click.command("completeness")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
@click.option("--ranges", is_flag=True, help="Tell which ids are missing, a range a line, instead of how many.")
@job
def completeness_command(run: Run, as_json: bool, ranges: bool) -> None:
    """Say which events are missing, or came twice, of each source.

    A source numbers its events without gaps; what is missing between the first and the last was lost, or has not been
    taken over yet. Also told: lines that were no events.
    """
    from pyspark.sql import functions as F

    from kproxy.lake.tables import BRONZE_CORRUPT, IDS
    from kproxy.lake.transforms.ids import completeness, missing_ids

    ids = run.lake.read(IDS)

    if ranges:
        for source, (first, last) in missing_ids(ids):
            fields = {"source": source, "first": first, "last": last}
            say(json.dumps(fields) if as_json else f"{source}: {first:,} to {last:,}, {last - first + 1:,} missing")
        return
    for row in completeness(ids).orderBy("source").toLocalIterator():
        fields = row.asDict()
        if as_json:
            say(json.dumps(fields, default=str))
        else:
            say(
                f"{fields['source']}: {fields['events']:,} events, {fields['missing']:,} missing, "
                f"{fields['doubles']:,} doubled, ids {fields['first_id']:,} to {fields['last_id']:,}, "
                f"{fields['first']} to {fields['last']}"
            )
    corrupt = run.lake.read(BRONZE_CORRUPT).groupBy("reason").agg(F.count("*").alias("lines")).orderBy("reason")
    for row in corrupt.collect():
        say(f"corrupt: {row['reason']}: {row['lines']:,} lines", err=as_json)


@click.command("compact")
@click.option("--dt", "days", multiple=True, type=click.DateTime(["%Y-%m-%d"]), help="Only this day; may be repeated.")
@job
def compact_command(run: Run, days: tuple[datetime, ...]) -> None:
    """Bring the files of a day together, and take out duplicates exactly.

    Readers see the old files or the new ones, whenever the job ends. To be run when silver is not.
    """
    from kproxy.lake.jobs.upkeep import compact

    done = compact(run, [day.date() for day in days] or None)
    run.tell(f"compact: {done} tables of days")


@click.command("clean")
@click.option("--keep", metavar="DAYS", help="Delete days of bronze and silver that are older, such as 90d.")
@click.option("--delete-consumed", is_flag=True, help="Delete event files that bronze has taken over.")
@job
def clean_command(run: Run, keep: str | None, delete_consumed: bool) -> None:
    """Delete days that are too old, and event files that have been taken over."""
    from kproxy.lake.jobs import upkeep as clean

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
