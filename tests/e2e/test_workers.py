"""Several processes carry the traffic: it is spread evenly, and who dies or hangs takes nobody with him."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from kproxy.protocol import decode_response
from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import Proxy, children_of, free_port, free_port_with_room
from tests.support.certificates import Authority, client_context
from tests.support.fake_broker import FakeBroker, silence
from tests.support.processes import connections_to, sockets_of
from tests.support.raw_client import EndOfStream, RawClient
from tests.support.wait import until

FETCH = 1
BODY = {"replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1, "isolation_level": 0, "topics": []}


@dataclass
class Crew:
    """A proxy of two workers before two brokers. Clients come in at `proxy.bootstrap`, those with TLS at `sni`."""

    proxy: Proxy
    cluster: MockCluster
    folder: Path
    sni: str
    trusted: ssl.SSLContext

    @property
    def ports(self) -> list[int]:
        return [int(one.rpartition(":")[2]) for one in self.cluster.bootstrap.split(",")]

    def spread(self) -> list[int]:
        """How many connections each worker has to brokers for clients, fewest first: one is its health check's."""
        return sorted(to_broker(worker, *self.ports) - 1 for worker in workers(self.proxy))

    def at_rest(self) -> None:
        """Return once nobody is connected, and the supervisor knows it."""
        until(lambda: self.spread() == [0, 0])
        with ExitStack() as stack:
            until(lambda: served(stack.enter_context(RawClient(self.proxy.bootstrap))))
        until(lambda: self.spread() == [0, 0])


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    """One for several tests, since it is three processes: with a rename, an audit, a state file and limits."""
    folder = tmp_path_factory.mktemp("crew")
    authority = Authority(folder)
    rename = {"name": "orders", "kind": "rename_topic", "topics": {"orders": "prod.orders"}}
    (folder / "rules.yaml").write_text(json.dumps({"rules": [rename]}))
    plain, tls = free_port_with_room(8), free_port()
    sni = {"sni": f"b{{node}}.example.test:{tls}"}
    certificate = {"cert": str(authority.issue("127.0.0.1", "*.example.test"))}
    with MockCluster(2) as cluster:
        cluster.create_topic("prod.orders", 2)
        config = {
            "clusters": {"main": {"bootstrap": cluster.bootstrap.split(",")}},
            "listeners": [
                {"name": "main", "bind": f"127.0.0.1:{plain}", "cluster": "main"},
                {"name": "sni", "bind": f"127.0.0.1:{tls}", "cluster": "main", "tls": certificate, "advertise": sni},
            ],
            "workers": 2,
            "limits": {"max_connections": 60, "max_connections_per_address": 50},
            "rules": [str(folder / "rules.yaml")],
            "audit": {"dir": str(folder / "audit"), "flush": "50ms"},
            "state": str(folder / "state.json"),
            "metrics": {"by": ["topic", "client_id", "principal", "group"]},
            "log": {"level": "debug"},
        }
        with Proxy(config=config) as proxy:
            yield Crew(proxy, cluster, folder, f"127.0.0.1:{tls}", client_context(authority.file))


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    """Clients that are entered here are closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


def workers(proxy: Any) -> list[int]:
    """Process ids of the workers that live, oldest first."""
    return children_of(proxy.pid)


def to_broker(worker: int, *ports: int) -> int:
    """How many connections to these ports a worker has."""
    return len(sockets_of(worker) & set(connections_to(set(ports))))


def gone(pid: int) -> bool:
    """Whether the process has ended, be it waited for or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def served(client: RawClient) -> bool:
    """Whether it still has a broker at the other end."""
    with suppress(OSError):
        return bool(client.brokers())
    return False


def test_connections_are_spread_and_limited_over_all(crew: Crew, clients: ExitStack) -> None:
    """The worker that has the fewest gets the next one, on the port of a node as on the first one; the limits hold for
    all of them together."""
    proxy = crew.proxy
    crew.at_rest()
    few = [clients.enter_context(RawClient(proxy.bootstrap)) for _ in range(6)]
    (places,) = {tuple(client.brokers().values()) for client in few}
    assert crew.spread() == [3, 3]

    for client in few[::2]:  # they have taken turns, so these are one worker's
        client.close()
    until(lambda: crew.spread() == [0, 3])
    more = [clients.enter_context(RawClient(places[0])) for _ in range(4)]
    assert all(served(client) for client in more)
    assert crew.spread() == [3, 4]

    many = [clients.enter_context(RawClient(proxy.bootstrap, source="127.0.0.2")) for _ in range(50)]
    assert all(served(client) for client in many)
    assert crew.spread() == [28, 29]
    with RawClient(proxy.bootstrap, source="127.0.0.2") as one_too_many:
        assert not served(one_too_many)
    last = [clients.enter_context(RawClient(proxy.bootstrap, source=f"127.0.0.{n}")) for n in range(3, 7)]
    assert all(served(client) for client in last)
    assert [line["cause"] for line in proxy.said("connection refused")] == ["max_connections_per_address"]
    assert proxy.metric("kproxy_connections_closed_total", cause="displaced") == 1
    assert proxy.metric("kproxy_connections_open") == 60
    many[-1].close()
    until(lambda: served(clients.enter_context(RawClient(proxy.bootstrap, source="127.0.0.2"))))


def test_clients_with_tls_find_their_broker(crew: Crew, clients: ExitStack) -> None:
    """The worker shakes hands, and knows by the name which node is meant, though another one has seen its address."""
    crew.at_rest()
    with RawClient(crew.sni, tls=crew.trusted) as first:
        assert set(first.brokers().values()) == {
            f"b{node}.example.test:{crew.sni.rpartition(':')[2]}" for node in (1, 2)
        }
    crew.at_rest()
    checks = {(worker, port): to_broker(worker, port) for worker in workers(crew.proxy) for port in crew.ports}
    for node, port in enumerate(crew.ports, 1):
        named = [
            clients.enter_context(RawClient(crew.sni, tls=crew.trusted, server_name=f"b{node}.example.test"))
            for _ in range(2)
        ]
        assert all(served(client) for client in named)
        assert [to_broker(worker, port) - checks[worker, port] for worker in workers(crew.proxy)] == [1, 1]
    with RawClient(crew.sni) as stranger:
        stranger.send(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ConnectionResetError):  # not all that it said was read
            assert stranger.rest() == b""


def test_a_worker_that_is_killed_takes_only_its_own_connections(crew: Crew, clients: ExitStack) -> None:
    """Its clients connect again and go on, those of the others notice nothing; another takes its place and is used; no
    descriptor is left open; what it had recorded is published, no file of others is touched, and no counter falls."""
    proxy = crew.proxy
    crew.at_rest()
    before = open_files(proxy.pid)
    settings = {"bootstrap.servers": proxy.bootstrap, "log_level": 0, "reconnect.backoff.ms": 20}
    failed: list[Any] = []
    watching = [clients.enter_context(RawClient(proxy.bootstrap)) for _ in range(4)]
    assert all(served(client) for client in watching)
    assert crew.spread() == [2, 2]
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 1})
    victim = workers(proxy)[0]
    for number in range(300):
        producer.produce("orders", str(number), partition=number % 2,
                         on_delivery=lambda error, message: error and failed.append(error))  # fmt: skip
        producer.poll(0)
        if number == 150:
            counted = records(proxy, "produce")
            os.kill(victim, signal.SIGKILL)
    assert producer.flush(60) == 0
    assert not failed

    (line,) = until(lambda: proxy.said("worker ended, another one is started"))
    index = line["of_worker"]
    assert line["how"] == "SIGKILL" and line["lost"] >= 2
    assert [served(client) for client in watching].count(True) == 2
    until(lambda: proxy.said("worker is back", of_worker=index))
    again = [clients.enter_context(RawClient(proxy.bootstrap)) for _ in range(4)]
    assert all(served(client) for client in again)
    assert to_broker(workers(proxy)[-1], *crew.ports) >= 3  # its health check's, too
    until(lambda: open_files(proxy.pid) <= before)

    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    read: list[Any] = []
    until(lambda: read.extend(consumer.consume(500, 0.1)) or len(read) >= 300, 60)
    consumer.close()
    assert sorted(int(message.value()) for message in read) == list(range(300))
    until(lambda: records(proxy, "fetch") >= 300)
    assert records(proxy, "produce") >= counted

    ends = until(lambda: [event for event in events(crew.folder) if event["data"].get("reason") == "unclean_end"])
    assert {event["source"].rpartition("/")[2] for event in ends} == {str(index)}
    assert {event["data"]["of_source"].rpartition("/")[2] for event in ends} == {str(index)}
    marks = [path.name.removesuffix(".session")[-1] for path in (crew.folder / "audit").glob(".*.session")]
    assert sorted(marks) == ["0", "1"]


def records(proxy: Proxy, direction: str) -> float:
    """How many records of the topic all workers have counted, by its name on the brokers; 0: none yet."""
    return proxy.metric("kproxy_topic_records_total", direction=direction, topic="prod.orders")


def events(folder: Path) -> list[dict[str, Any]]:
    """All that is recorded, published or not."""
    open_ones = "".join(path.read_text() for path in (folder / "audit").glob(".*.ndjson.tmp"))
    return [json.loads(line) for line in open_ones.splitlines(keepends=True) if line.endswith("\n")]


def test_a_worker_that_stands_still_is_passed_over(crew: Crew, clients: ExitStack) -> None:
    """What it does not take goes to another after a while; once it answers again, it gets connections again, and its
    own have lost nothing."""
    proxy = crew.proxy
    crew.at_rest()
    own = [clients.enter_context(RawClient(proxy.bootstrap)) for _ in range(2)]
    assert all(served(client) for client in own)
    still = workers(proxy)[0]
    os.kill(still, signal.SIGSTOP)
    try:
        asking = [clients.enter_context(RawClient(proxy.bootstrap)) for _ in range(4)]
        assert all(served(client) for client in asking)
        line = proxy.said("worker does not answer, new connections go to others")[-1]
    finally:
        os.kill(still, signal.SIGCONT)

    until(lambda: proxy.said("worker answers again", of_worker=line["of_worker"]))
    assert all(served(client) for client in own)
    more = [clients.enter_context(RawClient(proxy.bootstrap)) for _ in range(4)]
    assert all(served(client) for client in more)
    assert crew.spread() == [5, 5]


def test_the_state_and_the_log_are_one(crew: Crew, clients: ExitStack) -> None:
    """The state file has the ports that all workers' clients were given; each line of the log is whole and says which
    worker it is from."""
    client = clients.enter_context(RawClient(crew.proxy.bootstrap))
    places = {node: int(place.rpartition(":")[2]) for node, place in client.brokers().items()}
    (given,) = until(lambda: json.loads((crew.folder / "state.json").read_text()))["ports"].values()
    client.close()

    assert {int(node): port for node, port in given.items()} == places
    assert crew.proxy.child is not None
    lines = [json.loads(line) for line in crew.proxy.child.log.read_text().splitlines()]
    assert {line["worker"] for line in lines if line["event"] == "connection closed"} == {0, 1}


def test_workers_do_not_outlive_the_supervisor(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """However it ends, their clients' connections end at once, and the ports are free."""
    proxy = proxy_with(fake().address, wait=False, workers=3)
    with RawClient(proxy.bootstrap) as client:
        assert served(client)
        living = workers(proxy)
        assert len(living) == 3
        os.kill(proxy.pid, signal.SIGKILL)

        until(lambda: not served(client))
    until(lambda: all(gone(pid) for pid in living))
    proxy.child.wait(60)
    with pytest.raises(ConnectionRefusedError):
        RawClient(proxy.bootstrap)


class LongPoll:
    """Answers a Fetch once it is told to."""

    def __init__(self) -> None:
        self.held: list[tuple[socket.socket, Any]] = []

    def __call__(self, broker: FakeBroker, stream: socket.socket, request: Any) -> None:
        self.held.append((stream, request))

    def answer(self, broker: FakeBroker) -> None:
        for stream, request in self.held:
            broker.respond(stream, request, {"throttle_time_ms": 7, "responses": []})


def test_all_of_them_drain(fake: Callable[..., Any], proxy_with: Callable[..., Any], clients: ExitStack) -> None:
    """What is in flight in any worker is answered, new clients are refused, nothing is left, exit code 0."""
    poll = LongPoll()
    broker = fake(answers={FETCH: poll})
    proxy = proxy_with(broker.address, wait=False, workers=2)
    asking = [clients.enter_context(RawClient(proxy.bootstrap)) for _ in range(4)]
    for client in asking:
        client.send(client.request(FETCH, 4, BODY))
    until(lambda: len(poll.held) == 4)
    living = workers(proxy)
    for pid in living:  # as a service manager does that tells all processes of a service
        os.kill(pid, signal.SIGTERM)
    proxy.child.signal(signal.SIGTERM)

    until(lambda: len(proxy.said("draining")) == 3)
    with pytest.raises(ConnectionRefusedError):
        RawClient(proxy.bootstrap)
    poll.answer(broker)
    for client in asking:
        assert decode_response(client.frame(), FETCH, 4).body["throttle_time_ms"] == 7
        with pytest.raises(EndOfStream):
            client.frame()
    assert proxy.child.wait(60) == 0
    assert all(gone(pid) for pid in living)
    assert proxy.said("draining", connections=4)


@pytest.mark.deep
def test_a_second_signal_ends_them_all(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], clients: ExitStack
) -> None:
    """Whoever asks twice does not wait for answers, nor for a worker that stands still."""
    broker = fake(answers={FETCH: silence})
    proxy = proxy_with(broker.address, wait=False, workers=2)
    asking = [clients.enter_context(RawClient(proxy.bootstrap)) for _ in range(2)]
    for client in asking:
        client.send(client.request(FETCH, 4, BODY))
    until(lambda: [request.api.key for request in broker.requests].count(FETCH) == 2)
    proxy.child.signal(signal.SIGTERM)
    until(lambda: len(proxy.said("draining")) == 3)
    proxy.child.signal(signal.SIGTERM)

    assert [client.rest() for client in asking] == [b"", b""]
    assert proxy.child.wait(60) == 0
    assert {line["reason"] for line in proxy.said("connection closed")} == {"kproxy received a second stop signal"}
