"""Options and run that commands share: where the lake is, where events come from, which Spark, how much is told."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kproxy.base.distribution import how_to_install
from kproxy.base.errors import InternalError
from kproxy.base.terminal import say

if TYPE_CHECKING:
    from kproxy.lake.sources import EventSource
    from kproxy.lake.spark import Run

LITTLE = 4 << 20
"""Bytes of files that take Java less time than its second compiler needs: of 60,000 events, 4 MB of event files, gold
was made sooner without it, of 300,000 much later."""

_RUN_OPTIONS = (
    click.option(
        "--lake", default="lake", show_default=True, envvar="KPROXY_LAKE", metavar="PATH",
        help="Folder or URI of the lake; also from KPROXY_LAKE.",
    ),
    click.option("--master", metavar="URL", help="Spark's master; local[*] by default, or what spark-submit says."),
    click.option("--memory", metavar="SIZE", help="Heap of a local Spark; 2g by default."),
    click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark's; may be given often."),
    click.option("--quiet", is_flag=True, help="Do not tell how far the job has come."),
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


def job(function: Callable[..., None], *, in_python: bool = False) -> Callable[..., None]:
    """Give a command the shared options, and `function` a Run in their place as its first argument.

    `in_python`: nearly all of its work is done by Python's workers.
    """

    @functools.wraps(function)
    def command(
        lake: str, master: str | None, memory: str | None, conf: tuple[str, ...], quiet: bool, **options: Any
    ) -> None:
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


def settings(conf: tuple[str, ...]) -> dict[str, str]:
    """Return `name=value` texts as a dict. Raises UsageError for others."""
    pairs = [one.partition("=") for one in conf]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.UsageError(f"--conf {name}: name=value is expected")
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
        raise click.BadParameter(f"there is no folder {str(page.parent)!r} that can be written to")
    return page


def source_of(given: dict[str, Any]) -> EventSource:
    """Return the source that the options mean. Raises UsageError unless they mean one."""
    from kproxy.lake.sources import FileSource, KafkaSource

    folder, kafka = given["folder"], given["kafka"]
    if bool(folder) == bool(kafka):
        raise click.UsageError("one of --from and --kafka is needed")
    if folder:
        return FileSource(folder)
    return KafkaSource(kafka, given["topic"], settings(given["options"]))
