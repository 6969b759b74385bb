"""Load balancers in front say in a PROXY header who the client is; whose word counts, and what is wrong with it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from kproxy.runtime.io.sniff import SIGNATURE, binary, line, own
from kproxy.testing.process import Proxy, free_port
from tests.support.certificates import Authority, client_context
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import RawClient
from tests.support.wait import until

KPROXY = ("127.0.0.1", 9092)
FAR = ("203.0.113.9", 40000)
FAR6 = ("2001:db8::9", 40000)
OTHER = "127.0.0.2"  # an address from where no header is believed


@dataclass
class Place:
    """A proxy that believes headers from 127.0.0.1, on a plain port and on one with TLS."""

    proxy: Proxy
    tls: dict[str, Any]
    secure: str

    def clients(self) -> list[str]:
        """The addresses of all open connections, as the API shows them."""
        return sorted(one["client"] for one in json.loads(self.proxy.get("/api/connections")[1])["connections"])

    def refused(self) -> float:
        """How many were, for their header."""
        return self.proxy.metric("kproxy_connections_refused_total", cause="proxy_header")


@pytest.fixture(scope="module", params=[2, 1] if "KPROXY_TEST_ALL" in os.environ else [2])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """For all tests here: with two workers, and with KPROXY_TEST_ALL=1 as one process, too."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    headers = {"proxy_protocol": {"from": "127.0.0.1"}, "cluster": "main"}
    plain, secure = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with FakeBroker() as broker:
        config = {
            "clusters": {"main": {"bootstrap": [broker.address]}},
            "listeners": [
                {"name": "plain", "bind": plain, **headers},
                {"name": "secure", "bind": secure, "tls": {"cert": str(authority.issue("localhost"))}, **headers},
            ],
            "limits": {"handshake_timeout": "500ms", "max_connections_per_address": 2},
            "workers": request.param,
        }
        with Proxy(config=config) as proxy:
            yield Place(proxy, {"tls": client_context(authority.file), "server_name": "localhost"}, secure)


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        (line(FAR, KPROXY), "203.0.113.9:40000"),
        (binary(FAR, KPROXY), "203.0.113.9:40000"),
        (line(FAR6, KPROXY), "[2001:db8::9]:40000"),
        (binary(FAR6, KPROXY), "[2001:db8::9]:40000"),
        (own(), "127.0.0.1:"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1:"),
    ],
    ids=["v1", "v2", "v1 IPv6", "v2 IPv6", "v2 local", "v1 unknown"],
)
def test_the_client_is_who_the_header_says(place: Place, header: bytes, shown: str) -> None:
    """Before plain Kafka and before TLS; what a balancer does on its own behalf comes from the balancer."""
    with (
        RawClient(place.proxy.bootstrap, first=header) as plain,
        RawClient(place.secure, first=header, **place.tls) as secure,
    ):
        assert len(plain.brokers()) == len(secure.brokers()) == 1
        found = until(lambda: len(all_clients := place.clients()) == 2 and all_clients)
        assert [one[: len(shown)] for one in found] == [shown, shown]
    until(lambda: not place.clients())


def test_a_header_may_come_in_pieces(place: Place) -> None:
    """Byte by byte, and with the first request in the same packet as its end."""
    header = binary(FAR, KPROXY)
    with RawClient(place.proxy.bootstrap) as client:
        for at in range(len(header) - 1):
            client.send(header[at : at + 1])
        client.send(header[-1:] + client.request(18, 0, {}))
        assert client.frame()
    until(lambda: not place.clients())


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"\x00\x00\x00\x20\x00\x12\x00\x00", "expected a PROXY header, got 00 00 00 20 00 12 00 00"),
        (b"\x16\x03\x01\x02\x00", "expected a PROXY header, got 16 03 01 02 00"),
        (b"PROXY TCP4 1.2.3.4\r\n", "a PROXY line that is not understood: 'PROXY TCP4 1.2.3.4'"),
        (b"PROXY " + b"7" * 200, "a PROXY line has no end in 107 bytes, the most that it may have"),
        (SIGNATURE + bytes.fromhex("2111ffff"), "a PROXY header of 65551 bytes, expected at most 4096"),
        (SIGNATURE + bytes.fromhex("213100d8"), "a PROXY header about a Unix stream, and Kafka is spoken over TCP"),
        (SIGNATURE[:7], "the connection ended in the PROXY header, after 7 bytes"),
    ],
    ids=["Kafka", "TLS", "cut line", "endless line", "long", "family", "cut"],
)
def test_a_wrong_header_ends_its_own_connection(place: Place, said: bytes, why: str) -> None:
    """With its reason in the log, counted; a client beside it goes on."""
    before = place.refused()
    with RawClient(place.proxy.bootstrap, first=binary(FAR, KPROXY)) as other:
        brokers = other.brokers()
        with RawClient(place.proxy.bootstrap, first=said) as client:
            with suppress(OSError):  # it may have been sent away by now
                client.shut()
            until(lambda: place.refused() == before + 1)
        assert other.brokers() == brokers
    (told,) = place.proxy.said("connection refused", cause="proxy_header", reason=why)
    assert (told["level"], told["listener"], told["client"][:10]) == ("warning", "plain", "127.0.0.1:")
    until(lambda: not place.clients())


def test_a_header_that_does_not_come_is_not_waited_for(place: Place) -> None:
    """Silence and half a header end after handshake_timeout; whoever closes at once has only looked."""
    before = place.refused()
    with RawClient(place.proxy.bootstrap) as silent, RawClient(place.proxy.bootstrap, first=b"PROXY TCP4 ") as half:
        RawClient(place.proxy.bootstrap).close()
        until(lambda: place.refused() == before + 2)
        assert silent.rest() == b""
        half.close()
    for came in (0, 11):
        why = f"no whole PROXY header in 0.5 s, {came} bytes have come"
        assert len(place.proxy.said("connection refused", reason=why)) == 1


def test_a_header_from_elsewhere_is_not_believed(place: Place) -> None:
    """It ends its connection; without one, a client from there is served as itself."""
    with RawClient(place.proxy.bootstrap, source=OTHER) as direct:
        assert len(direct.brokers()) == 1
        assert place.clients()[0].startswith(f"{OTHER}:")
    closed = place.proxy.metric("kproxy_connections_closed_total", cause="proxy_header")
    for header in (line(FAR, KPROXY), binary(FAR, KPROXY)):
        with RawClient(place.proxy.bootstrap, source=OTHER, first=header) as liar:
            assert liar.rest() == b""
    until(lambda: place.proxy.metric("kproxy_connections_closed_total", cause="proxy_header") == closed + 2)
    told = place.proxy.said("connection closed", cause="proxy_header")[0]  # each worker has told one
    assert told["reason"] == "client sends a PROXY header, and is not among those who may"
    assert told["client"].startswith(f"{OTHER}:")
    refused = place.refused()
    with pytest.raises(OSError):
        RawClient(place.secure, source=OTHER, first=binary(FAR, KPROXY), **place.tls)
    until(lambda: place.refused() == refused + 1)


def test_limits_by_address_are_about_the_clients(place: Place) -> None:
    """Two from an address are allowed here, whatever the balancer's own address is."""
    with ExitStack() as stack:
        for far in (FAR, ("203.0.113.10", 1)):
            for _ in range(2):
                client = stack.enter_context(RawClient(place.proxy.bootstrap, first=line(far, KPROXY)))
                assert client.brokers()
        third = stack.enter_context(RawClient(place.proxy.bootstrap, first=line(FAR, KPROXY)))
        assert third.rest() == b""
    until(lambda: place.proxy.metric("kproxy_connections_refused_total", cause="max_connections_per_address") == 1)
    until(lambda: not place.clients())
