"""Topic ids of a tenant: its own pass, those of others reach nothing, and answers name what was asked for."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.table import layout, schema
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import GROUP, NAMESPACES, TOPIC, TRANSACTIONAL_ID, PrefixLayer
from kproxy.session.cluster import Cluster
from kproxy.session.counters import Counters
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.rewrite.context import Context, NeedsLookup
from kproxy.session.rewrite.names.topic_ids import ANSWERS_BY_ID, disguise
from kproxy.tools.rehearse.dialogue import frames, request, response
from tests.support.frames import fetch as fetch_frame
from tests.support.frames import fetched as fetched_frame
from tests.support.frames import produce as produce_frame

TENANT = NameMaps(*(NameMap([PrefixLayer(space, b"a.")], space) for space in NAMESPACES))
BOUND = ConnectionSettings(names=TENANT)
MINE, FOREIGN, NEW = (UUID(int=0x4000 << 64 | 0x8 << 60 | number) for number in (1, 2, 3))
HIDDEN = UUID(bytes=disguise(FOREIGN.bytes, Context(Counters(), {})))
TOPICS = {"a.orders": MINE, "b.orders": FOREIGN}
FETCH, METADATA = 1, 3
fetch, fetched = partial(fetch_frame, version=16), partial(fetched_frame, version=16)
produce = partial(produce_frame, version=13, acks=1)


def topics_answer(topics: dict[str, UUID]) -> bytes:
    """The broker's answer to kproxy's own question for ids."""
    entry = {"error_code": 0, "is_internal": False, "partitions": [], "topic_authorized_operations": 0}
    listed = [entry | {"name": name, "topic_id": topic_id} for name, topic_id in topics.items()]
    return response(METADATA, 12, -0x6B70, topics=listed)


def last(data: bytes) -> bytes:
    """The last frame of these, without its size."""
    pos = 0
    while pos + 4 + int.from_bytes(data[pos : pos + 4], "big") < len(data):
        pos += 4 + int.from_bytes(data[pos : pos + 4], "big")
    return data[pos + 4 :]


def test_the_broker_is_asked_for_ids_that_nobody_knows(dialogue: Any) -> None:
    """Once, for those ids: then a client's own pass, and those of others go out as ids that no topic has."""
    talk = dialogue(BOUND).client(fetch(1, MINE, FOREIGN))
    question = decode_request(talk.to_broker[4:])
    assert question.api.name == "Metadata"
    assert {one["topic_id"] for one in question.body["topics"]} == {MINE, FOREIGN}
    talk.broker(topics_answer(TOPICS))

    asked = decode_request(last(talk.to_broker)).body["topics"]
    assert [one["topic_id"] for one in asked] == [MINE, HIDDEN]

    talk.broker(fetched(1, MINE, HIDDEN)).client(fetch(2, MINE))
    assert last(talk.to_broker) == fetch(2, MINE)[4:]
    talk.broker(fetched(2, MINE, HIDDEN))  # a fetch session repeats the error
    assert talk.to_client == fetched(1, MINE, FOREIGN) + fetched(2, MINE, FOREIGN)
    assert talk.shared.counters.events["topic_ids_unreachable"] == 1


def test_an_id_that_stays_unknown_is_asked_for_once(dialogue: Any) -> None:
    """As long as what the broker said is fresh. A Metadata answer that passes tells it, too."""
    talk = dialogue(BOUND).client(fetch(1, NEW)).broker(topics_answer(TOPICS))
    talk.broker(fetched(1)).client(fetch(2, NEW)).broker(fetched(2))
    sent = [decode_request(frame).api.name for frame in frames(talk.to_broker)]
    assert sent == ["Metadata", "Fetch", "Fetch"]
    talk.now = 11.0
    talk.client(fetch(2, NEW)).broker(topics_answer(TOPICS)).broker(fetched(2))
    assert [decode_request(frame).api.name for frame in frames(talk.to_broker)][3:] == ["Metadata", "Fetch"]

    talk.client(request(METADATA, 12, 3, topics=[{"topic_id": UUID(int=0), "name": "new"}]))
    entry = {"error_code": 0, "name": "a.new", "topic_id": NEW, "is_internal": False, "partitions": []}
    entry["topic_authorized_operations"] = 0
    talk.broker(response(METADATA, 12, 3, topics=[entry])).client(fetch(4, NEW))
    assert last(talk.to_broker) == fetch(4, NEW)[4:]


@pytest.mark.parametrize("advertise", [True, False])
def test_long_answers_stream_until_an_id_was_disguised(dialogue: Any, advertise: bool) -> None:
    """A tenant that sends its own ids pays nothing; one that does not has its answers held and looked at."""
    talk = dialogue(ConnectionSettings(names=TENANT, advertise=advertise)).client(fetch(1, MINE))
    talk.broker(topics_answer(TOPICS))
    answer = fetched(1, MINE, records=b"r" * 200_000)
    talk.broker(answer[:100_000])
    assert talk.shared.responses.used == 0
    assert len(talk.to_client) >= 90_000
    talk.broker(answer[100_000:])
    assert talk.to_client == answer

    talk.client(fetch(2, FOREIGN)).broker(fetched(2, HIDDEN, records=b"r" * 200_000), 50_000)
    assert talk.to_client == answer + fetched(2, FOREIGN, records=b"r" * 200_000)


def test_a_long_produce_request_streams_when_its_id_is_known(dialogue: Any) -> None:
    """So it does with a transactional id, which is put in as soon as it is here."""
    talk = dialogue(BOUND).client(produce(1, MINE)).broker(topics_answer(TOPICS))
    assert last(talk.to_broker) == produce(1, MINE)[4:]
    before = len(talk.to_broker)
    frame, expected = (
        produce(2, MINE, transactional_id=name, records=b"r" * 300_000) for name in ("worker", "a.worker")
    )
    for start in range(0, len(frame), 5000):
        talk.client(frame[start : start + 5000])
        assert talk.shared.requests.used == 0
    assert talk.to_broker[before:] == expected
    assert talk.shared.counters.rewritten["transactional_ids"] == 1

    talk.client(produce(3, FOREIGN, transactional_id="x", records=b"r" * 300_000), 70_000)
    assert last(talk.to_broker) == produce(3, HIDDEN, transactional_id="a.x", records=b"r" * 300_000)[4:]


def test_answers_by_id_hold_nothing_else() -> None:
    """What passes without a look has no name in it, in any version that is not looked at."""
    for key, since in ANSWERS_BY_ID.items():
        for version in schema.load(key).versions:
            slots = list(layout.body(key, version, "response").everywhere())
            if version >= since:
                assert not [slot.path for slot in slots if slot.kind in ("topic_name", "group_id", "transactional_id")]


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_a_foreign_id_finds_nothing(dialogue: Any, version: int) -> None:
    """The broker says UNKNOWN_TOPIC_ID of its own, and the client reads the id that it asked for."""
    talk = dialogue(BOUND).client(request(METADATA, version, 1, topics=[{"topic_id": FOREIGN, "name": None}]))
    talk.broker(topics_answer(TOPICS))
    assert decode_request(last(talk.to_broker)).body["topics"] == [{"topic_id": HIDDEN, "name": None}]
    entry = {"error_code": 100, "name": None, "topic_id": HIDDEN, "is_internal": False, "partitions": []}
    entry["topic_authorized_operations"] = 0
    talk.broker(response(METADATA, version, 1, topics=[entry]))
    found = decode_response(last(talk.to_client), METADATA, version).body["topics"]
    assert [(one["topic_id"], one["name"], one["error_code"]) for one in found] == [(FOREIGN, None, 100)]


def test_renames_do_not_look_at_ids(dialogue: Any) -> None:
    """Only tenants pay for that."""
    names = NameMaps(
        NameMap.of({"a": "b"}), NameMap.of({"a": "b"}, space=GROUP), NameMap.of({"a": "b"}, space=TRANSACTIONAL_ID)
    )
    plan = Plan(ConnectionSettings(names=names))
    assert plan[FETCH << 16 | 17].request is None
    assert TOPIC is names.topics.space if names.topics else False


def test_ids_of_another_making_are_told_apart_by_what_is_known(dialogue: Any) -> None:
    """If a broker's own ids look like those in disguise, a tenant's pass, and foreign ones are still out of reach."""
    mine, foreign = (UUID(int=0xB000 << 64 | number) for number in (1, 2))
    talk = dialogue(BOUND).client(fetch(1, mine, foreign))
    talk.broker(topics_answer({"a.x": mine, "b.x": foreign}))

    asked = decode_request(last(talk.to_broker)).body["topics"]
    assert asked[0]["topic_id"] == mine
    assert asked[1]["topic_id"] not in (mine, foreign)
    talk.broker(fetched(1, mine))
    assert talk.to_client == fetched(1, mine)


TURNS = [lambda one, at=at, mask=mask: bytes(one[:at] + bytes((one[at] ^ mask,)) + one[at + 1 :])
         for at in (0, 6, 8, 15) for mask in (0x01, 0x0F, 0x80, 0xF0, 0xFF)]  # fmt: skip


@pytest.mark.parametrize("version", [13, 16, 18])
def test_no_change_of_a_foreign_id_becomes_it_on_the_way(dialogue: Any, version: int) -> None:
    """Whatever bits the client has turned over, also in what would be sent for it, nothing real leaves."""
    talk = dialogue(BOUND)
    tried = [UUID(bytes=turn(one.bytes)) for one in (FOREIGN, HIDDEN) for turn in TURNS]
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    topics = [{"topic_id": one, "partitions": [part]} for one in tried]
    for correlation in (1, 2):
        talk.client(request(FETCH, version, correlation, topics=topics, session_epoch=-1))
        if correlation == 1:
            talk.broker(topics_answer(TOPICS))
        sent = [one["topic_id"] for one in decode_request(last(talk.to_broker)).body["topics"]]
        assert len(set(sent)) == len(set(tried))
        assert {one.bytes[6] >> 4 for one in sent} == {11}
        assert not {FOREIGN, HIDDEN} & set(sent)
        before = len(talk.to_client)
        answer = [{"topic_id": one, "partitions": []} for one in sent]
        talk.broker(response(FETCH, version, correlation, responses=answer))
        found = decode_response(talk.to_client[before + 4 :], FETCH, version).body["responses"]
        assert [one["topic_id"] for one in found] == tried


def test_more_unknown_ids_than_are_remembered_are_asked_for_once(dialogue: Any) -> None:
    """A request never waits for a second answer, however many it makes up."""
    talk = dialogue(BOUND)
    for correlation in (1, 2):
        ids = [UUID(int=correlation << 96 | 0x4000 << 64 | number) for number in range(12_000)]
        before = len(frames(talk.to_broker))
        talk.client(fetch(correlation, *ids))
        assert [len(decode_request(one).body["topics"]) for one in frames(talk.to_broker)[before:]] == [10_000]
        talk.broker(topics_answer({}))
        assert [decode_request(one).api.name for one in frames(talk.to_broker)[before:]] == ["Metadata", "Fetch"]
        talk.broker(fetched(correlation))


def test_cluster_unknown_ids_join_the_needed_lookup() -> None:
    """The lookup of all topics is not lost. An id is looked up once for a request and once for a connection."""
    context = Context(Counters(), {})
    needed = Cluster(context, None).unknown([MINE, NEW, MINE], needed=NeedsLookup(ids={FOREIGN.bytes}, all_topics=True))
    assert needed == NeedsLookup(ids={MINE.bytes, NEW.bytes, FOREIGN.bytes}, all_topics=True)
    assert Cluster(context, None).unknown([MINE]) is None
    context.looked_up = needed
    assert Cluster(context, None).unknown([HIDDEN]) is None


def test_all_topics_are_asked_for_once_a_second_at_most(dialogue: Any) -> None:
    """DeleteTopics is older than questions by id: for made-up ids the list that is there is taken."""
    talk = dialogue(BOUND)

    def delete(correlation: int, topic_id: UUID) -> list[str]:
        before = len(frames(talk.to_broker))
        talk.client(request(20, 6, correlation, topics=[{"name": None, "topic_id": topic_id}]))
        sent = [decode_request(one) for one in frames(talk.to_broker)[before:]]
        if sent[0].api.key == METADATA:
            assert sent[0].version == 10 and sent[0].body["topics"] is None
            entry = {"error_code": 0, "is_internal": False, "partitions": [], "topic_authorized_operations": 0}
            listed = [entry | {"name": name, "topic_id": one} for name, one in TOPICS.items()]
            talk.broker(response(METADATA, 10, -0x6B70, topics=listed))
        talk.broker(response(20, 6, correlation))
        return [decode_request(one).api.name for one in frames(talk.to_broker)[before:]]

    assert delete(1, MINE) == ["Metadata", "DeleteTopics"]
    assert [delete(number, UUID(int=number)) for number in range(2, 20)] == [["DeleteTopics"]] * 18
    talk.now += 1.5
    assert delete(20, UUID(int=20)) == ["Metadata", "DeleteTopics"]
    assert delete(21, MINE) == ["DeleteTopics"]


def test_an_entry_with_an_error_teaches_nothing(dialogue: Any) -> None:
    """A broker that says again what it was asked, name and id, must not be believed."""
    talk = dialogue(BOUND)
    both = {"name": "orders", "topic_id": MINE}
    talk.client(request(METADATA, 12, 1, topics=[both])).broker(topics_answer(TOPICS))
    said = {"error_code": 3, "name": "a.orders", "topic_id": FOREIGN, "is_internal": False, "partitions": []}
    said["topic_authorized_operations"] = 0
    talk.broker(response(METADATA, 12, 1, topics=[said]))
    talk.client(fetch(2, FOREIGN))
    assert decode_request(last(talk.to_broker)).body["topics"][0]["topic_id"] == HIDDEN


def test_an_answer_that_names_a_foreign_topic_by_id_names_none(dialogue: Any) -> None:
    """A group that somebody has subscribed past the proxy: its member is told an id that leads nowhere."""
    talk = dialogue(BOUND).client(fetch(1, MINE, FOREIGN)).broker(topics_answer(TOPICS))
    talk.broker(fetched(1, MINE))
    talk.client(request(68, 0, 2, group_id="g", member_id="m", member_epoch=1))
    parts = [{"topic_id": one, "partitions": [0]} for one in (MINE, FOREIGN)]
    talk.broker(response(68, 0, 2, member_id="m", assignment={"topic_partitions": parts}))
    found = decode_response(last(talk.to_client), 68, 0).body["assignment"]["topic_partitions"]
    assert [one["topic_id"] for one in found] == [MINE, HIDDEN]
