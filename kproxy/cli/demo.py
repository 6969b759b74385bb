"""`kproxy demo`: three mock brokers, kproxy in front, a real producer and consumer through it; no Java, no Docker.

Strategy: each printed figure is measured. The brokers are queried directly and through kproxy. Records are counted at
the producer, at the brokers and at the consumer. kproxy's own metrics show its work on each API. If the numbers do not
agree, the demo reports it and exits with 1.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kproxy.base import terminal
from kproxy.base.errors import InternalError

from .start import awaited_end

if TYPE_CHECKING:
    from kproxy.testing.cluster import MockCluster
    from kproxy.testing.process import Proxy

CLIENT_NAME, BROKER_NAME = "orders", "prod.orders"  # as in rules/demo.yaml
PARTITIONS = 3
REFUSED = 2
RULE = {
    "name": "the next two writes fail",
    "kind": "error",
    "match": {"api": "Produce", "topic": "orders"},
    "when": {"first": REFUSED},
    "error": "NOT_LEADER_OR_FOLLOWER",
}
_PATIENCE = 30.0  # timeout of a client in seconds; one second is usual


@dataclass(frozen=True)
class Fault:
    """Outcome of the demo's fault: the rule's counters. `delivered`: the record was acknowledged."""

    matched: int
    fired: int
    applied: int
    delivered: bool
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Return True if the record was rejected twice and delivered at the third try."""
        return self.delivered and (self.matched, self.fired, self.applied) == (REFUSED + 1, REFUSED, REFUSED)


def inject(console: Console, proxy: Proxy, settings: dict[str, Any], topic: str) -> Fault:
    """Add the rule, produce one record, and print the outcome."""
    proxy.post("/api/rules", {"rules": [RULE]})
    began = time.monotonic()
    delivered = produce_one(settings, topic)
    seconds = time.monotonic() - began
    shown = json.loads(proxy.get(f"/api/rules/{quote(str(RULE['name']))}")[1])
    fault = Fault(shown["matched"], shown["fired"], shown["applied"], delivered, seconds)
    console.print(f"injected  {RULE['error']} for the next {REFUSED} writes, while kproxy runs")
    how = "was acknowledged" if delivered else "[red]was not acknowledged[/]"
    console.print(
        f"produced  one more record, {how} after {seconds:.2f} s: "
        f"{fault.applied} of {fault.matched} tries were answered by kproxy in the broker's place",
        soft_wrap=True,
    )
    return fault


def produce_one(settings: dict[str, Any], topic: str) -> bool:
    """Produce one record, and return True if it is acknowledged in time."""
    from confluent_kafka import Producer

    done: list[bool] = []
    producer = Producer(settings | {"retry.backoff.ms": 50})
    producer.produce(topic, b"one more order", callback=lambda error, message: done.append(error is None))
    producer.flush(_PATIENCE)
    return done == [True]


@dataclass
class DemoOutcome:
    """Outcome of one demo: numbers of records at each stage.

    `same`: the consumed values are the produced ones. `addresses`: brokers' addresses in the clients' metadata.
    """

    produced: int = 0
    stored: int = 0
    consumed: int = 0
    same: bool = False
    addresses: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Return True if no record was lost, duplicated or changed."""
        return self.same and self.produced == self.stored == self.consumed > 0


@click.command("demo")
@click.option("--records", default=1000, show_default=True, type=click.IntRange(1, 1_000_000), help="How many to send.")
@click.option("--keep", is_flag=True, help="Stay up with traffic to look at, and for other clients; Ctrl-C ends it.")
@click.pass_context
def command(ctx: click.Context, records: int, keep: bool) -> None:
    """Show kproxy at work: a mock cluster, the proxy, a real producer and consumer through it."""
    from kproxy.testing.cluster import MockCluster
    from kproxy.testing.process import Proxy

    console = terminal.console(markup=True)
    rules = rule_file()
    with MockCluster(3) as cluster, TemporaryDirectory(prefix="kproxy-demo-") as captures:
        cluster.create_topic(BROKER_NAME, PARTITIONS)
        with Proxy(config=proxy_config(cluster, rules, captures)) as proxy:
            show_setting(console, proxy, rules)
            show_addresses(console, cluster, proxy)
            show_topics(console, cluster, proxy)
            outcome = move_records(console, cluster, proxy, records)
            fault = inject(console, proxy, client(proxy.bootstrap), CLIENT_NAME)
            show_frames(console, proxy)
            leaked = outcome.addresses & set(cluster.bootstrap.split(","))
            show_summary(console, outcome, fault, leaked)
            if keep:
                stay(console, proxy, Path(captures))
            else:
                say = escape(f"{own_command()} demo --keep")
                console.print(f"See it pass in a page, live: [bold]{say}[/] prints its address.", soft_wrap=True)
    ctx.exit(0 if outcome.complete and fault.as_expected and not leaked else 1)


def proxy_config(cluster: MockCluster, rules: Path, captures: str) -> dict[str, Any]:
    """Return the config of the demo's proxy: its listener, its rule file, and a folder for captures."""
    from kproxy.testing.process import HOST, ROOM, free_port_with_room

    return {
        "clusters": {"main": {"bootstrap": cluster.bootstrap.split(",")}},
        "listeners": [{"name": "main", "bind": f"{HOST}:{free_port_with_room(ROOM)}", "cluster": "main"}],
        "rules": [str(rules)],
        "captures": captures,
    }


def own_command() -> str:
    """Return the words that start this kproxy in a shell: `kproxy` only if PATH leads to this environment."""
    if sys.argv[0].endswith(".pyz"):
        return f"{shlex.quote(sys.executable)} {shlex.quote(sys.argv[0])}"
    found = shutil.which("kproxy")
    if found is not None and os.path.samefile(Path(found).parent, Path(sys.executable).parent):
        return "kproxy"
    return f"{shlex.quote(sys.executable)} -m kproxy"


def rule_file() -> Path:
    """Return the path of rules/demo.yaml in the installed package or the source tree. Raises InternalError."""
    package = Path(__file__).parents[1]
    places = [package / "examples" / "demo.yaml", package.parent / "rules" / "demo.yaml"]
    for place in places:
        if place.exists():
            return place
    raise InternalError(f"rules/demo.yaml is neither {' nor '.join(map(str, places))}")


def show_setting(console: Console, proxy: Proxy, rules: Path) -> None:
    console.rule("[bold]kproxy demo", align="left")
    console.print("Kafka:    three mock brokers (librdkafka's), in this process")
    console.print(f"kproxy:   [green]{proxy.bootstrap}[/], its metrics: http://{proxy.admin}/metrics", soft_wrap=True)
    console.print(f"rule:     topics: {{{CLIENT_NAME}: {BROKER_NAME}}}, from {rules.parent.name}/{rules.name}")
    console.print("clients:  confluent-kafka, which know nothing but kproxy's address")


def show_addresses(console: Console, cluster: MockCluster, proxy: Proxy) -> None:
    from kproxy.testing.one_request import brokers

    before, after = brokers(cluster.bootstrap.partition(",")[0]), brokers(proxy.bootstrap)
    table = Table("node", "brokers say", "clients are told", title="Broker addresses", box=SIMPLE, title_justify="left")
    for node in sorted(before):
        table.add_row(str(node), before[node], f"[green]{after[node]}[/]")
    console.print(table)


def show_topics(console: Console, cluster: MockCluster, proxy: Proxy) -> None:
    from kproxy.testing.one_request import topics

    upstream, client = topics(cluster.bootstrap.partition(",")[0]), topics(proxy.bootstrap)
    table = Table("side", "topics listed", "partitions", title="Topic names", box=SIMPLE, title_justify="left")
    table.add_row("brokers", ", ".join(upstream), ", ".join(map(str, upstream.values())))
    table.add_row("clients", f"[green]{', '.join(client)}[/]", ", ".join(map(str, client.values())))
    console.print(table)


def move_records(console: Console, cluster: MockCluster, proxy: Proxy, count: int) -> DemoOutcome:
    """Produce and consume through the proxy, and count the stored records at the brokers, not through the proxy."""
    values = {f"order {number}".encode() for number in range(count)}
    outcome = DemoOutcome()
    with console.status(f"producing {count} records to {CLIENT_NAME} …"):
        outcome.produced = produce(proxy, values, outcome.addresses)
    console.print(f"produced  {outcome.produced:>7} records to   {CLIENT_NAME!r}, each one acknowledged")
    outcome.stored = stored(cluster)
    console.print(f"stored    {outcome.stored:>7} records in   {BROKER_NAME!r}, as the brokers count them")
    with console.status(f"consuming from {CLIENT_NAME} …"):
        received = consume(proxy, count, outcome.addresses)
    outcome.consumed, outcome.same = len(received), set(received) == values
    console.print(f"consumed  {outcome.consumed:>7} records from {CLIENT_NAME!r}, by a consumer group")
    return outcome


def produce(proxy: Proxy, values: set[bytes], addresses: set[str]) -> int:
    """Produce to the client-side name, and return the number of records acknowledged under it.

    Adds the brokers' addresses in the producer's metadata to `addresses`.
    """
    from confluent_kafka import Producer

    acknowledged = 0

    def done(error: Any, message: Any) -> None:
        nonlocal acknowledged
        acknowledged += error is None and message.topic() == CLIENT_NAME

    producer = Producer(client(proxy.bootstrap))
    for value in values:
        while True:
            try:
                producer.produce(CLIENT_NAME, value, callback=done)
                break
            except BufferError:  # the producer's queue is full; polling lets it send
                producer.poll(0.1)
    producer.flush(_PATIENCE)
    addresses |= known_to(producer)
    return acknowledged


def stored(cluster: MockCluster) -> int:
    """Return the number of records at the brokers under their own name, without the proxy."""
    from confluent_kafka import Consumer, TopicPartition

    with closed(Consumer(client(cluster.bootstrap) | {"group.id": "count"})) as consumer:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(BROKER_NAME, partition), _PATIENCE)
            for partition in range(PARTITIONS)
        ]
    return sum(high - low for low, high in ends)


def consume(proxy: Proxy, count: int, addresses: set[str]) -> list[bytes]:
    """Return the values that a consumer group reads from the client-side name.

    Adds the brokers' addresses in the consumer's metadata to `addresses`.
    """
    from confluent_kafka import Consumer

    received: list[bytes] = []
    settings = {"group.id": "demo", "auto.offset.reset": "earliest"}
    with closed(Consumer(client(proxy.bootstrap) | settings)) as consumer:
        consumer.subscribe([CLIENT_NAME])
        while len(received) < count:
            batch = consumer.consume(min(1000, count - len(received)), _PATIENCE)
            if not batch:
                break
            received += [message.value() for message in batch if message.topic() == CLIENT_NAME]
        addresses |= known_to(consumer)
    return received


def known_to(client: Any) -> set[str]:
    """Return the broker addresses in a client's metadata, as HOST:PORT."""
    brokers = client.list_topics(timeout=_PATIENCE).brokers.values()
    return {f"{broker.host}:{broker.port}" for broker in brokers}


def client(bootstrap: str) -> dict[str, Any]:
    """Return the settings of each client; librdkafka's own log lines are off."""
    return {"bootstrap.servers": bootstrap, "log_level": 0}


@contextmanager
def closed(consumer: Any) -> Iterator[Any]:
    """Close a consumer at the end of the context, so it leaves its group."""
    try:
        yield consumer
    finally:
        consumer.close()


def show_frames(console: Console, proxy: Proxy) -> None:
    """Print the number of requests by API and version, and the decode depth of kproxy's plan for them."""
    table = Table("API", "version", "requests", "looked at", title="What passed", box=SIMPLE, title_justify="left")
    for labels, number in sorted(proxy.samples("kproxy_requests_total"), key=lambda sample: -sample[1]):
        table.add_row(labels["api"], labels["version"], f"{number:.0f}", labels["decode_depth"])
    console.print(table)
    console.print("none: forwarded unread · fields: names and addresses found in place · full: decoded", soft_wrap=True)
    for labels, number in proxy.samples("kproxy_rewritten_total"):
        console.print(f"rewritten: {labels['what']}, {number:.0f} times")


def show_summary(console: Console, outcome: DemoOutcome, fault: Fault, leaked: set[str]) -> None:
    console.rule("[bold]summary", align="left")
    if outcome.complete:
        console.print(f"[green]{outcome.consumed} of {outcome.produced} records delivered[/], none lost or changed.")
        console.print(f"Clients said {CLIENT_NAME!r}, brokers said {BROKER_NAME!r}.")
    else:
        console.print(
            f"[red]something went wrong:[/] {outcome.produced} produced, {outcome.stored} stored, "
            f"{outcome.consumed} consumed, {'the same' if outcome.same else 'not the same'} values"
        )
    if fault.as_expected:
        console.print(f"{fault.applied} writes failed because a rule said so; the client tried again, as it should.")
    else:
        console.print(f"[red]the fault went wrong:[/] {escape(str(fault))}")
    if leaked:
        console.print(f"[red]Clients were told addresses of brokers:[/] {', '.join(sorted(leaked))}")
    else:
        console.print("No client was told the address of a broker.")


def stay(console: Console, proxy: Proxy, captures: Path) -> None:
    """Print addresses and commands, keep traffic and two faults running, and wait for Ctrl-C, SIGTERM or SIGHUP."""
    with awaited_end() as end:  # first: users and tests send signals after the text below
        proxy.post("/api/rules", {"rules": FAULTS})
        with ShopTraffic(client(proxy.bootstrap), CLIENT_NAME):
            console.print(f"\nStaying up. Bootstrap address: [bold green]{proxy.bootstrap}[/], topic: {CLIENT_NAME}")
            console.print(f"See what passes:  [bold green]http://{proxy.admin}/view/[/]", soft_wrap=True)
            for label, command in commands_to_try(proxy.admin, captures):
                console.print(f"{label:<18}{escape(command)}", soft_wrap=True)
            console.print(
                "An order every moment, each tenth write refused and some late: two rules do that.", soft_wrap=True
            )
            console.print("Ctrl-C ends it.")
            end.wait()


def commands_to_try(admin: str, captures: Path) -> list[tuple[str, str]]:
    """Return commands that work while the demo stays up, each with a label. The end of the demo removes the temporary
    folder with the capture."""
    kproxy, there = own_command(), f"--admin http://{admin}"
    file = shlex.quote(str(captures / "demo.pcapng"))
    watch = "view" if find_spec("textual") is not None else "tail"  # the extra `view` may not be installed
    return [
        ("In a terminal:", f"{kproxy} {watch} {there}"),
        ("Record it:", f"{kproxy} capture demo --payload full --seconds 12 {there}"),
        ("Read the capture:", f"{kproxy} tail {file}"),
        ("One exchange:", f"{kproxy} show {file} 1"),
        ("Its rules:", f"{kproxy} rules list {there}"),
    ]


FAULTS = (
    {
        "name": "every tenth write fails",
        "kind": "error",
        "match": {"api": "Produce", "topic": "orders"},
        "when": {"every": 10},
        "error": "NOT_LEADER_OR_FOLLOWER",
    },
    {
        "name": "slow sometimes",
        "kind": "delay",
        "match": {"api": "Produce"},
        "when": {"probability": 0.2, "seed": 7},
        "delay": "250ms",
    },
)
"""Rules that are in force while the demo stays up."""
_BETWEEN = 0.4  # seconds from one order to the next
_END = 10.0  # seconds until threads that do not end are left to the end of the process


class ShopTraffic:
    """Producer and consumer in threads, running inside the context.

    `settings`: those of each client. `topic`: its client-side name.
    """

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        self.settings, self.topic = settings, topic
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._produce, self._consume)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(_END)

    def _produce(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(self.settings | {"client.id": "shop", "retry.backoff.ms": 50})
        for number in count(1):
            if self._over.wait(_BETWEEN):
                return
            order = {"order": number, "item": "tea", "price": 3 + number % 5}
            producer.produce(self.topic, json.dumps(order).encode(), key=f"customer {number % 7}".encode())
            producer.poll(0)

    def _consume(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            self.settings | {"client.id": "billing", "group.id": "billing", "auto.offset.reset": "latest"}
        )
        consumer.subscribe([self.topic])
        try:
            while not self._over.is_set():
                consumer.poll(0.2)
        finally:
            consumer.close()
