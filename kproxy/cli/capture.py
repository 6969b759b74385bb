"""`kproxy capture` and `kproxy redact`: record traffic of a running proxy in files, describe them, and redact them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from kproxy.base.errors import InputError, KproxyError
from kproxy.base.terminal import as_json, print_json, print_rows, say
from kproxy.cli.admin_client import Admin, segment, with_admin
from kproxy.cli.exchange_input import said_of
from kproxy.protocol.framing import MAX_FRAME
from kproxy.record.captures.captured_connection import CapturedConnection
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.reader import Capture
from kproxy.record.captures.redact import Pseudonyms, Redaction
from kproxy.record.captures.writer import CaptureWriter

from .start import awaited_end

COLUMNS = ("name", "state", "stopped", "exchanges", "broker_exchanges", "connections", "size", "seconds", "dropped",
           "filter")  # fmt: skip
LOOK = 0.5
"""Seconds from one look at the progress of a capture to the next."""
F = TypeVar("F", bound=Callable[..., Any])


class Shorthand(click.Group):
    """Command group in which `kproxy capture FILE …` stands for `kproxy capture follow FILE …`."""

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
    """Return the duration with the unit s if it is a bare number."""
    return f"{value}s" if value is not None and re.fullmatch(r"[0-9.]+", value, re.ASCII) else value


def with_choice(function: F) -> F:
    """Add the arguments and options that say what is recorded, and how much; the options have the names that they have
    in the API's query."""
    for option in reversed((
        click.argument("file"),
        click.argument("words", metavar="[FILTER]…", nargs=-1, type=click.UNPROCESSED),
        click.option("--payload", type=click.Choice(["none", "head", "sketch", "full"]), default="head",
                     show_default=True,
                     help="Of each frame: its header only, its beginning, all but what is inside of record batches, or "
                          "all of it."),
        click.option("--head", type=click.IntRange(16, 65_536), metavar="BYTES",
                     help="How much of each frame `head` keeps; 512 if not given."),
        click.option("--side", type=click.Choice(["client", "broker", "both"]), default="both", show_default=True,
                     help="What clients see, what brokers see where that differs, or both."),
        click.option("--topics/--no-topics", default=None,
                     help="Record ids, leader epochs and configs of topics at the start and the end "
                          "(default: `capture_topics` of the proxy's config)."),
        click.option("--max-size", metavar="SIZE", help="End at this size, such as 100MB; 1GiB if not given."),
        click.option("--max-seconds", "--seconds", metavar="DURATION", callback=with_unit,
                     help="End after this time: seconds, or with a unit such as 10m (default: 1h)."),
        click.option("--max-exchanges", type=click.IntRange(min=1), help="End after so many exchanges."),
    )):  # fmt: skip
        function = option(function)
    return function


def query_of(file: str, words: tuple[str, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Return the API's query for a new capture; options that are not given are None, and the API has defaults."""
    return {"file": file, "filter": " ".join(words) or None, **given}


@command.command("start", context_settings={"ignore_unknown_options": True})
@with_choice
@as_json
@with_admin
def start(admin: Admin, file: str, words: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Start a capture, and leave it to run until it is stopped or has enough."""
    found = admin("POST", "/api/captures", query=query_of(file, words, given))
    show([found], as_json=as_json, one=True)


@command.command("follow", context_settings={"ignore_unknown_options": True})
@with_choice
@as_json
@with_admin
def follow(admin: Admin, file: str, words: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Start a capture, show its progress, and stop it at Ctrl-C, SIGTERM or SIGHUP. Same as `kproxy capture FILE`."""
    with awaited_end() as end:  # first: a signal while the capture starts must stop it, too
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
            with suppress(KproxyError):  # the first error is the reason
                admin("DELETE", path)
            raise
    progress(None)
    show([found], as_json=as_json, one=True)
    if found["state"] == "failed":
        raise KproxyError(f"{found['file']} could not be written: {found['error']}")


def progress(found: dict[str, Any] | None) -> None:
    """Write the progress of a capture over the terminal's line; None empties the line. Pipes get nothing."""
    if not sys.stderr.isatty():
        return
    line = "" if found is None else (
        f"{found['seconds']:.0f} s, {found['exchanges']} exchanges of {found['connections']} connections, "
        f"{found['size']} bytes, {found['dropped']} dropped"
    )  # fmt: skip
    say(line, err=True, nl=False, over=True)


@command.command("stop")
@click.argument("names", metavar="FILE…", nargs=-1, required=True)
@as_json
@with_admin
def stop(admin: Admin, names: tuple[str, ...], as_json: bool) -> None:
    """Stop captures; their files stay, whole."""
    show([admin("DELETE", f"/api/captures/{segment(name)}") for name in names], as_json=as_json)


@command.command("list")
@as_json
@with_admin
def list_captures(admin: Admin, as_json: bool) -> None:
    """List the captures that run, and those that are over: name, state, why it stopped, exchanges, broker's exchanges,
    connections, bytes, seconds, dropped, filter."""
    found = admin("GET", "/api/captures")
    if as_json:
        print_json(found)
    else:
        show(found["captures"], as_json=False)


def show(captures: list[dict[str, Any]], *, as_json: bool, one: bool = False) -> None:
    """Print captures as rows, or as the JSON that the API gave. `one`: without the list around the only one."""
    if as_json:
        print_json(captures[0] if one else captures)
    else:
        print_rows(COLUMNS, [[capture[name] for name in COLUMNS] for capture in captures])


@command.command("info")
@click.argument("file")
@click.option("--port", "ports", type=int, multiple=True, help="A port of brokers, beside 9092.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def info(file: str, ports: tuple[int, ...], as_json: bool) -> None:
    """Say what is in a capture of kproxy, tcpdump or dumpcap (- for standard input)."""
    from kproxy.record.captures.info import describe

    found = describe(file, ports)
    if as_json:
        print_json(found)
    else:
        print_rows(("what", "value"), list(found.items()))


BROKER = "broker"


@click.command("redact")
@click.argument("source", metavar="IN", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.argument("target", metavar="OUT", type=click.Path(dir_okay=False))
@click.option("--names", is_flag=True, help="Give clients, users and addresses other names, each always the same.")
@click.option("--force", is_flag=True, help="Overwrite OUT.")
def redact_command(source: str, target: str, names: bool, force: bool) -> None:
    """Write the exchanges of the capture IN to OUT without what users wrote: keys, values and headers of records.

    They keep their lengths, and batches get right checksums; compressed batches are compressed again and become
    shorter. Credentials are never in what kproxy reads. Names of topics and groups, messages of errors, metadata of
    commits and subscriptions of groups stay as they are.
    """
    if Path(target).exists() and not force:
        raise click.UsageError(f"{target} is there already, overwrite it with --force")
    if source != "-" and Path(target).exists() and os.path.samefile(source, target):
        raise click.UsageError("IN and OUT are the same file")
    if Path(target).exists() and not Path(target).is_file():
        raise click.UsageError(f"{target} is a device or a pipe, and a file is wanted, which is whole when it is there")
    redaction = Redaction(Pseudonyms() if names else None)
    capture = write(source, target, redaction)
    for text in (*said_of(capture), *said(redaction)):
        say(f"kproxy: {text}", err=True)


def write(source: str, target: str, redaction: Redaction) -> Capture:
    """Write the redacted capture, under another name until it is whole, and return the one that was read.

    Raises InputError if it has no Kafka exchange, CaptureError if it cannot be read.
    """
    part = Path(f"{target}.part")
    ended: list[CapturedConnection] = []
    capture = Capture(source, most=MAX_FRAME, side="both", closed=ended.append)
    try:
        with part.open("wb") as file:
            writer = CaptureWriter(file, Policy("full"), about={"redacted": "records, names" if redaction.names else
                                                                "records"})  # fmt: skip
            last = 0.0
            for seen in capture:
                shown = redaction.exchange(seen)
                who = shown.who
                assert isinstance(who, CapturedConnection), "the reader made it"
                server = (who.server_address, who.server_port)
                if who.interface == BROKER and capture.own:
                    writer.write_broker(shown, server, opened=who.opened, older=who.older)
                else:
                    writer.write(shown, server, opened=who.opened, older=who.older)
                last = max(last, *(frame.last for frame in (shown.request, shown.response) if frame is not None))
            for gone in ended:
                writer.closed(gone, last if gone.over is None else gone.over)
            writer.finish(last, "redacted")
        if not redaction.exchanges:
            raise InputError(f"{source}: no Kafka exchange was found in it")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return capture


def said(redaction: Redaction) -> list[str]:
    """Return in words what was redacted, and what was cut or filled because it could not be read."""
    done = redaction.records
    found = [f"{redaction.exchanges} exchanges, {done.records} records in {done.batches} batches redacted"]
    if done.recompressed:
        found.append(f"{done.recompressed} compressed batches were compressed again: {done.bytes_before} bytes before, "
                     f"{done.bytes_after} after")  # fmt: skip
    if done.unreadable:
        found.append(f"{done.unreadable} batches could not be read and were filled")
    if redaction.cut:
        found.append(f"{redaction.cut} frames were cut, since they were not whole or could not be read")
    return found
