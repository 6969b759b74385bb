"""Options that say where events come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kproxy.pipeline.commands.common import settings

if TYPE_CHECKING:
    from kproxy.pipeline.sources import EventSource

_OPTIONS = (
    click.option("--from", "folder", metavar="DIR", help="The folder that the config has as audit.dir; may be a URI."),
    click.option("--kafka", metavar="HOST:PORT,…", help="Bootstrap servers of the cluster that events are sent to."),
    click.option("--topic", default="kproxy-audit", show_default=True, help="The topic there."),
    click.option(
        "--option", "options", multiple=True, metavar="NAME=VALUE",
        help="An option of Spark's Kafka source, those of the client with kafka. in front; may be given often.",
    ),
)  # fmt: skip


def from_source(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a source."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def source_of(given: dict[str, Any]) -> EventSource:
    """Return the source that the options mean. Raises UsageError unless they mean one."""
    from kproxy.pipeline.sources import FileSource, KafkaSource

    folder, kafka = given["folder"], given["kafka"]
    if bool(folder) == bool(kafka):
        raise click.UsageError("one of --from and --kafka is needed")
    if folder:
        return FileSource(folder)
    return KafkaSource(kafka, given["topic"], settings(given["options"]))
