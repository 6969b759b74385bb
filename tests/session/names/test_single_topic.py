"""Produce requests stream with the names of the other side, whatever of them changes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import NAMESPACES, TRANSACTIONAL_ID, PrefixLayer
from kproxy.session.counters import Counters
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.names.rewrites import MOST_KNOWN, SingleTopicRewriter, single_topic_rewriter
from kproxy.tools.rehearse.dialogue import request, response

TOPICS = NameMap.of({"orders": "prod.orders"})
IDS = NameMap.of({"worker-*": "blue.worker-*"}, space=TRANSACTIONAL_ID)
PRODUCE, FETCH = 0, 1


def produce(version: int, topic: str, transactional_id: str | None) -> bytes:
    name: dict[str, Any] = {"name": topic} if version < 13 else {"topic_id": UUID(int=9)}
    data = [name | {"partition_data": [{"index": 0, "records": b"r" * 100_000}]}]
    built: bytes = request(
        PRODUCE, version, 1, acks=1, transactional_id=transactional_id, topic_data=data, client_id="c"
    )
    return built


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize(
    ("names", "topic", "transactional_id"),
    [
        (NameMaps(topics=TOPICS), "prod.orders", "worker-1"),
        (NameMaps(transactional_ids=IDS), "orders", "blue.worker-1"),
        (NameMaps(topics=TOPICS, transactional_ids=IDS), "prod.orders", "blue.worker-1"),
    ],
)
@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("chunk", [30, 7000])
def test_a_long_request_streams(
    dialogue: Any,
    version: int,
    names: NameMaps,
    topic: str,
    transactional_id: str,
    transactional: bool,
    chunk: int,
) -> None:
    """Both names stand before the records: the frame is never held, and is byte for byte what it would be there."""
    frame = produce(version, "orders", "worker-1" if transactional else None)
    expected = produce(version, topic, transactional_id if transactional else None)
    talk = dialogue(ConnectionSettings(names=names)).client(frame[:1200], chunk)
    assert len(talk.to_broker) > 900
    for start in range(1200, len(frame), 7000):
        talk.client(frame[start : start + 7000])
        assert talk.shared.requests.used == 0

    assert talk.to_broker == expected


SAME, ESCAPED = "bills", "prod.orders"
"""A topic with the same name on both sides, and the client's name of one that it cannot reach."""
BEGINNINGS: list[dict[str, Any]] = [
    {"client_id": "c"},
    {"client_id": None},
    {"client_id": "longer"},
    {"client_id": "c", "transactional_id": "worker-1"},
]


@pytest.mark.parametrize("version", range(13))
@pytest.mark.parametrize("direction", ["request", "response"])
@pytest.mark.parametrize("key", [PRODUCE, FETCH])
def test_a_topic_that_was_met_before(key: int, version: int, direction: str) -> None:
    """It is written as the first time, is counted as often, and as long as it is not all there, it is not guessed."""
    rewriter = single_topic_rewriter(key, version, direction, NameMaps(topics=TOPICS, transactional_ids=IDS))
    if rewriter is None:
        assert (key, direction) == (FETCH, "request")
        return
    ours, theirs = ("orders", "prod.orders") if direction == "request" else ("prod.orders", "orders")
    for beginning in BEGINNINGS:
        for topic in (ours, SAME, "x" * 130, "é" * 63, theirs, ours, SAME):
            frame = built(key, version, direction, topic, beginning)
            again = SingleTopicRewriter(key, version, direction, rewriter.topic and TOPICS, rewriter.leading and IDS)
            counted, expected = Context(Counters(), {}), Context(Counters(), {})
            assert spliced(rewriter, frame, len(frame), counted) == spliced(again, frame, len(frame), expected)
            assert (counted.counters.rewritten, counted.counters.events) == (
                expected.counters.rewritten, expected.counters.events
            )  # fmt: skip
            for end in range(14, min(len(frame), 60)):
                assert spliced(rewriter, frame, end, counted) == spliced(again, frame, end, expected), end
    assert len(rewriter.known) >= 2


@pytest.mark.parametrize(("version", "fields"), [(1, ["throttle_time_ms"]), (12, ["throttle_time_ms", "session_id"])])
def test_a_topic_is_remembered_once_for_all_sessions(version: int, fields: list[str]) -> None:
    """What stands in front of it and is another number in each frame does not matter."""
    rewriter = single_topic_rewriter(FETCH, version, "response", NameMaps(topics=TOPICS))
    assert rewriter is not None
    for number in range(3):
        told = dict.fromkeys(fields, number)
        frame = response(FETCH, version, 7, responses=[{"topic": "prod.orders", "partitions": []}], **told)
        context = Context(Counters(), {})
        assert rewriter.splice(frame, 0, len(frame), context) is not None
        assert context.counters.rewritten["topic_names"] == 1
    assert len(rewriter.known) == 1


def test_no_more_topics_are_remembered_than_some() -> None:
    """A client that writes to ever new ones fills no memory."""
    rewriter = single_topic_rewriter(PRODUCE, 9, "request", NameMaps(topics=NameMap.of({"*": "prod.*"})))
    assert rewriter is not None
    context = Context(Counters(), {})
    for number in range(3 * MOST_KNOWN):
        frame = built(PRODUCE, 9, "request", f"t-{number}", {})
        found = rewriter.splice(frame, 0, len(frame), context)
        assert found is not None and found[2].endswith(b"prod.t-%d" % number)

    assert 0 < len(rewriter.known) <= MOST_KNOWN
    long = built(PRODUCE, 9, "request", "t" * 10_000, {})
    rewriter.splice(long, 0, len(long), context)
    assert max(map(len, rewriter.known)) < 20


def spliced(rewriter: SingleTopicRewriter, frame: bytes, end: int, context: Context) -> bytes | None:
    """What becomes of the frame when so much of it is there."""
    found = rewriter.splice(frame[:end], 0, end, context)
    return None if found is None else frame[: found[0]] + found[2] + frame[found[1] :]


def built(key: int, version: int, direction: str, topic: str, beginning: dict[str, Any]) -> bytes:
    """A frame of that kind about this topic."""
    transactional = beginning.get("transactional_id") if version >= 3 else None
    partitions = [{"index": 0}] if key == PRODUCE else [{"partition_index": 0}]
    if direction == "response":
        name = "name" if key == PRODUCE else "topic"
        inside = "partition_responses" if key == PRODUCE else "partitions"
        said: bytes = response(key, version, 7, responses=[{name: topic, inside: partitions}])
        return said
    more = {"transactional_id": transactional} if transactional else {}
    client_id = beginning.get("client_id", "c")
    data = [{"name": topic, "partition_data": [{"index": 0, "records": b"r" * 40}]}]
    asked: bytes = request(key, version, 7, acks=1, topic_data=data, client_id=client_id, **more)
    return asked


def test_nothing_passes_that_cannot_be_read_for_a_tenant(dialogue: Any) -> None:
    """Unknown APIs, unknown versions of harmless ones, and requests inside requests close the connection."""
    tenant = NameMaps(*(NameMap([PrefixLayer(space, b"a.")], space) for space in NAMESPACES))
    plan = Plan(ConnectionSettings(names=tenant, advertise=False, hide_unknown_apis=False))
    other = Plan(ConnectionSettings(names=NameMaps(topics=TOPICS), advertise=False, hide_unknown_apis=False))
    for key, version in ((9999, 0), (58, 0), (36, 99), (12, 99)):
        assert plan[key << 16 | version].stop
    assert not other[9999 << 16].stop
    assert plan.newest(58) == plan.newest(9999) == -1
    assert not plan[36 << 16 | 2].stop
