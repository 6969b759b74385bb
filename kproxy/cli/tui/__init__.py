"""`kproxy view`: live or recorded exchanges in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from kproxy.base.distribution import how_to_install
from kproxy.base.errors import InternalError
from kproxy.base.terminal import say
from kproxy.cli.admin_client import Admin, with_admin
from kproxy.cli.filters import files_and_filter

SHOWN_LEVELS = ("warning", "error", "critical")  # log levels that `--web` prints


@click.command("view")
@click.argument("words", metavar="[FILE…] [FILTER]", nargs=-1)
@click.option("--light", is_flag=True, help="For terminals with a light background.")
@click.option("--web", is_flag=True, help="Show captures in a browser instead: all words are FILEs.")
@with_admin
def command(admin: Admin, words: tuple[str, ...], light: bool, web: bool) -> None:
    """Show exchanges with their fields and bytes: those that pass through a running proxy, or those in FILEs (captures,
    event files, directories). For a running proxy, also held frames, rules, connections and captures. Press ? for all
    keys.

    FILTER selects exchanges, such as '~k produce ~t orders' or 'error and latency > 200ms'. Quote it.
    """
    if web:
        serve_page(words)
        return
    files, wanted = files_and_filter(words)
    if "-" in files:
        raise click.UsageError("the keys come from standard input; name a file instead of -")
    try:
        from .app import ViewApp
        from .sources import ProxySource, ViewedFiles
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("textual", "rich"):
            raise
        raise InternalError(f"textual is not installed: {how_to_install('view')}") from None
    proxy = ProxySource(admin)
    ViewApp(ViewedFiles(files) if files else proxy, str(wanted), proxy=proxy, light=light).run()


def serve_page(files: Sequence[str]) -> None:
    """Serve the web page of the live view for captures on a free port until Ctrl-C. Raises InputError."""
    import structlog
    import trio

    from kproxy.admin.api import serve_files

    if not files:
        raise click.UsageError("--web is for files: name some, or open http://127.0.0.1:9190/view/ of a running proxy")
    if "-" in files:
        raise click.UsageError("--web needs files that have a name, not -")

    def print_url(url: str) -> None:
        say(url)
        say("kproxy: Ctrl-C ends it", err=True)

    def print_log_line(logger: Any, level: str, fields: Any) -> Any:
        if level in SHOWN_LEVELS:
            say(f"kproxy: {fields.get('event')}: {fields.get('error', '')}", err=True)
        raise structlog.DropEvent

    wrapper = structlog.make_filtering_bound_logger(0)
    log = structlog.wrap_logger(None, processors=[print_log_line], wrapper_class=wrapper)
    try:
        trio.run(serve_files, list(files), log, print_url)
    except* KeyboardInterrupt:
        pass
