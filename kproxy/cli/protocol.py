"""`kproxy protocol`: prints the table of the protocol, as a list of APIs or as the protocol guide's grammar."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from kproxy.cli.api_names import find_api, known_version
from kproxy.terminal import console, say
from kproxy.wire.table.layout import grammar
from kproxy.wire.table.schema import Api, apis

HEADINGS = ("key", "name", "versions", "aliases")


@click.command("protocol")
@click.argument("api", required=False)
@click.argument("version", type=int, required=False)
def command(api: str | None, version: int | None) -> None:
    """List the APIs; or show one (by name or key), and the grammar of its request and response.

    Without VERSION the newest is shown. The notation is that of Kafka's protocol guide: COMPACT_ types and a TAG_BUFFER
    in flexible versions, arrays in brackets.
    """
    if api is None:
        table() if sys.stdout.isatty() else plain()
        return
    found = find_api(api)
    if version is None:
        say("\n".join(facts(found)) + "\n")
    for line in grammars(found, known_version(found, found.versions.last if version is None else version)):
        say(line)


def row(api: Api) -> tuple[str, str, str, str]:
    return str(api.key), api.name, str(api.versions), ", ".join(api.aliases)


def plain() -> None:
    """Print a line for each API, in columns of blanks, for pipes."""
    rows = [HEADINGS, *map(row, apis())]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEADINGS))]
    for line in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def table() -> None:
    """Print a line for each API, in a table for terminals."""
    from rich.table import Table

    made = Table(*HEADINGS, box=None, header_style="bold")
    for line in map(row, apis()):
        made.add_row(*line)
    console().print(made)


def facts(api: Api) -> Iterator[str]:
    """Yield what the table says about an API as a whole, a line for each fact."""
    yield f"{api.name} (key {api.key})"
    if api.aliases:
        yield f"  also called  {', '.join(api.aliases)}"
    yield f"  versions     {api.versions}"
    yield f"  flexible     {api.flexible or 'none'}"
    if api.unstable:
        yield f"  not final    {api.unstable}"
    yield f"  served by    {', '.join(api.listeners)}"
    releases = (f"{versions or 'removed'} from Kafka {release}" for release, versions in api.releases.items())
    yield f"  in brokers   {'; '.join(releases)}"


def grammars(api: Api, version: int) -> Iterator[str]:
    """Yield the grammars of request and response, with an empty line between."""
    yield grammar(api.key, version, "request")
    yield ""
    yield grammar(api.key, version, "response")
