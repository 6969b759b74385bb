"""`kproxy tail`: prints exchanges line by line, from a running proxy, captures or event files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import closing
from io import TextIOWrapper
from typing import Any

import click
import msgspec

from kproxy.base.errors import InternalError
from kproxy.base.terminal import raw, say
from kproxy.cli.admin_client import Admin, with_admin
from kproxy.cli.exchange_input import Trouble, tell, views
from kproxy.cli.exchange_rows import Rows
from kproxy.cli.filters import files_and_filter
from kproxy.record.filter.filter import Filter
from kproxy.record.filter.view import ViewedEvent

FORMS = ("table", "wide", "json")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@click.command("tail")
@click.argument("words", metavar="[FILE…] [FILTER]", nargs=-1)
@click.option(
    "-o", "--output", type=click.Choice(["table", "wide", "json"]), default="table", help="How to print them."
)
@click.option("-n", "--number", type=click.IntRange(min=1), help="Stop after so many.")
@click.option("--help-filter", is_flag=True, help="Print the fields of the filter language.")
@with_admin
def command(admin: Admin, words: tuple[str, ...], output: str, number: int | None, help_filter: bool) -> None:
    """Print exchanges as they pass through a running proxy, or those in FILEs: captures, event files, directories.

    Rows of FILEs begin with the number that `kproxy show FILE NUMBER` expects. FILTER selects exchanges, such as
    '~k produce ~t orders' or 'error and latency > 200ms'; write it in quotes. JSON lines are the data of request
    events, as in the audit.
    """
    if help_filter:
        from kproxy.cli.filters import print_help

        print_help()
        return
    files, wanted = files_and_filter(words)
    show = shown_as(output, numbered=bool(files))
    left = number or sys.maxsize
    out = raw(err=False)
    if not files and isinstance(out, TextIOWrapper):
        out.reconfigure(line_buffering=True)  # so that a pipe, too, gets each exchange at once
    try:
        with closing(from_files(files, wanted) if files else live(admin, wanted)) as found:
            for place, data in found:
                show(data, place)
                left -= 1
                if not left:
                    break
    except KeyboardInterrupt:
        pass  # Ctrl-C is the usual end, and no failure


def shown_as(output: str, *, numbered: bool) -> Callable[[ViewedEvent, int], None]:
    """Return the function that prints an exchange's data and number in this form."""
    if output == "json":
        return lambda data, number: say(_encode(data).decode())
    return Rows(output == "wide", numbered).show


def from_files(files: list[str], wanted: Filter) -> Generator[tuple[int, ViewedEvent]]:
    """Yield number and data of the matching exchanges of these files, one file after the other. The number is that of
    `kproxy show`: it counts all exchanges of the file, from 1."""
    trouble = Trouble()
    try:
        for file in files:
            for place, view in enumerate(views(file, trouble), 1):
                if wanted.holds(view):
                    yield place, view.data
    finally:
        tell(trouble)
        passed_over(trouble)
        unjudged(wanted.unknown, wanted.why)


def passed_over(trouble: Trouble) -> None:
    """Print to standard error how many events were passed over, because they are about no single exchange."""
    if trouble.other:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(trouble.other.items()))
        say(f"kproxy: other events passed over: {kinds}; `kproxy stats` counts summaries", err=True)


def unjudged(number: int, why: str) -> None:
    """Print to standard error how many exchanges the filter could not judge, and why not the last of them."""
    if number:
        exchanges = f"{number} exchange{'s' if number > 1 else ''}"
        say(f"kproxy: {exchanges} could not be judged by the filter, the last: {why}", err=True)


def live(admin: Admin, wanted: Filter) -> Generator[tuple[int, ViewedEvent]]:
    """Yield the data of matching exchanges from now on, each with the number 0. Standard error counts those that are
    left out."""
    for line in admin.stream("/api/tail", {"filter": str(wanted) or None}):
        try:
            said = _decode(line)
        except msgspec.DecodeError:
            raise InternalError(f"what answers at {admin.url} is no kproxy") from None
        if "request" in said:
            yield 0, said["request"]
        elif "dropped" in said:
            say(f"kproxy: {said['dropped']} exchanges left out, they come faster than they are read", err=True)
        elif "unknown" in said:
            unjudged(said["unknown"], said["why"])
