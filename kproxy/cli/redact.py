"""`kproxy redact`: copy a capture without the contents of records."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kproxy.base.errors import InputError, plural
from kproxy.base.terminal import say
from kproxy.cli.exchange_input import said_of
from kproxy.protocol.framing import MAX_FRAME
from kproxy.record.captures.captured_connection import CapturedConnection
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.reader import Capture
from kproxy.record.captures.redact import Pseudonyms, Redaction
from kproxy.record.captures.writer import CaptureWriter

BROKER = "broker"


@click.command("redact")
@click.argument("source", metavar="IN", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.argument("target", metavar="OUT", type=click.Path(dir_okay=False))
@click.option("--names", is_flag=True, help="Give clients, users and addresses other names, each always the same.")
@click.option("--force", is_flag=True, help="Overwrite OUT.")
def command(source: str, target: str, names: bool, force: bool) -> None:
    """Write the exchanges of the capture IN to OUT without the contents of records: keys, values and headers.

    Contents keep their lengths, and batches get valid checksums. Compressed batches are compressed again and become
    shorter. Credentials are redacted while IN is read. Names of topics and groups, error messages, metadata of commits
    and subscriptions of groups stay as they are.
    """
    if Path(target).exists() and not force:
        raise click.UsageError(f"{target} exists, overwrite it with --force")
    if source != "-" and Path(target).exists() and os.path.samefile(source, target):
        raise click.UsageError("IN and OUT are the same file")
    if Path(target).exists() and not Path(target).is_file():
        raise click.UsageError(f"expected a file, got the device or pipe {target}")
    redaction = Redaction(Pseudonyms() if names else None)
    capture = write(source, target, redaction)
    for text in (*said_of(capture), *said(redaction)):
        say(f"kproxy: {text}", err=True)


def write(source: str, target: str, redaction: Redaction) -> Capture:
    """Write the redacted capture under a temporary name until it is complete, and return the source capture.

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
    """Return the redacted parts as text, and the parts that were cut or filled because they could not be read."""
    done = redaction.records
    batches = f"{plural(done.records, 'record')} in {plural(done.batches, 'batch')}"
    found = [f"{plural(redaction.exchanges, 'exchange')}, {batches} redacted"]
    if done.recompressed:
        found.append(f"{plural(done.recompressed, 'compressed batch')} compressed again: "
                     f"{done.bytes_before} bytes before, {done.bytes_after} after")  # fmt: skip
    if done.unreadable:
        found.append(f"{plural(done.unreadable, 'unreadable batch')} filled")
    if redaction.cut:
        found.append(f"{plural(redaction.cut, 'incomplete or unreadable frame')} cut")
    return found
