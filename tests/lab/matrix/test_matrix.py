"""Everybody's clients through kproxy: each does the scenario directly, with other names upstream, and as a tenant.

By default the clients that tests have installed in any case meet the newest Kafka. `make matrix` runs every client with
every broker (KPROXY_MATRIX=1), fetching what it needs, and writes RESULTS.md. It also runs every client through the
profiles of managed services in deploy/profiles, before the newest Kafka.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from kproxy.testing import one_request
from kproxy.testing.kafka import KAFKA_VERSION, Kafka
from kproxy.testing.plugin import PROXIED
from kproxy.testing.process import ROOM, Proxy, free_port_with_room
from tests.lab.matrix.matrix import BROKERS, CLIENTS
from tests.lab.matrix.scenario import PARTITIONS, STEPS, Names, judge, told
from tests.lab.matrix.table import keep, keep_profiles
from tests.support import service_profiles
from tests.support.connection_watch import ConnectionWatch
from tests.support.topics import create_topics

pytestmark = pytest.mark.kafka

WHOLE = os.environ.get("KPROXY_MATRIX") == "1"
CHEAP = ("librdkafka", "aiokafka")  # kafka-python's two members sometimes hang for minutes, without kproxy as well
SECONDS = 400
"""For one client on one way: six steps that give up after 90 seconds each, of which seldom more than one does."""
RULES = [
    {"name": "topics", "kind": "rename_topic", "match": {"listener": "renamed"}, "topics": {"ren-*": "prod.ren-*"}},
    {"name": "groups", "kind": "rename_group", "match": {"listener": "renamed"}, "groups": {"ren-*": "prod.ren-*"}},
    {
        "name": "transactions",
        "kind": "rename_transactional_id",
        "match": {"listener": "renamed"},
        "ids": {"ren-*": "prod.ren-*"},
    },
    {"name": "tenant", "kind": "prefix", "match": {"listener": "tenant"}, "prefix": "tenant."},
]
METADATA, LIST_GROUPS, API_VERSIONS = 3, 16, 18
CLOSED = {"azure-event-hubs": {"transactions"}}
"""Steps of the scenario that a service does not offer."""
UNFIT: dict[tuple[str, str], set[str]] = {
    ("librdkafka", "msk-serverless"): {"transactions"},  # it has AddPartitionsToTxn 0 only
    # it has ListOffsets up to 4, JoinGroup up to 3 and AddPartitionsToTxn up to 0
    ("java-old", "msk-serverless"): {"consume", "group", "transactions", "admin"},
    ("aiokafka", "msk-serverless"): set(STEPS),  # it has Metadata up to 5
    ("rskafka", "msk-serverless"): {"produce", "consume", "admin"},  # it has Metadata up to 4
    # it has JoinGroup up to 2 and ListOffsets 1, and ignores the minimums
    ("kafka-go", "msk-serverless"): {"consume", "group", "admin"},
    ("kafkajs", "msk-serverless"): {"consume", "group", "transactions", "admin"},  # it has ListOffsets up to 3
    ("franz-go", "azure-event-hubs"): {"produce", "consume", "group"},  # it compresses with snappy by default
    ("kafka-streams", "azure-event-hubs"): {"consume", "group"},  # its application commits transactions
}
"""Steps that a client cannot do with a service, because it lacks what the service requires."""


def known_addresses(bootstrap: str) -> frozenset[str]:
    """Return these addresses and those in a Metadata response, in a version that the rules of the listener allow."""
    first, *others = bootstrap.split(",")
    listed = one_request.ask(first, API_VERSIONS, 0, {})["api_keys"]
    (newest,) = (api["max_version"] for api in listed if api["api_key"] == METADATA)
    body = {"topics": [], "allow_auto_topic_creation": False}
    nodes = one_request.ask(first, METADATA, min(newest, 7), body)["brokers"]
    return frozenset({first, *others, *(f"{node['host']}:{node['port']}" for node in nodes)})


@dataclass
class Lane:
    """A way from a client to the brokers: where it begins, and which names are whose on it."""

    bootstrap: str
    names: Names


@dataclass
class Place:
    """A Kafka with a kproxy of two listeners in front of it."""

    kafka: Kafka
    proxy: Proxy
    watch: ConnectionWatch
    tenant: str

    def logs(self) -> str:
        """The last lines of the brokers and the proxy."""
        return f"{self.kafka.logs()}\nkproxy:\n{self.proxy.logs()}"

    def lanes(self, client: str) -> dict[str, Lane]:
        """Names of each way that no other client has."""
        direct, renamed = self.kafka.bootstrap("DIRECT"), self.proxy.bootstrap
        return {
            "direct": Lane(direct, Names(f"direct-{client}", addresses=known_addresses(direct))),
            "rename": Lane(
                renamed,
                Names(f"ren-{client}", "prod.", lambda name: name.startswith("prod."), known_addresses(renamed)),
            ),
            "prefix": Lane(
                self.tenant,
                Names(
                    f"own-{client}", "tenant.", lambda name: not name.startswith("own-"), known_addresses(self.tenant)
                ),
            ),
        }

    def create(self, names: list[Names]) -> None:
        """Make the topics that are there beforehand, past kproxy."""
        wanted = [one.upstream + one.topic for one in names]
        create_topics(self.kafka.bootstrap("DIRECT"), *wanted, partitions=PARTITIONS)

    def at_brokers(self) -> set[str]:
        """The names of all topics and groups, as the brokers have them."""
        addresses = self.kafka.bootstrap("DIRECT").split(",")
        answers = [one_request.ask(address, LIST_GROUPS, 3, {}) for address in addresses]
        groups = {group["group_id"] for answer in answers for group in answer["groups"]}
        return groups | set(one_request.topics(addresses[0]))


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Brokers of that version, and kproxy."""
    ports = [free_port_with_room(ROOM) for _ in range(2)]
    binds = [f"127.0.0.1:{port}" for port in ports]
    with Kafka(2 if WHOLE else 1, listeners=[PROXIED], version=request.param) as kafka:
        config = {
            "clusters": {"main": {"bootstrap": kafka.bootstrap("PROXIED").split(",")}},
            "listeners": [
                {"name": name, "bind": bind, "cluster": "main", "advertise": {"ports": f"{port + 1}-{port + ROOM}"}}
                for name, bind, port in zip(("renamed", "tenant"), binds, ports, strict=True)
            ],
        }
        proxy = Proxy(config=config, rules=RULES)
        with ConnectionWatch(kafka.ports("PROXIED"), [proxy.launch()]) as watch, proxy:
            yield Place(kafka, proxy, watch, binds[1])


@pytest.fixture(scope="module")
def profiled() -> Iterator[tuple[Place, dict[str, str]]]:
    """The newest brokers behind a kproxy with a listener for each profile, and the addresses of these."""
    with Kafka(2 if WHOLE else 1, listeners=[PROXIED]) as kafka:
        options = service_profiles.options(kafka.bootstrap("PROXIED"))
        proxy = Proxy(**options)
        with ConnectionWatch(kafka.ports("PROXIED"), [proxy.launch()]) as watch, proxy:
            yield Place(kafka, proxy, watch, ""), service_profiles.addresses(options)


@cache
def command(client: str) -> list[str]:
    """How a client is run; it is built the first time."""
    return CLIENTS[client].command()


def run(client: str, lane: Lane) -> dict[str, Any]:
    """What a client told, and what it wrote besides."""
    try:
        done = subprocess.run(
            [*command(client), *lane.names.arguments(lane.bootstrap)],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode() if isinstance(late.stdout, bytes) else (late.stdout or "")
        return {"told": told(output), "words": f"killed after {SECONDS} s"}
    return {"told": told(done.stdout), "words": done.stderr[-2000:]}


@pytest.mark.timeout(SECONDS + 600)  # brokers that start and a build may come before it
@pytest.mark.parametrize("client", CLIENTS if WHOLE else CHEAP)
@pytest.mark.parametrize("place", BROKERS if WHOLE else [KAFKA_VERSION], indirect=True, scope="module")
def test_a_client_sees_the_same_through_kproxy(client: str, place: Place, request: pytest.FixtureRequest) -> None:
    """What goes directly goes with names changed on the way, and nobody is told of names or addresses not theirs."""
    about, lanes = CLIENTS[client], place.lanes(client)
    command(client)
    place.create([lane.names for lane in lanes.values()])
    began = time.monotonic()
    with ThreadPoolExecutor(len(lanes)) as pool:
        runs = dict(zip(lanes, pool.map(lambda way: run(client, lanes[way]), lanes), strict=True))
    took = time.monotonic() - began
    verdicts = {way: judge(lanes[way].names, runs[way]["told"], about.expected) for way in lanes}
    if WHOLE:
        keep(client, request.node.callspec.params["place"], runs["direct"]["told"], verdicts)

    print(f"{took:.0f} s", {way: one["words"] for way, one in runs.items() if one["words"]})
    assert {step: one for step, one in verdicts["direct"].items() if step not in about.lacks and one != "yes"} == {}
    assert {step for step in STEPS if verdicts["direct"][step].startswith("missing")} == about.lacks
    for way in ("rename", "prefix"):
        worse = {step: one for step, one in verdicts[way].items() if one not in {"yes", verdicts["direct"][step]}}
        assert worse == {}, way
    check_brokers(place, lanes)


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("client", CLIENTS if WHOLE else [pytest.param(CHEAP[0], marks=pytest.mark.deep)])
def test_a_client_works_behind_each_profile(client: str, profiled: tuple[Place, dict[str, str]]) -> None:
    """Each step works, except those that the service does not offer. Steps that a client's versions rule out are kept
    for the page, and no other client has them."""
    place, addresses = profiled
    about = CLIENTS[client]
    command(client)
    lanes = {
        way: Lane(address, Names(f"{way}-{client}", addresses=known_addresses(address)))
        for way, address in {"direct": place.kafka.bootstrap("DIRECT"), **addresses}.items()
    }
    place.create([lane.names for lane in lanes.values()])
    with ThreadPoolExecutor(len(lanes)) as pool:
        runs = dict(zip(lanes, pool.map(lambda way: run(client, lanes[way]), lanes), strict=True))
    verdicts = {way: judge(lanes[way].names, runs[way]["told"], about.expected) for way in lanes}
    keep_profiles(client, runs["direct"]["told"], verdicts)

    print({way: one["words"] for way, one in runs.items() if one["words"]})
    for name in addresses:
        closed = CLOSED.get(name, set()) - about.lacks
        assert {step for step in closed if verdicts[name][step] == "yes"} == set(), name
        worse = {step for step, one in verdicts[name].items() if one not in {"yes", verdicts["direct"][step]}} - closed
        assert worse <= UNFIT.get((client, name), set()), name
    place.watch.look()
    errors = [line for line in place.proxy.logs(100_000).splitlines() if '"level": "error"' in line]
    assert (set(), []) == (place.watch.strangers, errors)


def check_brokers(place: Place, lanes: dict[str, Lane]) -> None:
    """The brokers have the names that the rules say, and nobody but kproxy has connected to them."""
    place.watch.look()
    found = place.at_brokers()
    for lane in lanes.values():
        names = lane.names

        assert names.upstream + names.topic in found
        assert not names.upstream or names.topic not in found
        assert not names.upstream or names.group not in found
    errors = [line for line in place.proxy.logs(100_000).splitlines() if '"level": "error"' in line]
    assert (set(), [], []) == (place.watch.strangers, place.proxy.samples("kproxy_requests_blocked_total"), errors)
    assert place.watch.seen > 0
