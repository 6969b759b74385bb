"""Commands of `kproxy audit` that fill the lake and maintain it, and the options and the run of all Spark commands."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kproxy.base.distribution import how_to_install
from kproxy.base.errors import InternalError, plural
from kproxy.base.terminal import say

if TYPE_CHECKING:
    from kproxy.lake.jobs.ingest import EventSource
    from kproxy.lake.spark import Run

LITTLE = 4 << 20
"""Bytes of files that take Java less time than its second compiler needs: of 60,000 events, 4 MB of event files, gold
was made sooner without it, of 300,000 much later."""

_RUN_OPTIONS = (
    click.option(
        "--lake", default="lake", show_default=True, envvar="KPROXY_LAKE", metavar="PATH",
        help="Folder or URI of the lake; also from KPROXY_LAKE.",
    ),
    click.option("--master", metavar="URL", help="Spark master (default: local[*], or from spark-submit)."),
    click.option("--memory", metavar="SIZE", help="Heap of a local Spark; 2g by default."),
    click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark's; may be given often."),
    click.option("--quiet", is_flag=True, help="Print no progress."),
)  # fmt: skip
_SOURCE_OPTIONS = (
    click.option("--from", "folder", metavar="DIR", help="The folder that the config has as audit.dir; may be a URI."),
    click.option("--kafka", metavar="HOST:PORT,…", help="Bootstrap servers of the cluster that events are sent to."),
    click.option("--topic", default="kproxy-audit", show_default=True, help="The topic there."),
    click.option(
        "--option", "options", multiple=True, metavar="NAME=VALUE",
        help="An option of Spark's Kafka source, those of the client with kafka. in front; may be given often.",
    ),
)  # fmt: skip


def job(
    function: Callable[..., None], *, in_python: bool = False, check: Callable[..., None] | None = None
) -> Callable[..., None]:
    """Give a command the shared options, and `function` a Run in their place as its first argument.

    `in_python`: nearly all of its work is done by Python's workers. `check` gets the other options before Spark starts,
    and raises UsageError.
    """

    @functools.wraps(function)
    def command(
        lake: str, master: str | None, memory: str | None, conf: tuple[str, ...], quiet: bool, **options: Any
    ) -> None:
        if check is not None:
            check(**options)
        kafka, folder = bool(options.get("kafka")), options.get("folder")
        brief = in_python or (not kafka and hold_little([lake, *([folder] if folder else [])]))
        with opened(lake, master, memory, settings(conf), quiet=quiet, kafka=kafka, brief=brief) as run:
            function(run, **options)

    for option in reversed(_RUN_OPTIONS):
        command = option(command)
    return command


@contextmanager
def opened(
    lake: str,
    master: str | None = None,
    memory: str | None = None,
    conf: dict[str, str] | None = None,
    *,
    quiet: bool = False,
    kafka: bool = False,
    brief: bool = False,
) -> Iterator[Run]:
    """Yield a run with a session, which ends with the block, and the lake."""
    try:
        from kproxy.lake.lake import Lake
        from kproxy.lake.spark import Run, session
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise InternalError(f"pyspark is not installed: {how_to_install('pipeline')}") from error
    tell = silent if quiet else to_stderr
    tell("starting Spark")
    spark = session(master, conf, memory=memory, kafka=kafka, brief=brief)
    try:
        yield Run(spark, Lake(spark, lake), tell)
    finally:
        spark.stop()


def hold_little(folders: Sequence[str]) -> bool:
    """Return True if the files below these folders are less than LITTLE together. What is not on this machine's disks
    may be large."""
    size = 0
    for folder in folders:
        if "://" in folder:
            return False
        for path, _, names in os.walk(folder.removeprefix("file:")):
            for name in names:
                with suppress(OSError):  # gone meanwhile
                    size += os.stat(os.path.join(path, name)).st_size
                if size >= LITTLE:
                    return False
    return True


def to_stderr(line: str) -> None:
    """Print a line of progress to stderr: stdout is for answers."""
    say(line, err=True)


def silent(line: str) -> None:
    """Do nothing with a line of progress: `--quiet` was given."""


def settings(conf: tuple[str, ...], option: str = "--conf") -> dict[str, str]:
    """Return `name=value` texts as a dict. Raises UsageError for others."""
    pairs = [one.partition("=") for one in conf]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.UsageError(f"{option}: expected NAME=VALUE, got {name}{equals}")
    return {name: value for name, _, value in pairs}


def from_source(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_SOURCE_OPTIONS):
        function = option(function)
    return function


def page_option(*names: str, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return an option for the HTML page that a job ends with. That it can be written is found out before the work."""
    kind = click.Path(dir_okay=False, writable=True, path_type=Path)
    return click.option(*names, type=kind, metavar="FILE", callback=_with_a_folder, help=text)


def _with_a_folder(_: click.Context, __: click.Parameter, page: Path | None) -> Path | None:
    if page is not None and not (page.parent.is_dir() and os.access(page.parent, os.W_OK)):
        raise click.BadParameter(f"expected a file in a writable folder, got {str(page.parent)!r}")
    return page


def source_of(given: dict[str, Any]) -> EventSource:
    """Return the source that the checked options mean."""
    from kproxy.lake.jobs.ingest import FileSource, KafkaSource

    if given["folder"]:
        return FileSource(given["folder"])
    return KafkaSource(given["kafka"], given["topic"], settings(given["options"], "--option"))


LAYERS = ("bronze", "silver", "gold")


def check_run(until: str, rebuild: str | None, every: str | None, report: Path | None, **given: Any) -> None:
    """Check the options of `run` that depend on each other. Raises UsageError."""
    if every and until != "bronze":
        raise click.UsageError(f"--every: expected --until bronze, got {until}")
    if report is not None and until != "gold":
        raise click.UsageError(f"--report: expected --until gold, got {until}")
    if rebuild and LAYERS.index(rebuild) > LAYERS.index(until):
        raise click.UsageError(f"--rebuild: expected {until} or an earlier layer, got {rebuild}")
    if (given["folder"] and given["kafka"]) or not (until != "bronze" or given["folder"] or given["kafka"]):
        raise click.UsageError("expected --from or --kafka")
    settings(given["options"], "--option")


@click.command("run")
@from_source
@click.option(
    "--until",
    type=click.Choice(LAYERS),
    default="gold",
    show_default=True,
    help="Last layer to build: bronze (events as written), silver (typed tables), gold (report tables).",
)
@click.option(
    "--rebuild",
    type=click.Choice(LAYERS[1:]),
    help="Build this layer and later ones again from all data, as after an upgrade with new columns.",
)
@click.option(
    "--every",
    metavar="TIME",
    help="With --until bronze: read new events at this interval until stopped, such as '30 seconds'.",
)
@page_option("--report", text="Also write the report as an HTML page.")
@functools.partial(job, check=check_run)
def run_command(
    run: Run, until: str, rebuild: str | None, every: str | None, report: Path | None, **given: Any
) -> None:  # fmt: skip
    """Build the tables of the lake from audit events: bronze, silver and gold.

    Without --from and --kafka no new events are read, and the layers after bronze are brought up to date. Lines that
    are not events go to bronze_corrupt. A run that was stopped is completed by the next run, with the same result.
    """
    from kproxy.lake.gold_lake import gold
    from kproxy.lake.jobs.ingest import bronze, silver

    if until == "bronze" or given["folder"] or given["kafka"]:
        taken = bronze(run, source_of(given), every)
        run.tell(f"bronze: {plural(taken.batches, 'batch')}, {plural(taken.lines, 'line')}, {taken.corrupt:,} corrupt")
    if until == "bronze":
        return
    run.tell(f"silver: {plural(silver(run, again=rebuild == 'silver'), 'batch')}")
    if until == "silver":
        return
    result = gold(run, again=rebuild is not None)
    run.tell(f"gold: {plural(len(result.days), 'day')} built, tables {'updated' if result.combined else 'unchanged'}")
    if report is not None:
        from kproxy.lake.report.page import write_report
        from kproxy.lake.report.report_builder import Period

        write_report(run.lake, Period(), report)


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
            missing = {"source": source, "first": first, "last": last}
            say(json.dumps(missing) if as_json else f"{source}: {first:,} to {last:,}, {last - first + 1:,} missing")
        return
    for row in completeness(ids).orderBy("source").toLocalIterator():
        fields: dict[str, Any] = row.asDict()
        if as_json:
            say(json.dumps(fields, default=str))
        else:
            say(
                f"{fields['source']}: {plural(fields['events'], 'event')}, {fields['missing']:,} missing, "
                f"{fields['doubles']:,} doubled, ids {fields['first_id']:,} to {fields['last_id']:,}, "
                f"{fields['first']} to {fields['last']}"
            )
    corrupt = run.lake.read(BRONZE_CORRUPT).groupBy("reason").agg(F.count("*").alias("lines")).orderBy("reason")
    for row in corrupt.collect():
        say(f"corrupt: {row['reason']}: {plural(row['lines'], 'line')}", err=as_json)


@click.command("compact")
@click.option("--dt", "days", multiple=True, type=click.DateTime(["%Y-%m-%d"]), help="Only this day; may be repeated.")
@job
def compact_command(run: Run, days: tuple[datetime, ...]) -> None:
    """Bring the files of a day together, and take out duplicates exactly.

    Readers see the old files or the new ones, whenever the job ends. To be run when silver is not.
    """
    from kproxy.lake.jobs.upkeep import compact

    done = compact(run, [day.date() for day in days] or None)
    run.tell(f"compact: {plural(done, 'daily table')}")


def check_clean(keep: str | None, delete_consumed: bool) -> None:
    """Check the options of `clean`. Raises UsageError."""
    if not keep and not delete_consumed:
        raise click.UsageError("expected --keep or --delete-consumed")
    if keep:
        _days(keep)


@click.command("clean")
@click.option("--keep", metavar="DAYS", help="Delete days of bronze and silver that are older, such as 90d.")
@click.option("--delete-consumed", is_flag=True, help="Delete event files that bronze has taken over.")
@functools.partial(job, check=check_clean)
def clean_command(run: Run, keep: str | None, delete_consumed: bool) -> None:
    """Delete days that are too old, and event files that have been taken over."""
    from kproxy.lake.jobs import upkeep as clean

    if keep:
        before = datetime.now(UTC).date() - timedelta(days=_days(keep))
        run.tell(f"clean: {plural(clean.drop_old(run, before), 'daily table')} before {before} deleted")
    if delete_consumed:
        run.tell(f"clean: {clean.delete_consumed(run)} event files deleted")


def _days(text: str) -> int:
    match = re.fullmatch(r"(\d+)d?", text)
    if match is None:
        raise click.UsageError(f"--keep: expected a number of days such as 90d, got {text}")
    return int(match[1])
