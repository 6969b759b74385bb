"""`kproxy view`: what passes, or has passed, in a terminal."""

from __future__ import annotations

import click

from kproxy.base.distribution import how_to_install
from kproxy.base.errors import InternalError
from kproxy.cli.admin_client import Admin, with_admin
from kproxy.cli.filters import files_and_filter


@click.command("view")
@click.argument("words", metavar="[FILE…] [FILTER]", nargs=-1)
@click.option("--light", is_flag=True, help="For terminals with a light background.")
@click.option("--web", is_flag=True, help="Show captures in a browser instead: all words are FILEs.")
@with_admin
def command(admin: Admin, words: tuple[str, ...], light: bool, web: bool) -> None:
    """See exchanges, their fields and bytes, as they pass through a running proxy, or those in FILEs: captures, event
    files, directories. Of a running proxy also what rules hold, rules, connections and captures; all by keys, ? lists
    them.

    FILTER says which, such as '~k produce ~t orders' or 'error and latency > 200ms'; write it in quotes.
    """
    if web:
        from kproxy.cli.view_files import serve

        serve(words)
        return
    files, wanted = files_and_filter(words)
    if "-" in files:
        raise click.UsageError("the keys come from standard input; name a file instead of -")
    try:
        from .app import ViewApp
        from .file_source import ViewedFiles
        from .proxy_source import ProxySource
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("textual", "rich"):
            raise
        raise InternalError(f"textual is not installed: {how_to_install('view')}") from None
    proxy = ProxySource(admin)
    ViewApp(ViewedFiles(files) if files else proxy, str(wanted), proxy=proxy, light=light).run()
