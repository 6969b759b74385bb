"""However the bytes of a connection are cut, the same is seen of them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.table import schema
from kproxy.record.exchange import Depth, Form
from kproxy.tools.rehearse.dialogue import request, response
from tests.protocol.golden.frames import golden
from tests.record.observer.watching import (
    BROKER,
    CLIENT,
    Talk,
    Watching,
    counted,
    play,
    random_talk,
    told,
    whole_summary,
)
from tests.support.random_peers import Manners

APIS = ["Produce", "Fetch", "ShareFetch", "Metadata", "Heartbeat", "SaslAuthenticate", "AlterConfigs", "Envelope"]


def golden_talk() -> Talk:
    """Every request of the golden frames that has a response among them, and that response."""
    asked = {(one.key, one.version): one.frame for one in golden() if one.direction == "request"}
    talk: Talk = []
    answers = [one for one in golden() if one.direction == "response" and (one.key, one.version) in asked]
    for number, one in enumerate(answers):
        if one.key == 17 and one.version == 0:
            continue  # raw tokens would follow
        frame, correlation = asked[one.key, one.version], number.to_bytes(4, "big")
        talk.append((CLIENT, len(frame).to_bytes(4, "big") + frame[:4] + correlation + frame[8:]))
        talk.append((BROKER, len(one.frame).to_bytes(4, "big") + correlation + one.frame[4:]))
    return talk


TALK = golden_talk()


@pytest.mark.parametrize("chunk", [1, 7, 100])
@pytest.mark.parametrize("depth", [Depth.SKETCH, Depth.FULL])
def test_golden_frames_in_chunks(depth: Depth, chunk: int) -> None:
    """Frames of real clients and brokers give the same exchanges whole, byte by byte and in pieces."""
    whole, pieces = play(TALK, Watching(depth)).end(), play(TALK, Watching(depth), chunk=chunk).end()

    assert [told(one) for one in whole.seen] == [told(one) for one in pieces.seen]
    assert whole.counts() == pieces.counts()
    assert whole.observer.requests == len(TALK) // 2 > 250


def test_golden_frames_can_all_be_read() -> None:
    """Each of them has both bodies, save those that are withheld; acks=0 aside, each is answered."""
    seen = play(TALK, Watching(Depth.FULL)).end().seen

    assert {one.outcome for one in seen} <= {"answered", "no_answer_due"}
    assert [] == [(one.api, one.unread) for one in seen if one.unread]
    bare = {one.api for one in seen if one.request_body is None or (one.response_body is None and one.acks != 0)}
    assert {"SaslAuthenticate"} <= bare <= {"SaslAuthenticate", "CreateDelegationToken", "RenewDelegationToken",
                                            "ExpireDelegationToken", "DescribeDelegationToken",
                                            "AlterUserScramCredentials"}  # fmt: skip


@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_other_buffers(kind: type) -> None:
    """Bytes and views are taken as well as the driver's bytearray."""
    usual, other = play(TALK, Watching(Depth.SKETCH)), play(TALK, Watching(Depth.SKETCH, kind=kind))

    assert [told(one) for one in usual.seen] == [told(one) for one in other.seen]


@settings(deadline=None, max_examples=60)
@given(st.randoms(use_true_random=False), st.sampled_from(list(Depth)))
def test_random_cuts(random: Random, depth: Depth) -> None:
    """Random traffic with answers that are missing, swapped or broken, cut anywhere: the same exchanges and lines.

    Of rows, none are broken: where a frame is here as a whole, broken tagged fields do no harm to its rows.
    """
    broken = 0.0 if depth is Depth.ROWS else 0.1
    manners = Manners(silent=0.1, swap=0.2, mangle=broken, junk=broken / 2)
    talk = random_talk(random, APIS, 12, manners, mangle=broken)
    whole, pieces = (Watching(depth, most=3000, summary=whole_summary()) for _ in range(2))
    play(talk, whole).end()
    play(talk, pieces, Random(random.random())).end()

    assert whole.counts() == pieces.counts()
    assert [told(one) for one in whole.seen] == [told(one) for one in pieces.seen]
    lines = [one.observer.summary.drain(200.0, everything=True) for one in (whole, pieces) if one.observer.summary]
    assert counted(lines[0]) == counted(lines[1])


@pytest.mark.parametrize("depth", [Depth.SKETCH, Depth.FULL])
@pytest.mark.parametrize("excess", [0, 1])
def test_frames_longer_than_the_kept_bytes_are_cut(depth: Depth, excess: int) -> None:
    """Frames with records, whole in one read and in pieces, around the limit of kept bytes."""
    records = encode_batch([Record(0, 0, None, b"v" * 100)])
    topic = {"name": "t", "partition_data": [{"index": 0, "records": records}]}
    asked = request(0, 9, 1, acks=1, topic_data=[topic])
    part = {"partition_index": 0, "high_watermark": 9, "records": records}
    answer = response(1, 12, 2, responses=[{"topic": "t", "partitions": [part]}])
    for talk, most, which in (
        ([(CLIENT, asked), (BROKER, response(0, 9, 1, responses=[]))], len(asked) - 4 - excess, "request"),
        ([(CLIENT, request(1, 12, 2)), (BROKER, answer)], len(answer) - 4 - excess, "response"),
    ):
        whole, pieces = (Watching(depth, most=most) for _ in range(2))
        play(talk, whole).end()
        play(talk, pieces, chunk=7).end()
        assert [told(one) for one in whole.seen] == [told(one) for one in pieces.seen]
        kept = [len(getattr(one.seen[0], which).data) for one in (whole, pieces)]
        assert kept[0] == kept[1]
        assert kept[0] == most or depth is Depth.FULL, "a sketch of a long frame can be longer"


def test_long_frames_are_sketched() -> None:
    """A Fetch response longer than a chunk is kept without its records, and reads like one that is kept whole."""
    batch = encode_batch([Record(at, 0, None, b"v" * 3000) for at in range(100)])
    parts = [{"partition_index": at, "high_watermark": 9, "records": batch} for at in range(3)]
    answer = response(1, 12, 5, responses=[{"topic": "t", "partitions": parts}])
    asked = request(1, 12, 5)
    sketched = Watching(Depth.SKETCH).client(asked).broker(answer, 1 << 18).seen[0]
    whole = Watching(Depth.FULL).client(asked).broker(answer, 1 << 18).seen[0]

    assert sketched.response is not None and whole.response is not None
    assert (Form.SKETCH, Form.WHOLE) == (sketched.response.form, whole.response.form)
    assert len(sketched.response.data) < 1000 < len(whole.response.data) == len(answer) - 4
    assert sketched.response_body == whole.response_body
    assert schema.load(1).name == sketched.api


@pytest.mark.parametrize("depth", [Depth.COUNT, Depth.ROWS, Depth.SKETCH, Depth.FULL])
@pytest.mark.parametrize("version", [2, 13])
def test_summary_throttle_time_is_independent_of_cuts(depth: Depth, version: int) -> None:
    """A Produce response has its throttle time at the end, so it is found or left out for whole frames and pieces."""
    talk: Talk = []
    for number in range(4):
        talk += [
            (CLIENT, request(0, version, number, acks=1)),
            (BROKER, response(0, version, number, responses=[], throttle_time_ms=70)),
        ]
    whole, pieces = (Watching(depth, summary=whole_summary()) for _ in range(2))
    play(talk, whole).end()
    play(talk, pieces, chunk=7).end()
    lines = [one.observer.summary.drain(200.0, everything=True) for one in (whole, pieces) if one.observer.summary]

    assert counted(lines[0]) == counted(lines[1])


@pytest.mark.parametrize("length", range(4, 12))
def test_response_shorter_than_its_fields_is_counted(length: int) -> None:
    """A broker may send a response that ends within its header or its first field."""
    frame = response(3, 9, 1, brokers=[], topics=[])[4 : 4 + length]
    watching = Watching(Depth.COUNT, summary=whole_summary())
    for _ in range(3):
        watching.client(request(3, 9, 1, topics=[])).broker(len(frame).to_bytes(4, "big") + frame)

    assert watching.end().observer.responses == 3
