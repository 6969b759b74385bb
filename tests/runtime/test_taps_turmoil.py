"""Random traffic, brokers and rules with sinks that watch it all, and others that come and go at any moment.

Each case is a seed; a failure names it. KPROXY_TEST_ALL=1 runs many more. What always holds:

- the bytes that leave on both sides are those that leave without any sink, and they leave at the same time
- nothing raises; what watchers keep is given back
- who listens from the beginning to the end is told of every exchange once, and all counts agree with each other
"""

from __future__ import annotations

import os
from collections.abc import Callable
from json import dumps
from random import Random
from typing import Any

import pytest

from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.record.audit.request_event import request_event, summary_event
from kproxy.record.events.schema import REQUEST_EVENT, SUMMARY_EVENT
from kproxy.record.exchange import Depth, Form, ObservedExchange
from kproxy.record.observer.observer import ConnectionObserver
from kproxy.record.observer.summary import Summary
from kproxy.rules.kinds import KINDS
from kproxy.session.shared import ClusterState
from tests.support.chaos_session import Turmoil
from tests.support.event_validation import mistakes
from tests.support.random_peers import Broker, Manners, random_traffic
from tests.support.random_rules import frame_kinds, random_rules
from tests.support.tapped_session import Hungry, Tapped

CASES = 1000 if os.environ.get("KPROXY_TEST_ALL") else 60
APIS = [
    "Produce", "Fetch", "Metadata", "Heartbeat", "JoinGroup", "OffsetCommit", "FindCoordinator", "ApiVersions",
    "CreateTopics", "DescribeConfigs", "ShareFetch", "AddPartitionsToTxn", "SaslHandshake", "SaslAuthenticate",
    "ControlledShutdown", "DescribeCluster", "Produce", "Fetch", "Metadata",
]  # fmt: skip
GOOD = Manners()
BAD = Manners(error=0.3, trailing=0.2, junk=0.2, swap=0.1, silent=0.1, ends=0.03)
WHOLE = ("delay", "trailing_bytes", "unknown_tag")
LOUD = {"refuse", "blackhole", "python", "set", *(kind for kind in frame_kinds() if kind not in WHOLE)}
QUIET = [kind for kind in KINDS if kind not in LOUD]
"""Kinds after which all that leaves is whole frames, each with its request's number."""


class Case:
    """One seed, played with or without sinks."""

    def __init__(self, seed: int, watched: bool, kinds: list[str], guests: int = 2, **chances: Any) -> None:
        random = Random(seed)
        count = random.choice((0, 1, 2, 4))
        rules = random_rules(random, APIS, random.sample(kinds, count), count) if count else []
        manners = chances.get("manners") or random.choice((GOOD, GOOD, Manners(ends=0.03), BAD))
        mangle = chances.get("mangle", 0.0)
        traffic = random_traffic(random, APIS, random.choice((3, 10, 20)), mangle)
        shared = ClusterState(max_in_flight=random.choice((1000, 3)), buffer_threshold=random.choice((65536, 200)))
        self.sink = Hungry(not chances.get("numbers"), Depth.ROWS if chances.get("numbers") else Depth.FULL)
        self.guests = [
            Hungry(bool(number % 2) and self.sink.broker_side, min(self.sink.most, Random(seed).choice(list(Depth))))
            for number in range(guests)
        ]
        self.talk = Tapped(
            dumps({"rules": rules}), shared=shared, lazy=random.random() < 0.5, advertise=random.random() < 0.5,
            chances=Random(seed), first=[self.sink] if watched and chances.get("all", True) else [],
            guests=self.guests if watched else [], summary=chances.get("summary"),
            samples=chances.get("samples", False),
        )  # fmt: skip
        self.story = Turmoil(Random(seed), self.talk, traffic, Broker(Random(seed), manners), [self.talk.session.plan])
        self.story.run()
        tap = self.talk.taps.by_connection.get(self.talk.link)
        self.tap = tap
        self.talk.end()

    @property
    def out(self) -> tuple[Any, ...]:
        """What left on both sides, and how much of it, whom the session read and what time it was after each piece."""
        return self.talk.to_broker, self.talk.to_client, self.talk.trace


def each(seeds: int, check: Callable[[int], None]) -> None:
    for seed in range(seeds):
        try:
            check(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("beside", [False, True])
def test_samplers_change_no_byte_and_are_told_no_exchange_twice(beside: bool) -> None:
    """Whenever their time is over and comes again, alone and beside a sink that is told of everything; what they are
    told is whole."""
    woken = [0, 0]

    def check(seed: int) -> None:
        alone, watched = (Case(seed, one, list(KINDS), samples=True, all=beside) for one in (False, True))
        assert alone.out == watched.out
        assert watched.talk.fanout.failures == 0
        for sink in (watched.sink, *watched.guests):
            told = {id(seen): seen for seen in sink.seen}
            assert len(told) == len(sink.seen)
            for seen in (*sink.seen, *sink.behind):
                sound(seen)
        if beside and watched.tap is not None:
            complete(watched.tap.observer, watched.sink.seen)
        woken[0] += sum(len(sink.seen) for sink in watched.guests)
        woken[1] += len(watched.talk.spent)

    each(CASES, check)
    assert woken[0] > 0  # few: connections that wake begin where no frame is under way, and these are cut at any byte
    assert woken[1] > CASES


@pytest.mark.parametrize("mangle", [0.0, 0.3])
def test_no_byte_is_another_one_because_somebody_watches(mangle: float) -> None:
    """Whatever the traffic, the rules and the broker, and whoever comes and goes; bytes that nobody has to see go past
    kproxy. No sink is told anything that it cannot make an event of."""

    spliced = [0, 0]

    def check(seed: int) -> None:
        numbers = bool(seed % 2)  # are all that sinks want, so that much need not be seen
        alone, watched = (Case(seed, one, list(KINDS), mangle=mangle, numbers=numbers) for one in (False, True))
        spliced[0] += alone.talk.spliced
        spliced[1] += watched.talk.spliced
        assert alone.out == watched.out
        assert alone.tap is None
        assert watched.talk.fanout.failures == 0
        for sink in (watched.sink, *watched.guests):
            assert len({seen.number for seen in sink.seen}) == len(sink.seen)
            for seen in (*sink.seen, *sink.behind):
                sound(seen)

    each(CASES, check)
    assert min(spliced) > 0


def sound(seen: ObservedExchange) -> None:
    """What is kept of it belongs to it; it can be told."""
    for direction, frame in (("request", seen.request), ("response", seen.response)):
        if frame is None:
            continue
        assert frame.first <= frame.last, direction
        assert len(frame.data) <= max(0, frame.size - 4), direction
        if frame.form is Form.WHOLE:
            assert len(frame.data) == frame.size - 4, direction
        at = 4 if direction == "request" else 0
        number = frame.data[at : at + 4]
        assert len(number) < 4 or int.from_bytes(number, "big", signed=True) == seen.correlation_id, direction
    if seen.request is not None:
        assert mistakes(REQUEST_EVENT, request_event(seen, float, 100)) == []


def test_who_listens_all_the_time_is_told_of_all() -> None:
    """Of requests as many as of outcomes; of bytes as many as passed on either side, whoever else came and went; and
    what was kept whole is what passed there."""

    def check(seed: int) -> None:
        case = Case(seed, True, list(KINDS))
        tap, sink, talk = case.tap, case.sink, case.talk
        assert tap is not None
        assert tap.behind is not None or not talk.trace
        for observer, told, came, went in (
            (tap.observer, sink.seen, case.story.stream[: case.story.sent], talk.to_client),
            (tap.behind or tap.observer, sink.behind, talk.to_broker, None),
        ):
            complete(observer, told)
            assert observer.request_bytes == len(came)
            assert went is None or observer.response_bytes == len(went)
            if observer.raw is None and not observer.incoming.lost:
                as_it_passed(told, came)

    each(CASES, check)


def complete(observer: ConnectionObserver, told: list[ObservedExchange]) -> None:
    """Its counts and what it told agree, and it keeps nothing."""
    outcomes = [seen.outcome for seen in told]
    assert len(told) == observer.requests
    assert outcomes.count("answered") == observer.responses
    assert outcomes.count("unanswered") + outcomes.count("closed") == observer.unanswered
    assert observer.requests == observer.responses + observer.unanswered + outcomes.count("no_answer_due")
    assert not observer.open
    assert observer.room == ConnectionObserver(observer.who, observer.plan.interest, print).room


def as_it_passed(told: list[ObservedExchange], stream: bytes) -> None:
    at = 0
    for seen in sorted(told, key=lambda one: one.number):
        assert seen.request is not None
        if seen.request.form is Form.WHOLE and not seen.request.withheld:
            assert seen.request.data == stream[at + 4 : at + seen.request.size], seen.api
        at += seen.request.size


def test_frames_of_nobody_are_seen_only_where_a_peer_or_a_rule_makes_them() -> None:
    """With peers that behave, sinks that come at any moment understand all that they see from then on."""

    def check(seed: int) -> None:
        case = Case(seed, True, QUIET, manners=GOOD, all=False)
        for observer in () if case.tap is None else (case.tap.observer, case.tap.behind):
            assert observer is None or observer.unread == 0
            assert observer is None or not (observer.incoming.lost or observer.outgoing.lost)

    each(2 * CASES, check)


def test_a_summary_counts_every_exchange_whoever_else_listens() -> None:
    """Requests and records are as many as those that a sink was told of one by one; lines are as declared."""

    def check(seed: int) -> None:
        summary = Summary(lambda key, version: True)
        case = Case(seed, True, list(KINDS), summary=summary)
        lines = summary.drain(case.talk.now + 1, everything=True)
        for line in lines:
            assert mistakes(SUMMARY_EVENT, summary_event(line, case.tap.who)[1]) == []
        of_apis = [line for line in lines if line.partition is None]
        assert sum(line.count for line in of_apis) == len(case.sink.seen)
        written = [written_records(seen) for seen in case.sink.seen if seen.key == PRODUCE]
        assert sum(line.records or 0 for line in lines if line.api == "Produce") == sum(written)

    each(CASES, check)


def written_records(seen: ObservedExchange) -> int:
    """Those of a Produce that got its answer, or was to have none, and could be read."""
    if seen.outcome not in ("answered", "no_answer_due"):
        return 0
    event = request_event(seen, float, 100)
    return 0 if "decode_error" in event else int(event.get("total_records", 0))
