"""A limit holds for who reconnects for each request; what limits are kept by does not grow with what clients say."""

from __future__ import annotations

import pytest

from kproxy.core.plan import Bound, Plan
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts
from kproxy.rules.quota.effect import QuotaEffect
from kproxy.testing.dialogue import Dialogue, frames, request, response
from tests.support.frames import produce

PRODUCE, FETCH, METADATA, CLIENT = 0, 1, 3, 0
RECORDS = b"r" * 10_000
STEP = 0.01
ANYWHERE = Facts(listener="l", cluster="c", node=None, client_address="10.0.0.1")


class Limited:
    """Connections one after the other, all under the same rule, with a clock of their own."""

    def __init__(self, line: str) -> None:
        held = parse_rules(f"rules: [{{name: r, kind: quota, {line}}}]").bind(ANYWHERE)
        self.rules, self.plan, self.now, self.numbers = held, Plan(Bound(advertise=False), held.live), 0.0, 0

    def connect(self) -> Dialogue:
        """Another connection."""
        self.numbers += 1
        return Dialogue(plan=self.plan, number=self.numbers, now=self.now)


def sent_at(talk: Dialogue, least: int, patience: float = 1000.0) -> float | None:
    """When so many bytes had gone to the broker; None: the connection was closed instead."""
    end = talk.now + patience
    while len(talk.to_broker) < least and talk.now < end:
        if talk.closed is not None:
            return None
        talk.later(STEP)
    return talk.now


@pytest.mark.parametrize("pipelined", [1, 3])
@pytest.mark.parametrize("quota", ["produce: 50kB/s", "requests: 5/s"])
def test_who_reconnects_for_each_request_is_limited_all_the_same(quota: str, pipelined: int) -> None:
    """Within a tenth of the limit, after the burst; also with several requests on each connection."""
    limited = Limited(quota)
    rate, each = (50_000, len(produce(1, "orders", records=RECORDS))) if "produce" in quota else (5, 1)
    total = 0
    for _ in range(100):
        talk = limited.connect()
        asked = [produce(number, "orders", records=RECORDS) for number in range(pipelined)]
        talk.client(b"".join(asked))
        at = sent_at(talk, sum(map(len, asked)))
        assert at is not None
        limited.now = at  # the client goes, and does not wait for what it would be told
        total += each * pipelined

    assert total / (limited.now + 1.0) == pytest.approx(rate, rel=0.1)


@pytest.mark.parametrize("begins_late", [False, True])
def test_who_sends_many_at_once_is_limited_all_the_same(begins_late: bool) -> None:
    """Behind a request that has to wait, those beyond max_throttle wait, too. All that was read at once went on before
    that, and as much again after the longest wait."""
    limited = Limited("requests: 10/s, max_throttle: 5s")
    if begins_late:
        limited.connect().client(b"".join(request(METADATA, 9, number, topics=[]) for number in range(20)))
    talk = limited.connect()
    sent = answered = 0
    while talk.now < 60:
        if talk.read[CLIENT]:
            talk.client(b"".join(request(METADATA, 9, sent + number, topics=[]) for number in range(300)))
            sent += 300
        asked = frames(talk.to_broker)
        for one in asked[answered:]:
            talk.broker(response(METADATA, 9, int.from_bytes(one[4:8], "big")))
        answered = len(asked)
        talk.later(0.5)

    assert talk.closed is None
    assert 500 <= answered <= 10 * (60 + 1 + 5) * 1.1


def test_who_sends_more_at_once_than_any_debt_is_closed() -> None:
    """Debts are kept for ten minutes; what is beyond would go on when these are over."""
    limited = Limited("requests: 1/s, max_throttle: 5s")
    talk = limited.connect()
    talk.client(b"".join(request(METADATA, 9, number, topics=[]) for number in range(3000)))
    talk.later(1000)

    assert talk.closed is not None
    assert len(frames(talk.to_broker)) <= 610


def test_connections_side_by_side_share_the_limit() -> None:
    """Twenty that come at once, each with one request: the later ones wait for the earlier ones."""
    limited = Limited("produce: 50kB/s")
    talks = [limited.connect() for _ in range(20)]
    for talk in talks:
        talk.client(produce(1, "orders", records=RECORDS))
    ends = [sent_at(talk, len(RECORDS)) for talk in talks]
    last = max(end for end in ends if end is not None)

    assert None not in ends
    assert 20 * len(produce(1, "orders", records=RECORDS)) / (last + 1.0) == pytest.approx(50_000, rel=0.1)


def test_nobody_is_served_beyond_the_longest_wait() -> None:
    """A connection whose turn would come after max_throttle is closed, and is not charged."""
    limited = Limited("produce: 50kB/s, max_throttle: 5s")
    limited.connect().client(produce(1, "orders", records=b"r" * 1_000_000))
    talk = limited.connect()
    talk.client(produce(1, "orders", records=RECORDS))
    before = len(talk.to_broker)
    limited.now = 16.0
    later = limited.connect()
    later.client(produce(1, "orders", records=RECORDS))

    assert (before, talk.closed is not None) == (0, True)
    assert (at := sent_at(later, len(RECORDS))) is not None
    assert at == pytest.approx((len(produce(1, "orders", records=b"r" * 1_000_000)) - 50_000) / 50_000, abs=0.1)


def test_fetches_on_new_connections_wait_too() -> None:
    """What was fetched on other connections is paid for first."""
    limited = Limited("fetch: 50kB/s")
    first = limited.connect()
    asked = request(FETCH, 12, 1, max_bytes=1 << 20, topics=[{"topic": "a", "partitions": [{"partition": 0}]}])
    part = {"partition_index": 0, "records": b"r" * 150_000}
    first.client(asked).broker(response(FETCH, 12, 1, responses=[{"topic": "a", "partitions": [part]}]))
    second = limited.connect()
    second.client(asked)
    at = sent_at(second, 1)

    assert at is not None and at == pytest.approx(2.0, abs=0.1)


def test_a_connection_that_began_without_a_debt_is_answered_at_once() -> None:
    """As ever: the request is done, and its answer says how long to wait."""
    limited = Limited("produce: 50kB/s")
    talk = limited.connect()
    asked = [produce(number, "orders", records=b"r" * 100_000) for number in range(3)]
    talk.client(b"".join(asked))

    assert talk.to_broker == b"".join(asked)


def test_limits_are_kept_by_names_of_bounded_length() -> None:
    """A client id of 32,000 characters is kept by its beginning and a digest; two of them are two."""
    limited = Limited("requests: 1/s, per: [client_id]")
    effect = limited.rules.live[0].effect
    assert isinstance(effect, QuotaEffect) and effect.requests is not None
    for number in range(3):
        limited.connect().client(request(METADATA, 9, 1, "x" * 32_000 + str(number), topics=None))
    keys = list(effect.requests.buckets)

    assert len(keys) == 3
    assert all(len(str(word)) < 400 for key in keys for word in key)


def test_a_limit_by_topic_is_not_forgotten_by_naming_many_topics() -> None:
    """Ten thousand limits are kept; who has overdrawn one names as many others, which do not exist."""
    limited = Limited("per: [topic], produce: 50kB/s")
    limited.connect().client(produce(1, "orders", records=b"r" * 500_000))
    many = [{"name": f"no-{number}", "partition_data": [{"index": 0, "records": b"r"}]} for number in range(10_001)]
    limited.connect().client(request(PRODUCE, 9, 2, acks=-1, topic_data=many))
    last = limited.connect()
    last.client(produce(3, "orders", records=RECORDS))
    at = sent_at(last, len(RECORDS))

    assert at is not None and at == pytest.approx(
        (len(produce(1, "orders", records=b"r" * 500_000)) - 50_000) / 50_000, rel=0.1
    )
