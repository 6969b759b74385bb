"""`kproxy mock`: the mock cluster as a process, for tests in languages without a Kafka mock.

Strategy. A test starts it and reads one line with the brokers' addresses. It ends on SIGTERM, or when its standard
input closes. A killed test closes that as well, so no cluster stays behind. With --admin, kproxy runs in front in the
same process. The first line is then kproxy's address, and the second one that of the admin API.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kproxy.base.terminal import say

from .run import flag
from .start import AwaitedEnd, awaited_end

if TYPE_CHECKING:
    from kproxy.app.config.document import Config
    from kproxy.testing.cluster import MockCluster

MOST_BROKERS = 50
MOST_PARTITIONS, MOST_IN_ALL = 10_000, 100_000
"""Partitions of one topic, and of all topics given at the start: each takes memory."""
LONGEST_NAME = 249
TOPIC_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}")
"""Names that brokers accept for a topic, except `.` and `..`."""


class TopicSpec(click.ParamType[tuple[str, int]]):
    """Topic with its number of partitions: `NAME` or `NAME:PARTITIONS`."""

    name = "NAME[:PARTITIONS]"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
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
@click.option(
    "--admin", metavar="HOST:PORT",
    help="Put kproxy in front, with the admin API at this address; port 0: any that is free. Rules come over it.",
)  # fmt: skip
@click.option("--rules", metavar="PATH", multiple=True, help="With --admin: a rule file or a folder; may be repeated.")
@click.option("--seed", type=int, metavar="NUMBER", help="With --admin: seed of rules without own seed.")
@click.option(
    "--upstream", metavar="HOST:PORT[,…]", help="With --admin: use these brokers instead of the mock cluster."
)
@click.pass_context
def command(
    ctx: click.Context, /, brokers: int, topics: tuple[tuple[str, int], ...], until_eof: bool, admin: str | None,
    **in_front: Any,
) -> None:  # fmt: skip
    """Serve a mock cluster on free ports of 127.0.0.1 until Ctrl-C or SIGTERM.

    The first line of output is the brokers' addresses, host:port,host:port. The cluster keeps records, groups and
    transactions in memory. Metadata is the only admin API it has.

    With --admin, kproxy runs in front of the cluster. The first line is then kproxy's address, and the second one the
    URL of the admin API, which accepts rules and returns each exchange.
    """
    for name, count in Counter(name for name, _ in topics).items():
        if count > 1:
            raise click.UsageError(f"--topic {name} is given {count} times")
    if (count := sum(partitions for _, partitions in topics)) > MOST_IN_ALL:
        raise click.UsageError(f"--topic: {count} partitions, {MOST_IN_ALL} at most of all topics")
    upstream = in_front["upstream"]
    if admin is None and (given := [name for name, value in in_front.items() if value not in (None, ())]):
        raise click.UsageError(f"--{given[0]} is for kproxy in front, which needs --admin")
    if upstream is not None and (topics or ctx.get_parameter_source("brokers") is not ParameterSource.DEFAULT):
        raise click.UsageError("--upstream has brokers and topics of its own")
    if upstream is not None:  # "" is an unset variable, not a request for a mock
        upstream = checked_servers(upstream)
    with ExitStack() as stack:
        end = stack.enter_context(awaited_end())
        addresses = upstream or stack.enter_context(mock_with(brokers, topics)).bootstrap
        if admin is None:
            say(addresses)
        else:
            config = front_settings(addresses, admin, in_front["rules"], in_front["seed"])
            stack.enter_context(told_front(config, end, mock=upstream is None))
        if until_eof:
            end.come_with_standard_input()
        end.wait()
    ctx.exit(0)


@contextmanager
def mock_with(brokers: int, topics: tuple[tuple[str, int], ...]) -> Iterator[MockCluster]:
    from kproxy.testing.cluster import readable_mock

    with readable_mock(brokers) as cluster:
        for name, partitions in topics:
            cluster.create_topic(name, partitions)
        yield cluster


@contextmanager
def told_front(config: Config, end: AwaitedEnd, *, mock: bool) -> Iterator[None]:
    """Run kproxy in front of brokers, and print its addresses. If kproxy ends by itself, `end` comes, so no test waits
    for it."""
    from kproxy.testing.embedded import front

    with front(config, end.come, mock=mock) as proxy:
        say(proxy.address)
        say(proxy.admin_url)
        yield


def front_settings(upstream: str, admin: str, rules: tuple[str, ...], seed: int | None) -> Config:
    """Return the config of kproxy in front. Raises BadParameter."""
    from kproxy.app.config.document import admin_from
    from kproxy.rules.values.quantities import checked_seed
    from kproxy.testing.embedded import front_config

    address = flag("--admin", admin_from, admin).bind
    number = None if seed is None else flag("--seed", checked_seed, seed)
    return front_config(upstream, str(address), rules, number)


def checked_servers(text: str) -> str:
    """Return a list of brokers without blanks at its commas. Raises BadParameter."""
    from kproxy.rules.values.address import parse_server

    servers = [one.strip() for one in text.split(",")]
    for one in servers:
        flag("--upstream", parse_server, one)
    return ",".join(servers)
