"""Answers that were rewritten before: the same comes out, and is counted, as if each were rewritten for itself."""

from __future__ import annotations

import json
import os
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.protocol import decode_response
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import METADATA
from kproxy.rules.document.read import parse_rules
from kproxy.session.counters import Counters
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.rewrite.addresses import AddressRewrite
from kproxy.session.rewrite.context import GONE, MOST_ANSWERS, CachedResponse, Dependencies, ResponseCache
from kproxy.session.rewrite.names.metadata import TopicAnswers
from kproxy.session.rewrite.names.rewrites import NameRewrite
from kproxy.session.rewrite.rewriter import Rewriter
from kproxy.session.session_state import NOWHERE
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
VERSIONS = (0, 1, 8, 9, 10, 12, 13)
RENAME = {"name": "names", "kind": "rename_topic", "topics": {"orders": "prod.orders", "click-*": "prod.click-*"}}
TENANT = {"name": "tenant", "kind": "prefix", "prefix": "prod."}
TOPICS = ("prod.orders", "orders", "prod.click-1", "click-2", "other", "~orders")
MANY = 150
"""Topics that make an answer long enough to be kept."""


def plan_of(*rules: dict[str, Any], advertise: bool = True) -> Plan:
    held = parse_rules(json.dumps({"rules": rules})).bind(NOWHERE)
    return Plan(ConnectionSettings.of(held, advertise=advertise), held.live)


def listed(version: int, name: str | None, number: int, error: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {"error_code": error, "name": name, "partitions": [{"partition_index": 0, "leader_id": 1}]}
    return found | ({"topic_id": UUID(int=number + 1)} if version >= 10 else {})


def answer(version: int, correlation: int, names: tuple[str, ...], brokers: tuple[tuple[int, str, int], ...]) -> bytes:
    """Some topics, and many others; these brokers."""
    topics = [listed(version, name, number, 17 if name[0] == "~" else 0) for number, name in enumerate(names)]
    topics += [listed(version, f"topic-{number:03}", number + 100) for number in range(MANY)]
    nodes = [{"node_id": node, "host": host, "port": port} for node, host, port in brokers]
    return response(METADATA, version, correlation, brokers=nodes, topics=topics)


class World:
    """Some connections with one plan. `most`: bytes of answers that are kept."""

    def __init__(self, plan: Plan, most: int, connections: int = 3) -> None:
        self.shared = ClusterState(answers=ResponseCache(most), max_nodes=4)
        self.talks = [Dialogue(plan=plan, shared=self.shared, number=number) for number in range(connections)]
        self.number = 0

    def play(self, step: tuple[Any, ...], chunk: int = 0) -> None:
        """One exchange: of which connection, and how many proxies on the clients lead nodes there to other places."""
        index, version, asked, names, brokers, base = step
        talk, self.number = self.talks[index], self.number + 1
        talk.nodes = lambda node: None if node == 9 else ("proxy", base + index + node)
        if talk.closed is not None:
            return
        topics = None if asked is None else [{"name": name} for name in asked]
        talk.client(request(METADATA, version, self.number, topics=topics if version or topics else []))
        talk.broker(answer(version, self.number, names, brokers), chunk)

    @property
    def outcome(self) -> list[Any]:
        counters = self.shared.counters
        said = [(talk.to_client, talk.to_broker, talk.closed) for talk in self.talks]
        return [said, dict(counters.events), dict(counters.rewritten)]


BROKERS = st.lists(
    st.tuples(
        st.sampled_from((1, 2, 3, 9, -1)), st.sampled_from(("a", "b", "", "/x")), st.sampled_from((9092, 9093, 0))
    ),
    max_size=5,
).map(tuple)  # fmt: skip
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from(VERSIONS), st.sampled_from((None, ("orders",), ())),
        st.sampled_from((TOPICS, TOPICS[:3], TOPICS[:3], tuple(reversed(TOPICS)))),
        st.one_of(st.just(((1, "a", 9092), (2, "b", 9092))), BROKERS), st.sampled_from((30000, 30000, 31000)),
    ),
    min_size=2, max_size=12,
)  # fmt: skip


@pytest.mark.deep
@settings(deadline=None, max_examples=300 if EVERYTHING else 25)
@given(STEPS, st.sampled_from((1, 3)), st.sampled_from((0, 1000)), st.booleans())
def test_the_same_comes_out_and_is_counted(steps: list[Any], times: int, chunk: int, advertise: bool) -> None:
    """Of whatever connections, versions, inputs, addresses and ports, in whatever order."""
    found = []
    for most in (0, 1 << 20, 60_000):
        world = World(plan_of(RENAME, advertise=advertise), most)
        for step in steps * times:
            world.play(step, chunk)
        found.append(world.outcome)
    assert found[1] == found[0]
    assert found[2] == found[0]


def test_it_is_rewritten_once_for_all_connections() -> None:
    """Also where a client asks for the first time, so that its nodes have to be found out."""
    world, calls = World(plan_of(RENAME), 1 << 20), []
    uncached = Rewriter.rewrite_uncached
    with patch.object(
        Rewriter, "rewrite_uncached", lambda self, *rest: calls.append(self.api) or uncached(self, *rest)
    ):
        for index in (0, 1, 2, 0):
            world.play((index, 12, None, TOPICS, ((1, "a", 9092),), 30000 - index))
    answers = [name for name in calls if name == "Metadata"]
    assert len(answers) == 2 + 4  # until the nodes are known, and then; and each request, which is not kept
    first, second = (
        [decode_response(one.to_client[4 : 4 + int.from_bytes(one.to_client[:4], "big")], METADATA, 12).body]
        for one in world.talks[:2]
    )
    assert first == second
    assert {one["name"] for one in first[0]["topics"][:3]} == {"orders", "click-1", "other"}


def test_what_was_asked_counts_too() -> None:
    """Of all topics a hidden one is left out; who has asked for it by its id is told that there is none."""
    talk, found = Dialogue(plan=plan_of(RENAME), shared=ClusterState(answers=ResponseCache())), []
    for number in range(4):
        topics = None if number % 2 else [{"topic_id": UUID(int=2), "name": None}]
        before = len(talk.to_client)
        talk.client(request(METADATA, 12, number, topics=topics))
        talk.broker(answer(12, number, TOPICS, ()))
        body = decode_response(talk.to_client[before + 4 :], METADATA, 12).body
        found.append([one["error_code"] for one in body["topics"] if one["topic_id"] == UUID(int=2)])
    assert found == [[100], [], [100], []]


def test_other_rules_have_answers_of_their_own() -> None:
    """The same bytes under other rules, on connections that share all else."""
    shared = ClusterState(answers=ResponseCache())
    found = []
    for rules in ((RENAME,), (), ({**RENAME, "topics": {"mine": "prod.orders"}},)):
        talk = Dialogue(plan=plan_of(*rules), shared=shared)
        talk.client(request(METADATA, 12, 7, topics=None))
        talk.broker(answer(12, 7, TOPICS, ((1, "a", 9092),)))
        found.append(decode_response(talk.to_client[4:], METADATA, 12).body["topics"][0]["name"])
    assert found == ["orders", "prod.orders", "mine"]


@pytest.mark.parametrize("advertise", [True, False])
def test_nothing_is_kept_whose_rewrites_ask_or_leave_more(advertise: bool) -> None:
    """Addresses and topics' names in Metadata, of all versions; no answer to a tenant, in which ids are hidden."""
    for version in schema.load(METADATA).versions:
        plan = plan_of(RENAME, advertise=advertise)
        step = plan[METADATA << 16 | version]
        parts = []
        for one in plan.rewrites(step.plain, "response"):
            parts += one.parts if isinstance(one, NameRewrite) else [one]
        assert {type(one) for one in parts} <= {AddressRewrite, TopicAnswers}
        assert step.rewrite_response is not None and step.rewrite_response.repeats
        tenant = plan_of(TENANT, advertise=advertise)[METADATA << 16 | version]
        assert tenant.rewrite_response is not None and not tenant.rewrite_response.repeats
    for key in schema.paths():
        for version in schema.load(key).versions if key != METADATA else ():
            rewriter = plan_of(RENAME)[key << 16 | version].rewrite_response
            assert rewriter is None or not rewriter.repeats


def test_no_more_is_kept_than_there_is_room_for() -> None:
    """Whatever brokers say: the one used the longest ago goes, one of the same length is in the place of another."""
    answers = ResponseCache(1000)

    def keep(content: bytes, number: int = 1) -> None:
        answers.keep(number, CachedResponse(content, content, Dependencies(None, 10)))
        assert answers.size == sum(one.size for one in answers.kept.values()) <= 1000

    for size in range(1, 300):
        keep(b"a" * size)
    keep(b"b" * 100)
    keep(b"a" * 100)
    assert answers.find(1, b"a" * 100) and not answers.find(1, b"b" * 100) and not answers.find(2, b"a" * 100)
    keep(b"c" * 501)
    assert not answers.find(1, b"c" * 501) and answers.find(1, b"a" * 100)
    for number in range(2, 50):
        keep(b"d" * 100, number)
    assert len(answers.kept) == 5


def kept_by(answers: ResponseCache, owner: tuple[str, str], number: int, sizes: range) -> int:
    return sum(answers.find(number, b"x" * size, owner) is not None for size in sizes)


def test_answers_of_a_network_leave_those_of_others() -> None:
    """A client that asks for many different answers evicts its own."""
    answers = ResponseCache(1 << 20)
    good, bad = ("main", "10.0.0.1"), ("main", "10.0.0.2")
    for size in range(1, 41):
        answers.keep(1, CachedResponse(b"x" * size, None, Dependencies(None, 10)), good)
    for size in range(1, 1000):
        answers.keep(2, CachedResponse(b"x" * size, None, Dependencies(None, 10)), bad)
    assert kept_by(answers, good, 1, range(1, 41)) == 40
    assert len(answers.kept) == MOST_ANSWERS


def test_answers_of_a_cluster_leave_those_of_others() -> None:
    """Clients of many networks of one cluster do not evict the long answer of another one."""
    answers = ResponseCache(10_000)
    answers.keep(1, CachedResponse(b"x" * 4000, None, Dependencies(None, 10)), ("good", "10.0.0.1"))
    for size in range(100, 1000):
        answers.keep(2, CachedResponse(b"x" * size, None, Dependencies(None, 10)), ("bad", f"10.0.1.{size}"))
    assert answers.find(1, b"x" * 4000, ("good", "10.0.0.1"))
    assert answers.size <= 10_000
    assert answers.kept.keys() == answers.owners.keys()


def test_answer_that_networks_share_belongs_to_all() -> None:
    """It does not count for the network that came first."""
    answers = ResponseCache(1 << 20)
    first, second = ("main", "10.0.0.1"), ("main", "10.0.0.2")
    answers.keep(1, CachedResponse(b"shared", None, Dependencies(None, 10)), first)
    assert answers.find(1, b"shared", second)
    for size in range(10, 1000):
        answers.keep(1, CachedResponse(b"x" * size, None, Dependencies(None, 10)), first)
    assert answers.find(1, b"shared", first)


def test_what_is_kept_of_an_answer_is_no_more_than_is_counted() -> None:
    """Of a hundred thousand hidden topics one number is kept, and of a long host its characters are counted."""
    hidden = [listed(0, "orders", 1) | {"partitions": []}] * 100_000
    world = World(plan_of(RENAME), 64 << 20, 1)
    talk = world.talks[0]
    for number, brokers in enumerate(([], [{"node_id": 1, "host": "\U0001f600" * 8000, "port": 9092}])):
        talk.client(request(METADATA, 0, number, topics=[]))
        talk.broker(response(METADATA, 0, number, brokers=brokers, topics=hidden))
    first, second = world.shared.answers.kept.values()
    assert first.inputs.counts == {("events", "topics_hidden"): 100_000}
    assert first.written is not None and first.size == len(first.content) + len(first.written)
    assert second.written is not None and second.size >= len(second.content) + len(second.written) + 4 * 8000
    assert second.inputs.addresses[0][3] == GONE


def test_no_more_answers_are_kept_than_can_be_let_go_at_once() -> None:
    """A long one takes the room of many: they are few."""
    answers = ResponseCache(64 << 20)
    many = Dependencies(None, 1000, [(node, "host", 9092, ("proxy", node)) for node in range(300)])
    for number in range(10_000):
        answers.keep(number, CachedResponse(b"a", b"b", many))
    assert len(answers.kept) == MOST_ANSWERS


def test_counts_are_those_of_every_time() -> None:
    """Nodes hidden, names changed, topics hidden."""
    world = World(plan_of(RENAME), 1 << 20, 1)
    for _ in range(5):
        world.play((0, 12, None, TOPICS, ((1, "a", 9092), (9, "b", 9092)), 30000))
    assert isinstance(world.shared.counters, Counters)
    assert dict(world.shared.counters.events) == {"topics_hidden": 10, "nodes_hidden": 5}
    assert dict(world.shared.counters.rewritten) == {"brokers": 10, "topic_names": 10}
