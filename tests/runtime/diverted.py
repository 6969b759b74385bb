"""Run by test_transparent.py in a network namespace: `redirect` or `tproxy`, number of workers, `nft` or `iptables`.

redirect: mock cluster, kproxy and client on one machine; tproxy: kproxy is the router between the client's network
and the brokers', each a namespace. Prints what was seen as JSON. In the others this file is client and broker.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import Proxy
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import EndOfStream, RawClient
from tests.support.wait import until

ROOT = Path(__file__).parent.parent.parent
RULES, PAGE = ROOT / "deploy" / "transparent", (ROOT / "docs" / "networks.md").read_text()
PORT = 19092
FAR, FAR6 = "10.77.2.2", "fd77:2::2"
OWN = f"127.0.0.1:{PORT}"


def run(*words: str) -> None:
    subprocess.run(words, check=True)


def divert(how: str, ports: list[int], iptables: bool) -> None:
    """The shipped rules, or the page's lines for iptables, for these ports of brokers."""
    if iptables:
        table = {"redirect": "nat", "tproxy": "mangle"}[how]
        for line in re.findall(f"^iptables -t {table} .*", PAGE, re.MULTILINE):
            for port in ports if "--dport" in line else [9092]:
                run(*line.replace("--dport 9092", f"--dport {port}").split())
        return
    text = (RULES / f"{how}.nft").read_text()
    wanted = ", ".join(map(str, ports))
    subprocess.run(["nft", "-f", "-"], input=text.replace("{ 9092 }", f"{{ {wanted} }}"), text=True, check=True)


def config(bootstrap: list[str], workers: int, bind: str, **transparent: Any) -> dict[str, Any]:
    listener = {"name": "main", "bind": bind, "cluster": "main", "transparent": transparent or True}
    limits = {"connect_timeout": "1s"}
    return {
        "clusters": {"main": {"bootstrap": bootstrap}},
        "listeners": [listener],
        "workers": workers,
        "limits": limits,
    }


def strangers(proxy: Proxy) -> dict[str, Any]:
    """Who connects to kproxy itself, and to its admin port diverted, is sent away; what the log and the counter say."""
    with RawClient(OWN) as client:
        end = client.rest().hex()
    lines = until(lambda: proxy.said("connection refused", cause="loop"))
    return {"end": end, "lines": [line["reason"] for line in lines],
            "loops": proxy.metric("kproxy_connections_refused_total", cause="loop")}  # fmt: skip


def redirect(workers: int, iptables: bool) -> dict[str, Any]:
    """One machine: the client uses the brokers' real addresses."""
    with MockCluster(2) as cluster, FakeBroker(host="::1") as six, ExitStack() as stack:
        ports = [int(one.rpartition(":")[2]) for one in cluster.bootstrap.split(",")]
        cluster.create_topic("orders", 2)
        divert("redirect", [*ports, six.port], iptables)
        document = config(cluster.bootstrap.split(","), workers, f"[::]:{PORT}")
        proxy = stack.enter_context(Proxy(config=document))
        until(lambda: len(proxy.said("nodes found", nodes=[1, 2])) == workers)
        settings = {"bootstrap.servers": cluster.bootstrap, "client.id": "shop"}
        producer = Producer(settings)
        for number in range(10):
            producer.produce("orders", str(number), partition=number % 2)
        left = producer.flush(10)
        consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        got: set[bytes | None] = set()
        until(lambda: got.update(one.value() for one in consumer.consume(10, 0.1)) or len(got) == 10)
        listed = {f"{one.host}:{one.port}" for one in consumer.list_topics(timeout=60).brokers.values()}
        consumer.close()
        via = json.loads(proxy.get("/api/connections")[1])["connections"]
        by_six = None
        if not iptables:
            with RawClient(six.address) as client:
                by_six = client.brokers()
                via += json.loads(proxy.get("/api/connections")[1])["connections"]
        return {
            "left": left, "got": len(got), "same": listed == set(cluster.bootstrap.split(",")), "by_six": by_six,
            "six": six.address, "opened": proxy.metric("kproxy_connections_opened_total"),
            "brokers": sorted({one["broker"] for one in via} - {None}), "ports": ports,
            "nodes": {one["broker"]: one["node"] for one in via if one["broker"]},
            "unreachable": proxy.metric("kproxy_upstream_connect_failures_total"), **strangers(proxy),
        }  # fmt: skip


# ---- three namespaces


class Elsewhere:
    """This file as `role` in a namespace of its own, joined to this one by a cable."""

    def __init__(self, role: str, number: int) -> None:
        command = ["unshare", "--net", sys.executable, "-m", "tests.runtime.diverted", role]
        self.child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()
        name = f"net{number}"
        run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(self.child.pid))
        run("ip", "addr", "add", f"10.77.{number}.1/24", "dev", name)
        run("ip", "addr", "add", f"fd77:{number}::1/64", "dev", name, "nodad")
        run("ip", "link", "set", name, "up")
        self.ask("up")

    def answer(self) -> Any:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line, "it has ended"
        return json.loads(line)

    def ask(self, what: str) -> Any:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{what}\n")
        self.child.stdin.flush()
        return self.answer()

    def close(self) -> None:
        self.child.communicate()


def up(number: int) -> None:
    """In the other namespace: addresses, and everything else is behind the cable."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "addr", "add", f"10.77.{number}.2/24", "dev", "eth0")
    run("ip", "addr", "add", f"fd77:{number}::2/64", "dev", "eth0", "nodad")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "route", "add", "default", "via", f"10.77.{number}.1")
    run("ip", "-6", "route", "add", "default", "via", f"fd77:{number}::1")


def by_six() -> list[Any]:
    """What the broker lists, and who answers. A network that has just come up loses a neighbour's first question."""
    while True:
        try:
            with RawClient(f"[{FAR6}]:9092") as client:
                return [client.brokers(), client.socket.getpeername()[0]]
        except EndOfStream:
            time.sleep(0.2)  # for ever: the test has its own limit


def role(name: str) -> None:
    """The other end of Elsewhere."""
    print(json.dumps("here"), flush=True)
    brokers: list[FakeBroker] = []
    for line in sys.stdin:
        word, found = line.strip(), None
        if word == "up":
            up(1 if name == "client" else 2)
            if name == "broker":
                brokers = [FakeBroker(host=host, port=9092) for host in (FAR, FAR6)]
        elif word == "peers":
            found = sorted(set().union(*(one.peers for one in brokers)))
        elif word == "list":
            listed = AdminClient({"bootstrap.servers": f"{FAR}:9092", "log_level": 0}).list_topics(timeout=10).brokers
            found = [f"{one.host}:{one.port}" for one in listed.values()]
        elif word == "six":
            found = by_six()
        elif word == "nobody":
            with RawClient("10.77.2.9:9092") as client:
                client.send(client.request(18, 0, {}))
                found = client.rest().hex()
        print(json.dumps(found), flush=True)
    for one in brokers:
        one.close()


def unreachable(proxy: Proxy) -> list[str]:
    """Why connections ended whose broker could not be reached, but for a first question of IPv6; see by_six."""
    lines = proxy.said("connection closed", cause="unreachable")
    return [line["reason"] for line in lines if FAR6 not in line["reason"]]


def tproxy(workers: int, iptables: bool) -> dict[str, Any]:
    """kproxy as a router that nobody sees: brokers see the clients' addresses, clients see the brokers'."""
    for file in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        Path("/proc/sys/net", file).write_text("1")
    client, broker = Elsewhere("client", 1), Elsewhere("broker", 2)
    for words in re.findall(r"^#   (ip .*)$", (RULES / "tproxy.nft").read_text(), re.MULTILINE):
        run(*words.split())
    run("ip", "-6", "rule", "add", "fwmark", "1", "lookup", "100")
    run("ip", "-6", "route", "add", "local", "default", "dev", "lo", "table", "100")
    divert("tproxy", [9092], iptables)
    document = config([f"{FAR}:9092"], workers, f"[::]:{PORT}", by="tproxy", keep_source=True)
    with Proxy(config=document) as proxy:
        found = {"listed": client.ask("list"), "six": None if iptables else client.ask("six"), "peers": None}
        (line,) = proxy.said("listening")
        found |= {"nobody": client.ask("nobody"), "address": line["address"]}
        found["peers"] = broker.ask("peers")
        found["failed"] = until(lambda: unreachable(proxy))
        found |= strangers(proxy)
    client.close()
    broker.close()
    return found


def main(what: str, workers: str = "1", tool: str = "nft") -> None:
    run("ip", "link", "set", "lo", "up")
    print(json.dumps({"redirect": redirect, "tproxy": tproxy}[what](int(workers), tool == "iptables")))


if __name__ == "__main__":
    if sys.argv[1] in ("client", "broker"):
        role(sys.argv[1])
    else:
        main(*sys.argv[1:])
