"""A session that renames topics: the same bytes however they are cut, and what has to be asked first."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.protocol import decode_request, decode_response
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.session.commands import CLIENT
from kproxy.session.plan import ConnectionSettings
from kproxy.tools.rehearse.dialogue import request, response
from tests.support.frames import produce, produced

NAMES = NameMap.of({"orders": "prod.orders", "clicks-*": "prod.clicks-*"})
BOUND = ConnectionSettings(names=NameMaps(topics=NAMES))
PRODUCE, FETCH, METADATA, HEARTBEAT, GROUP_HEARTBEAT, DESCRIBE_GROUP = 0, 1, 3, 12, 68, 69


def conversation(client_side: bool) -> tuple[bytes, bytes]:
    """The same exchange as the client or as the broker sees it."""
    orders, clicks, other = ("orders", "clicks-eu", "x") if client_side else ("prod.orders", "prod.clicks-eu", "x")
    asked = [
        produce(1, orders, other, records=b"r" * 3000),
        request(HEARTBEAT, 4, 2),
        produce(3, clicks, acks=0),
        produce(4, other),
        produce(5, orders, clicks),
    ]
    said = [
        produced(1, orders, other),
        response(HEARTBEAT, 4, 2),
        produced(4, other),
        produced(5, orders, clicks),
    ]
    return b"".join(asked), b"".join(said)


@pytest.mark.parametrize("chunk", [0, 1, 2, 7, 100, 1500, 4000])
def test_names_are_those_of_the_other_side(dialogue: Any, chunk: int) -> None:
    """The broker sees its names and the client its own, byte for byte what would have been sent with them."""
    asked, said = conversation(client_side=True)
    asked_there, said_there = conversation(client_side=False)
    talk = dialogue(BOUND)

    talk.client(asked, chunk).broker(said_there, chunk)

    assert talk.to_broker == asked_there
    assert talk.to_client == said
    assert talk.session.idle
    assert talk.shared.requests.used == talk.shared.responses.used == 0


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_cuts_give_the_same_bytes(dialogue: Any, sizes: list[int]) -> None:
    """However reads cut the stream, what leaves is the same."""
    asked, said = conversation(client_side=True)
    asked_there, said_there = conversation(client_side=False)
    talk = dialogue(BOUND)

    for data, feed in ((asked, talk.client), (said_there, talk.broker)):
        pos, turn = 0, 0
        while pos < len(data):
            size = sizes[turn % len(sizes)]
            feed(data[pos : pos + size])
            pos, turn = pos + size, turn + 1

    assert talk.to_broker == asked_there
    assert talk.to_client == said


def test_a_request_that_cannot_be_read_closes_and_says_where(dialogue: Any) -> None:
    """A request that has to be rewritten and does not follow its grammar cannot be forwarded."""
    frame = bytearray(produce(1, "other", "orders"))
    at = frame.index(b"orders") - 1
    frame[at] = 0x7F

    talk = dialogue(BOUND).client(request(HEARTBEAT, 4, 1) + bytes(frame))

    assert talk.closed is not None and talk.closed.cause == "decode" and talk.closed.blame == "client"
    assert "Produce request v9" in talk.closed.message and "topic_data" in talk.closed.message
    assert talk.to_broker == request(HEARTBEAT, 4, 1)


def test_versions_with_ids_pass_untouched(dialogue: Any) -> None:
    """Produce 13 names topics by id: there is nothing to rename, and the frame need not be whole."""
    frame = produce(1, UUID(int=7), version=13, records=b"r" * 9000)
    talk = dialogue(BOUND).client(frame[:5000])
    assert talk.to_broker == frame[:5000]

    talk.client(frame[5000:])

    assert talk.to_broker == frame


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize(("name", "there"), [("orders", "prod.orders"), ("other", "other")])
def test_a_long_request_of_one_topic_streams(dialogue: Any, version: int, name: str, there: str) -> None:
    """Its only name stands before its records: it is put in as soon as it is here, and nothing is held."""

    frame, expected = (produce(1, topic, version=version, acks=1, records=b"r" * 300_000) for topic in (name, there))
    talk = dialogue(BOUND).client(frame[:20])
    for start in range(20, len(frame), 5000):
        talk.client(frame[start : start + 5000])
        assert talk.shared.requests.used == 0
        assert len(talk.to_broker) >= start - 1024

    assert talk.to_broker == expected
    assert talk.shared.counters.rewritten["topic_names"] == (name != there)
    assert not talk.session.idle


@pytest.mark.parametrize("version", [0, 4, 7, 11, 12])
@pytest.mark.parametrize(("there", "here"), [("prod.orders", "orders"), ("other", "other"), ("orders", None)])
def test_a_long_response_of_one_topic_streams(dialogue: Any, version: int, there: str, here: str | None) -> None:
    """So does a Fetch response, unless its topic is hidden: then it is held whole, and the topic left out."""
    part = {"partition_index": 0, "error_code": 0, "high_watermark": 5, "records": b"r" * 200_000}
    more = {4: {"last_stable_offset": 5, "aborted_transactions": None}, 5: {"log_start_offset": 0}}
    more[11] = {"preferred_read_replica": -1}
    for since, fields in more.items():
        part |= fields if version >= since else {}

    def answer(topic: str | None) -> bytes:
        topics = [] if topic is None else [{"topic": topic, "partitions": [part]}]
        return response(FETCH, version, 1, responses=topics)

    talk = dialogue(BOUND).client(request(FETCH, version, 1))
    talk.broker(answer(there), 7000)

    assert talk.to_client == answer(here)
    assert talk.session.idle
    assert talk.shared.responses.used == 0


def heartbeat(correlation: int, regex: str | None, epoch: int = 0) -> bytes:
    values = {"group_id": "g", "member_id": "m", "member_epoch": epoch, "subscribed_topic_regex": regex}
    return request(GROUP_HEARTBEAT, 1, correlation, **values)


def topics_answer(names: list[str]) -> bytes:
    ids = [UUID(int=0x4000 << 64 | number) for number, _ in enumerate(names)]
    topics = [
        {"error_code": 0, "name": name, "topic_id": topic_id, "is_internal": False, "partitions": []}
        for name, topic_id in zip(names, ids, strict=True)
    ]
    return response(METADATA, 10, -0x6B70, topics=topics)


def test_a_pattern_waits_for_the_topics_and_goes_as_names(dialogue: Any) -> None:
    """The broker is asked for its topics by a request the client never sees; the pattern then names what it matches."""
    talk = dialogue(BOUND).client(request(HEARTBEAT, 4, 1))
    before = talk.to_broker

    talk.client(heartbeat(2, "^(orders|clicks-.*)$") + request(HEARTBEAT, 4, 3))
    question = decode_request(talk.to_broker[len(before) + 4 :])
    assert (question.api.name, question.body["topics"]) == ("Metadata", None)
    assert not talk.read[CLIENT]
    sent = len(talk.to_broker)
    talk.broker(response(HEARTBEAT, 4, 1))
    talk.broker(topics_answer(["prod.orders", "prod.clicks-eu", "orders", "other"]), 9)

    assert talk.read[CLIENT]
    assert talk.to_client == response(HEARTBEAT, 4, 1)
    rest = talk.to_broker[sent:]
    size = int.from_bytes(rest[:4], "big")
    pattern = decode_request(rest[4 : 4 + size]).body["subscribed_topic_regex"]
    import re2

    matched = [n for n in ("prod.orders", "prod.clicks-eu", "orders", "other") if re2.fullmatch(pattern, n)]
    assert matched == ["prod.orders", "prod.clicks-eu"]
    assert rest[4 + size :] == request(HEARTBEAT, 4, 3)
    talk.broker(response(GROUP_HEARTBEAT, 1, 2) + response(HEARTBEAT, 4, 3))
    assert talk.session.idle


def test_a_new_topic_reaches_a_pattern_that_was_sent_before(dialogue: Any) -> None:
    """A later heartbeat says nothing of the pattern; when the names have changed it is filled in again."""
    talk = dialogue(BOUND).client(heartbeat(1, "clicks-.*"))
    talk.broker(topics_answer(["prod.clicks-eu"])).broker(response(GROUP_HEARTBEAT, 1, 1))

    talk.now = 5.0
    quiet = heartbeat(2, None, epoch=3)
    sent = len(talk.to_broker)
    talk.client(quiet).broker(response(GROUP_HEARTBEAT, 1, 2))
    assert talk.to_broker[sent:] == quiet

    talk.now = 20.0
    sent = len(talk.to_broker)
    talk.client(heartbeat(3, None, epoch=3))
    question = talk.to_broker[sent:]
    talk.broker(topics_answer(["prod.clicks-eu", "prod.clicks-us"]))
    again = decode_request(talk.to_broker[sent + len(question) + 4 :])

    assert "us" in again.body["subscribed_topic_regex"]


def test_what_the_member_wrote_is_described(dialogue: Any) -> None:
    """ConsumerGroupDescribe shows the client's own pattern, not the names that stand for it."""
    talk = dialogue(BOUND).client(heartbeat(1, "clicks-.*")).broker(topics_answer(["prod.clicks-eu"]))
    talk.broker(response(GROUP_HEARTBEAT, 1, 1))
    size = int.from_bytes(talk.to_broker[:4], "big")
    sent = decode_request(talk.to_broker[4 + size + 4 :]).body["subscribed_topic_regex"]
    empty = {"topic_partitions": []}
    member = {"member_id": "m", "instance_id": None, "rack_id": None, "member_epoch": 1, "client_id": "c"}
    member |= {"client_host": "/h", "subscribed_topic_names": [], "subscribed_topic_regex": sent}
    member |= {"assignment": empty, "target_assignment": empty, "member_type": 1}
    group = {"error_code": 0, "error_message": None, "group_id": "g", "group_state": "Stable", "group_epoch": 1}
    group |= {"assignment_epoch": 1, "assignor_name": "uniform", "members": [member], "authorized_operations": 0}

    talk.out[CLIENT].clear()
    talk.client(request(DESCRIBE_GROUP, 1, 2)).broker(response(DESCRIBE_GROUP, 1, 2, groups=[group]))

    body = decode_response(talk.to_client[4:], DESCRIBE_GROUP, 1).body
    assert body["groups"][0]["members"][0]["subscribed_topic_regex"] == "clicks-.*"
