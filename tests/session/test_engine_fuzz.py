"""Random rules of all kinds over random traffic, with bad brokers, odd moments and changes of rules: what always holds.

Each case is a seed; a failure names it. A few hundred by default, KPROXY_TEST_ALL=1 runs many more.

- nothing raises, neither the session nor the effects of our own kinds
- answers leave in the order of their requests, each at most once, unless a rule's purpose is to break that
- when all is over nothing is held, waited for or counted wrongly
- rules in dry-run mode change no byte
- the same seed gives the same bytes and counters, however the bytes are cut while time stands still
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from json import dumps
from random import Random
from typing import Any

import pytest

from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.session.cluster import CORRELATION
from kproxy.session.plan import Plan
from kproxy.session.session_state import SessionPhase
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import frames
from tests.support.chaos_session import Driver, Turmoil
from tests.support.random_peers import Broker, Manners, random_traffic
from tests.support.random_rules import acts_on, frame_kinds, live_kinds, random_rules

TIMES = 40 if os.environ.get("KPROXY_TEST_ALL") else 1
APIS = (
    "Produce", "Fetch", "Metadata", "Heartbeat", "JoinGroup", "SyncGroup", "OffsetCommit", "OffsetFetch",
    "FindCoordinator", "ListOffsets", "ApiVersions", "CreateTopics", "DeleteTopics", "DescribeGroups",
    "InitProducerId", "AddPartitionsToTxn", "EndTxn", "DescribeConfigs", "ShareFetch", "ShareAcknowledge",
    "ConsumerGroupHeartbeat", "DescribeTopicPartitions", "DescribeCluster", "SaslHandshake", "SaslAuthenticate",
    "ControlledShutdown", "Produce", "Fetch", "Metadata",
)  # fmt: skip
ENDING = ("refuse", "blackhole", "drop", "disconnect", "truncate", "bad_length")
"""Kinds after which a connection has little more to tell."""
TORN = ("truncate", "bad_length", "short_body")
"""Kinds after which what follows cannot be told apart as frames."""
ORDERLY = {*TORN, "delay", "disconnect", "trailing_bytes", "unknown_tag"}
DISORDER = ("python", "set", *(kind for kind in frame_kinds() if kind not in ORDERLY))
OWN = CORRELATION.to_bytes(4, "big", signed=True)
"""Of requests of kproxy's own: rules in dry-run mode have it ask for the names of topic ids, too."""
GOOD = Manners()
BAD = Manners(error=0.3, trailing=0.2, junk=0.2, swap=0.1, silent=0.1, ends=0.03)


@dataclass
class Scene:
    """A turmoil, and what it is made of."""

    rules: list[dict[str, Any]]
    talk: Driver
    story: Turmoil

    @property
    def kinds(self) -> set[str]:
        return {rule["kind"] for rule in self.rules}

    def counters(self) -> list[tuple[int, int, int]]:
        return [(one.matched, one.fired, one.applied) for one in self.talk.rules.live]


def scene(
    seed: int, *, calm: bool = False, chunk: int = 0, mode: str = "", kinds: list[str] | None = None,
    mangle: float = 0.0,
) -> Scene:  # fmt: skip
    """`calm`: time stands still and nobody misbehaves; what is drawn is the same for all chunks."""
    random = Random(seed)
    count = random.choice((1, 2, 4, 8))
    chosen = random.sample(kinds or list(KINDS), count)
    if random.random() < 0.7:
        chosen = [kind for kind in chosen if kind not in ENDING] or ["set"]
    rules = random_rules(random, list(APIS), chosen, count)
    if mode:
        rules = [rule | {"mode": mode} for rule in rules]
    apis = [api for kind in chosen if issubclass(KINDS[kind], LiveRule) for api in acts_on(kind, APIS)]
    apis = apis + list(APIS) if not apis or random.random() < 0.5 else apis
    if mode:  # whose answers are capped to what kproxy reads, with rules or without
        apis = [api for api in apis if api != "ApiVersions"]
    manners = GOOD if calm else random.choice((GOOD, GOOD, Manners(ends=0.03), BAD))
    traffic = random_traffic(random, apis, random.choice((3, 10, 20)), mangle)
    shared = ClusterState(max_in_flight=random.choice((1000, 3)), buffer_threshold=random.choice((65536, 200)))
    if calm:  # what streams keeps its length, and whether it does depends on where it is cut
        shared = ClusterState(buffer_threshold=1 << 20)
    lazy, advertise, swaps = random.random() < 0.5, random.random() < 0.5, random.random() < 0.4
    talk = Driver(dumps({"rules": rules}), shared=shared, lazy=lazy and not calm, advertise=advertise and not mode)
    plan = talk.session.plan
    plans = [plan, Plan(plan.bound), Plan(plan.bound, talk.rules.live[::2])] if swaps and not calm else [plan]
    broker = Broker(Random(seed), replace(manners, mangle=mangle) if mangle else manners)
    return Scene(rules, talk, Turmoil(Random(seed), talk, traffic, broker, plans, chunk, calm))


def over(one: Scene) -> None:
    """What holds when a connection is over, however that came."""
    talk, story, session = one.talk, one.story, one.talk.session
    for running in talk.rules.live:
        assert running.applied <= running.fired <= running.matched, running.name
        problems = running.raised if running.rule.family == "content" else running.problems  # they count odd records
        assert problems == 0 or running.rule.kind == "python", (running.rule.kind, running.problem)
    withheld = session.phase is SessionPhase.STALLED or story.broker.lost or story.ended or story.broker.manners.silent
    if story.open() and not withheld and "drop" not in one.kinds:
        assert session.idle
        assert story.sent == len(story.stream)
        assert (talk.shared.requests.used, talk.shared.responses.used) == (0, 0)
        assert not session.marks.waiting
        assert session.marks.acted == ([], [])
    session.end(talk.now)
    assert (talk.shared.requests.used, talk.shared.responses.used) == (0, 0)
    assert not any(running.held for running in talk.rules.live)
    assert len(session.timers.calls) <= 3 + 2 * len(one.rules)
    assert len(session.timers.armed) <= 3 + 2 * len(one.rules)


def in_order(one: Scene) -> None:
    """The FIFO promise: what the client has got are answers to its requests, in their order, each once."""
    if one.kinds & {*DISORDER, *TORN}:
        return
    due = [asked.correlation for asked in one.story.traffic if asked.due]
    got = [int.from_bytes(frame[:4], "big") for frame in frames(one.talk.to_client) if len(frame) >= 4]
    assert got == [number for number in due if number in set(got)]
    if (
        one.story.open()
        and one.talk.session.phase is not SessionPhase.STALLED
        and not one.story.ended
        and one.story.broker.manners is GOOD
    ):
        assert got == due


@pytest.mark.parametrize("part", range(6))
def test_nothing_raises_is_lost_or_comes_out_of_order(part: int) -> None:
    """Whatever happens, and whenever it does."""
    for seed in range(part * 1000, part * 1000 + 20 * TIMES):
        try:
            one = scene(seed)
            one.story.run()
            in_order(one)
            over(one)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_frames_that_are_no_messages_raise_nothing() -> None:
    """Some bytes of a third of all frames are others: at worst the connection is closed, with nothing left behind."""
    for seed in range(40 * TIMES):
        one = scene(seed, mangle=0.3)
        try:
            one.story.run()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        one.talk.session.end(one.talk.now)
        assert (one.talk.shared.requests.used, one.talk.shared.responses.used) == (0, 0), seed
        assert all(applied <= fired <= matched for matched, fired, applied in one.counters()), seed


def test_the_same_seed_gives_the_same_bytes() -> None:
    """Chances are seeded, and nothing depends on what Python hashes or on the clock."""
    for seed in range(20 * TIMES):
        first, second = scene(seed), scene(seed)
        first.story.run()
        second.story.run()
        assert first.talk.to_client == second.talk.to_client, seed
        assert first.talk.to_broker == second.talk.to_broker, seed
        assert first.counters() == second.counters(), seed


def test_how_the_bytes_are_cut_does_not_matter() -> None:
    """All at once or in pieces: the same comes out, and the same rules fire. Time stands still."""
    for seed in range(25 * TIMES):
        whole = scene(seed, calm=True)
        whole.story.run()
        for chunk in (Random(seed).choice((3, 7)), 64, 1000):
            cut = scene(seed, calm=True, chunk=chunk)
            cut.story.run()
            early = {one.talk.closed is not None or one.talk.session.flow.muted_until > 0 for one in (whole, cut)}
            pairs = ((cut.talk.to_broker, whole.talk.to_broker), (cut.talk.to_client, whole.talk.to_client))
            for got, expected in pairs:  # a reader may be stopped before it has seen as much
                both = min(len(got), len(expected)) if True in early else None
                assert got[:both] == expected[:both], (seed, chunk)
            if True not in early:
                assert cut.counters() == whole.counters(), (seed, chunk)


@pytest.mark.parametrize("kind", live_kinds())
def test_rules_that_observe_change_no_byte(kind: str) -> None:
    """Every kind: what the client sends arrives, and what the broker says, whatever fires."""
    for seed in range(2 * TIMES):
        one = scene(seed, calm=True, mode="dry_run", kinds=[kind] * 8, chunk=(0, 50)[seed % 2])
        one.story.run()
        asked = [frame for frame in frames(one.talk.to_broker) if frame[4:8] != OWN]
        assert asked == frames(one.story.stream[: one.story.sent]), seed
        got = frames(one.talk.to_client)
        assert got == [frame for frame in one.story.broker.said if frame[:4] != OWN][: len(got)], seed
        assert all(running.applied == 0 for running in one.talk.rules.live), seed
