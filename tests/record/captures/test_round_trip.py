"""What a watcher has seen, written and read again, is the same."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kproxy.protocol.table import schema
from kproxy.record.captures.captured_connection import CapturedConnection, TopicIdNames
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.reader import Capture
from kproxy.record.exchange import Depth, Form, Frame, ObservedExchange
from kproxy.record.observer.credentials import CONFIG_VALUES
from kproxy.record.observer.observer import ConnectionObserver
from tests.support.capture_files import written
from tests.support.random_peers import Broker, Manners, random_traffic

MOST = 3000
"""Bytes of a frame that the watcher keeps here, so that some are cut."""


def watched(random: Random, number: int, depth: Depth) -> list[ObservedExchange]:
    """What a watcher makes of random traffic of one connection, in pieces of any size, at times that go on."""
    who = CapturedConnection(number, "client", f"10.0.0.{number}", 40000, "127.0.0.1", 9092, 0.0, TopicIdNames())
    found: list[ObservedExchange] = []
    observer = ConnectionObserver(who, lambda key, version: depth, found.append, most=MOST)
    broker = Broker(random, Manners())
    now = 1.7e9
    for asked in random_traffic(random, random.choices(sorted(schema.names()), k=8), 20, mangle=0.1):
        broker.take(asked.frame)
        answers = b"".join(broker.answers)
        broker.answers.clear()
        for call, data in ((observer.from_client, asked.frame), (observer.to_client, answers)):
            step = random.choice((7, 100, 100_000))
            for at in range(0, len(data), step):
                now += random.choice((0.0, 0.001, 1.0))
                call(bytearray(data[at : at + step]), len(data[at : at + step]), now)
    observer.end(now)
    return found


def check(one: Frame | None, other: Frame | None, policy: Policy) -> None:
    """The same frame; what is kept is its beginning, and all of it where the policy says so."""
    assert (one is None) == (other is None)
    if one is None or other is None:
        return
    assert (one.size, one.first, one.last, one.withheld) == (other.size, other.first, other.last, other.withheld)
    if one.form in (Form.WHOLE, Form.HEAD):
        assert one.data.startswith(other.data)
        if policy.payload == "full" and one.withheld != CONFIG_VALUES:
            assert (one.data, one.form) == (other.data, other.form)
    assert other.withheld or (other.form is Form.WHOLE) == (len(other.data) == one.size - 4)


@pytest.mark.parametrize("payload", ["full", "head", "none"])
@pytest.mark.parametrize("seed", range(12))
def test_the_same_exchanges_come_back(tmp_path: Path, seed: int, payload: str) -> None:
    """All of them, of three connections mixed: ids, versions, sizes, times, outcomes, and all bytes that were kept."""
    random = Random(seed)
    policy = Policy(payload, 50)
    depth = max(Depth.SKETCH, policy.depth)
    seen = [watched(random, number, depth) for number in (1, 2, 3)]
    mixed = [one for some in zip(*(random.sample(seen, 3)), strict=False) for one in some]
    mixed += [one for some in seen for one in some if one not in mixed]
    mixed.sort(key=lambda one: (seen[one.who.number - 1].index(one), one.who.number))

    capture = Capture(written(tmp_path / "c.pcapng", mixed, policy))
    found = list(capture)

    for number, wanted in enumerate(seen, 1):
        got = [one for one in found if one.who.number == number]
        assert len(wanted) == len(got)
        for one, other in zip(sorted(wanted, key=place), sorted(got, key=place), strict=True):
            assert (one.key, one.version, one.correlation_id, one.client_id, one.outcome, one.acks) == (
                other.key, other.version, other.correlation_id, other.client_id, other.outcome, other.acks
            )  # fmt: skip
            check(one.request, other.request, policy)
            check(one.response, other.response, policy)
    assert (0, 0, 0, 0) == (
        capture.counts.gaps, capture.counts.lost_places, capture.counts.strangers, capture.counts.unread
    )  # fmt: skip


def place(seen: ObservedExchange) -> int:
    """Correlation ids of this traffic count from 1 on."""
    return seen.correlation_id
