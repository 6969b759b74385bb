"""Configs that would lead clients of a listener to another cluster."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import yaml

from kproxy.app.config.changes import Origin, steps
from kproxy.app.config.document import Config as ProxyConfig
from kproxy.base.errors import ConfigRefused
from kproxy.protocol import Message
from kproxy.protocol.table.api_keys import METADATA
from kproxy.rules.values.address import Address
from kproxy.runtime import cluster_identity
from kproxy.runtime.config.network import ClusterConfig, ListenerConfig, is_reached_alike
from kproxy.testing.process import free_port
from tests.support.fake_broker import FakeBroker
from tests.support.live_proxy import LiveProxy, NamedBroker
from tests.support.raw_client import EndOfStream, RawClient

Config = dict[str, Any]


class Clusters:
    """A proxy with the listener `a` in front of the cluster `one`, and brokers of two clusters."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.one, self.two = (stack.enter_context(NamedBroker(name)) for name in ("one", "two"))
        self.also_one = stack.enter_context(NamedBroker("one"))
        self.ports = {name: free_port() for name in "abcdefg"}
        self.first = self.config({"a": "main"}, main=self.one.address)
        self.file = folder / "kproxy.yaml"
        self.write(self.first)
        self.live = stack.enter_context(LiveProxy(self.first, Origin(str(self.file), self.file)))

    def config(self, listeners: dict[str, str], **clusters: str | list[str]) -> Config:
        """A config with listeners in front of clusters. `b@a` is the listener b at the address of a."""
        named = {name: {"bootstrap": [one] if isinstance(one, str) else one} for name, one in clusters.items()}
        bound = [(*name.split("@"), name)[:2] for name in listeners]
        return {
            "clusters": named,
            "listeners": [
                {"name": name, "bind": f"127.0.0.1:{self.ports[at[0]]}", "cluster": cluster}
                for (name, at), cluster in zip(bound, listeners.values(), strict=True)
            ],
        }

    def write(self, config: Config) -> None:
        self.file.write_text(yaml.safe_dump(config, sort_keys=False))

    def client(self) -> RawClient:
        return RawClient(f"127.0.0.1:{self.ports['a']}")

    def refused(self, config: Config) -> ConfigRefused:
        """The refusal of a config. Nothing has changed then."""
        version = self.live.keeper.version
        with pytest.raises(ConfigRefused) as found:
            self.live.apply(config)
        assert self.live.keeper.version == version
        return found.value


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    with ExitStack() as stack:
        yield Clusters(stack, tmp_path)


def test_apply_other_cluster_id_refused_with_both_ids(clusters: Clusters) -> None:
    """By the API and by SIGHUP; clients stay where they are, and the log has the ids and the remedy."""
    with clusters.client() as client:
        before = client.brokers()
        other = clusters.config({"a": "main", "b": "main"}, main=clusters.two.address)
        error = clusters.refused(other)
        assert error.code == "other_cluster"
        assert "listener a leads to another cluster id (cluster main): expected one, got two" in str(error)
        assert "skip records" in str(error)
        clusters.write(other)
        assert not trio.from_thread.run(clusters.live.keeper.reload, trio_token=clusters.live.token)
        assert any("--allow-cluster-change" in line and "expected one, got two" in line
                   for line in clusters.live.said.lines)  # fmt: skip
        assert client.brokers() == before
        with pytest.raises(ConnectionRefusedError):
            RawClient(f"127.0.0.1:{clusters.ports['b']}")


def test_apply_other_cluster_id_allowed_is_logged(clusters: Clusters) -> None:
    with clusters.client() as client:
        client.brokers()
        other = clusters.config({"a": "main"}, main=clusters.two.address)
        clusters.live.apply(other, allow_cluster_change=True)
        with pytest.raises((EndOfStream, ConnectionError)):
            client.frame()
    assert any("clients are moved to another cluster" in line for line in clusters.live.said.lines)


MOVES: dict[str, Callable[[Clusters], Config]] = {
    "listener to another entry": lambda c: c.config({"a": "x"}, main=c.one.address, x=c.two.address),
    "another name": lambda c: c.config({"b@a": "x"}, x=c.two.address),
    "entries swapped": lambda c: c.config({"a": "main", "b": "x"}, main=c.two.address, x=c.one.address),
    "server added": lambda c: c.config({"a": "main"}, main=[c.one.address, c.two.address]),
    "two clusters in one": lambda c: c.config({"a": "main"}, main=[c.also_one.address, c.two.address]),
    "another address": lambda c: c.config({"a@b": "main"}, main=c.two.address),
}
STAYS: dict[str, Callable[[Clusters], Config]] = {
    "same id": lambda c: c.config({"a": "main"}, main=c.also_one.address),
    "entry renamed": lambda c: c.config({"a": "x"}, x=c.one.address),
    "listener renamed": lambda c: c.config({"b@a": "main"}, main=c.one.address),
    "names swapped": lambda c: c.config({"b@a": "main", "a@b": "x"}, main=c.one.address, x=c.two.address),
    "server added": lambda c: c.config({"a": "main"}, main=[c.also_one.address, c.one.address]),
    "new listener": lambda c: c.config({"a": "main", "b": "x"}, main=c.one.address, x=c.two.address),
    "no listener left": lambda c: c.config({"b": "x"}, x=c.two.address),
}


@pytest.mark.parametrize("name", MOVES)
def test_apply_listener_moved_by_any_way_refused(name: str, clusters: Clusters) -> None:
    with clusters.client() as client:
        client.brokers()
    assert clusters.refused(MOVES[name](clusters)).code == "other_cluster"


@pytest.mark.parametrize("name", STAYS)
def test_apply_listener_with_same_cluster_accepted(name: str, clusters: Clusters) -> None:
    with clusters.client() as client:
        client.brokers()
    clusters.live.apply(STAYS[name](clusters))


def test_apply_several_moves_names_the_first(clusters: Clusters) -> None:
    """The rest is counted."""
    names = dict.fromkeys("abcdefg", "main")
    clusters.live.apply(clusters.config(names, main=clusters.one.address))
    error = str(clusters.refused(clusters.config(names, main=clusters.two.address)))
    assert error.count("leads to another cluster id") == cluster_identity.MOST_NAMED
    assert "and 2 more listeners" in error


@pytest.mark.parametrize("gone", ["old", "new", "no id"])
def test_apply_unknown_id_refused_once_clients_know_brokers(gone: str, clusters: Clusters) -> None:
    """Such a cluster may be another one. A config can be repaired before the first client, and always with
    the option."""
    lost = f"127.0.0.1:{free_port()}"
    clusters.two.cluster_id = ""
    new = {"old": clusters.also_one.address, "new": lost, "no id": clusters.two.address}[gone]
    with clusters.client() as client:
        client.brokers()
    if gone == "old":
        clusters.one.close()
    other = clusters.config({"a": "main"}, main=new)
    error = clusters.refused(other)
    assert error.code == "unknown_cluster"
    assert f"expected {'unknown' if gone == 'old' else 'one'}, got {'one' if gone == 'old' else 'unknown'}" in str(
        error
    )
    clusters.live.apply(other, allow_cluster_change=True)


def test_apply_unknown_id_accepted_before_first_client(clusters: Clusters) -> None:
    """The first config had a wrong address."""
    clusters.one.close()
    clusters.live.apply(clusters.config({"a": "main"}, main=clusters.two.address))


def test_apply_unknown_id_accepted_with_shared_server(clusters: Clusters) -> None:
    """The list of servers gets longer and shorter while none of them answers."""
    with clusters.client() as client:
        client.brokers()
    clusters.one.close()
    lost = f"127.0.0.1:{free_port()}"
    clusters.live.apply(clusters.config({"a": "main"}, main=[clusters.one.address, lost]))
    clusters.live.apply(clusters.config({"a": "main"}, main=lost))


def test_apply_other_cluster_of_old_kafka_refused(clusters: Clusters) -> None:
    """Brokers before Kafka 2.8 close the connection at the newer request."""

    def old(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        if request.version > 9:
            stream.close()
        else:
            broker.respond(stream, request, {"brokers": [], "cluster_id": "two", "controller_id": -1, "topics": []})

    clusters.two.answers[METADATA] = old
    with clusters.client() as client:
        client.brokers()
    assert clusters.refused(clusters.config({"a": "main"}, main=clusters.two.address)).code == "other_cluster"


def test_apply_silent_server_delays_no_client(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are served while kproxy waits for an id, and the wait has an end."""
    monkeypatch.setattr(cluster_identity, "ID_PATIENCE", 3600.0)
    errors: list[ConfigRefused] = []
    with socket.create_server(("127.0.0.1", 0)) as silent, clusters.client() as client:
        before = client.brokers()
        address = "{}:{}".format(*silent.getsockname())
        other = clusters.config({"a": "main"}, main=address)
        waiting = threading.Thread(target=lambda: errors.append(clusters.refused(other)))
        waiting.start()
        for _ in ("newer", "older"):
            asking, _ = silent.accept()
            with asking:
                assert asking.recv(1000)
                assert client.brokers() == before
                assert not errors
        waiting.join(60)
        assert errors[0].code == "unknown_cluster"
        monkeypatch.setattr(cluster_identity, "ID_PATIENCE", 0.0)
        assert clusters.refused(other).code == "unknown_cluster"


def test_apply_dial_to_other_cluster_refused(clusters: Clusters) -> None:
    """The bootstrap servers stay, and brokers are dialled elsewhere."""
    with clusters.client() as client:
        client.brokers()
    dialled = clusters.config({"a": "main"}, main=clusters.one.address)
    dialled["clusters"]["main"]["dial"] = {"broker.example:9092": clusters.two.address}
    error = clusters.refused(dialled)
    assert (error.code, "expected one, got one, two" in str(error)) == ("other_cluster", True)
    dialled["clusters"]["main"]["dial"] = {"broker.example:9092": clusters.also_one.address}
    clusters.live.apply(dialled)
    moved = clusters.config({"a": "main"}, main=clusters.one.address)
    moved["clusters"]["main"]["dial"] = {clusters.one.address: clusters.two.address}
    assert clusters.refused(moved).code == "other_cluster"


def test_apply_added_server_answers_for_lost_cluster_refused(clusters: Clusters) -> None:
    """The old cluster does not answer, and the server that is added does: it may be of another cluster."""
    with clusters.client() as client:
        client.brokers()
    clusters.one.close()
    error = clusters.refused(clusters.config({"a": "main"}, main=[clusters.one.address, clusters.two.address]))
    assert error.code == "unknown_cluster"


@pytest.mark.parametrize("names", [["main", "main"], ["x", "x"], ["x", "y"]])
def test_apply_unknown_id_in_two_steps_refused(names: list[str], clusters: Clusters) -> None:
    """The first step forgets the nodes, and renames the cluster. Clients still have received them."""
    with clusters.client() as client:
        client.brokers()
    clusters.one.close()
    lost = f"127.0.0.1:{free_port()}"
    first, second = names
    clusters.live.apply(clusters.config({"a": first}, **{first: [clusters.one.address, lost]}))
    clusters.live.apply(clusters.config({"a": second}, **{second: [clusters.one.address, lost]}))
    moved = clusters.config({"a": second}, **{second: clusters.two.address})
    assert clusters.refused(moved).code == "unknown_cluster"
    clusters.live.apply(moved, allow_cluster_change=True)


def test_other_user_is_compared_and_other_password_not() -> None:
    """Providers have several clusters behind the same servers, and the user selects one."""
    old, new = (
        ClusterConfig.model_validate(
            {"bootstrap": ["a:1"], "sasl": {"mechanism": "PLAIN", "username": name, "password": password}}
        )
        for name, password in (("one", "1"), ("two", "2"))
    )
    assert not is_reached_alike(old, new)
    assert is_reached_alike(old, old.model_copy(update={"sasl": old.sasl.model_copy(update={"password": "3"})}))


SUCCESSIONS = [
    (["kafka.example"], ["kafka.example"], True),
    (["kafka.example"], ["KAFKA.example."], True),
    (["kafka.example"], ["*.example"], True),
    (["*.example"], ["kafka.example"], True),
    ([], ["kafka.example"], True),
    (["kafka.example"], [], True),
    (["kafka.example"], ["other.example"], False),
    (["*.example"], ["kafka.other"], False),
    (["a.kafka.example"], ["*.example"], False),
]


@pytest.mark.parametrize(("old", "new", "expected"), SUCCESSIONS)
def test_successions_by_host_patterns(old: list[str], new: list[str], expected: bool) -> None:
    """A renamed listener at the same port gets the clients of names that it has in common with the old one."""
    cluster = {"bootstrap": ["a:1"]}
    listeners = [
        ListenerConfig.model_construct(name=name, bind=Address("h", 1), cluster=name, hosts=hosts)
        for name, hosts in (("old", old), ("new", new))
    ]
    config = ProxyConfig.model_construct(clusters={"new": cluster}, listeners=listeners[1:])
    found = cluster_identity.successions(listeners[:1], config)
    assert [tuple(one) for one in found] == ([("new", "old", "new")] if expected else [])


def test_compare_asks_a_bounded_number_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A config with a thousand clusters leaves descriptors for clients, and the whole comparison has an end."""
    now = most = 0

    async def asked(upstream: Any, server: Any = None) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await trio.sleep(cluster_identity.ID_PATIENCE)
        now -= 1
        return ""

    monkeypatch.setattr(cluster_identity, "cluster_id", asked)
    monkeypatch.setattr(cluster_identity, "servers_to_ask", lambda old, new: [("a", 1)])
    monkeypatch.setattr(cluster_identity, "shared_servers", lambda old, new: set())
    ends: Any = {(f"c{number}", f"c{number}"): (None, None) for number in range(1000)}

    async def main() -> float:
        began = trio.current_time()
        found = await cluster_identity.compare(ends)
        assert {one.fate for one in found.values()} == {"forgotten"}
        return trio.current_time() - began

    clock = trio.testing.MockClock(autojump_threshold=0)
    assert trio.run(main, clock=clock) <= cluster_identity.LONGEST_COMPARISON
    assert most == cluster_identity.MOST_ASKED_AT_ONCE


@pytest.mark.parametrize("name", ["a", "b@a"])
def test_apply_removed_listener_added_again_elsewhere_refused(name: str, clusters: Clusters) -> None:
    """In two steps, with another config in between. After an hour clients are taken for gone."""
    with clusters.client() as client:
        client.brokers()
    moved = clusters.config({name: "x", "c": "main"}, x=clusters.two.address, main=clusters.one.address)
    other = clusters.config({"c": "main"}, main=clusters.also_one.address)
    clusters.live.apply(other)
    clusters.live.apply(clusters.config({"c": "main", "d": "main"}, main=clusters.one.address))
    error = clusters.refused(moved)
    assert error.code == "other_cluster"
    assert "clusters main of the removed listener a and x" in str(error)
    back = clusters.config({name: "y", "c": "main"}, y=clusters.also_one.address, main=clusters.one.address)
    clusters.live.apply(back)
    clusters.live.apply(other)
    former = clusters.live.proxy.server.former
    later = former.clock() + cluster_identity.FORMER_FOR
    former.clock = lambda: later
    clusters.live.apply(moved)
    assert not former.listeners


def test_former_listeners_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest ones are kept."""
    monkeypatch.setattr(cluster_identity, "MOST_FORMER", 3)
    former = cluster_identity.FormerListeners(lambda: 0.0)
    cluster = ClusterConfig.model_validate({"bootstrap": ["a:1"]})
    for number in [*range(5), 3]:
        bind = Address("h", number + 1)
        former.add([ListenerConfig.model_construct(name=f"l{number}", bind=bind, cluster="c")], {"c": cluster})
    assert [list(one) for one in (former.listeners, former.until)] == [["l2", "l4", "l3"]] * 2
    assert len(former.clusters) == 3


@pytest.mark.parametrize("more", [{"dial": {"b:1": "c:1"}}, {"tls": {"server_name": "b"}}, {"bootstrap": ["b:1"]}])
def test_steps_name_the_comparison_of_each_way(more: dict[str, Any]) -> None:
    """As `config diff` shows them."""
    before, after = (
        ProxyConfig.model_validate(
            {
                "clusters": {"main": {"bootstrap": ["a:1"], "tls": {}} | one},
                "listeners": [{"name": "a", "bind": "127.0.0.1:1", "cluster": "main"}],
            }
        )
        for one in ({}, more)
    )
    (step,) = steps(before, after)
    assert "another cluster id is refused" in step.effect


def test_cluster_id_after_refused_login_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Providers lock users out after some refused logins."""
    logins = []

    @asynccontextmanager
    async def refused(upstream: Any, *, route: Any) -> AsyncIterator[socket.socket]:
        logins.append(route)
        raise OSError("broker refuses kproxy's login")
        yield

    monkeypatch.setattr(cluster_identity, "own_connection", refused)
    upstream: Any = None
    assert trio.run(cluster_identity.cluster_id, upstream) == ""
    assert len(logins) == 1
