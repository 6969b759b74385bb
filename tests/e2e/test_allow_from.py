"""Rules about who may connect: by address, behind a balancer, before TLS, while faults are disabled, for what is
open."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from kproxy.cli.admin_client import Admin
from kproxy.runtime.io.sniff import binary, line
from kproxy.testing.process import Proxy, free_port
from tests.support.certificates import Authority, client_context
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import EndOfStream, RawClient
from tests.support.wait import until

KPROXY = ("127.0.0.1", 9092)
OURS, OTHER = "127.0.0.1", "127.0.0.2"
TIMES = 4
"""Connections one after the other, so that each worker has some."""


@dataclass
class Place:
    """A proxy with a plain port, one with TLS, and one with TLS behind a balancer."""

    proxy: Proxy
    admin: Admin
    tls: ssl.SSLContext
    ports: dict[str, str]

    def put(self, name: str, **rule: Any) -> None:
        self.admin("PUT", f"/api/rules/{name}", json.dumps({"kind": "allow_from", **rule}).encode())

    def rule(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.admin("GET", f"/api/rules/{name}")
        return found

    def comes_in(self, listener: str = "plain", source: str = OURS, **more: Any) -> bool:
        """Connect, and ask for the brokers; False: reset, or closed in order."""
        if listener != "plain":
            more |= {"tls": self.tls, "server_name": "localhost"}
        try:
            with RawClient(self.ports[listener], source=source, **more) as client:
                return len(client.brokers()) == 1
        except (ConnectionError, EndOfStream, ssl.SSLError):
            return False

    def outcomes(self, **how: Any) -> set[bool]:
        return {self.comes_in(**how) for _ in range(TIMES)}

    def refused(self, cause: str = "not_allowed") -> float:
        return self.proxy.metric("kproxy_connections_refused_total", cause=cause)


@pytest.fixture(scope="module", params=[2, 1])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """With two workers, and as one process."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    names = ("plain", "secure", "behind")
    ports = {name: f"127.0.0.1:{free_port()}" for name in names}
    tls = {"tls": {"cert": str(authority.issue("localhost"))}}
    more: dict[str, Any] = {"plain": {}, "secure": tls, "behind": {**tls, "proxy_protocol": {"from": OURS}}}
    with FakeBroker() as broker:
        config = {
            "clusters": {"main": {"bootstrap": [broker.address]}},
            "listeners": [{"name": name, "bind": ports[name], "cluster": "main", **more[name]} for name in names],
            "workers": request.param,
        }
        with Proxy(config=config) as proxy:
            yield Place(proxy, Admin(f"http://{proxy.admin}"), client_context(authority.file), ports)


@pytest.fixture
def place(running: Place) -> Iterator[Place]:
    """Without rules."""
    until(lambda: running.proxy.get("/readyz")[0] == 200, seconds=60)
    yield running
    running.admin("POST", "/api/faults/enable")
    running.admin("DELETE", "/api/rules")
    until(lambda: running.admin("GET", "/api/connections")["connections"] == [])


@pytest.mark.parametrize("how", ["rst", "fin"])
@pytest.mark.parametrize("listener", ["plain", "secure"])
def test_only_these_networks_come_in(place: Place, listener: str, how: str) -> None:
    """The others are turned away as the rule says, counted and told; other listeners are open."""
    before = place.refused()
    place.put("ours", networks=f"{OURS}/32", close_with=how, match={"listener": listener})

    assert place.outcomes(listener=listener) == {True}
    assert place.outcomes(listener=listener, source=OTHER) == {False}
    assert place.comes_in("secure" if listener == "plain" else "plain", OTHER)
    assert place.refused() == before + TIMES
    shown = place.rule("ours")
    assert (shown["matched"], shown["fired"], shown["applied"], shown["family"]) == (2 * TIMES, TIMES, TIMES, "access")
    told = place.proxy.said("connection refused", cause="not_allowed", listener=listener)
    assert told[0]["reason"] == f'{OTHER} is in none of the networks of "ours"'
    assert told[0]["client"].startswith(f"{OTHER}:")


@pytest.mark.parametrize(("how", "end"), [("rst", ConnectionResetError), ("fin", EndOfStream)])
def test_how_it_ends(place: Place, how: str, end: type[Exception]) -> None:
    """Also for a client that has said something by then."""
    place.put("ours", networks=OURS, close_with=how)

    with pytest.raises(end), RawClient(place.ports["plain"], source=OTHER) as client:
        client.frame()


def test_it_is_asked_before_tls(place: Place) -> None:
    """A client that says nothing is turned away at once, and no handshake is begun for one that does."""
    before = place.refused(), place.refused("tls")
    place.put("ours", networks=OURS)
    for _ in range(TIMES):
        with pytest.raises((EndOfStream, ConnectionError)), RawClient(place.ports["secure"], source=OTHER) as silent:
            silent.frame()
    assert not place.comes_in("secure", OTHER)

    assert (place.refused(), place.refused("tls")) == (before[0] + TIMES + 1, before[1])


@pytest.mark.parametrize("header", [line, binary], ids=["v1", "v2"])
def test_behind_a_balancer_the_address_of_the_header_counts(place: Place, header: Any) -> None:
    """Not that of the balancer itself, which may be in no network, or in one."""
    place.put("far", networks=["203.0.113.0/24", "2001:db8::/32"], match={"listener": "behind"})

    for address, comes_in in (("203.0.113.9", True), ("2001:db8::9", True), ("198.51.100.9", False), (OURS, False)):
        first = header((address, 40000), ("::1", 9092) if ":" in address else KPROXY)
        assert place.outcomes(listener="behind", first=first) == {comes_in}, address

    place.put("far", networks=OURS, match={"listener": "behind"})
    assert place.outcomes(listener="behind", first=header(("203.0.113.9", 40000), KPROXY)) == {False}


def test_of_several_rules_any_may_let_it_in(place: Place) -> None:
    place.put("one", networks="10.0.0.0/8")
    assert place.outcomes() == place.outcomes(source=OTHER) == {False}

    place.put("two", networks=OTHER)
    assert place.outcomes() == {False}
    assert place.outcomes(source=OTHER) == {True}


def test_disabled_faults_leave_it(place: Place) -> None:
    """Faults disabled, then loaded, then enabled: nobody gets in from outside at any time, while faults go and come
    back."""
    place.put("ours", networks=OURS)
    place.put("fault", kind="refuse", match={"listener": "secure"})
    assert place.outcomes(listener="secure") == {False}
    place.admin("POST", "/api/faults/disable")
    assert place.outcomes(source=OTHER) == place.outcomes(listener="secure", source=OTHER) == {False}
    assert place.outcomes(listener="secure") == {True}

    place.put("later", kind="refuse", match={"listener": "plain"})
    place.put("too", networks="10.0.0.0/8")
    assert place.outcomes() == {True}
    assert place.outcomes(source=OTHER) == place.outcomes(listener="secure", source=OTHER) == {False}
    in_force = {name: place.rule(name)["in_force"] for name in ("ours", "too", "fault", "later")}
    assert in_force == {"ours": True, "too": True, "fault": False, "later": False}

    place.admin("POST", "/api/faults/enable")
    assert place.outcomes() == place.outcomes(source=OTHER) == place.outcomes(listener="secure") == {False}
    assert place.rule("later")["in_force"]


def test_connections_that_are_open(place: Place) -> None:
    """They stay, unless a rule says `existing: close`; then they end, and those that may come in stay."""
    with ExitStack() as stack:
        ours, others = (
            [stack.enter_context(RawClient(place.proxy.bootstrap, source=source)) for _ in range(TIMES)]
            for source in (OURS, OTHER)
        )
        brokers = [client.brokers() for client in (*ours, *others)]
        closed = place.proxy.metric("kproxy_connections_closed_total", cause="not_allowed")
        place.put("ours", networks=OURS)
        place.put("observed", networks="10.0.0.0/8", existing="close", mode="dry_run")
        assert [client.brokers() for client in (*ours, *others)] == brokers

        place.put("ours", networks=OURS, existing="close")
        for client in others:
            with pytest.raises((EndOfStream, ConnectionError)):
                client.frame()
        assert [client.brokers() for client in ours] == brokers[:TIMES]
        until(
            lambda: place.proxy.metric("kproxy_connections_closed_total", cause="not_allowed") == closed + len(others)
        )
