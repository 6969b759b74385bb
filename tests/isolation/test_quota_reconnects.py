"""A quota holds for all connections together, whatever each of them did before, and for any frame size.

The bound of each test: in every window, at most the rate times the window, one burst, and one frame.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from kproxy.protocol import Message, encode
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts
from kproxy.rules.kinds.base.quota import QuotaEffect
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.session.commands import Wake
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session import Session
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response
from tests.rules.shared_table import commons
from tests.support.frames import produce

PRODUCE, FETCH, METADATA, CLIENT = 0, 1, 3, 0
RECORDS = b"r" * 10_000
ANYWHERE = Facts(listener="l", cluster="c", node=None, client_address="10.0.0.1")


class Limited:
    """Connections under the same rule in one process or more, with a clock of their own and a driver that wakes."""

    def __init__(self, line: str, workers: int = 1) -> None:
        self.rules = [parse_rules(f"rules: [{{name: r, kind: quota, {line}}}]").bind(ANYWHERE) for _ in range(workers)]
        for rules, common in zip(self.rules, commons(workers), strict=True):
            rules.live[0].effect.common = common if workers > 1 else None
        self.bound = ConnectionSettings(advertise=False)
        self.now, self.talks, self.left = 0.0, dict[Session, Dialogue](), set[Session]()
        self.sent: dict[Session, int] = {}
        self.admitted: list[tuple[float, int]] = []  # times and sizes of frames that went to the broker
        self.asked = 0  # times that a session was called

    def connect(self) -> Dialogue:
        """Open another connection, in the next worker."""
        number = len(self.talks) + 1
        rules = self.rules[number % len(self.rules)]
        plan = Plan(self.bound, rules.live)
        talk = Dialogue(plan=plan, number=number, now=self.now)
        talk.session.owner = Owner(self, talk)
        self.talks[talk.session], self.sent[talk.session] = talk, 0
        return talk

    def send(self, talk: Dialogue, data: bytes) -> None:
        talk.now = self.now
        talk.client(data)
        self.settle()

    def leave(self, talk: Dialogue) -> None:
        """Let the client of a connection disconnect; its waiting requests are lost."""
        talk.session.end(self.now)
        self.left.add(talk.session)
        self.settle()

    def settle(self) -> None:
        """Wake those that others have woken, then note what went to the broker, and answer it."""
        changed = True
        while changed:
            changed = False
            for session, talk in list(self.talks.items()):
                woken = [one for one in (*talk.log, *session.commands) if isinstance(one, Wake)]
                talk.log.clear()
                if session in self.left:
                    session.commands.clear()
                for one in woken:
                    for other in one.sessions:
                        changed = True
                        self.granted(other)
            for session, talk in self.talks.items():
                done, out = self.sent[session], talk.to_broker
                while len(out) > done and session not in self.left:
                    size = 4 + int.from_bytes(out[done : done + 4], "big")
                    if len(out) < done + size:
                        break
                    self.admitted.append((self.now, size - 4))  # charged without the size field
                    number = int.from_bytes(out[done + 8 : done + 12], "big")
                    done += size
                    self.sent[session] = done
                    if int.from_bytes(out[done - size + 4 : done - size + 6], "big") == PRODUCE:
                        talk.broker(response(PRODUCE, 9, number))
                        changed = True

    def granted(self, session: Any) -> None:
        if session not in self.left:
            talk = self.talks[session]
            talk.now = self.now
            self.asked += 1
            session.granted(self.now)
            talk.obey()

    def until(self, end: float) -> None:
        """Let time pass, and call each session at the times that it has asked for."""
        while True:
            due = [(min(talk.wakes), number, talk) for number, talk in enumerate(self.talks.values()) if talk.wakes]
            if not due or min(due)[0] > end:
                break
            when, _, talk = min(due)
            self.now = max(self.now, when)
            talk.wakes.remove(when)
            if talk.session not in self.left:
                self.asked += 1
                talk.now = self.now
                talk.session.tick(self.now)
                talk.obey()
                self.settle()
        self.now = end

    def worst(self, rate: float, burst: float) -> float:
        """Return the largest excess of a window over rate × window + burst + its longest frame."""
        most, level, then = 0.0, burst, 0.0
        for when, size in sorted(self.admitted):  # at the same time in any order
            level = min(burst, level + (when - then) * rate)
            then = when
            most = max(most, -level)
            level -= size
        return most


class Owner:
    """Driver of a dialogue; its client has left when it has sent FIN."""

    def __init__(self, limited: Limited, talk: Dialogue) -> None:
        self.limited, self.talk, self.client_left = limited, talk, False

    def released(self) -> None:
        self.limited.granted(self.talk.session)


def sized(number: int, size: int, acks: int = 1) -> bytes:
    """Return a Produce request of about `size` bytes."""
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": b"r" * size}]}]
    return request(PRODUCE, 9, number, acks=acks, topic_data=data)


@pytest.mark.parametrize("workers", [1, 3])
def test_quota_sixty_open_connections_keep_to_the_limit(workers: int) -> None:
    """Connections that were open before the debt send frames of 400 kB, each as soon as it is read again."""
    limited = Limited("produce: 100kB/s, max_throttle: 1s", workers)
    talks = [limited.connect() for _ in range(60)]
    for number, talk in enumerate(talks):
        limited.send(talk, sized(number, 100))
    limited.until(30)
    for second in range(30, 90):
        for talk in talks:
            if talk.read[CLIENT] and talk.closed is None:
                limited.send(talk, sized(second, 400_000))
        limited.until(second + 1)

    total = sum(size for when, size in limited.admitted if when >= 30)
    assert 0.9 * 60 * 100_000 <= total <= 61 * 100_000 + 400_100
    assert limited.worst(100_000, 100_000) <= 0.001 * 100_000


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("what", ["produce", "requests"])
def test_quota_any_window_any_connections_within_bound(what: str, workers: int, seed: int) -> None:
    """Connections come and go before, during and after debts, pipeline, and disconnect while they wait."""
    rate = 50_000 if what == "produce" else 20
    limited = Limited(f"{what}: {rate}{'B' if what == 'produce' else ''}/s, burst: 2s, max_throttle: 1s", workers)
    random = Random(seed)
    talks: list[Dialogue] = []
    for step in range(120):
        action = random.random()
        if action < 0.3 or not talks:
            talks.append(limited.connect())
        elif action < 0.45:
            limited.leave(talks.pop(random.randrange(len(talks))))
        else:
            talk = random.choice(talks)
            if talk.read[CLIENT] and talk.closed is None:
                many = random.choice((1, 1, 5))
                size = random.choice((10, 1000, 30_000, 300_000))
                limited.send(
                    talk, b"".join(sized(step, random.randrange(size), random.choice((0, 1))) for _ in range(many))
                )
        limited.until(limited.now + random.choice((0, 0, 0.1, 3)))
    limited.until(limited.now + 10_000)

    if what == "requests":
        limited.admitted = [(when, 1) for when, _ in limited.admitted]
    assert all(talk.closed is None for talk in talks)
    assert all(talk.session.requests.blocked == "" for talk in talks)
    assert limited.worst(rate, 2 * rate) <= 0.0011 * rate


def test_quota_waiting_connections_go_in_order_of_arrival() -> None:
    """A constant number of calls for each admission, however many wait."""
    limited = Limited("requests: 10/s, burst: 100ms")
    talks = [limited.connect() for _ in range(200)]
    for number, talk in enumerate(talks):
        limited.send(talk, request(METADATA, 9, number, topics=[]))
    limited.until(30)

    times = [next(when for when, _ in limited.admitted[index:]) for index in range(200)]
    assert len(limited.admitted) == 200
    assert all(later - earlier == pytest.approx(0.1, abs=0.002) for earlier, later in pairwise(times[2:]))
    assert limited.asked <= 5 * len(talks)
    assert [frames(talk.to_broker)[0][7] for talk in talks] == [number % 256 for number in range(200)]


def test_quota_waiting_request_of_a_client_that_left_is_not_sent() -> None:
    """A client that timed out repeats its request: the old one must use up no limit, and not reach the broker."""
    limited = Limited("produce: 10kB/s")
    limited.send(limited.connect(), sized(1, 100_000))
    second, third = limited.connect(), limited.connect()
    limited.send(second, sized(2, 100_000))
    limited.send(third, sized(3, 1000))
    second.session.owner.client_left = True
    limited.until(9.2)

    assert second.closed is not None and second.closed.cause == "client_closed"
    assert second.to_broker == b""
    assert third.to_broker == sized(3, 1000)


@pytest.mark.parametrize("first", [0, 1])
def test_quota_line_does_not_wait_for_work_put_aside(first: int) -> None:
    """The work of a connection is put aside, so it cannot act when its time comes. It joins the line again later."""
    limited = Limited("produce: 10kB/s")
    limited.send(limited.connect(), sized(1, 100_000))
    talks = [limited.connect() for _ in range(3)]
    for number, talk in enumerate(talks):
        limited.send(talk, sized(number, 1000))
    aside = talks[first]
    aside.wakes.clear()  # its calls are put off
    for session in aside.session.step_aside():
        limited.granted(session)
    limited.until(60)
    assert [talk.to_broker != b"" for talk in talks] == [talk is not aside for talk in talks]

    limited.granted(aside.session)
    limited.until(61)
    assert aside.to_broker == sized(first, 1000)


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("renames", [False, True])
@pytest.mark.parametrize("after", [0.0, 2.0])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("owes", [False, True])
def test_quota_announced_bytes_that_never_come_are_given_back(
    acks: int, renames: bool, after: float, workers: int, owes: bool
) -> None:
    """A client announces a long frame, sends some of it and disconnects; other clients do not wait for the rest."""
    limited = Limited("produce: 10kB/s", workers)
    if renames:
        limited.bound = ConnectionSettings(NameMaps(topics=NameMap.of({"a*": "b*"})), advertise=False)
    if owes:
        limited.send(limited.connect(), sized(1, 15_000))
    liar, other = limited.connect(), limited.connect()
    limited.send(liar, sized(2, 2_000_000, acks)[:1000])
    limited.until(after)
    limited.send(other, sized(3, 100))
    limited.until(1.0 + after)
    limited.leave(liar)
    limited.until(limited.now + 0.6)

    assert len(other.to_broker) == len(sized(3, 100))


@pytest.mark.parametrize("trickle", [0, 500])
@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("renames", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_quota_frame_that_does_not_arrive_delays_a_second(acks: int, renames: bool, workers: int, trickle: int) -> None:
    """A client announces a debt of 200 s and sends few bytes, or none, on a connection that stays open."""
    limited = Limited("produce: 10kB/s", workers)
    if renames:
        limited.bound = ConnectionSettings(NameMaps(topics=NameMap.of({"a*": "b*"})), advertise=False)
    slow, other = limited.connect(), limited.connect()
    frame, sent = sized(2, 2_000_000, acks), 1000
    limited.send(slow, frame[:sent])
    limited.send(other, sized(3, 100))
    for step in range(1, 100):
        limited.until(0.25 * step)
        limited.send(slow, frame[sent : sent + trickle])
        sent += trickle
    assert other.to_broker == sized(3, 100)
    assert [when for when, _ in limited.admitted] == [pytest.approx(1.0 if workers == 1 else 1.25, abs=0.25)]

    limited.send(slow, frame[sent : sent + 50_000])  # more than the limit allows: the next bytes wait
    rest, before, began = sent + 50_000, len(slow.to_broker), limited.now
    while rest < len(frame):
        limited.until(limited.now + 0.1)
        if slow.read[CLIENT]:
            limited.send(slow, frame[rest : rest + 50_000])
            rest += 50_000
    limited.until(limited.now + 20)
    assert len(slow.to_broker) == len(frame)
    assert len(slow.to_broker) - before <= 10_000 * (limited.now - began) + 10_000 + 50_000
    assert limited.now - began == pytest.approx((len(frame) - before) / 10_000 + 15, abs=10)
    limited.send(slow, sized(9, 100, acks))
    limited.until(limited.now + 10)
    assert slow.to_broker == sized(2, 2_000_000, acks) + sized(9, 100, acks)
    assert slow.session.requests.at_boundary and slow.closed is None


@pytest.mark.parametrize("end", ["client leaves", "drain", "work put aside"])
def test_quota_metered_bytes_that_wait_end_with_their_wait(end: str) -> None:
    """Bytes of a late frame wait for the limit; other requests do not wait for them after the end of their wait."""
    limited = Limited("produce: 10kB/s")
    slow, other = limited.connect(), limited.connect()
    frame = sized(2, 2_000_000)
    limited.send(slow, frame[:1000])
    limited.until(2)
    limited.send(slow, frame[1000:101_000])  # a debt of 9 s
    limited.send(slow, frame[101_000:102_000])
    limited.send(other, sized(3, 100))
    assert (len(slow.to_broker), slow.read[CLIENT]) == (101_000, False)
    if end == "client leaves":
        limited.leave(slow)
    elif end == "drain":
        slow.session.drain(limited.now)
        slow.obey()
        assert len(slow.to_broker) == 102_000
    else:
        for session in slow.session.step_aside():
            limited.granted(session)
    limited.until(11.2)

    assert other.to_broker == sized(3, 100)
    assert len(slow.to_broker) == 102_000 - 1000 * (end == "client leaves")


@pytest.mark.parametrize("first", [False, True])
def test_quota_frame_without_debt_is_given_back(first: bool) -> None:
    """A frame that uses up the burst, and passes like the one before it, does not arrive before its client leaves."""
    limited = Limited("produce: 10kB/s, burst: 100s")
    liar, other = limited.connect(), limited.connect()
    if first:  # the frames after it pass without an evaluation
        limited.send(liar, sized(1, 100) + sized(1, 100))
    limited.send(liar, sized(2, 999_000)[:1000])
    limited.send(other, sized(3, 900_000))
    limited.leave(liar)
    limited.send(other, sized(4, 10_000))
    limited.until(1.0)
    assert other.to_broker.endswith(sized(4, 10_000))


def test_quota_frame_that_arrives_in_time_is_not_metered() -> None:
    """A frame of 200 s of debt arrives at twice the rate of the limit: other frames wait for all of its debt."""
    limited = Limited("produce: 10kB/s")
    slow, other = limited.connect(), limited.connect()
    frame = sized(2, 2_000_000)
    limited.send(slow, frame[:1000])
    limited.send(other, sized(3, 100))
    for number in range(1000, len(frame), 5000):
        limited.until(limited.now + 0.25)
        limited.send(slow, frame[number : number + 5000])
    limited.until(300)
    assert [(when, size) for when, size in limited.admitted] == [
        (pytest.approx(100.0, abs=0.5), len(frame) - 4),
        (pytest.approx(199.0, abs=0.5), len(sized(3, 100)) - 4),
    ]


def test_quota_frame_that_came_is_not_given_back() -> None:
    """A frame without a charge follows it, and is not whole when the client disconnects."""
    limited = Limited("produce: 10kB/s")
    first, other = limited.connect(), limited.connect()
    whole = sized(1, 100_000)
    limited.send(first, whole[:1000])
    limited.send(first, whole[1000:])
    limited.send(first, request(METADATA, 9, 2, topics=[{"name": "t" * 9000} for _ in range(10)])[:1000])
    limited.leave(first)
    limited.send(other, sized(3, 100))
    limited.until(8.0)
    assert other.to_broker == b""


def test_quota_waiting_request_without_answer_is_sent() -> None:
    """With acks=0 the last write of a client that has left is for the broker all the same."""
    limited = Limited("produce: 10kB/s")
    limited.send(limited.connect(), sized(1, 100_000))
    second = limited.connect()
    limited.send(second, sized(2, 100, acks=0))
    second.session.owner.client_left = True
    limited.until(9.2)

    assert second.to_broker == sized(2, 100, acks=0)


@pytest.mark.parametrize("pipelined", [1, 3])
@pytest.mark.parametrize("quota", ["produce: 50kB/s", "requests: 5/s"])
def test_quota_reconnecting_client_keeps_to_the_limit(quota: str, pipelined: int) -> None:
    """Within a tenth of the limit after the burst, also with several requests on each connection."""
    limited = Limited(quota)
    rate, each = (50_000, len(produce(1, "orders", records=RECORDS))) if "produce" in quota else (5, 1)
    for _ in range(100):
        talk, before = limited.connect(), len(limited.admitted)
        limited.send(talk, b"".join(produce(number, "orders", records=RECORDS) for number in range(pipelined)))
        while len(limited.admitted) < before + pipelined:
            limited.until(limited.now + 0.01)
        limited.leave(talk)

    assert each * len(limited.admitted) / (limited.now + 1.0) == pytest.approx(rate, rel=0.1)


def test_fetch_while_the_bucket_owes_waits() -> None:
    """The debt of one connection's fetched bytes delays the Fetch of another one that was open before."""
    limited = Limited("fetch: 50kB/s")
    first, second = limited.connect(), limited.connect()
    asked = request(FETCH, 12, 1, max_bytes=1 << 20, topics=[{"topic": "a", "partitions": [{"partition": 0}]}])
    part = {"partition_index": 0, "records": b"r" * 150_000}
    for talk in (first, second):
        limited.send(talk, request(METADATA, 9, 9, topics=[]))
        talk.broker(response(METADATA, 9, 9))
    limited.send(first, asked)
    first.broker(response(FETCH, 12, 1, responses=[{"topic": "a", "partitions": [part]}]))
    limited.admitted.clear()
    limited.send(second, asked)
    limited.until(5)

    assert [when for when, _ in limited.admitted] == [pytest.approx(2.0, abs=0.01)]


@pytest.mark.parametrize("pipelined", [1, 4])
def test_fetch_by_many_connections_exceeds_by_what_is_in_flight(pipelined: int) -> None:
    """Brokers send a complete batch for each Fetch, which is charged when it arrives: at most those in flight."""
    rate, batch, clients, seconds = 50_000, 20_000, 20, 60
    limited = Limited(f"fetch: {rate}B/s, max_throttle: 1s")
    body = {"max_bytes": 1 << 20, "topics": [{"topic": "a", "partitions": [{"partition": 0}]}]}
    found = [{"topic": "a", "partitions": [{"partition_index": 0, "records": b"r" * batch}]}]
    talks = [limited.connect() for _ in range(clients)]
    answered = dict.fromkeys(range(clients), 0)
    total = 0
    for step in range(seconds * 10):
        limited.until(step / 10)
        for number, talk in enumerate(talks):
            if talk.read[CLIENT] and not talk.session.awaited:
                limited.send(talk, b"".join(request(FETCH, 12, one, **body) for one in range(pipelined)))
            for frame in frames(talk.to_broker)[answered[number] :]:
                answered[number] += 1
                data = response(FETCH, 12, int.from_bytes(frame[4:8], "big"), responses=found)
                total += len(data)
                talk.now = limited.now
                talk.broker(data)
                limited.settle()

    assert total <= rate * (seconds + 1) + clients * pipelined * (batch + 200)
    assert total >= 0.9 * rate * seconds


def test_quota_first_frame_passes_at_once_and_the_next_waits() -> None:
    """Frames that a client pipelines wait before they are forwarded, as at a broker that has muted the channel."""
    limited = Limited("produce: 50kB/s")
    talk = limited.connect()
    limited.send(talk, b"".join(sized(number, 100_000) for number in range(3)))
    limited.until(10)

    assert [when for when, _ in limited.admitted] == [0.0, pytest.approx(1.0, abs=0.01), pytest.approx(3.0, abs=0.01)]


def test_quota_keys_of_any_length_are_stored_short() -> None:
    """A client id of 32,000 characters is stored as its beginning and a digest; two of them are two keys."""
    limited = Limited("requests: 1/s, per: [client_id]")
    effect = limited.rules[0].live[0].effect
    assert isinstance(effect, QuotaEffect) and effect.requests is not None
    for number in range(3):
        limited.connect().client(request(METADATA, 9, 1, "x" * 32_000 + str(number), topics=None))
    keys = list(effect.requests.buckets)

    assert len(keys) == 3
    assert all(len(str(word)) < 400 for key in keys for word in key)


def test_quota_by_topic_keeps_a_debt_when_many_topics_come() -> None:
    """10,000 limits are stored; a client that owes to one names as many other topics, which do not exist."""
    limited = Limited("per: [topic], produce: 50kB/s")
    limited.send(limited.connect(), sized(1, 500_000))
    many = [{"name": f"no-{number}", "partition_data": [{"index": 0, "records": b"r"}]} for number in range(10_001)]
    limited.send(limited.connect(), request(PRODUCE, 9, 2, acks=-1, topic_data=many))
    last = limited.connect()
    limited.admitted.clear()
    limited.send(last, produce(3, "orders", records=RECORDS))
    limited.until(30)

    debt = (len(sized(1, 500_000)) - 50_000) / 50_000
    assert [when for when, _ in limited.admitted] == [pytest.approx(debt, rel=0.1)]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("size", [2_000_000, 19_000])
def test_quota_many_frames_that_do_not_arrive_delay_a_second(size: int, workers: int) -> None:
    """20 connections announce long frames, with debts above and below a second, and send 50 bytes each."""
    limited = Limited("produce: 10kB/s", workers)
    liars, other = [limited.connect() for _ in range(20)], limited.connect()
    for liar in liars:
        limited.send(liar, sized(2, size)[:50])
    limited.send(other, sized(3, 100))
    for step in range(1, 100):
        limited.until(0.25 * step)
    assert other.to_broker == sized(3, 100)
    assert limited.admitted[0][0] <= 1.5


class SteadyLoad:
    """Clients that have one request in flight each, and send the next one when they are read again. `counts`: bytes
    or requests by the second in which they passed."""

    def __init__(self, limited: Limited, what: str, clients: int) -> None:
        self.limited, self.what = limited, what
        self.talks = [limited.connect() for _ in range(clients)]
        self.counts = Counter[int]()

    def run(self, seconds: int, step: float = 0.05) -> None:
        """Let the clients send for so many seconds of the test's clock."""
        for number in range(round(seconds / step)):
            self.limited.until(number * step)
            for talk in self.talks:
                self.count(talk, talk.requests())
                for out in talk.out.values():
                    out.clear()
                self.limited.sent[talk.session] = 0
                if talk.read[CLIENT] and not talk.session.awaited and talk.session.requests.at_boundary:
                    self.limited.send(talk, self.request(number))

    def request(self, number: int) -> bytes:
        if self.what == "produce":
            return sized(number, 10_000)
        if self.what == "requests":
            return request(METADATA, 9, number, topics=[])
        topics = [{"topic": "a", "partitions": [{"partition": 0}]}]
        return request(FETCH, 12, number, max_bytes=1 << 20, topics=topics)

    def count(self, talk: Dialogue, requests: list[Message]) -> None:
        """Count requests that the broker has received, and answer those that `Limited` leaves unanswered."""
        for asked in requests:
            amount = 1
            if self.what == "produce":
                amount = len(encode(asked))
            elif self.what == "requests":
                talk.broker(response(METADATA, 9, asked.header["correlation_id"]))
            else:
                part = {"partition_index": 0, "records": b"r" * asked.body["max_bytes"]}
                answer = response(
                    FETCH, 12, asked.header["correlation_id"], responses=[{"topic": "a", "partitions": [part]}]
                )
                amount = len(answer)
                talk.broker(answer)
            self.counts[int(self.limited.now)] += amount


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("clients", [1, 20])
@pytest.mark.parametrize(("what", "rate"), [("produce", 100_000), ("fetch", 100_000), ("requests", 20)])
def test_quota_steady_load_gets_its_rate(what: str, rate: int, clients: int, workers: int) -> None:
    """Within 5 % in each 10 s after the first burst. `tests/quota/test_accuracy.py` measures it with real clients."""
    limited = Limited(f"{what}: {rate}{'' if what == 'requests' else 'B'}/s, burst: 500ms", workers)
    load = SteadyLoad(limited, what, clients)
    load.run(24)
    windows = [sum(load.counts[second] for second in range(first, first + 10)) / 10 for first in (4, 14)]
    assert windows == [pytest.approx(rate, rel=0.05)] * 2
