"""`kproxy replay`: sends recorded requests to a cluster, or recorded responses to clients; prints plan and report."""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal

import click

from kproxy.base.errors import DecodeError, plural
from kproxy.base.named_file import reason, text_named
from kproxy.base.terminal import console, output_option, print_rows, say
from kproxy.rules.values.address import Address, parse_target
from kproxy.tools.replay.compare import IgnoredFields
from kproxy.tools.replay.player import PATIENCE, Pace

from .filters import files_and_filter

if TYPE_CHECKING:
    from kproxy.record.exchange import ObservedExchange
    from kproxy.record.filters import Filter
    from kproxy.tools.replay.player import ReplayPlayer
    from kproxy.tools.replay.recording import Recording, ReplayOutcome
    from kproxy.tools.replay.report import ApiRow, ReplayReport
    from kproxy.tools.replay.responder import RecordingResponder

MOST_NAMES = 3  # names that a warning lists of each side
LONGEST_PASSWORD = 65_536
"""Bytes of the longest file with a password."""


@dataclass(frozen=True)
class Options:
    """Options of one replay, as texts of the command line. The methods parse them, and raise BadParameter or
    NoSuchGroup for invalid ones."""

    to: str | None
    serve: str | None
    speed: str
    order: Literal["all", "connection"]
    response_timeout: float | None
    ignore: tuple[str, ...]
    compare: tuple[str, ...]
    fail_on_difference: bool
    sasl_plain: str | None
    tls: bool
    tls_ca: str | None
    side: Literal["client", "broker"]
    dry_run: bool
    yes: bool
    output: str

    def normal(self) -> IgnoredFields:
        return IgnoredFields(self.ignore, self.compare)

    def pace(self) -> Pace:
        try:
            factor = None if self.speed == "max" else float(self.speed)
        except ValueError:
            factor = -1.0
        if factor is not None and not 0 < factor < float("inf"):
            problem = f'expected a speed above 0 or max, got "{self.speed}"'
            raise click.BadParameter(problem, param_hint="--speed")
        return Pace(factor, self.order, self.response_timeout or PATIENCE)

    def target(self) -> Address:
        return address("--to", self.to or "")

    def place(self) -> Address:
        return address("--serve", self.serve or "")

    def user(self) -> tuple[str, str] | None:
        """Return the user and password of --sasl-plain, read from its file; None without that option."""
        if self.sasl_plain is None:
            return None
        user, _, file = self.sasl_plain.partition(":")
        if not user or not file:
            raise click.BadParameter("write USER:FILE, where FILE holds the password", param_hint="--sasl-plain")
        try:
            return user, text_named(file, LONGEST_PASSWORD).rstrip("\r\n")
        except OSError as error:
            problem = f"{file}: {reason(error)}"
            raise click.BadParameter(problem, param_hint="--sasl-plain") from None

    def tls_context(self) -> ssl.SSLContext | None:
        """Return a TLS context with the system's authorities, or those in a file; None for plain text."""
        if not self.tls and self.tls_ca is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.tls_ca)
        except ssl.SSLError as error:
            raise click.BadParameter(f"{self.tls_ca}: {error.reason}", param_hint="--tls-ca") from None


def address(option: str, text: str) -> Address:
    try:
        return parse_target(text) if option == "--to" else Address.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def is_loopback(host: str) -> bool:
    """Return True for localhost and loopback IPs; any other name may lead to another machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@click.command("replay")
@click.argument("words", metavar="CAPTURE… [FILTER]", nargs=-1, required=True)
@click.option("--to", metavar="HOST:PORT", help="Send the recorded requests to this cluster.")
@click.option("--serve", metavar="HOST:PORT", help="Answer clients here as the recording was answered.")
@click.option(
    "--speed", default="1", help="1 as recorded (default), 10 ten times as fast, max as fast as answers come."
)
@click.option("--order", type=click.Choice(["all", "connection"]), default="all",
              help="Wait for earlier answers on all connections (default), or on the request's own.")  # fmt: skip
@click.option(
    "--response-timeout", type=click.FloatRange(min=0.1), help="Seconds to wait for one response (default: 10)."
)
@click.option("--ignore", multiple=True, metavar="GROUP", help="Let these fields differ, such as offsets.")
@click.option("--compare", multiple=True, metavar="GROUP", help="Compare these fields too, such as nodes.")
@click.option("--fail-on-difference", is_flag=True, help="Exit with 1 when something is not as it was.")
@click.option("--sasl-plain", metavar="USER:FILE", help="Authenticate as USER with the password in FILE.")
@click.option("--tls", is_flag=True, help="Speak TLS to the target.")
@click.option(
    "--tls-ca",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Certificate authorities of the server.",
)
@click.option("--side", type=click.Choice(["client", "broker"]), default="client",
              help="Side of kproxy's captures to read: client (default) or broker.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="List what would be sent, and send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before sending to another machine.")
@output_option("table", "json")
@click.pass_context
def command(ctx: click.Context, /, words: tuple[str, ...], **given: Any) -> None:
    """Send the requests of CAPTUREs to a cluster and compare its answers with the recorded ones, or serve the recorded
    answers to clients. FILTER selects exchanges, as for `kproxy tail`.

    The replay adapts the values of the recorded cluster: correlation ids, producer ids and epochs, fetch sessions,
    members and generations, topic ids, leader epochs, and the target broker.
    """
    options = Options(**given)
    if (options.to is None) == (options.serve is None):
        raise click.UsageError("either --to HOST:PORT or --serve HOST:PORT is needed")
    files, wanted = files_and_filter(words)
    if not files:
        raise click.UsageError(f"file not found: {words[0]}")
    if options.serve is not None:
        serve(options, files, wanted)
    elif send(options, files, wanted) and options.fail_on_difference:
        ctx.exit(1)


def load(options: Options, files: list[str], wanted: Filter) -> Recording:
    """Return the exchanges of these captures that match the filter. Raises NoInput if a file is not a capture or if no
    exchange matches, and CaptureError."""
    from kproxy.cli.exchange_input import NoInput, Trouble, kind_of, make_data, tell
    from kproxy.protocol.framing import MAX_FRAME
    from kproxy.record.captures.reader import Capture
    from kproxy.record.filters import ExchangeView
    from kproxy.record.observer.records import OF_FILES
    from kproxy.tools.replay.recording import record

    seen: list[ObservedExchange] = []
    trouble = Trouble()
    for file in files:
        if kind_of(file) != "capture":
            raise NoInput(f"{file} has no frames to replay: expected a capture, got events")
        capture = Capture(file, most=MAX_FRAME, side=options.side)
        trouble.captures.append(capture)
        seen.extend(capture)
    tell(trouble)
    recording = record(seen, (lambda one: wanted.holds(ExchangeView(one, make_data, OF_FILES))) if wanted else None)
    if not recording.exchanges:
        raise NoInput(f"found no exchange{f' that fits {wanted}' if wanted else ''} in {', '.join(files)}")
    return recording


def send(options: Options, files: list[str], wanted: Filter) -> bool:
    """Replay to a cluster and print the report. Returns True if anything differs. Raises NoTarget."""
    import trio

    from kproxy.tools.replay.discovery import plain
    from kproxy.tools.replay.player import ReplayPlayer
    from kproxy.tools.replay.report import ReplayReport
    from kproxy.tools.replay.sockets import ReplayClient
    from kproxy.tools.replay.target import TargetCluster

    from .replay import print_plan, print_report

    address, pace, normal, user, tls = (
        options.target(), options.pace(), options.normal(), options.user(), options.tls_context()
    )  # fmt: skip
    recording = load(options, files, wanted)
    if options.dry_run:
        print_plan(recording, options.output)
        return False
    warn_of_names(options, files, recording)
    confirm(options, len(recording.exchanges))
    target = TargetCluster((address.host, address.port))
    report = ReplayReport(normal, recording.names, target.names.get)
    player = ReplayPlayer(recording, target, pace, report.add)
    client = ReplayClient(player, tls=tls, authenticate=None if user is None else partial(plain, *user))
    try:
        with progress(len(recording.exchanges), player):
            trio.run(client.run)
    except* KeyboardInterrupt:
        say("kproxy: interrupted; this is what was done until then", err=True)
    print_report(report, player, options.output)
    return report.differs or not player.over


def warn_of_names(options: Options, files: list[str], recording: Recording) -> None:
    """Warn if the requests have client-side names, and the recorded proxy sent other names to its brokers."""
    from kproxy.protocol.framing import MAX_FRAME
    from kproxy.record.captures.reader import Capture

    if options.side == "broker":
        return
    client = names_in(one.seen for one in recording.exchanges)
    broker = names_in(seen for file in files for seen in Capture(file, most=MAX_FRAME, side="broker"))
    ours, theirs = sorted(client - broker), sorted(broker - client)
    if theirs and ours:
        say(
            f"kproxy: the recorded proxy renamed: requests have client-side names ({shortened(ours)}), its brokers got "
            f"others ({shortened(theirs)}). Without the same rules in front, {options.target()} gets the client-side "
            "names; --side broker sends what the brokers got.",
            err=True,
        )


def names_in(exchanges: Iterable[ObservedExchange]) -> set[str]:
    """Return the names of topics, groups and transactional ids in requests that can be decoded."""
    from kproxy.protocol import decode_request
    from kproxy.rules.entity import entities

    found: set[str | None] = set()
    for seen in exchanges:
        with suppress(DecodeError):
            for one in entities(decode_request(seen.request.data, trailing=True)) if seen.request else ():
                found.update((one.topic, one.group, one.transactional_id))
    return {name for name in found if name}


def shortened(names: list[str]) -> str:
    """Return the first names of a list, in quotes."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(json.dumps(name, ensure_ascii=False) for name in names[:MOST_NAMES]) + more


@contextmanager
def progress(count: int, player: ReplayPlayer) -> Iterator[None]:
    """Show a progress bar until the context ends, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress

    with Progress(console=console(err=True), transient=True) as bar:
        task, report = bar.add_task("replaying", total=count), player.on_outcome

        def advance(outcome: ReplayOutcome) -> None:
            report(outcome)
            bar.advance(task)

        player.on_outcome = advance
        yield


def serve(options: Options, files: list[str], wanted: Filter) -> None:
    """Answer clients until SIGINT or SIGTERM, then print how requests were answered."""
    import signal

    import trio

    from kproxy.tools.replay.responder import RecordingResponder
    from kproxy.tools.replay.sockets import ResponderServer

    from .replay import print_served

    address = options.place()
    recording = load(options, files, wanted)
    stage = RecordingResponder(recording)
    server = ResponderServer(stage, (address.host, address.port))

    async def run() -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                port = await nursery.start(server.run)
                say(
                    f"serving {plural(len(recording.exchanges), 'exchange')} on {address._replace(port=port)}",
                    err=True,
                )
                await anext(signals)
                nursery.cancel_scope.cancel()

    trio.run(run)
    print_served(stage, options.output)


def confirm(options: Options, count: int) -> None:
    """Warn if requests would go to another machine, and ask the user unless there is --yes."""
    from .replay import is_loopback

    address = options.target()
    if is_loopback(address.host):
        return
    say(
        f"kproxy: {address} is another machine: {count} recorded requests will be sent there. They write, commit, "
        "create and delete again what they did when they were recorded.",
        err=True,
    )
    if not options.yes:
        click.confirm("Send them?", abort=True, err=True)


PLAN = ("number", "at", "connection", "request", "bytes", "sent")
REPORT = ("api", "sent", "same", "different", "errors", "not compared", "unanswered", "not sent", "again",
          "recorded p50/p99 ms", "now p50/p99 ms")  # fmt: skip
SERVED = ("api", "requests", "exact", "by keys", "made", "unmatched")


def print_plan(recording: Recording, output: str) -> None:
    """Print the requests to send, in order, and the skipped ones with reasons."""
    rows = [
        (one.place + 1, f"{one.sent - recording.start:.3f}", one.line.number, f"{one.api} {one.version}",
         one.seen.request.size if one.seen.request else 0, f"no: {one.unfit}" if one.unfit else "yes")
        for one in recording.exchanges
    ]  # fmt: skip
    if output == "json":
        say(json.dumps([dict(zip(PLAN, row, strict=True)) for row in rows], indent=2))
    else:
        print_rows(PLAN, rows)


def print_report(report: ReplayReport, player: ReplayPlayer, output: str) -> None:
    """Print the counts of each API, the differences (errors first), and the skipped and inexact parts."""
    from kproxy.tools.replay.report import samples

    about = {
        "connections": player.links.opened,
        "partitions_astray": player.router.astray,
        "did_not_wait": player.forced,
    }
    if output == "json":
        say(json.dumps({**report.as_json(), **about}, indent=2, ensure_ascii=False))
        return
    print_rows(REPORT, [row_of(row) for row in report.sorted()])
    for row in report.sorted():
        for sample in samples(row):
            one = sample.difference
            where = f" {one.path}" if one.path else ""
            say(f"{row.api}{where}: {one.recorded} → {one.now} ({sample.count}×, first in request {sample.place})")
    for (topic, number), was, now, missing, new in report.reading.differences():
        say(f"records read of {topic} {number}: {was} recorded, {now} now, {missing} missing, {new} new")
    read, now = report.reading.totals()
    if read or now:
        say(f"records read: {read} recorded, {now} now")
    for text in said(report, about):
        say(text)


def said(report: ReplayReport, about: dict[str, int]) -> list[str]:
    """Return lines that explain the report's numbers: reasons for skipped requests, and inexact parts."""
    lines = [f"not sent, {count}×: {reason}" for reason, count in report.reasons.most_common()]
    lines += [f"{count}×: {note}" for note, count in report.notes.most_common()]
    if about["partitions_astray"]:
        count = about["partitions_astray"]
        lines.append(f"{count}×: a partition of a share group was asked of a broker that does not lead it")
    if about["did_not_wait"]:
        lines.append(f"{about['did_not_wait']}×: a request did not wait any longer for an answer before it")
    if report.reading.beyond:
        lines.append(f"{plural(report.reading.beyond, 'record')} not compared: there are too many")
    return lines


def row_of(row: ApiRow) -> tuple[Any, ...]:
    return (row.api, row.sent, row.same, row.different, row.errors, row.uncompared + row.silent, row.unanswered,
            row.not_sent, row.tries, times(row.recorded), times(row.now))  # fmt: skip


def times(seconds: list[float]) -> str | None:
    from kproxy.tools.replay.report import percentiles

    found = percentiles(seconds)
    return None if found is None else f"{found['p50']:.1f}/{found['p99']:.1f}"


def print_served(stage: RecordingResponder, output: str) -> None:
    """Print the counts of answered and unanswered requests."""
    rows = [(api, *counts) for api, counts in sorted(stage.counts().items())]
    if output == "json":
        found = [dict(zip(SERVED, row, strict=True)) for row in rows]
        say(json.dumps({"apis": found, "unmatched": dict(stage.unmatched)}, indent=2, ensure_ascii=False))
        return
    print_rows(SERVED, rows)
    for text, count in stage.unmatched.most_common():
        say(f"unmatched, {count}×: {text}")
