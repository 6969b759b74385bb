"""`kproxy capture`: record traffic of a running proxy in files, and describe them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import click

from kproxy.base.errors import KproxyError, plural
from kproxy.base.terminal import as_json, print_json, print_rows, say
from kproxy.cli.admin_client import Admin, segment, with_admin

from .start import awaited_end

COLUMNS = ("name", "state", "stopped", "exchanges", "broker_exchanges", "connections", "size", "seconds", "dropped",
           "filter")  # fmt: skip
LOOK = 0.5
"""Seconds between two reads of a capture's progress."""
F = TypeVar("F", bound=Callable[..., Any])


class Shorthand(click.Group):
    """Command group that runs `kproxy capture FILE …` as `kproxy capture follow FILE …`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["follow", *args]
        return super().resolve_command(ctx, args)


@click.group("capture", cls=Shorthand)
def command() -> None:
    """Record what passes through a running proxy in a pcapng file, which Wireshark, tshark and kproxy read.

    \b
    kproxy capture FILE [FILTER…]   records until Ctrl-C, or until it has enough
    kproxy capture start, stop, list, info

    The proxy writes the file, in the folder that `captures` in its config names.
    """


def with_unit(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the duration, with the unit s added to a bare number."""
    return f"{value}s" if value is not None and re.fullmatch(r"[0-9.]+", value, re.ASCII) else value


def with_choice(function: F) -> F:
    """Add the arguments and options that select the recorded traffic and its limits. Options have the names of the
    API's query."""
    for option in reversed((
        click.argument("file"),
        click.argument("words", metavar="[FILTER]…", nargs=-1, type=click.UNPROCESSED),
        click.option("--payload", type=click.Choice(["none", "head", "sketch", "full"]), default="head",
                     show_default=True,
                     help="Recorded part of each frame: header, beginning, all except records, or all."),
        click.option("--head", type=click.IntRange(16, 65_536), metavar="BYTES",
                     help="How much of each frame `head` keeps; 512 if not given."),
        click.option("--side", type=click.Choice(["client", "broker", "both"]), default="both", show_default=True,
                     help="Side to record: frames of clients, changed frames of brokers, or both."),
        click.option("--topics/--no-topics", default=None,
                     help="Record ids, leader epochs and configs of topics at the start and the end "
                          "(default: `capture_topics` of the proxy's config)."),
        click.option("--max-size", metavar="SIZE", help="End at this size, such as 100MB; 1GiB if not given."),
        click.option("--max-seconds", "--seconds", metavar="DURATION", callback=with_unit,
                     help="End after this time: seconds, or with a unit such as 10m (default: 1h)."),
        click.option("--max-exchanges", type=click.IntRange(min=1), help="Stop after this number of exchanges."),
    )):  # fmt: skip
        function = option(function)
    return function


def query_of(file: str, words: tuple[str, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Return the API's query for a new capture. Options that are not given are None, so the API's defaults apply."""
    return {"file": file, "filter": " ".join(words) or None, **given}


@command.command("start", context_settings={"ignore_unknown_options": True})
@with_choice
@as_json
@with_admin
def start(admin: Admin, file: str, words: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Start a capture. It runs until it is stopped or reaches a limit."""
    found = admin("POST", "/api/captures", query=query_of(file, words, given))
    show([found], as_json=as_json, one=True)


@command.command("follow", context_settings={"ignore_unknown_options": True})
@with_choice
@as_json
@with_admin
def follow(admin: Admin, file: str, words: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Start a capture, show its progress, and stop it at Ctrl-C, SIGTERM or SIGHUP. Same as `kproxy capture FILE`."""
    with awaited_end() as end:  # first: a signal during the start must also stop the capture
        found = admin("POST", "/api/captures", query=query_of(file, words, given))
        path = f"/api/captures/{segment(found['name'])}"
        try:
            say(f"recording into {found['file']}, Ctrl-C ends it", err=True)
            while found["state"] in ("running", "ending") and not end.wait(LOOK):
                found = admin("GET", path)
                progress(found)
            if found["state"] in ("running", "ending"):
                found = admin("DELETE", path)
        except BaseException:
            with suppress(KproxyError):  # report the first error
                admin("DELETE", path)
            raise
    progress(None)
    show([found], as_json=as_json, one=True)
    if found["state"] == "failed":
        raise KproxyError(f"{found['file']} could not be written: {found['error']}")


def progress(found: dict[str, Any] | None) -> None:
    """Overwrite the terminal's line with the progress of a capture; None clears the line. Pipes get nothing."""
    if not sys.stderr.isatty():
        return
    line = "" if found is None else (
        f"{found['seconds']:.0f} s, {plural(found['exchanges'], 'exchange')} of "
        f"{plural(found['connections'], 'connection')}, {found['size']} bytes, {found['dropped']} dropped"
    )  # fmt: skip
    say(line, err=True, nl=False, over=True)


@command.command("stop")
@click.argument("names", metavar="FILE…", nargs=-1, required=True)
@as_json
@with_admin
def stop(admin: Admin, names: tuple[str, ...], as_json: bool) -> None:
    """Stop captures; their files stay complete."""
    show([admin("DELETE", f"/api/captures/{segment(name)}") for name in names], as_json=as_json)


@command.command("list")
@as_json
@with_admin
def list_captures(admin: Admin, as_json: bool) -> None:
    """List running and finished captures: name, state, why it stopped, exchanges, broker's exchanges, connections,
    bytes, seconds, dropped, filter."""
    found = admin("GET", "/api/captures")
    if as_json:
        print_json(found)
    else:
        show(found["captures"], as_json=False)


def show(captures: list[dict[str, Any]], *, as_json: bool, one: bool = False) -> None:
    """Print captures as rows, or as the API's JSON. `one`: print the only capture without a list around it."""
    if as_json:
        print_json(captures[0] if one else captures)
    else:
        print_rows(COLUMNS, [[capture[name] for name in COLUMNS] for capture in captures])


@command.command("info")
@click.argument("file")
@click.option("--port", "ports", type=int, multiple=True, help="Another port of brokers besides 9092.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def info(file: str, ports: tuple[int, ...], as_json: bool) -> None:
    """Describe a capture of kproxy, tcpdump or dumpcap (- for standard input)."""
    from kproxy.record.captures.info import describe

    found = describe(file, ports)
    if as_json:
        print_json(found)
    else:
        print_rows(("what", "value"), list(found.items()))
