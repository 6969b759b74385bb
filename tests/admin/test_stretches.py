"""The admin API with thousands of rules, connections and nodes: each step in the event loop is short.

Each operation is called with the largest input that it accepts. All other tasks wait during a step of a task.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
import structlog
import trio
from msgspec import Raw
from msgspec.msgpack import encode

from kproxy.admin.api import OPERATIONS, make_app
from kproxy.admin.backend import Backend, process_backend
from kproxy.admin.guard import AdminTokens
from kproxy.admin.limits import LONGEST_BODY
from kproxy.admin.models import ClusterShown, ConnectionShown, ListenerShown, NodeShown, TopologyShown
from kproxy.admin.operation import OperationCall
from kproxy.admin.responses import LongResponse
from kproxy.admin.worker_api import Member
from kproxy.app.app import ProxyProcess
from kproxy.app.config.changes import FLAGS
from kproxy.app.config.document import Config
from kproxy.app.config.keeper import ConfigKeeper
from kproxy.app.workers.pool_members import members_of
from kproxy.record.component_collectors import RuleCollector
from kproxy.record.live_view.rows import MOST_KEPT
from kproxy.record.metrics.traffic import exposition, registry
from kproxy.rules.document.read import read_document
from kproxy.rules.document.store import RuleStore
from kproxy.rules.values.source import Source
from kproxy.runtime.config.network import Limits
from kproxy.runtime.io.channel import decoded, encode_model
from kproxy.runtime.protocols import ConnectionPhase, HostPort
from tests.support.exchange_factory import exchange
from tests.support.stretches import IN_BOTH_UNITS, StepWatch, Unit, Watch

from .conftest import CONFIG, Answer, Api

RULES, CONNECTIONS = 10_000, 2_000
LONGEST = {"lines": 500_000, "seconds": 0.05}
"""Limits of a step."""


@dataclass
class Place:
    """The proxy that is asked."""

    api: Api
    proxy: ProxyProcess
    peers: list[socket.socket]

    def number(self) -> int:
        """The number of a connection that is open."""
        return max(one.session.number for one in self.proxy.server.connections if one.phase is ConnectionPhase.OPEN)


def lines(word: str, count: int) -> str:
    return "rules:\n" + "".join(
        f"- {{name: {word}-{at}, kind: delay, delay: 1ms, match: {{topic: {word}-{at}}}}}\n" for at in range(count)
    )


def drop(logger: Any, level: str, fields: Any) -> Any:
    raise structlog.DropEvent


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """With a topology as large as may be. The first half of the rules is a file's."""
    config = Config.model_validate({**CONFIG, "limits": {"max_connections": CONNECTIONS}})
    log = structlog.wrap_logger(None, processors=[drop], wrapper_class=structlog.make_filtering_bound_logger(30))
    store = RuleStore(7, config.places())
    store.replace_files([Source("a.yaml", lines("file", RULES // 2))], 0.0)
    store.put(read_document(Source("<api>", lines("api", RULES // 2)), from_api=True), "api", 0.0)
    proxy = ProxyProcess(config, store.rule_set, log, store=store)
    api = Api(proxy)
    collected = registry(*proxy.collectors(), RuleCollector(store, proxy.keeper.loads, config.limits.rule_labels))
    backend = process_backend(proxy.keeper, proxy.server, lambda: proxy.readiness, lambda: exposition(collected), log,
                              captures=proxy.make_pool_captures(), view=proxy.view_terms())  # fmt: skip
    backend.tokens = AdminTokens("a token")  # else no config is taken from a body
    api.app = make_app(backend, "127.0.0.1")
    proxy.configs = ConfigKeeper(config, FLAGS, proxy, proxy.keeper, proxy.files, log)
    backend.configs = proxy.configs
    keep_many(backend)
    listener = proxy.server.listeners[0]
    proxy.server.on_growth = lambda: None  # would ask the broker, whom nobody needs here
    peers = []
    for at in range(CONNECTIONS):
        here, peer = socket.socketpair()
        here.setblocking(False)
        listener.begin(here, ("127.0.0.1", at + 1), None)
        peers.append(peer)
    proxy.server.upstreams["main"].topology.learn(
        {node: (f"broker-{node}.example.com", 9092) for node in range(Limits().max_nodes)}
    )
    yield Place(api, proxy, peers)
    for connection in list(proxy.server.connections):
        connection.end("shutdown", "the test is over")
    for peer in peers:
        peer.close()
    api.close()


def keep_many(backend: Backend) -> None:
    """As many exchanges as are kept, the last of which has a frame as long as one may be."""
    (member,) = backend.members
    assert isinstance(member, Member)
    ring = member.kept_exchanges.watch.ring
    for number in range(MOST_KEPT - 1):
        ring.add(exchange("Heartbeat", 4, {"group_id": f"g{number % 100}"}, {}, number=number))
    topics = [{"name": f"topic-{at}", "partitions": [{"partition_index": 0}]} for at in range(20_000)]
    ring.add(exchange("Metadata", 12, {"topics": []}, {"topics": topics}))


def document(count: int = RULES // 2, word: str = "more") -> str:
    text = lines(word, count)
    assert len(text) < LONGEST_BODY
    return text


def config_document(listeners: int = 3_000, clusters: int = 10_000, **more: Any) -> str:
    added = [
        {"name": f"more-{at}", "bind": f"127.0.0.1:{10_000 + at}", "cluster": "main", "advertise": False}
        for at in range(listeners)
    ]
    others = {f"c{at}": {"bootstrap": [f"b{at}:9092"]} for at in range(clusters)}
    known = {"clusters": CONFIG["clusters"] | others, "listeners": [*CONFIG["listeners"], *added]}
    text = json.dumps({**CONFIG, **known, **more})
    assert len(text) < LONGEST_BODY
    return text


def rule(topics: int = 20_000) -> str:
    return json.dumps({"kind": "deny", "match": {"topic": [f"topic-{at}" for at in range(topics)]}})


FILTER = quote("~k produce" + "".join(f" | ~t /x{at}.*y/" for at in range(98)))
ANY = "api-1"
CHANGES = {"revision": 1, "set": [{"path": f"topics[{at}].name", "value": "x" * 300} for at in range(10_000)]}
HELD = {
    "preview": json.dumps(CHANGES), "resume": json.dumps(CHANGES), "extend": '{"by": "60s"}', "claim": '{"who": "x"}',
    "answer": json.dumps({"revision": 1, "bytes": "A" * 4_000_000}), "drop": '{"revision": 1}',
    "close": '{"revision": 1}',
}  # fmt: skip
CALLS: dict[str, tuple[str, str]] = {
    "list_rules": ("/api/rules", ""),
    "get_rule": (f"/api/rules/{ANY}", ""),
    "put_rule": ("/api/rules/new", rule()),
    "add_rule": ("/api/rules/new", rule()),
    "replace_rules": ("/api/rules", document()),
    "add_rules": ("/api/rules", document()),
    "clear_rules": ("/api/rules", ""),
    "reset_rules": ("/api/reset", ""),
    "remove_rule": (f"/api/rules/{ANY}", ""),
    "enable_rule": (f"/api/rules/{ANY}/enable", ""),
    "disable_rule": (f"/api/rules/{ANY}/disable", ""),
    "reset_rule": (f"/api/rules/{ANY}/reset", ""),
    "resume_rule": (f"/api/rules/{ANY}/resume", ""),
    "wait_for_rule": (f"/api/rules/{ANY}/wait?timeout=10ms", ""),
    "get_faults": ("/api/faults", ""),
    "disable_faults": ("/api/faults/disable", ""),
    "enable_faults": ("/api/faults/enable", ""),
    "list_connections": ("/api/connections", ""),
    "list_ends": ("/api/connections/ended", ""),
    "close_connection": ("/api/connections/#", ""),
    "recycle_connection": ("/api/connections/#/recycle", ""),
    "recycle_connections": ("/api/connections/recycle?which=outdated", ""),
    "get_topology": ("/api/topology", ""),
    "get_version": ("/api/version", ""),
    "tail": (f"/api/tail?filter={FILTER}%20and", ""),
    "view": (f"/api/view?filter={FILTER}%20and", ""),
    "list_exchanges": (f"/api/exchanges?limit=1000&filter={FILTER}%20or%20not%20~t%20x", ""),
    "get_exchange": (f"/api/exchanges/0-{MOST_KEPT}", ""),
    "get_frame": (f"/api/exchanges/0-{MOST_KEPT}/frame?of=response", ""),
    "save_exchange": (f"/api/exchanges/0-{MOST_KEPT}/capture", ""),
    "send_exchange_again": (f"/api/exchanges/0-{MOST_KEPT}/send", "{}"),
    "start_capture": (f"/api/captures?file=c.pcapng&filter={FILTER}", ""),
    "list_captures": ("/api/captures", ""),
    "get_capture": ("/api/captures/c.pcapng", ""),
    "stop_capture": ("/api/captures/c.pcapng", ""),
    "download_capture": ("/api/captures/c.pcapng/file", ""),
    "check_document": ("/api/check", document()),
    "get_config": ("/api/config", ""),
    "check_config": ("/api/config/check", config_document()),
    "apply_config": ("/api/config", config_document(seed=7)),
    "list_kinds": ("/api/kinds", ""),
    "read_filter": (f"/api/filter?text={FILTER}", ""),
    "list_names": ("/api/names", ""),
    "list_sources": ("/api/sources", ""),
    "open_source": ("/api/sources?name=none", "no capture, " * 100_000),
    "get_source": ("/api/sources/s1", ""),
    "close_source": ("/api/sources/s1", ""),
    "list_held": ("/api/held", ""),
    "get_held": ("/api/held/1-1", ""),
    **{f"{action}_held": (f"/api/held/1-1/{action}", body) for action, body in HELD.items()},
    "resume_all_held": ("/api/held/resume", "{}"),
}
REFUSED = (
    "tail", "view", "start_capture", "get_capture", "stop_capture", "download_capture", "/readyz", "open_source",
    "get_source", "close_source", "get_held", "send_exchange_again", "apply_config",
    *(f"{action}_held" for action in HELD),
)  # fmt: skip
"""There is no folder for captures here, no broker, no file that is one, and nothing is held; a tail has no end, so its
filter is wrong at its end. The config to be applied needs a restart, so that it is checked and no more."""
OTHERS = ("/livez", "/readyz", "/metrics", "/api/openapi.json")
BY_NAME = {one.name: one for one in OPERATIONS}
IN_TURNS = ("list_exchanges", "get_exchange", "get_frame", "save_exchange")
"""What is a turn of its own where a reactor runs: it is suspended at each yield point."""


@pytest.fixture
def config(place: Place, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A config with as much in it in force where it is shown."""
    if name == "get_config":
        large = Config.model_validate(json.loads(config_document()))
        monkeypatch.setattr(place.proxy.configs, "config", large)


def test_every_operation_has_a_line() -> None:
    assert sorted(CALLS) == sorted(BY_NAME)


@IN_BOTH_UNITS
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [*CALLS, *OTHERS])
@pytest.mark.usefixtures("config")
def test_operation_with_large_input_takes_short_steps(place: Place, name: str, unit: Unit) -> None:
    path, body = CALLS.get(name, (name, ""))
    method = BY_NAME[name].method if name in BY_NAME else "GET"
    kind = "application/json" if body.startswith("{") else "application/yaml"
    if not body:
        kind = "application/json"
    if name == "open_source":
        kind = "application/octet-stream"
    store = place.proxy.keeper.store
    saved, answers = store.saved(), list[Answer]()

    async def ask(watch: Watch) -> None:
        where = path.replace("#", str(place.number()))
        with StepWatch(watch, turns=name in IN_TURNS):
            answers.append(await place.api(method, where, body or None, kind=kind, authorization="Bearer a token"))

    def work(watch: Watch) -> None:
        trio.run(ask, watch)
        store.restore(saved, 0.0)
        place.proxy.rules = store.rule_set

    unit.check(work, LONGEST[unit.name])
    assert answers[0].status < 300 or name in REFUSED, answers[0].body[:500]


class Crew:
    """Stands for workers, each of which knows all nodes and has its share of the connections."""

    def __init__(self, workers: int, clusters: int) -> None:
        nodes = [
            NodeShown(id=at, host=f"b-{at}.example.com", port=9092, role="broker", addresses={})
            for at in range(Limits().max_nodes)
        ]
        names = [f"c{at}" for at in range(clusters)]
        known = TopologyShown(
            clusters={name: ClusterShown(bootstrap=["b:1"], nodes=nodes) for name in names},
            listeners={name: ListenerShown(address="a:1", cluster=name, tls=False, connections=1) for name in names},
        )
        connection = ConnectionShown(
            id=1, listener="main", client="127.0.0.1:1", client_id=None, node=None, broker=None, client_bytes=1,
            broker_bytes=1, cluster="main", sni=None, certificate=None, principal=None, software=None, since="",
            in_flight=0, rules=["r"], version="x", outdated=False, leaving=False,
        )  # fmt: skip
        self.says = {
            "topology": Raw(encode(known, enc_hook=encode_model)),
            "connections": Raw(encode([connection] * CONNECTIONS, enc_hook=encode_model)),
        }
        self.workers = [SimpleNamespace(index=at, ready=True, channel=self) for at in range(workers)]
        self.closed = False

    async def result(self, decode: Callable[[Raw], Any], method: Callable[..., Any], arguments: object) -> Any:
        return await decoded(decode, self.says[method.__name__])


def addresses(listener: str, nodes: Mapping[int, HostPort]) -> dict[int, HostPort]:
    return {node: ("proxy.example.com", 10_000 + node) for node in nodes}


@IN_BOTH_UNITS
@pytest.mark.parametrize("name", ["get_topology", "list_connections"])
def test_merge_of_workers_answers_takes_short_steps(name: str, unit: Unit) -> None:
    """Eight workers report four clusters of the maximum size."""
    unused: Any = None
    crew = Crew(8, 4)

    async def ask(watch: Watch) -> None:
        with StepWatch(watch, turns=False):
            backend = Backend(unused, members_of(crew), unused, unused, unused, addresses, unused)
            shown = await BY_NAME[name].handle(backend, OperationCall({}, None, None))
            if isinstance(shown, LongResponse):
                await shown.response(200)

    unit.check(lambda watch: trio.run(ask, watch), LONGEST[unit.name])
