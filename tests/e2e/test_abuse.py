"""Clients and brokers that mean harm: the limits hold, others are served meanwhile, and each is counted and told.

Everything stays on the loopback and is bounded in number and time. A `Watch` stands for the others: a good client whose
answers are timed, and the memory of kproxy. KPROXY_TEST_ALL=1 comes with ten times as many connections.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol.records import Record, compression, encode_batch
from kproxy.protocol.records.entry import crc_of
from kproxy.testing.process import Proxy, free_port
from tests.support.dead_peer import vanish
from tests.support.fake_broker import FakeBroker, silence
from tests.support.raw_client import RawClient
from tests.support.stretches import large
from tests.support.wait import until

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
MANY = min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] * 2 // 5) if EVERYTHING else 1_000
"""Connections from one address; kproxy takes two descriptors for each, and keeps some."""
SOME = 300 if EVERYTHING else 60
PRODUCE, FETCH, METADATA, HEARTBEAT, DESCRIBE_GROUPS = 0, 1, 3, 12, 15
MEGABYTE = 1 << 20
PATIENCE, MEASURED = 60.0, 5.0
"""Seconds that a good client may wait at most: in `make test`, and in `make stretches`. Milliseconds are usual."""
LIMITS = {
    "header_timeout": 2,
    "buffer_timeout": 3,
    "write_timeout": 2,
    "drain_timeout": 2,
    "max_buffered_bytes": "8MiB",
    "max_in_flight": 1000,
}
RENAME = {"name": "other names", "kind": "rename_topic", "topics": {"a*": "b*"}}
"""So that requests about topics have to be held."""
NO_LARGE_RECORDS: dict[str, Any] = {
    "name": "no large records",
    "kind": "require",
    "match": {"api": "Produce"},
    "max_record": "1MB",
}


@pytest.fixture(scope="module")
def descriptors() -> Iterator[None]:
    """As many as may be, in this process; kproxy sees to its own."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    """Answers ApiVersions and Metadata; Heartbeat and Produce never, Fetch with a length that cannot be."""
    odd = {HEARTBEAT: silence, PRODUCE: silence, FETCH: impossible}
    with FakeBroker(answers=odd) as made:
        yield made


@pytest.fixture(scope="module")
def proxy(broker: FakeBroker, descriptors: None) -> Iterator[Proxy]:
    """kproxy with limits that are reached soon, and rules that look into names and records."""
    bind = f"127.0.0.1:{free_port()}"
    config = {
        "clusters": {"main": {"bootstrap": [broker.address]}},
        "listeners": [{"name": "main", "bind": bind, "cluster": "main"}],
        "limits": LIMITS,
    }
    with Proxy(config=config, rules=[RENAME, NO_LARGE_RECORDS]) as made:
        yield made
        log = made.logs(100_000).splitlines()
        errors = [line for line in log if '"level": "error"' in line or "Traceback" in line]
        assert errors == []
        assert made.stop() == 0


def impossible(broker: FakeBroker, stream: socket.socket, request: Any) -> None:
    """A response of as many bytes as the client's max_bytes says."""
    size, correlation = request.body["max_bytes"], request.header["correlation_id"]
    stream.sendall(size.to_bytes(4, "big", signed=True) + correlation.to_bytes(4, "big") + bytes(2000))


@pytest.fixture(
    autouse=True,
    params=[pytest.param(PATIENCE, id="any"), pytest.param(MEASURED, id="measured", marks=pytest.mark.measured)],
)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the seconds that a good client may wait."""
    monkeypatch.setattr(sys.modules[__name__], "PATIENCE", request.param)


class Watch:
    """A good client beside the bad ones, from the beginning of a block to its end.

    `slowest`: seconds that it waited at most. `grown`: by how many bytes kproxy has grown. `lines`: of its log.
    """

    def __init__(self, proxy: Proxy) -> None:
        self.proxy, self.slowest, self.answers = proxy, 0.0, 0
        self.over = threading.Event()
        self.failed: list[BaseException] = []

    def ask(self) -> None:
        try:
            with RawClient(self.proxy.bootstrap, timeout=60) as client:
                while not self.over.is_set() or not self.answers:
                    begun = time.monotonic()
                    assert len(client.brokers()) == 1
                    self.slowest = max(self.slowest, time.monotonic() - begun)
                    self.answers += 1
                    self.over.wait(0.05)
        except (OSError, AssertionError, DecodeError) as error:
            self.failed.append(error)

    @property
    def grown(self) -> int:
        return memory(self.proxy.pid) - self.before

    @property
    def lines(self) -> int:
        return len(self.proxy.logs(1_000_000).splitlines()) - self.lines_before

    def __enter__(self) -> Watch:
        self.before, self.lines_before = memory(self.proxy.pid), len(self.proxy.logs(1_000_000).splitlines())
        self.thread = threading.Thread(target=self.ask)
        self.thread.start()
        until(lambda: self.answers or self.failed)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.over.set()
        self.thread.join(60)
        if kind is None:
            assert self.failed == []
            assert self.slowest < PATIENCE


def memory(pid: int) -> int:
    """Bytes that a process has in memory."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def ended(proxy: Proxy, cause: str) -> float:
    """How many connections have ended for that cause."""
    return proxy.metric("kproxy_connections_closed_total", cause=cause)


def clients(proxy: Proxy, count: int) -> list[RawClient]:
    return [RawClient(proxy.bootstrap, timeout=60) for _ in range(count)]


def close(those: list[RawClient]) -> None:
    for one in those:
        one.close()


def test_headers_that_trickle(proxy: Proxy) -> None:
    """Slow loris: each connection sends a byte now and then, and is cut off when its header has taken its time."""
    before = ended(proxy, "header_timeout")
    with Watch(proxy) as watch:
        slow = clients(proxy, SOME)
        rest = {one.socket: b"\x00\x00\x00\x20\x00\x03\x00\x09" for one in slow}
        for _ in range(8):
            for sock, left in rest.items():
                rest[sock] = left[1:] if told(sock, left[:1]) else b""
            watch.over.wait(0.2)
        until(lambda: ended(proxy, "header_timeout") == before + SOME)
        close(slow)

        assert watch.grown < 4 * MEGABYTE + SOME * 20_000
        assert watch.lines <= 3


def told(sock: socket.socket, data: bytes) -> bool:
    """Whether the other end has taken it."""
    try:
        return sock.send(data) == len(data)
    except OSError:
        return False


def test_one_byte_at_a_time_is_only_slow(proxy: Proxy) -> None:
    """Whole requests in single bytes, on many connections at once: all are answered."""
    with Watch(proxy) as watch:
        slow = clients(proxy, SOME)
        asked = [one.request(METADATA, 4, {"topics": [], "allow_auto_topic_creation": False}) for one in slow]
        for at in range(len(asked[0])):
            for one, data in zip(slow, asked, strict=True):
                one.send(data[at : at + 1])
        assert all(one.frame() for one in slow)
        close(slow)

        assert watch.grown < 4 * MEGABYTE + SOME * 40_000


def test_very_many_connections_from_one_address(proxy: Proxy) -> None:
    """Without a limit they are taken, at some kB each; resets of all of them at once are told in a few lines."""
    resets = ended(proxy, "client_reset")
    with Watch(proxy) as watch:
        many = clients(proxy, MANY)
        try:
            until(lambda: proxy.metric("kproxy_connections_open") >= MANY + 1, 60)
            grown = watch.grown
            for one in many:
                one.send(b"\0")
        finally:  # the tests behind this one use the same proxy
            for one in many:
                one.reset()
        until(lambda: proxy.metric("kproxy_connections_open") <= 1, 60)

        assert grown < MANY * 10_000 + 4 * MEGABYTE
        assert ended(proxy, "client_reset") + ended(proxy, "header_timeout") >= resets + MANY
        assert watch.lines <= 5


def held_request(one: RawClient, size: int) -> bytes:
    """The beginning of a Metadata request of that size, about topics, which a renaming proxy has to hold."""
    whole = one.request(METADATA, 4, {"topics": [{"name": "a"}], "allow_auto_topic_creation": False})
    return size.to_bytes(4, "big") + whole[4:]


@pytest.mark.parametrize("trickle", [False, True], ids=["silent", "trickling"])
def test_announced_frames_end_with_their_time(proxy: Proxy, trickle: bool) -> None:
    """Memory is reserved for them, not allocated, and free again after their time. No other frame needs it."""
    before = ended(proxy, "buffer_timeout") + ended(proxy, "header_timeout")
    with Watch(proxy) as watch:
        greedy = clients(proxy, 2)
        for one in greedy:
            one.send(held_request(one, 3 * MEGABYTE))
        until(lambda: proxy.metric("kproxy_buffered_bytes", direction="request") > 5 * MEGABYTE)
        assert proxy.metric("kproxy_buffered_bytes", direction="request") <= 8 * MEGABYTE
        assert watch.grown < 8 * MEGABYTE
        for _ in range(25 if trickle else 0):
            for one in greedy:
                told(one.socket, b"x")
            watch.over.wait(0.2)
        until(lambda: ended(proxy, "buffer_timeout") + ended(proxy, "header_timeout") >= before + len(greedy))
        close(greedy)
        until(lambda: proxy.metric("kproxy_buffered_bytes", direction="request") == 0)

        assert (ended(proxy, "buffer_timeout") > 0) >= trickle
        assert watch.lines <= 6


def test_announced_frames_leave_memory_to_others(proxy: Proxy) -> None:
    """A small frame does not wait, a long one takes the memory of those that never come; most of these still wait."""
    names = [{"name": f"a{number}".ljust(249, "n")} for number in range(8000)]
    with Watch(proxy):
        greedy = clients(proxy, 60)
        for one in greedy:
            one.send(held_request(one, 3 * MEGABYTE))
        until(lambda: proxy.metric("kproxy_buffered_bytes", direction="request") > 5 * MEGABYTE)
        evicted = ended(proxy, "held_evicted")
        with RawClient(proxy.bootstrap, source="127.0.0.2", timeout=60) as other:
            for topics in (names[:1], names, names[:1]):
                other.send(other.request(METADATA, 4, {"topics": topics, "allow_auto_topic_creation": False}))
                assert other.frame()
        assert ended(proxy, "held_evicted") > evicted
        assert proxy.metric("kproxy_connections_open") > 10
        close(greedy)
    until(lambda: proxy.metric("kproxy_buffered_bytes", direction="request") == 0)


def described(size: int) -> Callable[[FakeBroker, socket.socket, Any], None]:
    """Answer DescribeGroups with so many bytes."""

    def answer(broker: FakeBroker, stream: socket.socket, request: Any) -> None:
        member = {"member_id": "m", "client_id": "c", "client_host": "h", "member_metadata": bytes(size)}
        group = {"error_code": 0, "group_id": request.body["groups"][0], "group_state": "Stable", "protocol_type": "x"}
        group |= {"protocol_data": "p", "members": [member | {"member_assignment": b""}]}
        broker.respond(stream, request, {"groups": [group]})

    return answer


def test_unread_responses_leave_memory_to_others(kproxy_process: Callable[..., Any]) -> None:
    """A client asks for eight long responses and does not read them; `write_timeout` is far away."""
    size = 20 * MEGABYTE
    with FakeBroker(answers={DESCRIBE_GROUPS: described(size)}) as broker:
        config = {
            "clusters": {"main": {"bootstrap": [broker.address]}},
            "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port()}", "cluster": "main"}],
            "limits": {"max_buffered_bytes": "64MiB"},
        }
        proxy = kproxy_process(config=config, rules=[{"name": "tenant", "kind": "prefix", "prefix": "t."}])
        lazy = clients(proxy, 8)
        for one in lazy:
            one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.send(one.request(DESCRIBE_GROUPS, 0, {"groups": ["g"]}))
        until(lambda: proxy.metric("kproxy_buffered_bytes", direction="response") > 2 * size)
        with RawClient(proxy.bootstrap, source="127.0.0.2", timeout=60) as other:
            other.send(other.request(DESCRIBE_GROUPS, 0, {"groups": ["g"]}))
            assert len(other.frame()) > size
        assert ended(proxy, "held_evicted") > 0
        assert ended(proxy, "write_timeout") == 0
        close(lazy)


def test_broker_leaves_memory_to_other_clusters(kproxy_process: Callable[..., Any]) -> None:
    """A broker announces a response that takes all memory of its cluster, and sends little of it."""

    def announce(broker: FakeBroker, stream: socket.socket, request: Any) -> None:
        stream.sendall((54 * MEGABYTE).to_bytes(4, "big") + request.header["correlation_id"].to_bytes(4, "big") + b"x")

    rule = {"name": "tenant", "kind": "prefix", "prefix": "t."}
    with (
        FakeBroker(answers={DESCRIBE_GROUPS: announce}) as bad,
        FakeBroker(answers={DESCRIBE_GROUPS: described(20 * MEGABYTE)}) as good,
    ):
        ports = {name: f"127.0.0.1:{free_port()}" for name in ("good", "bad")}
        config = {
            "clusters": {"good": {"bootstrap": [good.address]}, "bad": {"bootstrap": [bad.address]}},
            "listeners": [{"name": name, "bind": bind, "cluster": name} for name, bind in ports.items()],
            "limits": {"max_buffered_bytes": "64MiB"},
        }
        proxy = kproxy_process(config=config, rules=[rule])
        waiting = [RawClient(ports["bad"], timeout=60) for _ in range(3)]
        for one in waiting:
            one.send(one.request(DESCRIBE_GROUPS, 0, {"groups": ["g"]}))
        until(lambda: proxy.metric("kproxy_buffered_bytes", direction="response") > 50 * MEGABYTE)
        with RawClient(ports["good"], timeout=60) as other:
            other.send(other.request(DESCRIBE_GROUPS, 0, {"groups": ["g"]}))
            assert len(other.frame()) > 20 * MEGABYTE
        assert proxy.metric("kproxy_buffered_bytes", direction="response") > 50 * MEGABYTE
        close(waiting)


@pytest.mark.parametrize("size", [2**31 - 1, -1, -(2**31), 0])
@pytest.mark.parametrize("who", ["client", "broker"])
def test_lengths_that_cannot_be(proxy: Proxy, who: str, size: int) -> None:
    """Judged before anything is made of them, from either side; the connection ends, counted as what it is.

    Answers have no limit but that of what is held, since brokers make long ones, and this one has to be held.
    """
    cause = "buffer_limit" if who == "broker" and size > 0 else "frame_size"
    before = ended(proxy, cause)
    with Watch(proxy) as watch, RawClient(proxy.bootstrap) as one:
        if who == "client":
            one.brokers()
            one.send(size.to_bytes(4, "big", signed=True) + b"\0\3\0\4" + bytes(20))
        else:
            body = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": size, "isolation_level": 0}
            one.send(one.request(FETCH, 4, body | {"topics": []}))
        assert one.rest() == b""
        one.close()
        until(lambda: ended(proxy, cause) == before + 1)

        assert watch.grown < 4 * MEGABYTE


def bomb(codec: int, size: int) -> bytes:
    """A batch of one record, whose codec gives `size` bytes of nothing instead."""
    made = bytearray(encode_batch([Record(0, 0, None, b"v")]))
    made[61:] = compression.compress(codec, bytes(size))
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    made[21:23] = codec.to_bytes(2, "big")
    made[17:21] = crc_of(made, 2).to_bytes(4, "big")
    return bytes(made)


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
def test_decompression_bombs(proxy: Proxy, codec: int) -> None:
    """A rule and a listener look into records: what comes out has a limit, for one batch and for all of a request."""
    one = bomb(codec, 8 * MEGABYTE - 1)
    records = one * min(MEGABYTE // 2 // len(one) + 1, 400)
    partition = {"index": 0, "records": records}
    body: dict[str, Any] = {"transactional_id": None, "acks": 1, "timeout_ms": 1}
    body |= {"topic_data": [{"name": "t", "partition_data": [partition]}]}
    matched = counted(proxy)
    with Watch(proxy) as watch, listening(proxy, "value ~ x"), RawClient(proxy.bootstrap) as client:
        client.send(client.request(PRODUCE, 3, body))
        until(lambda: counted(proxy) == matched + 1, 60)
        until(lambda: watch.answers > 3)

        assert watch.grown < 256 * MEGABYTE  # twice the limit of what comes out of one request, and the frames


def counted(proxy: Proxy) -> float:
    """How many requests the rule has looked at; -1 while kproxy is too busy to tell."""
    try:
        return proxy.metric("kproxy_rule_matched_total", rule=NO_LARGE_RECORDS["name"])
    except OSError:
        return -1


class listening:  # noqa: N801 -- used like a function
    """Somebody runs `kproxy tail` with this filter."""

    def __init__(self, proxy: Proxy, wanted: str) -> None:
        query = urllib.parse.urlencode({"filter": wanted})
        self.answer = urllib.request.urlopen(f"http://{proxy.admin}/api/tail?{query}", timeout=60)

    def __enter__(self) -> None:
        assert "listening" in json.loads(self.answer.readline())

    def __exit__(self, *error: object) -> None:
        self.answer.close()


def test_peers_that_vanish(proxy: Proxy) -> None:
    """Clients that are gone without a word while much is on its way to them take little memory; when their machine is
    back, and knows nothing of them, nothing stays. (How soon one is noticed otherwise:
    tests/runtime/test_keepalive.py.)"""
    until(lambda: not connections(proxy))
    topics = [{"name": f"a{number}" * 30} for number in range(400)]
    with Watch(proxy) as watch:
        gone = clients(proxy, 10)
        for one in gone:
            vanish(one.socket)
            data = one.request(METADATA, 4, {"topics": topics, "allow_auto_topic_creation": False})
            told(one.socket, data)
        until(lambda: len(connections(proxy)) == len(gone) + 1)  # and the good one
        assert watch.grown < 32 * MEGABYTE
        for one in gone:
            one.reset()
    until(lambda: not connections(proxy))


def test_thousands_of_requests_in_flight(proxy: Proxy) -> None:
    """A broker that does not answer, a client that does not wait: it is not read beyond max_in_flight."""
    body = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    with Watch(proxy) as watch, RawClient(proxy.bootstrap, timeout=2) as one:
        data = one.request(HEARTBEAT, 0, body) * 500_000  # more than the kernel's buffers hold
        with pytest.raises(TimeoutError):
            one.send(data)
        (held,) = until(lambda: [each for each in connections(proxy) if each["in_flight"] >= 1000])

        assert 1000 <= held["in_flight"] < 1000 + 262144 // 30
        assert watch.grown < 16 * MEGABYTE


def connections(proxy: Proxy) -> list[dict[str, Any]]:
    return list(json.loads(proxy.get("/api/connections")[1])["connections"])


@pytest.mark.deep
def test_frames_of_very_many_names(proxy: Proxy) -> None:
    """Each takes kproxy a good while, for a rule looks into all of it: others and /livez have many turns meanwhile."""
    frame = large(PRODUCE, 9, "request", 50_000, acks=0)
    begun, frames = cpu(proxy.pid), 4
    with RawClient(proxy.bootstrap, timeout=60) as greedy:
        greedy.send(frame)
        assert len(greedy.brokers()) == 1
        alone = cpu(proxy.pid) - begun
        assert alone > 0.15, "or it proves nothing"
        over = threading.Event()
        lives: list[int] = []

        def live() -> None:
            while not over.is_set():
                lives.append(proxy.get("/livez")[0])

        asking = threading.Thread(target=live)
        asking.start()
        with RawClient(proxy.bootstrap, timeout=60) as other:
            sending = threading.Thread(target=lambda: [greedy.send(frame) for _ in range(frames)])
            sending.start()
            begun, exchanges = cpu(proxy.pid), 0
            while cpu(proxy.pid) - begun < alone * frames:
                assert len(other.brokers()) == 1
                exchanges += 1
            sending.join()
        over.set()
        asking.join()
        assert len(greedy.brokers()) == 1
    assert set(lives) == {200}
    assert exchanges >= 8 * frames, f"{exchanges} exchanges beside {frames} frames of {alone:.2f} s each"
    assert len(lives) >= 3 * frames


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has taken."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_admin_address_under_siege(proxy: Proxy) -> None:
    """Bodies that never come or are far too long, and connections by the hundred: clients do not notice."""
    host, _, port = proxy.admin.rpartition(":")
    head = b"PUT /api/rules HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
    with Watch(proxy) as watch:
        socks = [socket.create_connection((host, int(port)), 60) for _ in range(SOME)]
        for number, sock in enumerate(socks):
            told(sock, (b"GE", head + b"1000\r\n\r\n{", head + b"99999999\r\n\r\n" + bytes(1000))[number % 3])
        with pytest.raises(urllib.error.URLError, match=r"413|Broken pipe|reset"):  # which may come before the answer
            proxy.post("/api/rules", "x" * (5 * MEGABYTE))
        assert proxy.get("/livez")[0] == 200
        for sock in socks:
            sock.close()

        assert watch.grown < 40 * MEGABYTE


def test_connections_beyond_the_limit_of_their_address(
    fake: Callable[..., Any], proxy_with: Callable[..., Any]
) -> None:
    """They are refused at once, each is counted, a few lines tell it, and another address is served."""
    listener = {"bind": f"0.0.0.0:{free_port('0.0.0.0')}"}
    proxy = proxy_with(fake().address, limits={"max_connections_per_address": 100}, listener=listener)
    those = []
    for _ in range(100 + SOME):
        those.append(RawClient(f"127.0.0.1:{proxy.port}"))  # noqa: PERF401 -- one after the other
    with RawClient(f"127.0.0.1:{proxy.port}", source="127.0.0.2") as other:
        assert len(other.brokers()) == 1
    until(lambda: proxy.metric("kproxy_connections_refused_total") == SOME)
    close(those)

    assert len(proxy.said("connection refused")) <= 2
