"""Nothing that a tenant sends reaches what is not its own: every place of every request, in whatever spelling.

The places come from the protocol's table, by the kind of the field; a kind that nobody has decided about fails.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from kproxy.protocol import decode_response, encode
from kproxy.protocol.table import layout, schema
from kproxy.session.plan import STOP, Plan
from kproxy.session.rewrite.names.topic_ids import OURS, version_of

from .hostile import (
    HOSTILE,
    NO_NAMES,
    OWN_IDS,
    RULES,
    TOPICS,
    any_id,
    hostile_body,
    may_leave,
    places,
    request,
    transformed,
)
from .recording_broker import RecordingBroker

EVERY = bool(os.environ.get("KPROXY_TEST_ALL"))
PLAN = Plan(RecordingBroker(RULES, TOPICS).talk.session.plan.bound)
CARRYING = sorted({
    api.key for api in schema.apis() for version in api.versions
    if any(slot.kind in HOSTILE for slot in layout.body(api.key, version, "request").everywhere())
})  # fmt: skip


def versions(key: int) -> list[int]:
    """All that a tenant may send, or first, middle and last of them."""
    found = [one for one in schema.load(key).versions if PLAN[key << 16 | one].request != STOP]
    return found if EVERY or len(found) < 4 else sorted({found[0], found[len(found) // 2], found[-2], found[-1]})


def test_every_kind_of_field_is_decided_about() -> None:
    """A new kind in the table either names something that is kept apart, or is said to name nothing."""
    kinds = {
        slot.kind
        for api in schema.apis()
        for version in api.versions
        for direction in ("request", "response")
        for slot in layout.body(api.key, version, direction).everywhere()
    } - {None}
    assert kinds == set(HOSTILE) | NO_NAMES


@pytest.mark.parametrize("key", CARRYING)
def test_what_leaves_is_the_tenants_own(key: int) -> None:
    """Names, ids, patterns, cursors, keys and embedded bytes, all at once, whole and byte by byte."""
    checked = 0
    for version in versions(key):
        struct = layout.body(key, version, "request")
        for seed in range(12 if EVERY else 5):
            body = hostile_body(key, version, seed)
            sent = request(key, version, 7, body)
            broker = RecordingBroker(RULES, TOPICS).send(sent, 0 if seed else 1)
            assert not broker.closed, f"{version} {seed}: {broker.closed}"
            (reached,) = broker.reached
            for slot, value, around in places(struct, reached.body):
                assert may_leave(reached, slot, value, around), f"{version} {seed}: {slot.path} {value!r}"
                checked += 1
            for question in broker.questions:
                assert all(one["name"] is None for one in question.body["topics"] or ())
    assert checked or not versions(key)


@pytest.mark.parametrize("key", CARRYING)
def test_pipelined_under_one_correlation_id_is_no_different(key: int) -> None:
    """Two requests of one number, one of them harmless: each leaves as if it were alone."""
    for version in versions(key)[-2:]:
        struct = layout.body(key, version, "request")
        frames = [request(key, version, 7, hostile_body(key, version, seed)) for seed in range(20, 24)]
        together = RecordingBroker(RULES, TOPICS).send(b"".join(frames))
        assert len(together.reached) == len(frames)
        for reached in together.reached:
            for slot, value, around in places(struct, reached.body):
                assert may_leave(reached, slot, value, around), f"{version}: {slot.path} {value!r}"


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_what_a_member_says_of_a_group_is_not_its_protocol(version: int) -> None:
    """It joins as something else, which the group refuses or was once: an assignment is read as the consumer
    protocol's all the same, as brokers do when the group changes over. What cannot be that stays as it is."""
    broker = RecordingBroker(RULES, TOPICS, lambda asked: {"error_code": 23})
    join = {"group_id": "g", "protocol_type": "connect", "member_id": "m", "protocols": []}
    topics = b"\0\0\0\1\0\x08b.secret\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
    for sent, kept in ((b"\0\0" + topics, False), (b"\0\1\0\0\0\x04lead b.secret", True)):
        sync = {"group_id": "g", "member_id": "m", "assignments": [{"member_id": "m", "assignment": sent}]}
        broker.send(request(11, 5, 1, join) + request(14, version, 2, sync))
        (one,) = broker.reached[-1].body["assignments"]
        assert (bytes(one["assignment"]) == sent) == kept
        assert kept or b"\0\x08b.secret" not in bytes(one["assignment"])


def test_what_it_is_told_is_no_way_in() -> None:
    """Ids that answers have given back, turned over once more and in fetch sessions, lead nowhere either."""
    rng = Random(5)
    broker = RecordingBroker(RULES, TOPICS)
    broker.reply = lambda asked: (
        {
            "responses": [{"topic_id": one["topic_id"], "partitions": []} for one in asked.body["topics"]],
            "session_id": 9,
        }
    )
    ids, at = [any_id(rng) for _ in range(40)], 0
    for correlation in range(20):
        topics = [{"topic_id": one, "partitions": []} for one in ids]
        epoch = {0: 0, 1: 1, 2: -1}.get(correlation, correlation)
        number = 9 if correlation < 12 else rng.choice((9, 10, -1))
        broker.send(request(1, 17, correlation, {"topics": topics, "session_id": number, "session_epoch": epoch}))
        for one in broker.reached[-1].body["topics"]:
            assert one["topic_id"] in OWN_IDS or version_of(one["topic_id"].bytes) == OURS
        assert broker.reached[-1].body["session_id"] in (0, 9)
        told = decode_response(broker.talk.to_client[at + 4 :], 1, 17).body["responses"]
        at = len(broker.talk.to_client)
        assert [one["topic_id"] for one in told] == ids
        ids = [transformed(rng, one["topic_id"]) for one in told]
    assert len(encode(broker.reached[-1])) > 40 * 16
