"""Run somebody else's tests against a Kafka, directly or with kproxy in front of it.

    python tests/lab/matrix/in_front_of.py WAY [OPTIONS] -- COMMAND …

WAY is `direct`, or one of the ways through kproxy in the table below. In the command `{bootstrap}` stands for the
address of all brokers or of kproxy. The exit code is the command's. Behind kproxy it also fails when a client went past
it to the brokers, or when kproxy stopped a frame or logged an error.

`make suites` (tests/lab/suites) runs whole projects' tests on these ways and compares them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kproxy.testing.kafka import KAFKA_VERSION, Kafka, KafkaListener
from kproxy.testing.plugin import PROXIED
from kproxy.testing.process import HOST, ROOM, Proxy, free_port_with_room

sys.path.insert(0, str(Path(__file__).parents[3]))  # it runs in the folder of the other project
from tests.support.connection_watch import ConnectionWatch


@dataclass(frozen=True)
class Way:
    """Way from a client through kproxy to the brokers: its rules, its processes, and whether each request is told."""

    rules: tuple[Mapping[str, Any], ...] = ()
    workers: int = 1
    audited: bool = False


EVERYTHING = {"*": "upstream.*"}
WAYS: dict[str, Way | None] = {
    "direct": None,
    "proxy": Way(),
    "rename": Way(
        (
            {"name": "topics", "kind": "rename_topic", "topics": EVERYTHING},
            {"name": "groups", "kind": "rename_group", "groups": EVERYTHING},
            {"name": "transactions", "kind": "rename_transactional_id", "ids": EVERYTHING},
        )
    ),
    "prefix": Way(({"name": "a part of the cluster", "kind": "prefix", "prefix": "tenant."},)),
    "workers": Way(workers=2),
    "audit": Way(audited=True),
}
"""Ways by name; `direct` has no kproxy on it."""


@dataclass(frozen=True)
class Brokers:
    """Brokers that tests want: how many, their first id, their settings, and, for tests that look for them at certain
    ports of `host`, these by id."""

    count: int = 1
    first_node: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    version: str = KAFKA_VERSION
    host: str = HOST
    ports: Mapping[int, int] = field(default_factory=dict)

    def cluster(self, *, here: bool) -> Kafka:
        """Return a cluster that is not started yet; `here`: it has the ports that clients look for itself."""
        listener = KafkaListener("PROXIED", advertise=self.host) if here and self.ports else PROXIED
        kafka = Kafka(
            self.count,
            listeners=[listener],
            properties=self.settings,
            version=self.version,
            first_node=self.first_node,
        )
        for node, port in self.ports.items() if here else ():
            kafka.brokers[node].ports["PROXIED"] = port
        return kafka

    def addresses(self) -> str:
        """Return `host:port,…` of the ports that clients look for; an empty text for any."""
        return ",".join(f"{self.host}:{port}" for port in self.ports.values())


@dataclass
class Passage:
    """What tests are given, and what was seen beside them when they are over: the number of requests, and troubles."""

    bootstrap: str
    requests: float = 0
    troubles: list[str] = field(default_factory=list)


@contextmanager
def passage(way: str, brokers: Brokers) -> Iterator[Passage]:
    """Start the brokers and, unless the way is `direct`, kproxy in front of them. What else was seen is there at the
    end."""
    through = WAYS[way]
    with brokers.cluster(here=through is None) as kafka:
        if through is None:
            yield Passage(brokers.addresses() or kafka.bootstrap("PROXIED"))
            return
        with tempfile.TemporaryDirectory(prefix="kproxy-audit-") as folder:
            proxy = Proxy(config=document(through, kafka, brokers, folder), rules=through.rules)
            with ConnectionWatch(kafka.ports("PROXIED"), [proxy.launch()]) as watch, proxy:
                found = Passage(brokers.addresses() or proxy.bootstrap)
                yield found
                found.requests = proxy.metric("kproxy_requests_total")
                found.troubles += [
                    f"stopped {labels}: {count:g}" for labels, count in proxy.samples("kproxy_requests_blocked_total")
                ]
                found.troubles += [f"somebody went past kproxy to port {port}" for port in sorted(watch.strangers)]
                lines = proxy.logs(1_000_000).splitlines()
                found.troubles += [line for line in lines if '"error"' in line or "Traceback" in line]


def document(way: Way, kafka: Kafka, brokers: Brokers, folder: str) -> dict[str, Any]:
    """Return the config document of a kproxy on this way; `folder` is for its event files."""
    port = free_port_with_room(ROOM)
    advertise: dict[str, Any] = {"ports": f"{port + 1}-{port + ROOM}"}
    if brokers.ports:
        advertise = {"nodes": {node: f"{brokers.host}:{port}" for node, port in brokers.ports.items()}}
    made: dict[str, Any] = {
        "clusters": {"main": {"bootstrap": kafka.bootstrap("PROXIED").split(",")}},
        "listeners": [{"name": "main", "bind": f"{HOST}:{port}", "cluster": "main", "advertise": advertise}],
        "workers": way.workers,
    }
    if way.audited:
        made["audit"] = {"dir": folder, "level": "requests", "when_full": "block"}
    return made


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="somebody else's tests against Kafka, with kproxy in front or not")
    parser.add_argument("way", choices=list(WAYS))
    parser.add_argument("--kafka", default=KAFKA_VERSION, metavar="VERSION")
    parser.add_argument("--brokers", type=int, default=1, metavar="N")
    parser.add_argument("--first-node", type=int, default=1, metavar="ID")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the brokers")
    parser.add_argument("command", nargs="+", help="after --")
    return parser.parse_args()


def main() -> int:
    """Run the command on the way. Return its exit code, or 1 for what was seen beside it."""
    given = arguments()
    settings = dict(setting.split("=", 1) for setting in given.set)
    with passage(given.way, Brokers(given.brokers, given.first_node, settings, given.kafka)) as found:
        command = [part.replace("{bootstrap}", found.bootstrap) for part in given.command]
        code = subprocess.run(command, check=False).returncode
    print(f"{given.way}: {found.requests:.0f} requests through kproxy, {len(found.troubles)} troubles")
    print("\n".join(found.troubles[:20]))
    return code or int(bool(found.troubles))


if __name__ == "__main__":
    sys.exit(main())
