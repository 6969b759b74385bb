"""The same exchanges give the same numbers, however they are told: one by one, in summaries, or from a capture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.cli.stats import ExchangeTally
from kproxy.protocol.table import schema
from kproxy.record.audit.request_event import request_event, summary_event
from kproxy.record.captures.reader import Capture
from kproxy.record.events.schema import LATENCY_BOUNDS_MS, REQUEST_EVENT, SUMMARY_EVENT
from kproxy.record.exchange import Depth, ObservedExchange
from kproxy.record.observer.summary import Summary
from tests.record.observer.watching import CLIENT, Talk, Watching, random_talk
from tests.support.event_validation import mistakes
from tests.support.exchange_factory import Somebody, write_capture
from tests.support.random_peers import Manners

pytestmark = pytest.mark.kafka
NAMES = [api.name for api in map(schema.load, schema.paths()) if api.name not in ("SaslHandshake", "SaslAuthenticate")]
OFTEN = ["Produce", "Fetch", "ShareFetch", "OffsetCommit", "Heartbeat", "ListOffsets", "CreateTopics"]
EVERYTHING = 1 << 30
"""Partitions that an event tells one by one."""


class Proxy:
    """One connection that is watched at some depth, and what its session says of random exchanges."""

    def __init__(self, depth: Depth, *, counted: bool, cuts: Random | None = None) -> None:
        self.who = Somebody()
        self.summary = Summary(lambda key, version: True, who=self.who) if counted else None
        self.watching = Watching(depth, summary=self.summary)
        self.watching.observer.who = self.who
        self.cuts = cuts

    def play(self, talk: Talk, says: int) -> None:
        """Show the conversation. `says`: seed of what rules did to its exchanges."""
        said, number = Random(says), 0
        for at, (side, data) in enumerate(talk):
            self.watching.now = 100.0 + at * 0.37
            if side == CLIENT:
                self.say(self.watching.client, data)
                continue
            for frame in frames(data):
                number += 1
                correlation, kind = int.from_bytes(frame[4:8], "big", signed=True), said.random()
                if kind < 0.1:
                    self.watching.observer.acted(correlation, ["r"], answered=True)
                elif kind < 0.2:
                    self.watching.observer.throttled(correlation, said.choice("rs"), said.choice((0.0, 0.25, 8.5)))
                elif kind < 0.3:
                    self.watching.observer.acted(correlation, ["r"])
                    self.watching.observer.failed(correlation, [said.choice((3, 29, 41))])
                self.say(self.watching.broker, frame)
        self.watching.now += 1
        self.watching.observer.end(self.watching.now)

    def say(self, say: Any, data: bytes) -> None:
        while data and self.cuts is not None:
            size = min(len(data), self.cuts.choice((1, 3, 40, 5000)))
            say(data[:size])
            data = data[size:]
        if data:
            say(data)


def frames(data: bytes) -> Iterator[bytes]:
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        yield data[:size]
        data = data[size:]


def told_singly(exchanges: list[ObservedExchange]) -> ExchangeTally:
    tally = ExchangeTally()
    for seen in exchanges:
        event = request_event(seen, float, EVERYTHING)
        assert not mistakes(REQUEST_EVENT, event)
        tally.add(event, "s")
    return tally


def told_summed(proxy: Proxy) -> ExchangeTally:
    tally = ExchangeTally()
    assert proxy.summary is not None
    for line in proxy.summary.drain(1e9, everything=True):
        _, event = summary_event(line, proxy.who)
        assert not mistakes(SUMMARY_EVENT, event)
        tally.add_summary(event, "s")
    return tally


def numbers(tally: ExchangeTally) -> dict[str, Any]:
    """All that is to agree: everything but percentiles, of which summaries know the bucket only."""
    found = tally.shown()
    for line in (found["total"], *found["apis"], *found["clients"]):
        for name in ("p50_ms", "p90_ms", "p99_ms"):
            line[name] = bucket(line[name])
    for name in ("apis", "topics", "clients", "errors"):
        found[name] = sorted(found[name], key=repr)
    return found


def bucket(ms: float | None) -> int | None:
    """The audit's bucket in which a time is; those near a bound may be on either side of it."""
    return None if ms is None else sum(ms * 0.95 > bound for bound in LATENCY_BOUNDS_MS)


def random_conversation(seed: int, apis: list[str]) -> Talk:
    """Random exchanges with errors anywhere, some without an answer."""
    random = Random(seed)
    manners = Manners(error=random.choice((0.0, 0.4, 0.9)), trailing=0.0, silent=random.choice((0.0, 0.2)))
    talk = random_talk(random, apis, 30, manners)
    return [(side, again) for side, data in talk for again in (data,) if data]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), often=st.booleans())
def test_summaries_add_up_to_the_events_of_the_same_exchanges(seed: int, often: bool) -> None:
    """Requests, errors at each level and who made them, records, bytes, times: of every API, cut anywhere, and when
    somebody else looks deeper."""
    talk = random_conversation(seed, OFTEN if often else NAMES)
    single = Proxy(Depth.SKETCH, counted=False)
    summed = [
        Proxy(Depth.ROWS, counted=True),
        Proxy(Depth.ROWS, counted=True, cuts=Random(seed)),
        Proxy(Depth.SKETCH, counted=True),
    ]
    for proxy in (single, *summed):
        proxy.play(talk, seed)

    expected = numbers(told_singly(single.watching.seen))
    assert expected["total"]["requests"] == single.watching.observer.requests
    assert expected["total"]["unanswered"] == single.watching.observer.unanswered
    for proxy in summed:
        assert numbers(told_summed(proxy)) == expected


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1 << 32), often=st.booleans())
def test_a_capture_counts_as_the_events_of_its_exchanges(seed: int, often: bool) -> None:
    """With who made the errors, which the bytes do not tell, but for names that Metadata answers taught."""
    talk = random_conversation(seed, OFTEN if often else [name for name in NAMES if name != "Metadata"])
    live = Proxy(Depth.FULL, counted=False)
    live.play(talk, seed)
    with TemporaryDirectory() as folder:
        path = write_capture(Path(folder) / "all.pcapng", live.watching.seen)
        read = list(Capture(path))

    assert numbers(told_singly(read)) == numbers(told_singly(live.watching.seen))


def test_errors_are_told_at_their_level_and_with_who_made_them() -> None:
    """In a Produce of three partitions one is refused by the broker and one by a rule: one exchange, two errors."""
    tally = ExchangeTally()
    parts = [{"partition": 0, "records": 5, "bytes": 50},
             {"partition": 1, "records": 7, "error": "NOT_LEADER_OR_FOLLOWER"},
             {"partition": 2, "records": 9, "error": "TOPIC_AUTHORIZATION_FAILED", "error_by": "kproxy"}]  # fmt: skip
    errors = ["NOT_LEADER_OR_FOLLOWER", "TOPIC_AUTHORIZATION_FAILED"]
    tally.add({"api": "Produce", "acks": -1, "outcome": "answered", "error": errors[0], "errors": errors,
               "error_level": "part", "kproxy_errors": errors[1:],
               "topics": [{"topic": "t", "partitions": parts}]}, "s")  # fmt: skip

    found = tally.shown()
    (topic,) = found["topics"]
    assert (found["total"]["requests"], found["total"]["errors"]) == (1, 1)
    assert (topic["requests"], topic["errors"], topic["written_records"], topic["written_bytes"]) == (3, 2, 5, 50)
    assert sorted(tuple(one.values()) for one in found["errors"]) == [
        ("Produce", errors[0], "partition", "broker", 1), ("Produce", errors[0], "request", "broker", 1),
        ("Produce", errors[1], "partition", "kproxy", 1), ("Produce", errors[1], "request", "kproxy", 1),
    ]  # fmt: skip
