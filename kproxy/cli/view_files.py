"""`kproxy view --web FILE…`: the page of the live view for captures, at a free port of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import structlog

from kproxy.base.terminal import say

WORTH_TELLING = ("warning", "error", "critical")


def serve(files: Sequence[str]) -> None:
    """Read these captures and serve the page for them, until Ctrl-C. Raises InputError for a file that is none."""
    import trio

    from kproxy.admin.api import serve_files

    if not files:
        raise click.UsageError("--web is for files: name some, or open http://127.0.0.1:9190/view/ of a running proxy")
    if "-" in files:
        raise click.UsageError("--web needs files that have a name, not -")

    def told(url: str) -> None:
        say(url)
        say("kproxy: Ctrl-C ends it", err=True)

    wrapper = structlog.make_filtering_bound_logger(0)
    log = structlog.wrap_logger(None, processors=[tell], wrapper_class=wrapper)
    try:
        trio.run(serve_files, list(files), log, told)
    except* KeyboardInterrupt:
        pass


def tell(logger: Any, level: str, fields: Any) -> Any:
    """Print a log line that is worth telling to standard error; there is no other log."""
    if level in WORTH_TELLING:
        say(f"kproxy: {fields.get('event')}: {fields.get('error', '')}", err=True)
    raise structlog.DropEvent
