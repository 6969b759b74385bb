"""A config that changes while kproxy runs: what becomes of listeners, clusters, limits and of what is open."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, get_args

import pytest

from kproxy.app.config.changes import AT_ONCE, COMES_OR_GOES, PARTS, RESTART, steps, with_parts_of_start
from kproxy.app.config.document import Config
from kproxy.base.errors import ConfigRefused
from kproxy.rules.exchange import ContentLimits
from kproxy.rules.values.model import Model
from kproxy.testing.process import free_port
from tests.support.certificates import Authority, client_context
from tests.support.live_proxy import LiveProxy, NamedBroker
from tests.support.raw_client import EndOfStream, RawClient


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


@pytest.fixture
def broker(stack: ExitStack) -> NamedBroker:
    return stack.enter_context(NamedBroker("one"))


@pytest.fixture
def other(stack: ExitStack) -> NamedBroker:
    return stack.enter_context(NamedBroker("two", 2))


def config(*listeners: dict[str, Any], **clusters: Any) -> dict[str, Any]:
    """A config with these listeners, and clusters with these brokers."""
    return {
        "clusters": {
            name: one if isinstance(one, dict) else {"bootstrap": [one.address]} for name, one in clusters.items()
        },
        "listeners": list(listeners),
    }


def listener(name: str, port: int, cluster: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "bind": f"127.0.0.1:{port}", "cluster": cluster, **more}


def connect(port: int) -> RawClient:
    return RawClient(f"127.0.0.1:{port}")


def refuses(port: int) -> bool:
    """True if nobody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionRefusedError:
        return True
    return False


def until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.005)


def test_a_listener_is_added_and_removed_and_others_notice_nothing(stack: ExitStack, broker: NamedBroker) -> None:
    one, two = free_port(), free_port()
    both = config(listener("a", one), listener("b", two), main=broker)
    alone = config(listener("a", one), main=broker)
    live = stack.enter_context(LiveProxy(alone))
    with connect(one) as client:
        assert list(client.brokers()) == [1]
        live.apply(both)
        with connect(two) as added:
            assert added.brokers() == {1: f"127.0.0.1:{two + 2}"}
            with connect(two + 2) as node:
                assert list(node.brokers()) == [1]
            live.apply(alone)
            with pytest.raises((EndOfStream, ConnectionError)):
                added.frame()
        assert refuses(two)
        assert refuses(two + 2)
        assert client.brokers() == {1: f"127.0.0.1:{one + 2}"}
    until(lambda: live.call(lambda: live.proxy.counts.closed["listener_removed"]) == 1)


def test_a_changed_listener_keeps_its_socket_and_its_connections_their_word(
    stack: ExitStack, broker: NamedBroker, other: NamedBroker
) -> None:
    """Addresses of kproxy's go on coming to a connection that was there before they were turned off, also when rules
    change behind that; nothing of the other cluster is learnt by it."""
    port = free_port()
    live = stack.enter_context(LiveProxy(config(listener("a", port), main=broker, other=other)))
    proxy = live.proxy
    with connect(port) as before:
        assert before.brokers() == {1: f"127.0.0.1:{port + 2}"}
        acceptor = live.call(lambda: proxy.server.port_service.by_listener["a"].by_port[port][0])
        moved = config(listener("a", port, "other", advertise=False), main=broker, other=other)
        live.apply(moved, allow_cluster_change=True)
        assert live.call(lambda: proxy.server.port_service.by_listener["a"].by_port[port][0]) is acceptor
        with connect(port) as after:
            assert after.brokers() == {2: other.address}
            live.call(lambda: list(proxy.swap(proxy.rules)))
            assert before.brokers() == {1: f"127.0.0.1:{port + 2}"}
            assert after.brokers() == {2: other.address}
        found = live.call(lambda: {proxy.server.is_outdated(one) for one in proxy.server.connections if not one.closed})
        assert True in found
        assert live.call(lambda: list(proxy.server.upstreams["other"].topology.nodes)) == []
        assert not refuses(port + 2)
    until(lambda: refuses(port + 2))  # nobody is left who was told of it


def test_a_rename_hands_the_socket_over(stack: ExitStack, broker: NamedBroker) -> None:
    port, second = free_port(), free_port()
    live = stack.enter_context(LiveProxy(config(listener("a", port), listener("b", second), main=broker)))
    live.apply(config(listener("b", port), listener("a", second), main=broker))
    for where in (port, second):
        with connect(where) as client:
            assert client.brokers() == {1: f"127.0.0.1:{where + 2}"}
    live.apply(config(listener("c", port), main=broker))
    assert refuses(second)
    with connect(port) as client:
        assert client.brokers() == {1: f"127.0.0.1:{port + 2}"}


def test_nothing_changes_when_a_port_is_taken(stack: ExitStack, broker: NamedBroker) -> None:
    """The answer says which, at its place; sockets that were opened before it are closed again."""
    one, two = free_port(), free_port()
    taken = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
    live = stack.enter_context(LiveProxy(config(listener("a", one), main=broker)))
    version = live.keeper.version
    (mistake,) = live.mistakes(config(listener("b", two), listener("c", taken), main=broker))
    assert mistake.startswith("<api>:")
    assert mistake.endswith(f"listener c cannot bind 127.0.0.1 port {taken}: Address already in use")
    assert refuses(two)
    with connect(one) as client:
        assert list(client.brokers()) == [1]
        (mistake,) = live.mistakes(config(listener("a", one), listener("b", one + 2), main=broker))
        assert mistake.endswith("Address already in use, by node 1 of listener a")
    assert (live.keeper.version, live.keeper.applied, live.keeper.rejected) == (version, 0, 2)


def test_nothing_changes_with_a_bad_certificate(stack: ExitStack, broker: NamedBroker, tmp_path: Path) -> None:
    one, two = free_port(), free_port()
    pem = tmp_path / "bad.pem"
    pem.write_text("nothing")
    live = stack.enter_context(LiveProxy(config(listener("a", one), main=broker)))
    (mistake,) = live.mistakes(config(listener("a", one), listener("b", two, tls={"cert": str(pem)}), main=broker))
    assert "TLS files" in mistake
    assert mistake.startswith("<api>:1")
    assert refuses(two)


def test_rules_and_config_are_checked_together(stack: ExitStack, broker: NamedBroker, tmp_path: Path) -> None:
    """A rule of a file that names a listener which goes is a mistake at the rule's place; a new file makes it right."""
    one, two = free_port(), free_port()
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n  - {name: hide, kind: hide_node, node: 1, match: {listener: b}}\n")
    both = config(listener("a", one), listener("b", two), main=broker) | {"rules": [str(rules)]}
    alone = config(listener("a", one), main=broker) | {"rules": [str(rules)]}
    live = stack.enter_context(LiveProxy(both))
    (mistake,) = live.mistakes(alone)
    assert mistake.startswith(f"{rules}:2:")
    assert not refuses(two)
    rules.write_text("rules:\n  - {name: hide, kind: hide_node, node: 1, match: {listener: a}}\n")
    live.apply(alone)
    with connect(one) as client:
        assert client.brokers() == {}
    assert refuses(two)


@pytest.mark.parametrize("way", ["same", "changed", "forgotten"])
def test_a_cluster_that_is_reached_elsewhere(way: str, stack: ExitStack, broker: NamedBroker) -> None:
    """With the same id all stays; with another one connections are closed; without one addresses are forgotten."""
    new = stack.enter_context(NamedBroker({"same": "one", "changed": "two", "forgotten": ""}[way]))
    port = free_port()
    live = stack.enter_context(LiveProxy(config(listener("a", port), main=broker)))
    with connect(port) as client:
        assert client.brokers() == {1: f"127.0.0.1:{port + 2}"}
        live.apply(config(listener("a", port), main=new), allow_cluster_change=way != "same")
        nodes = live.call(lambda: dict(live.proxy.server.upstreams["main"].topology.nodes))
        assert nodes == ({1: (broker.host, broker.port)} if way == "same" else {})
        if way == "changed":
            with pytest.raises((EndOfStream, ConnectionError)):
                client.frame()
            client.close()
            until(lambda: live.call(lambda: dict(live.proxy.counts.closed)) == {"cluster_changed": 1})
        else:
            assert client.brokers() == {1: f"127.0.0.1:{port + 2}"}
    with connect(port) as client:
        assert client.brokers() == {1: f"127.0.0.1:{port + 2}"}
    assert live.call(lambda: dict(live.proxy.server.upstreams["main"].topology.nodes)) == {1: (new.host, new.port)}


@pytest.mark.parametrize("way", ["removed", "moved", "cluster changed"])
def test_what_goes_takes_connections_of_all_earlier_configs_along(
    way: str, stack: ExitStack, broker: NamedBroker, other: NamedBroker
) -> None:
    """Those that are outdated, too: it is they whom somebody wants to be rid of."""
    port, stay = free_port(), free_port()
    live = stack.enter_context(LiveProxy(config(listener("a", port), listener("b", stay), main=broker)))
    with ExitStack() as clients:
        opened = []
        for advertise in ({"host": "127.0.0.1"}, {"host": "localhost"}, False):
            opened.append(clients.enter_context(connect(port)))
            assert list(opened[-1].brokers()) == [1]
            live.apply(config(listener("a", port, advertise=advertise), listener("b", stay), main=broker))
        opened.append(clients.enter_context(connect(port)))
        assert list(opened[-1].brokers()) == [1]
        if way == "removed":
            live.apply(config(listener("b", stay), main=broker))
        elif way == "moved":
            live.apply(config(listener("a", free_port()), listener("b", stay), main=broker))
        else:
            live.apply(config(listener("a", port), listener("b", stay), main=other), allow_cluster_change=True)
        for client in opened:
            with pytest.raises((EndOfStream, ConnectionError)):
                client.frame()
    cause = "cluster_changed" if way == "cluster changed" else "listener_removed"
    until(lambda: live.call(lambda: dict(live.proxy.counts.closed)) == {cause: len(opened)})
    assert live.call(lambda: live.proxy.server.retired.listeners) == set()


@pytest.mark.parametrize("way", ["advertise", "tls", "removed"])
def test_who_is_in_its_handshake_comes_in_by_the_config_in_force(
    way: str, stack: ExitStack, broker: NamedBroker, tmp_path: Path
) -> None:
    """Not by the one in which it began; where TLS itself is another, it has to begin again."""
    authority = Authority(tmp_path)
    tls, port, stay = {"cert": str(authority.issue("127.0.0.1"))}, free_port(), free_port()
    live = stack.enter_context(LiveProxy(config(listener("a", port, tls=tls), listener("b", stay), main=broker)))
    server = live.proxy.server
    late = stack.enter_context(RawClient(f"127.0.0.1:{port}"))
    until(lambda: live.call(lambda: server.half_open.total) == 1)
    new = {
        "advertise": [listener("a", port, tls=tls, advertise=False)],
        "tls": [listener("a", port, tls=tls | {"client_ca": str(authority.file), "client_auth": "required"})],
        "removed": [],
    }
    live.apply(config(*new[way], listener("b", stay), main=broker))
    with suppress(ConnectionError):  # the server's end of it may be refused by now
        late.socket = client_context(authority.file).wrap_socket(late.socket, server_hostname="127.0.0.1")
    if way == "advertise":
        assert late.brokers() == {1: broker.address}
        assert live.call(lambda: [server.is_outdated(one) for one in server.connections]) == [False]
        return
    cause = {"tls": "listener_changed", "removed": "listener_removed"}[way]
    until(lambda: live.call(lambda: dict(live.proxy.counts.refused)) == {cause: 1})
    assert live.call(lambda: server.connections) == set()


def test_a_request_in_flight_is_answered_when_its_listener_goes(stack: ExitStack, broker: NamedBroker) -> None:
    """With addresses that it was told before."""
    port, stay = free_port(), free_port()
    live = stack.enter_context(LiveProxy(config(listener("a", port), listener("b", stay), main=broker)))
    with connect(port) as client:
        assert client.brokers() == {1: f"127.0.0.1:{port + 2}"}
        answer, held = broker.answers[3], list[Any]()
        broker.answers[3] = lambda *given: held.append(given)
        client.send(client.request(3, 4, {"topics": [], "allow_auto_topic_creation": False}))
        until(lambda: held)
        live.apply(config(listener("b", stay), main=broker))
        answer(*held[0])
        assert b"127.0.0.1" in client.frame()
        assert client.rest() == b""
    until(lambda: live.call(lambda: dict(live.proxy.counts.closed)) == {"listener_removed": 1})


def test_what_needs_a_restart_is_told_and_refused(stack: ExitStack, broker: NamedBroker) -> None:
    one, two = free_port(), free_port()
    start = config(listener("a", one), main=broker)
    live = stack.enter_context(LiveProxy(start))
    wanted = config(listener("a", one), listener("b", two), main=broker) | {"seed": 7, "instance": "x"}
    with pytest.raises(ConfigRefused, match="a restart is needed for seed, instance") as caught:
        live.apply(wanted)
    assert caught.value.code == "needs_restart"
    assert refuses(two)
    checked = live.apply(wanted, except_restart=True)
    assert [(one.step.name, one.step.kind) for one in checked.steps] == [
        ("listeners.b", "added"), ("seed", "restart"), ("instance", "restart"),
    ]  # fmt: skip
    assert not refuses(two)
    assert live.keeper.config.seed is None


def test_each_part_of_a_config_is_applied_or_needs_a_restart() -> None:
    """A part that neither list names would be taken over in silence, and change nothing."""
    assert set(Config.model_fields) == {"clusters", "listeners", "limits", "registries", "rules", *PARTS}


@pytest.mark.parametrize("part", [part for part in PARTS if part not in RESTART])
def test_each_field_of_a_part_changes_at_once_or_needs_a_restart(part: str) -> None:
    """And none both: where a part as a whole may come or go, it is said what becomes of it."""
    annotation = Config.model_fields[part].annotation
    (model,) = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type) and issubclass(one, Model)]
    restart = [name.removeprefix(f"{part}.") for name in RESTART if name.startswith(f"{part}.")]
    assert sorted([*AT_ONCE[part], *restart]) == sorted(model.model_fields)
    assert (part in COMES_OR_GOES) is (type(None) in get_args(annotation))


def made(**more: Any) -> Config:
    return Config.model_validate(
        {"clusters": {"main": {"bootstrap": ["127.0.0.1:9092"]}}, "listeners": [listener("a", 9192)]} | more
    )


ADMIN = {"bind": "127.0.0.1:9190", "token": "one"}


@pytest.mark.parametrize(
    ("before", "after", "told", "holds"),
    [
        ({}, {"log": {"level": "debug"}}, ["log.level changed"], True),
        ({"admin": ADMIN}, {"admin": ADMIN | {"token": "two"}}, ["admin.token changed"], True),
        ({"admin": ADMIN}, {"admin": ADMIN | {"ready": "all"}}, ["admin.ready changed"], True),
        ({"admin": ADMIN}, {"admin": {"bind": "127.0.0.1:9190"}}, ["admin.token changed"], True),
        ({"admin": ADMIN}, {"admin": ADMIN | {"token": "two", "bind": "127.0.0.1:9191"}}, ["admin restart"], False),
        ({"admin": ADMIN | {"bind": "0.0.0.0:9190"}}, {"admin": {"bind": "127.0.0.1:9190"}}, ["admin restart"], False),
        ({"admin": ADMIN}, {}, ["admin restart"], False),
        ({}, {"admin": ADMIN}, ["admin restart"], False),
    ],
)
def test_parts_of_which_some_fields_change_at_once(
    before: dict[str, Any], after: dict[str, Any], told: list[str], holds: bool
) -> None:
    """Those fields change where nothing else of the part does: an address that others reach never loses its token
    because the config says that it is another address from now on."""
    old, new = made(**before), made(**after)

    assert [f"{one.name} {one.kind}" for one in steps(old, new)] == told
    assert (with_parts_of_start(new, old) == new) is holds
    assert (with_parts_of_start(new, old) == old) is not holds


AUDITED = {"audit": {"dir": "events"}}
TO = {"endpoint": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("before", "after", "told", "stays"),
    [
        ({}, {"log": {"level": "debug", "format": "json"}}, ["log.level changed", "log.format restart"], "log.format"),
        ({}, {"view": {"write": False}}, ["view.write changed"], ""),
        ({"view": {"unmasked": True}}, {}, ["view.unmasked changed"], ""),
        (
            {},
            {"view": {"write": False, "record_from_start": True}},
            ["view.write changed", "view.record_from_start restart"],
            "view.record_from_start",
        ),
        ({"admin": ADMIN}, {"admin": ADMIN, "metrics": {"by": ["topic"]}}, ["metrics.by changed"], ""),
        ({"admin": ADMIN}, {"admin": ADMIN, "telemetry": {}}, ["telemetry added"], ""),
        ({"otlp": TO | {"metrics": "1s"}}, {}, ["otlp removed"], ""),
        ({}, {"registries": {"a": {"url": "http://a"}}}, ["registries.a added"], ""),
        ({"registries": {"a": {"url": "http://a"}}}, {"registries": {"a": {"url": "http://b"}}},
         ["registries.a changed"], ""),
        ({"registries": {"a": {"url": "http://a"}}}, {}, ["registries.a removed"], ""),
        ({"otlp": TO | {"metrics": "1s"}}, {"otlp": TO | {"metrics": "2s"}}, ["otlp.metrics changed"], ""),
        (AUDITED, AUDITED | {"otlp": TO | {"logs": "audit"}}, ["otlp restart"], "otlp"),
        (AUDITED | {"otlp": TO | {"logs": "audit"}}, AUDITED, ["otlp restart"], "otlp"),
        (AUDITED | {"otlp": TO | {"logs": "audit"}}, AUDITED | {"otlp": TO | {"metrics": "1s"}},
         ["otlp.metrics changed", "otlp.logs restart"], "otlp.logs"),
    ],
)  # fmt: skip
def test_parts_of_which_each_field_changes_by_itself(
    before: dict[str, Any], after: dict[str, Any], told: list[str], stays: str
) -> None:
    """What needs a restart stays as it was, and all else is as the new config has it."""
    old, new = made(**before), made(**after)
    in_force = with_parts_of_start(new, old)

    assert [f"{one.name} {one.kind}" for one in steps(old, new)] == told
    assert [f"{one.name} {one.kind}" for one in steps(in_force, new)] == [f"{stays} restart"] * bool(stays)
    assert steps(old, in_force) == [one for one in steps(old, new) if one.kind != "restart"]


def test_limits_hold_from_the_next_check_on(stack: ExitStack, broker: NamedBroker) -> None:
    """Fewer connections close nobody."""
    port = free_port()
    base = config(listener("a", port), main=broker)
    live = stack.enter_context(LiveProxy(base))
    with connect(port) as one, connect(port) as two:
        assert one.brokers() == two.brokers()
        content = {"max_decompressed_bytes": "1MiB", "max_fetch_bytes": "32KiB"}
        limits = {"max_connections": 1, "max_buffered_bytes": "128KiB", "idle_timeout": "0.3s", "content": content}
        live.apply(base | {"limits": limits})
        with suppress(ConnectionError), connect(port) as third:
            assert third.rest() == b""
        assert one.brokers() == two.brokers()
        assert live.call(lambda: live.proxy.shared["main"].requests.limit) == 131072
        assert live.call(lambda: live.proxy.shared["main"].content) == ContentLimits(1 << 20, 32 << 10)
        assert one.rest() == b""
    assert live.call(lambda: live.proxy.counts.closed["idle_timeout"]) >= 1


def test_many_applies_leave_no_descriptor_behind(stack: ExitStack, broker: NamedBroker, other: NamedBroker) -> None:
    import os

    one, two = free_port(), free_port()
    configs = [
        config(listener("a", one), main=broker),
        config(listener("a", one, "other"), listener("b", two), main=broker, other=other),
        config(listener("b", one, advertise={"host": "localhost"}), main=other),
    ]
    live = stack.enter_context(LiveProxy(configs[0]))

    def settled() -> int:
        for each in configs[1:] + configs[:1]:
            live.apply(each, allow_cluster_change=True)
            with connect(one) as client:
                client.brokers()
        until(lambda: live.call(lambda: not live.proxy.server.connections))
        return len(os.listdir("/proc/self/fd"))

    before = settled()
    for _ in range(10):
        settled()
    until(lambda: settled() <= before + 4)
    assert live.call(lambda: len(live.proxy.server.retired.listeners)) == 0
    assert live.call(lambda: len(live.proxy.watch.probing)) == 1
