"""Whatever the rules and the traffic: order is kept, counters add up, and what no rule changes stays the same bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.protocol import decode_request
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
PRODUCE, FETCH, METADATA, HEARTBEAT = 0, 1, 3, 12
VERSIONS = {PRODUCE: 9, FETCH: 11, METADATA: 9, HEARTBEAT: 4}
TOPICS = ("orders", "clicks", "audit")

Asked = tuple[int, tuple[tuple[str, int], ...], int]
"""API key, partitions, acks."""


def grouped(parts: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in dict.fromkeys(parts):
        found.setdefault(topic, []).append(partition)
    return found


def ask(number: int, asked: Asked) -> bytes:
    key, parts, acks = asked
    version = VERSIONS[key]
    by_topic = grouped(parts)
    if key == PRODUCE:
        data = [
            {"name": topic, "partition_data": [{"index": index, "records": b"r" * 30} for index in indexes]}
            for topic, indexes in by_topic.items()
        ]
        return request(key, version, number, acks=acks, topic_data=data)
    if key == FETCH:
        topics = [
            {"topic": topic, "partitions": [{"partition": index} for index in indexes]}
            for topic, indexes in by_topic.items()
        ]
        return request(key, version, number, session_epoch=-1, topics=topics)
    if key == METADATA:
        return request(key, version, number, topics=[{"name": topic} for topic in by_topic])
    return request(key, version, number, group_id="g")


def answer(frame: bytes) -> bytes:
    """What a broker says to it when all is well; nothing to a write without acks."""
    message = decode_request(frame)
    key, version, number = message.api.key, message.version, message.header["correlation_id"]
    body: dict[str, Any] = {}
    if key == PRODUCE:
        if message.body["acks"] == 0:
            return b""
        body["responses"] = [
            {
                "name": topic["name"],
                "partition_responses": [{"index": part["index"], "base_offset": 3} for part in topic["partition_data"]],
            }
            for topic in message.body["topic_data"]
        ]
    elif key == FETCH:
        body["responses"] = [
            {
                "topic": topic["topic"],
                "partitions": [{"partition_index": part["partition"], "records": b"f"} for part in topic["partitions"]],
            }
            for topic in message.body["topics"]
        ]
    elif key == METADATA:
        body["topics"] = [{"name": topic["name"], "partitions": []} for topic in message.body["topics"]]
    return response(key, version, number, **body)


PARTS = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 2)), min_size=1, max_size=4).map(tuple)
TRAFFIC = st.lists(
    st.tuples(st.sampled_from((PRODUCE, FETCH, METADATA, HEARTBEAT)), PARTS, st.sampled_from((-1, 1, 1, 0))),
    min_size=1,
    max_size=12,
)
WHEN = st.fixed_dictionaries(
    {},
    optional={
        "every": st.integers(1, 3),
        "after": st.integers(0, 2),
        "times": st.integers(1, 3),
        "count_scope": st.sampled_from(("rule", "connection", "client")),
    },
)
MATCH = st.fixed_dictionaries(
    {},
    optional={
        "api": st.sampled_from(("Produce", "Fetch", "Metadata", "Heartbeat")),
        "topic": st.sampled_from((*TOPICS, "*")),
        "partition": st.integers(0, 2),
        "client_id": st.sampled_from(("tester", "other")),
    },
)
AT = st.sampled_from(("request", "response"))
KINDS = st.one_of(
    st.fixed_dictionaries({"kind": st.just("delay"), "delay": st.sampled_from(("10ms", "70ms")), "at": AT}),
    st.fixed_dictionaries({"kind": st.just("throttle_time"), "delay": st.just("30ms"), "mute": st.booleans()}),
    st.fixed_dictionaries({"kind": st.just("error"), "error": st.sampled_from((3, 6, 29)), "at": AT}),
)


@st.composite
def rules(draw: st.DrawFn, mode: str = "enforce") -> str:
    made = []
    for number in range(draw(st.integers(1, 5))):
        rule: dict[str, Any] = draw(KINDS) | {
            "name": f"rule {number}",
            "when": draw(WHEN),
            "match": draw(MATCH),
            "mode": mode,
        }
        if rule["kind"] == "error":
            rule["match"]["api"] = draw(st.sampled_from(("Produce", "Fetch", "Metadata")))
            rule["match"].pop("partition", None)
        made.append(rule)
    return json.dumps({"rules": made})


def talk_through(text: str, traffic: list[Asked], chunk: int) -> Dialogue:
    """All of the traffic, the broker answering what reaches it, until nothing moves any more."""
    talk = Dialogue(text)
    answered = 0
    for number, asked in enumerate(traffic):
        if talk.closed is not None:
            break
        talk.client(ask(number, asked), chunk)
        answered = let_answer(talk, answered, chunk)
    for _ in range(3 * len(traffic)):
        talk.later(0.2)
        answered = let_answer(talk, answered, chunk)
    return talk


def let_answer(talk: Dialogue, answered: int, chunk: int) -> int:
    seen = frames(talk.to_broker)
    whole = seen[answered:]
    for frame in whole:
        if talk.closed is None:
            talk.broker(answer(frame), chunk)
    return answered + len(whole)


def numbers(data: bytes) -> list[int]:
    return [int.from_bytes(frame[:4], "big") for frame in frames(data)]


@settings(deadline=None, max_examples=500 if EVERYTHING else 75)
@given(rules(), TRAFFIC, st.sampled_from((0, 1, 5, 33)))
def test_answers_leave_in_the_order_of_their_requests(text: str, traffic: list[Asked], chunk: int) -> None:
    """Delays, throttles and errors on both sides: each request is answered once, in order, and counters add up."""
    talk = talk_through(text, traffic, chunk)

    expected = [number for number, (key, _, acks) in enumerate(traffic) if key != PRODUCE or acks]
    got = numbers(talk.to_client)
    if talk.closed is None:
        assert got == expected
        assert talk.session.idle
    else:  # a write without acks that failed
        assert talk.closed.cause == "rule"
        assert got == expected[: len(got)]
    for running in talk.rules.live:
        assert running.applied <= running.fired <= running.matched


@settings(deadline=None, max_examples=500 if EVERYTHING else 50)
@given(rules(mode="dry_run"), TRAFFIC, st.sampled_from((0, 1, 5, 33)))
def test_rules_that_observe_change_no_byte(text: str, traffic: list[Asked], chunk: int) -> None:
    """Everything arrives as it was sent, and nothing is counted as applied."""
    talk = talk_through(text, traffic, chunk)

    asked = b"".join(ask(number, one) for number, one in enumerate(traffic))
    assert talk.to_broker == asked
    assert talk.to_client == b"".join(answer(frame) for frame in frames(asked))
    assert all(running.applied == 0 for running in talk.rules.live)


@settings(deadline=None, max_examples=300 if EVERYTHING else 40)
@given(rules(), TRAFFIC, st.sampled_from((1, 7, 50)))
def test_chunks_do_not_matter(text: str, traffic: list[Asked], chunk: int) -> None:
    """However the bytes are cut on the way, the same comes out, and the same rules fire."""
    whole, cut = talk_through(text, traffic, 0), talk_through(text, traffic, chunk)

    assert whole.to_broker == cut.to_broker
    assert whole.to_client == cut.to_client
    assert [(one.matched, one.fired, one.applied) for one in whole.rules.live] == [
        (one.matched, one.fired, one.applied) for one in cut.rules.live
    ]


@settings(deadline=None, max_examples=300 if EVERYTHING else 40)
@given(rules(), TRAFFIC, st.sampled_from((0, 7)))
def test_who_counts_all_counts_what_it_would_count_alone(text: str, traffic: list[Asked], chunk: int) -> None:
    """`count: all`: whatever rules before it have decided, of whichever partitions, each rule counts all that match
    it, by rule, connection and client; it fires for no more than it would alone."""
    made = json.loads(text)["rules"]
    for rule in made:
        if not rule["when"].keys() & {"every", "after"}:
            rule["when"]["nth"] = [2, 5]
        rule["when"]["count"] = "all"
    traffic = [(key, parts, acks or 1) for key, parts, acks in traffic]  # an error for one without closes

    def counted(talk: Dialogue, at: int) -> Any:
        running = talk.rules.live[at]
        return running.matched, sorted(count.seen for count in running.trigger.counts.values())

    together = talk_through(json.dumps({"rules": made}), traffic, chunk)
    for number, rule in enumerate(made):
        alone = talk_through(json.dumps({"rules": [rule]}), traffic, chunk)
        assert counted(together, number) == counted(alone, 0), rule
        if "times" not in rule["when"]:
            assert together.rules.live[number].fired <= alone.rules.live[0].fired
