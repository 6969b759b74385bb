"""Rules that select on offsets: those that are asked for, and those that are committed; also in sessions that list what
has changed only."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kproxy.protocol import Message, decode_request, encode
from kproxy.protocol.codec.structs import read_request_header
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.shapes import shape
from kproxy.rules.document.read import parse_rules
from kproxy.rules.entity import entities, entity_reader
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.session.plan import Plan
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response
from tests.support.random_values import random_struct

FETCH, OFFSET_COMMIT, TXN_OFFSET_COMMIT = 1, 8, 28
DENIED, NOT_LEADER = 29, 6
OF_FETCH = """
rules:
  - name: at three
    kind: error
    match: {api: Fetch, topic: orders, offset: %s}
    error: TOPIC_AUTHORIZATION_FAILED
"""


def fetch(number: int, offsets: dict[int, int], version: int = 11, topic: str = "orders", **more: Any) -> bytes:
    partitions = [{"partition": index, "fetch_offset": offset} for index, offset in offsets.items()]
    listed = [{"topic": topic, "partitions": partitions}] if partitions else []
    return request(FETCH, version, number, topics=listed, **({"session_epoch": -1} | more))


def fetched(number: int, partitions: Any, version: int = 11, topic: str = "orders", **more: Any) -> bytes:
    """What a broker says about these partitions."""
    found = [{"partition_index": index, "high_watermark": 5, "records": b"x"} for index in partitions]
    return response(FETCH, version, number, responses=[{"topic": topic, "partitions": found}], **more)


def codes(talk: Dialogue, version: int = 11) -> dict[int, int]:
    """The error of each partition in the last answer."""
    answer = talk.responses(*[(FETCH, version)] * len(frames(talk.to_client)))[-1]
    return {part["partition_index"]: part["error_code"] for topic in answer.body["responses"]
            for part in topic["partitions"]}  # fmt: skip


@pytest.mark.parametrize("version", [4, 11, 12])
def test_what_is_asked_for(version: int) -> None:
    """Each partition by itself, in one request and from one to the next, which begin with the same bytes."""
    talk = Dialogue(OF_FETCH % 3)
    for number, (offsets, expected) in enumerate([
        ({0: 3, 1: 2}, {0: DENIED, 1: 0}), ({0: 2, 1: 3}, {0: 0, 1: DENIED}), ({0: 4, 1: 4}, {0: 0, 1: 0}),
        ({0: 3}, {0: DENIED}), ({0: 2}, {0: 0}), ({0: 3}, {0: DENIED}), ({1: 0}, {1: 0}),
    ]):  # fmt: skip
        more = {"session_epoch": -1} if version >= 7 else {}
        partitions = [{"partition": index, "fetch_offset": at} for index, at in offsets.items()]
        listed = [{"topic": "orders", "partitions": partitions}]
        talk.client(request(FETCH, version, number, topics=listed, **more)).broker(fetched(number, offsets, version))
        assert codes(talk, version) == expected, offsets
    assert talk.rules.live[0].matched == 4


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        ("3", [3]),
        ("[1, 4-5]", [1, 4, 5]),
        ("'>=4'", [4, 5, 2**40, 2**63 - 1]),
        ("'<2'", [0, 1]),
        ("3000000000-4000000000", []),
    ],
)
def test_ranges_are_those_of_offsets(wanted: str, holds: list[int]) -> None:
    """64 bits wide, however they are written."""
    (rule,) = parse_rules(OF_FETCH % wanted).rules
    assert isinstance(rule, LiveRule) and rule.match is not None
    found = []
    for offset in (0, 1, 2, 3, 4, 5, 2**40, 2**63 - 1):
        (entity,) = entities(decode_request(fetch(1, {0: offset})[4:]))
        if rule.holds_for(entity):
            found.append(offset)
    assert found == holds


def test_a_session_remembers_what_was_asked_for() -> None:
    """What a request does not list is asked for where it was; what moves on leaves the rule, and may come back."""
    talk = Dialogue(OF_FETCH % 3)
    for epoch, (listed, expected) in enumerate([
        ({0: 3, 1: 0}, [0]), ({}, [0]), ({1: 3}, [0, 1]), ({0: 4}, [1]), ({}, [1]), ({1: 9, 0: 5}, []), ({0: 3}, [0]),
    ]):  # fmt: skip
        matched = talk.rules.live[0].matched
        talk.client(fetch(epoch, listed, session_id=7 if epoch else 0, session_epoch=epoch))
        talk.broker(fetched(epoch, (0, 1), session_id=7))
        assert sorted(index for index, code in codes(talk).items() if code) == expected, epoch
        assert talk.rules.live[0].matched - matched == bool(expected)


def test_a_rule_that_comes_into_a_session() -> None:
    """It knows what the client asked for before, since another rule has followed the session."""
    rules = (
        OF_FETCH % 3
        + """
  - {name: other, kind: error, match: {api: Fetch, partition: 9}, error: NOT_LEADER_OR_FOLLOWER}
"""
    )
    talk = Dialogue(rules)
    three, other = talk.rules.live
    bound = talk.session.plan.bound
    talk.session.use(Plan(bound, [other]), talk.now)
    talk.client(fetch(1, {0: 3, 1: 0}, session_id=0, session_epoch=0)).broker(fetched(1, (0, 1), session_id=7))
    talk.session.use(Plan(bound, [three, other]), talk.now)
    talk.client(fetch(2, {1: 3}, session_id=7, session_epoch=1)).broker(fetched(2, (0, 1), session_id=7))
    assert codes(talk) == {0: DENIED, 1: DENIED}


@pytest.mark.parametrize(("key", "version"), [(OFFSET_COMMIT, 2), (OFFSET_COMMIT, 8), (TXN_OFFSET_COMMIT, 3)])
def test_what_is_committed(key: int, version: int) -> None:
    """Commits of one offset fail, those before and behind it pass."""
    talk = Dialogue("""
rules:
  - name: the tenth
    kind: error
    match: {api: [OffsetCommit, TxnOffsetCommit], group: app, offset: 10}
    error: REBALANCE_IN_PROGRESS
""")
    for number, offset in enumerate((9, 10, 11)):
        part = {"partition_index": 0, "committed_offset": offset}
        topics = [{"name": "orders", "partitions": [part]}]
        talk.client(request(key, version, number, group_id="app", topics=topics))
    assert (talk.to_client, talk.rules.live[0].fired) == (b"", 1)  # the first is not answered yet
    assert [one.body["topics"][0]["partitions"][0]["committed_offset"] for one in talk.requests()] == [9, 11]


def test_what_is_spared() -> None:
    """`not: {offset: …}` leaves partitions out."""
    talk = Dialogue("""
rules:
  - {name: r, kind: error, match: {api: Fetch, topic: orders}, not: {offset: "<5"}, error: NOT_LEADER_OR_FOLLOWER}
""")
    talk.client(fetch(1, {0: 4, 1: 5, 2: 6})).broker(fetched(1, (0, 1, 2)))
    assert codes(talk) == {0: 0, 1: NOT_LEADER, 2: NOT_LEADER}


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_rules_are_about_what_has_offsets(api: schema.Api) -> None:
    """Fetch, OffsetCommit and TxnOffsetCommit in all versions, and nothing else."""
    (rule,) = parse_rules("rules: [{name: r, kind: delay, delay: 1s, match: {offset: 3}}]").rules
    assert isinstance(rule, LiveRule)
    for version in api.versions:
        assert rule.about(api.key, version) == (api.key in (FETCH, OFFSET_COMMIT, TXN_OFFSET_COMMIT))


@pytest.mark.parametrize("key", [FETCH, OFFSET_COMMIT, TXN_OFFSET_COMMIT])
def test_both_ways_of_reading_agree(key: int) -> None:
    """From bytes and from values; from bytes only where somebody wants them."""
    random = Random(key)
    for version in schema.load(key).versions:
        assert shape(key, version).offset is not None
        for _ in range(30):
            header = {"request_api_key": key, "request_api_version": version, "correlation_id": 1}
            body = random_struct(layout.body(key, version, "request"), random)
            frame = encode(Message(schema.load(key), version, header, body))
            start = read_request_header(frame)[3]
            expected = entities(decode_request(frame))
            found = entity_reader(key, version, True).read(frame, start, len(frame))
            assert [(one, one.offset) for one in found] == [(one, one.offset) for one in expected]
            plain = entity_reader(key, version).read(frame, start, len(frame))
            assert [(one, one.offset) for one in plain] == [(one, None) for one in expected]
