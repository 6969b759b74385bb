"""`kproxy mock`: the mock cluster as a process, for tests in languages that have none of their own.

Strategy. A test starts it, reads one line with the brokers' addresses, and ends it by SIGTERM, or by closing its
standard input: a test that is killed closes that, too, so no cluster is left behind.
"""

from __future__ import annotations

import os
import re
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import click

from kproxy.terminal import say

MOST_BROKERS = 50
MOST_PARTITIONS = 10_000
LONGEST_NAME = 249
TOPIC_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}")
"""Names that brokers take for a topic, but for `.` and `..`."""


class TopicSpec(click.ParamType[tuple[str, int]]):
    """Topic with its number of partitions: `NAME` or `NAME:PARTITIONS`."""

    name = "NAME[:PARTITIONS]"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Return the name and the number of partitions."""
        if not isinstance(value, str):
            return value
        name, colon, number = value.partition(":")
        if not TOPIC_NAME.fullmatch(name) or name in (".", ".."):
            self.fail(f"{value!r}: a topic has 1 to {LONGEST_NAME} of the characters a-z A-Z 0-9 . _ -", param, ctx)
        if not colon:
            return name, 1
        if not (number.isascii() and number.isdecimal() and 1 <= int(number[:9]) <= MOST_PARTITIONS):
            self.fail(f"{value!r}: {number!r} is no number of partitions from 1 to {MOST_PARTITIONS}", param, ctx)
        return name, int(number)


@click.command("mock")
@click.option(
    "--brokers", default=3, show_default=True, metavar="N", type=click.IntRange(1, MOST_BROKERS), help="How many."
)
@click.option(
    "--topic", "topics", multiple=True, type=TopicSpec(),
    help="Topic to be there from the start, with 1 partition unless told; others are made when a client asks for them.",
)  # fmt: skip
@click.option("--until-eof", is_flag=True, help="End when standard input ends, as it does when a parent process dies.")
@click.pass_context
def command(ctx: click.Context, brokers: int, topics: tuple[tuple[str, int], ...], until_eof: bool) -> None:
    """Serve a mock cluster on free ports of 127.0.0.1 until Ctrl-C or SIGTERM.

    The first line of its output is the brokers' addresses, host:port,host:port. It keeps records, groups and
    transactions in memory, and knows no admin API but Metadata.
    """
    from kproxy.testing.cluster import readable_mock

    names = [name for name, _ in topics]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(f"--topic {name} is given {names.count(name)} times")
    with ends_by_signal() as signals, readable_mock(brokers) as cluster:
        for name, partitions in topics:
            cluster.create_topic(name, partitions)
        say(cluster.bootstrap)
        wait(signals, until_eof)
    ctx.exit(0)


@contextmanager
def ends_by_signal() -> Iterator[int]:
    """Give a descriptor that can be read when SIGINT or SIGTERM has come, which end nothing by themselves."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    wakeup = signal.set_wakeup_fd(writing)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def wait(signals: int, until_eof: bool) -> None:
    """Wait for a signal, or for the end of standard input; what comes there is thrown away."""
    watched = [signals, 0] if until_eof else [signals]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if signals in ready or not os.read(0, 65536):
            return
