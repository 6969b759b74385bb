"""A first look at requests: whatever it finds, the same comes out as without it, counters included."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kproxy.protocol import decode_request, decode_response
from kproxy.rules.exchange import Facts
from kproxy.session.cluster import CORRELATION
from kproxy.session.compiled_rule import RuleIndex
from kproxy.session.live import selection
from kproxy.session.rewrite.context import TOPIC_IDS, session_lru
from kproxy.session.rule_program import RuleProgram
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
PRODUCE, FETCH, METADATA, COMMIT, OFFSETS, JOIN, API_VERSIONS, DELETE, HEARTBEAT = 0, 1, 3, 8, 9, 11, 18, 20, 68
TOPICS = ("orders", "clicks", "audit", "")
IDS = {name: UUID(int=number + 1) for number, name in enumerate(TOPICS)}
NAMED = TOPICS[:2]
"""Topics whose ids an answer of the brokers has named; the last one's stays unknown."""
GROUPS, CLIENTS = ("billing", "mail"), ("tester", "etl-1", None)

OWN = CORRELATION.to_bytes(4, "big", signed=True)
"""kproxy's question for the names of topic ids, which is left out if only rules for others would want to know."""

Asked = tuple[int, int, tuple[tuple[str, int], ...], str, str | None]
"""API key, version, partitions, group, client id."""


def grouped(parts: tuple[tuple[str, int], ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in dict.fromkeys(parts):
        found.setdefault(topic, []).append(partition)
    return found


def bodies(asked: Asked) -> dict[str, Any]:
    key, version, parts, group, _ = asked
    topics = grouped(parts).items()

    def naming(topic: str, since: int, field: str = "name") -> dict[str, Any]:
        return {"topic_id": IDS[topic]} if version >= since else {field: topic}

    if key == PRODUCE:
        data = [
            naming(topic, 13) | {"partition_data": [{"index": index, "records": b"r"} for index in indexes]}
            for topic, indexes in topics
        ]
        return {"acks": 0 if len(parts) == 3 else 1, "topic_data": data}
    if key == FETCH:
        wanted = [
            naming(topic, 13, "topic") | {"partitions": [{"partition": index} for index in indexes]}
            for topic, indexes in topics
        ]
        session = {"session_epoch": 0 if len(parts) == 3 else -1} if version >= 7 else {}
        return session | {"topics": wanted}
    if key == METADATA:
        return {"topics": [{"name": topic} for topic, _ in topics] or None}
    if key == COMMIT:
        listed = [
            {"name": topic, "partitions": [{"partition_index": index} for index in indexes]}
            for topic, indexes in topics
        ]
        return {"group_id": group, "topics": listed}
    if key == OFFSETS:  # of one group all topics, of the other those
        asks = [{"name": topic, "partition_indexes": indexes} for topic, indexes in topics]
        return {"groups": [{"group_id": group, "topics": None}, {"group_id": "other", "topics": asks}]}
    if key == DELETE:
        return {"topic_names": [topic for topic, _ in topics]}
    if key == JOIN:
        return {"group_id": group}
    if key == HEARTBEAT:
        return {"group_id": group, "subscribed_topic_names": [topic for topic, _ in topics]}
    return {"client_software_name": group, "client_software_version": "1"}


VERSIONS = {
    PRODUCE: (2, 9, 13), FETCH: (4, 11, 13), METADATA: (4, 12), COMMIT: (2, 8), OFFSETS: (8,), JOIN: (5,),
    API_VERSIONS: (3,), DELETE: (5,), HEARTBEAT: (0,),
}  # fmt: skip
PARTS = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 1)), min_size=0, max_size=4).map(tuple)
ONE = st.sampled_from(
    [(PRODUCE, version) for version in VERSIONS[PRODUCE]] * 3
    + [(key, version) for key, versions in VERSIONS.items() for version in versions]
)
SOME = st.lists(
    st.builds(lambda api, *rest: (*api, *rest), ONE, PARTS, st.sampled_from(GROUPS), st.sampled_from(CLIENTS)),
    min_size=1,
    max_size=10,
)
TRAFFIC = st.builds(lambda some, times: some * times, SOME, st.sampled_from((1, 1, 3)))
"""Requests that may come again as they were, for what is remembered of them."""

TEXTS = {
    "topic": st.sampled_from(("orders", "clicks", "or*", "*s", "/a.*|orders/", "nobody", ["nobody", "aud*"])),
    "group": st.sampled_from(("billing", "b*", "nobody")),
    "client_id": st.sampled_from(("tester", "etl-*", "nobody")),
    "client_software": st.sampled_from(("billing/1", "mail/*")),
    "principal": st.sampled_from(("CN=me", "CN=other")),
}
MATCH = st.fixed_dictionaries({}, optional={**TEXTS, "partition": st.integers(0, 1)})
KINDS = st.one_of(
    st.fixed_dictionaries({"kind": st.just("delay"), "delay": st.just("10ms")}),
    st.fixed_dictionaries({"kind": st.just("drop"), "what": st.just("request"), "connection": st.just("continue")}),
    st.fixed_dictionaries({"kind": st.just("error"), "error": st.just(29), "at": st.sampled_from(("request", None))}),
    st.fixed_dictionaries(
        {
            "kind": st.just("quota"),
            "per": st.sampled_from(([], ["client_id"], ["connection", "api"], ["topic"])),
            "produce": st.sampled_from(("1kB/s", "100kB/s")),
        },
        optional={"requests": st.sampled_from(("5/s", "100/s")), "max_throttle": st.just("100ms")},
    ),
    st.fixed_dictionaries({"kind": st.sampled_from(("deny", "read_only", "no_leader"))}),
    st.fixed_dictionaries({"kind": st.just("rewind_offset"), "set_to": st.just(3)}),
)
RENAME = {"name": "names", "kind": "rename_topic", "topics": {"clicks": "prod.clicks"}}
"""Of its own accord it has something to do with requests that no other rule is about."""
SELECTS = {"no_leader": ("topic", "partition", "client_id", "principal", "client_software")}
"""Selectors that make sense for a kind; others are for all kinds."""


@st.composite
def rules(draw: st.DrawFn) -> str:
    made = [RENAME] if draw(st.booleans()) else []
    for number in range(draw(st.integers(1, 7))):
        rule = draw(KINDS) | {"name": f"rule {number}", "mode": draw(st.sampled_from(("enforce", "dry_run")))}
        allowed = SELECTS.get(rule["kind"])
        for side in ("match", *(("not",) if draw(st.booleans()) else ())):
            chosen = {name: word for name, word in draw(MATCH).items() if allowed is None or name in allowed}
            if rule["kind"] == "error" and side == "match":
                chosen["api"] = ["Produce", "Fetch"]
                chosen.pop("group", None)
            if chosen:
                rule[side] = chosen
        if draw(st.booleans()):
            rule["when"] = draw(WHEN)
        made.append({name: value for name, value in rule.items() if value is not None})
    return json.dumps({"rules": made})


WHEN = st.one_of(
    st.builds(dict, every=st.integers(1, 3)),
    st.builds(dict, nth=st.integers(1, 4), count_scope=st.sampled_from(("rule", "connection", "client"))),
    st.builds(dict, probability=st.sampled_from((0.3, 0.8)), first=st.integers(1, 6)),
)


@contextmanager
def as_if_there_were(*, screens: bool, index: bool, templates: bool) -> Iterator[None]:
    """Without some of the short cuts."""
    with ExitStack() as stack:
        if not screens:
            stack.enter_context(patch.object(RuleProgram, "prefilter", None))
        if not index:
            stack.enter_context(
                patch.object(RuleIndex, "candidates", lambda self, exchange, groups: range(len(self.parts)))
            )
        if not templates:
            stack.enter_context(patch.object(selection, "beginning", lambda *arguments: None))
        yield


def outcome(text: str, traffic: list[Asked], cuts: tuple[int, ...] = (0,), together: int = 1) -> list[Any]:
    """All that came out, and all that was counted. So many requests are written `together`, in chunks of these sizes in
    turn (0: whole)."""
    shared = ClusterState()
    for name in NAMED:
        session_lru(shared.cluster_memory, TOPIC_IDS)[IDS[name].bytes] = name.encode()
    talk = Dialogue(text, shared=shared, facts=Facts("", "", "", certificate="CN=me"))
    answered = 0
    asked = [request(one[0], one[1], number, one[4], **bodies(one)) for number, one in enumerate(traffic)]
    for number, start in enumerate(range(0, len(asked), together)):
        if talk.closed is None:
            talk.client(b"".join(asked[start : start + together]), cuts[number % len(cuts)])
        for _ in range(3):
            answered = let_answer(talk, answered)
            talk.later(0.05)
    counts = [(running.matched, running.fired, running.applied) for running in talk.rules.live]
    asked_for = [frame for frame in frames(talk.to_broker) if frame[4:8] != OWN]
    events = {word: count for word, count in shared.counters.events.items() if word != "topic_ids_unknown"}
    return [asked_for, talk.to_client, counts, talk.closed, events]


def let_answer(talk: Dialogue, answered: int) -> int:
    """The broker answers with defaults, for which its session ids are 0 and its names none."""
    whole = frames(talk.to_broker)[answered:]
    for frame in whole:
        message = decode_request(frame)
        silent = message.api.key == PRODUCE and message.body["acks"] == 0
        if talk.closed is None and not silent:
            talk.broker(response(message.api.key, message.version, message.header["correlation_id"]))
    return answered + len(whole)


CUTS = st.lists(st.sampled_from((0, 0, 30, 17, 1)), min_size=1).map(tuple)


OF_PARTITIONS = {"name": "rule", "kind": "delay", "delay": "10ms", "match": {"client_id": "etl-*", "partition": 0}}
HIDDEN_IN_A_SESSION: Asked = (FETCH, 13, (("orders", 0), ("orders", 1), ("clicks", 0)), "billing", "tester")
"""Opens a session with a topic that the rename hides, so that its id has no name; the rule asks for none."""


@settings(deadline=None, max_examples=500 if EVERYTHING else 60)
@given(rules(), TRAFFIC, CUTS, st.sampled_from((1, 1, 3)))
@example(json.dumps({"rules": [RENAME, OF_PARTITIONS]}), [HIDDEN_IN_A_SESSION], (0,), 1)
def test_short_cuts_change_nothing(text: str, traffic: list[Asked], cuts: tuple[int, ...], together: int) -> None:
    """Rules of many kinds and selectors, requests by name, by id and in sessions, whole or cut: with a first look, an
    index and what is remembered of beginnings the same leaves and the same is counted as without."""
    with as_if_there_were(screens=False, index=False, templates=False):
        expected = outcome(text, traffic, together=together)
    with as_if_there_were(screens=False, index=True, templates=True):
        assert outcome(text, traffic, together=together) == expected
    with as_if_there_were(screens=True, index=True, templates=False):
        assert outcome(text, traffic, together=together) == expected
    assert outcome(text, traffic, cuts, together) == expected


@pytest.mark.parametrize(
    ("rule", "asked"),
    [
        ({"kind": "deny", "match": {"topic": "orders"}}, (PRODUCE, 13, (("audit", 0),), "billing", "tester")),
        ({"kind": "rewind_offset", "match": {"topic": "orders"}, "set_to": 3}, (OFFSETS, 8, (), "billing", "tester")),
        (
            {"kind": "rewind_offset", "match": {"topic": "orders"}, "set_to": 3},
            (OFFSETS, 8, (("audit", 0),), "mail", None),
        ),
        ({"kind": "deny", "match": {"topic": "orders"}}, (METADATA, 12, (), "billing", "tester")),
        ({"kind": "deny", "match": {"topic": "orders"}}, (HEARTBEAT, 0, (("orders", 0),), "billing", "tester")),
        ({"kind": "error", "error": 29, "match": {"topic": "or*"}}, (FETCH, 11, (("orders", 0),), "mail", "tester")),
    ],
)
def test_what_does_not_name_it_may_be_meant(rule: dict[str, Any], asked: Asked) -> None:
    """A topic by an id without a name, all of a group's, all there are, a member's subscription: the rule is asked."""
    text = json.dumps({"rules": [rule | {"name": "rule"}]})
    with as_if_there_were(screens=False, index=False, templates=False):
        expected = outcome(text, [asked])
    assert outcome(text, [asked]) == expected
    assert expected[2][0][0] == 1


def test_what_is_heard_of_the_client_is_not_overlooked() -> None:
    """Requests that begin alike are for nobody until the client has named its library, and then they are the rule's."""
    rule = {"kind": "delay", "delay": "10ms", "match": {"client_software": "mail/*", "topic": "orders"}, "name": "rule"}
    write: Asked = (PRODUCE, 9, (("orders", 0),), "billing", "tester")
    matched = outcome(json.dumps({"rules": [rule]}), [write, write, (API_VERSIONS, 3, (), "mail", "tester"), write])[2]
    assert matched == [(1, 1, 1)]


def write(topic: str, number: int) -> bytes:
    """A long request."""
    data = {"name": topic, "partition_data": [{"index": 0, "records": b"r" * 5000}]}
    return request(PRODUCE, 9, number, acks=1, topic_data=[data])


@pytest.mark.parametrize("others", [[], [RENAME]])
def test_a_request_like_one_before_need_not_be_whole(others: list[dict[str, Any]]) -> None:
    """The head of one like another before it passes though its records have not come, under a new name or not."""
    about_another = {"name": "rule", "kind": "error", "error": 29, "match": {"topic": "other"}}
    talk = Dialogue(json.dumps({"rules": [about_another, *others]}))
    name = "prod.clicks" if others else "clicks"
    for topic in ("clicks", "orders", "clicks"):
        talk.client(write(topic, 1))
    before = len(talk.to_broker)
    talk.client(write("clicks", 2)[:100])
    new = write(name, 2)
    assert talk.to_broker[before:] == new[: 100 + len(name) - len("clicks")]


def test_no_more_beginnings_are_remembered_than_has_a_limit() -> None:
    """A connection that writes to topic after topic."""
    talk = Dialogue(json.dumps({"rules": [{"name": "rule", "kind": "delay", "delay": 1, "match": {"topic": "other"}}]}))
    for number in range(3 * selection.MOST):
        talk.client(write(f"topic-{number}", number))
    assert talk.session.requests.rules is not None
    assert 0 < len(talk.session.requests.rules.heads) <= selection.MOST


@pytest.mark.parametrize("chunk", [0, 100, 1000])
@pytest.mark.parametrize("match", [{"topic": "orders"}, {"api": "Produce"}, {"client_id": "tester", "topic": "o*"}])
def test_a_rule_that_waits_for_its_turn_counts_each_request_once(match: dict[str, Any], chunk: int) -> None:
    """Requests like one before are counted from their beginnings; the one whose turn it is may not all be here then."""
    rule = {"name": "rule", "kind": "error", "error": 29, "match": match, "when": {"nth": 5}}
    talk = Dialogue(json.dumps({"rules": [rule]}))
    for number in range(1, 8):
        talk.client(write("orders", number), chunk)
        if number != 5:
            talk.broker(response(PRODUCE, 9, number))
    answered = [frame for frame in frames(talk.to_client) if int.from_bytes(frame[:4], "big") == 5]
    running = talk.rules.live[0]
    assert (running.matched, running.fired, running.applied) == (7, 1, 1)
    assert len(frames(talk.to_broker)) == 6
    assert decode_response(answered[0], PRODUCE, 9).body["responses"][0]["partition_responses"][0]["error_code"] == 29
    assert talk.session.requests.rules is not None
    assert [getattr(one, "waiting", ()) for one in talk.session.requests.rules.heads.values()] == [(running,), ()]


def test_other_rules_come_into_force_behind_the_request_whose_turn_it_is() -> None:
    """A trigger was asked about a request that is not all here: the rules that were in force are applied to it."""
    rule = {"name": "rule", "kind": "error", "error": 29, "match": {"topic": "orders"}, "when": {"nth": 3}}
    talk = Dialogue(json.dumps({"rules": [rule]}))
    for number in (1, 2):
        talk.client(write("orders", number)).broker(response(PRODUCE, 9, number))
    talk.client(write("orders", 3)[:200])
    talk.session.use(Dialogue().session.plan, 0.0)
    talk.client(write("orders", 3)[200:] + write("orders", 4))
    assert len(frames(talk.to_broker)) == 3
    assert talk.rules.live[0].applied == 1
