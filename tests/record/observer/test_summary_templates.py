"""Exchanges that are like others before them are counted without being read, and the counts are those of a reader."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.records import Producer, Record, encode_batch
from kproxy.record.exchange import Depth
from kproxy.record.observer.summary_templates import RequestTemplate, RequestTemplates
from kproxy.tools.rehearse.dialogue import request, response
from tests.record.observer.watching import BROKER, CLIENT, Talk, Watching, counted, play, whole_summary

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
PRODUCE, FETCH, HEARTBEAT = 0, 1, 12


def records(random: Random, base: int = 0) -> bytes:
    """Mostly one batch of a few records, sometimes several, none, or something else."""
    if random.random() < 0.1:
        return random.choice((b"", b"\0" * 20))
    number, size = random.choice((1, 1, 3)), random.choice((10, 10, 120, 20000))
    made = [Record(base + at, 0, b"k", random.randbytes(8) * (size // 8)) for at in range(number)]
    producer = Producer(*random.choice(((-1, -1, -1), (7, 0, 0), (8, 1, 5))))
    batch = encode_batch(made, codec=random.choice((0, 0, 0, 1)), producer=producer)
    return batch * random.choice((1, 1, 1, 2))


def produce(random: Random, version: int, correlation: int) -> tuple[bytes, bytes]:
    partitions = [random.randrange(3) for _ in range(random.choice((1, 1, 1, 2)))]
    named: dict[str, Any] = {"name": f"topic-{random.randrange(2)}"}
    if version >= 13:
        named = {"topic_id": UUID(int=random.randrange(2) + 7)}
    acks = random.choice((-1, -1, 1, 0))
    parts = [{"index": index, "records": random.choice((None, *[records(random)] * 9))} for index in partitions]
    body: dict[str, Any] = {"acks": acks, "topic_data": [named | {"partition_data": parts}]}
    done = [
        {
            "index": index,
            "error_code": random.choice((0, 0, 0, 0, 6)),
            "base_offset": random.choice((-1, 9000 - 10 * correlation)),
        }
        for index in partitions
    ]
    answer = {"responses": [named | {"partition_responses": done}]}
    if version:
        answer["throttle_time_ms"] = random.choice((0, 0, 0, 5))
    client = random.choice(("one", "one", "two", None))
    asked = request(PRODUCE, version, correlation, client, **body)
    return asked, b"" if acks == 0 else response(PRODUCE, version, correlation, **answer)


def fetch(random: Random, version: int, correlation: int) -> tuple[bytes, bytes]:
    topics = []
    for _ in range(random.choice((0, 1, 1, 1, 2))):
        named: dict[str, Any] = {"topic_id": UUID(int=7)} if version >= 13 else {"topic": "topic-1"}
        parts = [
            {"partition_index": random.randrange(2), "error_code": random.choice((0, 0, 0, 0, 1)),
             "high_watermark": random.choice((-1, 9000 - 10 * correlation)),
             "records": random.choice((None, *[records(random, 9000 - 10 * correlation)] * 9))}
            for _ in range(random.choice((1, 1, 1, 2)))
        ]  # fmt: skip
        topics.append(named | {"partitions": parts})
    answer: dict[str, Any] = {"responses": topics}
    if version >= 7:
        answer |= {"error_code": random.choice((0, 0, 0, 70)), "session_id": random.choice((3, 3, 4))}
    return request(FETCH, version, correlation), response(FETCH, version, correlation, **answer)


def heartbeat(random: Random, version: int, correlation: int) -> tuple[bytes, bytes]:
    answer = {"error_code": random.choice((0, 0, 27))}
    return request(HEARTBEAT, version, correlation), response(HEARTBEAT, version, correlation, **answer)


def repeated(random: Random, count: int) -> Talk:
    """A conversation about few things, with few versions: much in it comes again."""
    versions = {PRODUCE: random.choice((2, 3, 8, 9, 12, 13)), FETCH: random.choice((3, 4, 6, 11, 12, 13, 17)),
                HEARTBEAT: random.choice((0, 1, 4))}  # fmt: skip
    kinds = ((PRODUCE, produce), (PRODUCE, produce), (FETCH, fetch), (FETCH, fetch), (HEARTBEAT, heartbeat))
    talk: Talk = []
    while count > 0:
        pairs = []
        for _ in range(random.choice((1, 1, 4))):
            key, make = random.choice(kinds)
            pairs.append(make(random, versions[key], count))
            count -= 1
        talk += [(CLIENT, b"".join(one for one, _ in pairs)), (BROKER, b"".join(one for _, one in pairs))]
    return [one for one in talk if one[1]]


@pytest.mark.parametrize("seed", range(300 if EVERYTHING else 30))
def test_the_same_counts(seed: int) -> None:
    """Random Produce and Fetch traffic gives the same lines the short way, cut anywhere, and all decoded."""
    talk = repeated(Random(seed), 60)
    short, cut = (Watching(Depth.ROWS, summary=whole_summary()) for _ in range(2))
    decoded = Watching(Depth.SKETCH, summary=whole_summary())
    for at, one in enumerate(talk):
        for watching in (short, cut, decoded):
            watching.now = 100.0 + at * 0.7
        play([one], short)
        play([one], cut, Random(at))
        play([one], decoded)
    lines = [counted(one.end().observer.summary.drain(900.0, everything=True)) for one in (short, cut, decoded)]

    assert lines[0] == lines[1]
    assert lines[0] == lines[2]
    assert short.counts() == cut.counts() == decoded.counts()
    assert short.seen == cut.seen == []


@pytest.mark.parametrize("version", [3, 9, 12, 13])
def test_a_producer_takes_the_short_way(version: int) -> None:
    """From the second on, requests to one partition and their responses are not read any more."""
    named: dict[str, Any] = {"topic_id": UUID(int=7)} if version >= 13 else {"name": "orders"}
    batch = encode_batch([Record(0, 0, None, b"v" * 60)])
    watching = Watching(Depth.ROWS, summary=whole_summary())
    for number in range(5):
        parts = [{"index": 2, "records": batch}]
        watching.client(request(PRODUCE, version, number, acks=-1, topic_data=[named | {"partition_data": parts}]))
        assert isinstance(watching.observer.open[0][1], RequestTemplate) == (number > 0)
        done = [{"index": 2, "base_offset": 10 + number}]
        watching.broker(response(PRODUCE, version, number, responses=[named | {"partition_responses": done}]))
    lines = watching.observer.summary.drain(200.0, everything=True)
    api, part = sorted(lines, key=lambda line: line.partition is not None)

    assert (5, 5, -1) == (api.count, sum(api.latency_buckets or ()), api.acks)
    assert ("found" if version >= 13 else "orders", 2) == (part.topic, part.partition)
    assert (5, 5, 5 * len(batch), 5, 14, False) == (
        part.count, part.records, part.bytes, part.batches, part.last_offset, part.idempotent)  # fmt: skip


def test_frames_behind_each_other() -> None:
    """32 requests in one chunk and their 32 responses in another are all counted."""
    batch = encode_batch([Record(0, 0, None, b"v" * 60)])
    body = {"acks": 1, "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]}
    done = [{"name": "t", "partition_responses": [{"index": 0, "base_offset": 3}]}]
    watching = Watching(Depth.ROWS, summary=whole_summary())
    watching.client(b"".join(request(PRODUCE, 12, number, **body) for number in range(32)))
    watching.broker(b"".join(response(PRODUCE, 12, number, responses=done) for number in range(32)))
    lines = watching.observer.summary.drain(200.0, everything=True)

    assert (32, 32, 0) == watching.counts()[:3]
    assert [32, 32] == [line.count for line in lines]


def test_many_exchanges_are_folded() -> None:
    """More exchanges than latencies are kept of are all in their buckets."""
    watching = Watching(Depth.ROWS, summary=whole_summary())
    for number in range(1000):
        watching.now = 100.0
        watching.client(request(HEARTBEAT, 4, number))
        watching.now = 100.0 + (0.0005 if number % 2 else 0.003)
        watching.broker(response(HEARTBEAT, 4, number))
    (line,) = watching.observer.summary.drain(130.0, everything=True)

    assert (1000, 500, 0, 500) == (line.count, *(line.latency_buckets or [])[:3])
    assert 1750.0 == pytest.approx(line.latency_ms)
    assert 3.0 == pytest.approx(line.latency_max_ms)


def test_rules_act_on_the_short_way() -> None:
    """What kproxy did to an exchange that went the short way is in its line."""
    watching = Watching(Depth.ROWS, summary=whole_summary())
    for number in range(3):
        watching.client(request(HEARTBEAT, 4, number))
        watching.observer.waited(number, 0.25, response=False, by_rule=True)
        watching.observer.waited(number, 0.5, response=True, by_rule=False)
        watching.broker(response(HEARTBEAT, 4, number))
    (line,) = watching.observer.summary.drain(130.0, everything=True)

    assert (3, 750.0, 1500.0) == (line.count, line.rule_ms, line.wait_ms)


def long_produce(version: int, number: int, size: int) -> bytes:
    """A request to write one batch of some bytes more than `size`."""
    named: dict[str, Any] = {"topic_id": UUID(int=7)} if version >= 13 else {"name": "orders"}
    parts = [{"index": 2, "records": encode_batch([Record(0, 0, None, b"v" * size)] * 2)}]
    return request(PRODUCE, version, number, acks=-1, topic_data=[named | {"partition_data": parts}])


def long_fetch(version: int, number: int, size: int) -> bytes:
    """An answer with one batch of some bytes more than `size`."""
    named: dict[str, Any] = {"topic_id": UUID(int=7)} if version >= 13 else {"topic": "orders"}
    batch = encode_batch([Record(number + at, 0, None, b"v" * size) for at in range(2)])
    parts = [{"partition_index": 2, "high_watermark": 90, "records": batch}]
    return response(FETCH, version, number, responses=[named | {"partitions": parts}])


@pytest.mark.parametrize("size", [3000, 400_000, 3_000_000])
@pytest.mark.parametrize("version", [3, 9, 12, 13])
def test_the_rest_of_a_long_request_is_not_looked_at(version: int, size: int) -> None:
    """Its head says all that counts, be it the first of its kind or a later one; so nobody need see the rest."""
    watching = Watching(Depth.ROWS, summary=whole_summary())
    watching.client(request(HEARTBEAT, 0, 0)).broker(response(HEARTBEAT, 0, 0))
    for number in range(3):
        asked = long_produce(version, number, size)
        watching.client(asked[:1000])
        assert isinstance(watching.observer.open[0][1], RequestTemplate)
        assert watching.observer.unseen(response=False) == len(asked) - 1000
        watching.observer.pass_over(500, watching.now, response=False)
        watching.client(asked[1500:], 70_000)
        assert watching.observer.unseen(response=False) == 0
        named: dict[str, Any] = {"topic_id": UUID(int=7)} if version >= 13 else {"name": "orders"}
        done = [{"index": 2, "base_offset": 10 * number}]
        watching.broker(response(PRODUCE, version, number, responses=[named | {"partition_responses": done}]))
    lines = [line for line in watching.observer.summary.drain(200.0, everything=True) if line.api == "Produce"]
    api, part = sorted(lines, key=lambda line: line.partition is not None)

    assert (3, 3 * len(asked)) == (api.count, api.request_bytes)
    batch = len(encode_batch([Record(0, 0, None, b"v" * size)] * 2))
    assert (3, 6, 3 * batch, 3, 21) == (part.count, part.records, part.bytes, part.batches, part.last_offset)


@pytest.mark.parametrize("size", [3000, 400_000])
@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_the_rest_of_a_long_answer_is_not_looked_at(version: int, size: int) -> None:
    """And the exchange is over when its last byte has passed, with what was said of it in the meantime."""
    watching = Watching(Depth.ROWS, summary=whole_summary())
    watching.client(request(HEARTBEAT, 0, 0)).broker(response(HEARTBEAT, 0, 0))
    for number in range(3):
        watching.now = 100.0
        watching.client(request(FETCH, version, number))
        answer = long_fetch(version, number, size)
        watching.broker(answer[:1000])
        assert watching.observer.unseen(response=True) == len(answer) - 1000
        watching.observer.waited(number, 0.5, response=True, by_rule=True)
        watching.observer.pass_over(500, watching.now, response=True)
        watching.broker(answer[1500:2000])
        assert watching.counts()[1] == number + 1
        watching.now = 101.0
        watching.broker(answer[2000:], 70_000)
        assert watching.counts()[1] == number + 2
    lines = [line for line in watching.observer.summary.drain(200.0, everything=True) if line.api == "Fetch"]
    api, part = sorted(lines, key=lambda line: line.partition is not None)

    assert (3, 3 * len(answer), 3000.0, 1500.0) == (api.count, api.response_bytes, api.latency_ms, api.rule_ms)
    batch = len(encode_batch([Record(0, 0, None, b"v" * size)] * 2))
    assert (3, 6, 3 * batch, 3, 3, 90) == (
        part.count, part.records, part.bytes, part.batches, part.last_offset, part.high_watermark)  # fmt: skip


def test_a_connection_that_ends_within_a_long_answer() -> None:
    """It was not answered."""
    watching = Watching(Depth.ROWS, summary=whole_summary())
    watching.client(request(HEARTBEAT, 0, 0)).broker(response(HEARTBEAT, 0, 0))
    watching.client(request(FETCH, 12, 1)).broker(long_fetch(12, 1, 5000)[:1000]).end()
    (line,) = (one for one in watching.observer.summary.drain(200.0, everything=True) if one.api == "Fetch")

    assert (2, 1, 1) == watching.counts()[:3]
    assert (1, 0, None) == (line.count, line.response_bytes, line.error)
    assert not sum(line.latency_buckets or ())


@pytest.mark.parametrize("version", [3, 9])
def test_what_looks_like_a_batch_in_a_long_request(version: int) -> None:
    """Of two partitions the first one's batch is not all there is, however the head looks: they are read one by one."""
    batch = encode_batch([Record(0, 0, None, b"v" * 5000)])
    parts = [{"index": index, "records": batch} for index in (1, 2)]
    asked = request(PRODUCE, version, 1, acks=-1, topic_data=[{"name": "orders", "partition_data": parts}])
    watching = Watching(Depth.ROWS, summary=whole_summary())
    watching.client(request(HEARTBEAT, 0, 0)).broker(response(HEARTBEAT, 0, 0))
    watching.client(asked, 1000)
    assert not isinstance(watching.observer.open[0][1], RequestTemplate)
    done = [{"index": index, "base_offset": 7} for index in (1, 2)]
    watching.broker(response(PRODUCE, version, 1, responses=[{"name": "orders", "partition_responses": done}]))
    lines = watching.observer.summary.drain(200.0, everything=True)

    assert [1, 2] == sorted(line.partition for line in lines if line.partition is not None)


def test_request_templates_many_name_lengths_are_learned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer to 20 topics, each with a name of another length, has templates for three sizes of batches."""
    learned, learn = Counter[str](), RequestTemplates.learn

    def counting(family: RequestTemplates, frame: bytes, size: int) -> RequestTemplate | None:
        learned["requests"] += 1
        return learn(family, frame, size)

    monkeypatch.setattr(RequestTemplates, "learn", counting)
    watching = Watching(Depth.ROWS, summary=whole_summary())
    watching.client(request(HEARTBEAT, 0, 0)).broker(response(HEARTBEAT, 0, 0))
    for number in range(300):
        name, size = "t" * (number % 20 + 1), (10, 1000, 20_000)[number // 20 % 3]
        parts = [{"index": 0, "records": encode_batch([Record(0, 0, None, b"v" * size)])}]
        watching.client(request(PRODUCE, 9, number, acks=1, topic_data=[{"name": name, "partition_data": parts}]))
        done = [{"name": name, "partition_responses": [{"index": 0, "base_offset": number}]}]
        watching.broker(response(PRODUCE, 9, number, responses=done))

    assert learned["requests"] == 60
    assert watching.counts()[:2] == (301, 301)
