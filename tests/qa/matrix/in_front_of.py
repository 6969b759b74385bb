"""Run somebody else's tests against a Kafka, directly or with kproxy in front of it.

    python tests/qa/matrix/in_front_of.py WAY [OPTIONS] -- COMMAND …

WAY is `direct`, `proxy` (no rules, addresses rewritten) or `prefix` (a tenant's part of the cluster). In the command
`{bootstrap}` stands for the address of all brokers or of kproxy. The exit code is the command's. Behind kproxy it also
fails when a client went past it to the brokers, or when kproxy stopped a frame or logged an error.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from kproxy.testing.jars import KAFKA_VERSION
from kproxy.testing.kafka import Kafka
from kproxy.testing.plugin import PROXIED
from kproxy.testing.proxy import Proxy

sys.path.insert(0, str(Path(__file__).parents[3]))  # it runs in the folder of the other project
from tests.support.connection_watch import ConnectionWatch

PREFIX = {"name": "a part of the cluster", "kind": "prefix", "prefix": "tenant."}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="somebody else's tests against Kafka, with kproxy in front or not")
    parser.add_argument("way", choices=["direct", "proxy", "prefix"])
    parser.add_argument("--kafka", default=KAFKA_VERSION, metavar="VERSION")
    parser.add_argument("--brokers", type=int, default=1, metavar="N")
    parser.add_argument("--first-node", type=int, default=1, metavar="ID")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the brokers")
    parser.add_argument("command", nargs="+", help="after --")
    return parser.parse_args()


def run(command: list[str], bootstrap: str) -> int:
    return subprocess.run([part.replace("{bootstrap}", bootstrap) for part in command], check=False).returncode


def behind(kafka: Kafka, way: str, command: list[str]) -> int:
    """Run it with kproxy in between, and say what else was seen."""
    proxy = Proxy(kafka.bootstrap("PROXIED"), rules=[PREFIX] if way == "prefix" else [])
    with ConnectionWatch(kafka.ports("PROXIED"), [proxy.launch()]) as watch, proxy:
        code = run(command, proxy.bootstrap)
        stopped = proxy.samples("kproxy_stopped_total")
        errors = [line for line in proxy.logs(1_000_000).splitlines() if '"error"' in line or "Traceback" in line]
        frames = proxy.metric("kproxy_requests_total")
    print(f"kproxy: {frames:.0f} requests, stopped {stopped}, past it {sorted(watch.strangers)}, {len(errors)} errors")
    print("\n".join(errors[:20]))
    return code or int(bool(stopped or watch.strangers or errors))


def main() -> int:
    """The exit code."""
    given = arguments()
    settings = dict(setting.split("=", 1) for setting in given.set)
    of = {"properties": settings, "version": given.kafka, "first_node": given.first_node}
    with Kafka(given.brokers, listeners=[PROXIED], **of) as kafka:
        if given.way == "direct":
            return run(given.command, kafka.bootstrap("PROXIED"))
        return behind(kafka, given.way, given.command)


if __name__ == "__main__":
    sys.exit(main())
