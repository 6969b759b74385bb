"""Rule sets of all kinds over random traffic, both made of the fuzzer's bytes.

The invariants are those of tests/session/test_engine_fuzz.py: nothing raises, answers leave in order and at most once
unless that is a rule's purpose, counters agree with each other, and nothing is held or counted when all is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps
from random import Random

from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.session.plan import Plan
from kproxy.session.shared import ClusterState
from tests.lab.fuzz.feed import FedRandom, Feed
from tests.session.test_engine_fuzz import APIS, BAD, GOOD, Scene, in_order, over
from tests.support.chaos_session import Driver, Turmoil
from tests.support.random_peers import Broker, random_traffic
from tests.support.random_rules import acts_on, random_rules


def check(data: bytes) -> None:
    """One input: what the rules are, what is asked, how it is answered, what happens."""
    feed = Feed(data)
    rules_, asked, answered, happened = (FedRandom(feed.piece()) for _ in range(4))
    mangle = feed.pick((0.0, 0.0, 0.3))
    chosen = [rules_.choice(list(KINDS)) for _ in range(rules_.choice((1, 2, 4)))]
    rules = random_rules(rules_, list(APIS), chosen, len(chosen))
    apis = [api for kind in chosen if issubclass(KINDS[kind], LiveRule) for api in acts_on(kind, APIS)]
    traffic = random_traffic(asked, apis or list(APIS), asked.choice((3, 10)), mangle)
    shared = ClusterState(max_in_flight=asked.choice((1000, 3)), buffer_threshold=asked.choice((65536, 200)))
    talk = Driver(dumps({"rules": rules}), shared=shared, lazy=bool(feed.below(2)), advertise=bool(feed.below(2)))
    plan = talk.session.plan
    plans = [plan, Plan(plan.bound), Plan(plan.bound, talk.rules.live[::2])] if feed.below(2) else [plan]
    manners = answered.choice((GOOD, BAD))
    one = Scene(rules, talk, Turmoil(happened, talk, traffic, Broker(answered, manners), plans))
    one.story.run()
    if mangle:
        talk.session.end(talk.now)
        assert (shared.requests.used, shared.responses.used) == (0, 0)
    else:
        in_order(one)
        over(one)


def seeds() -> Iterator[bytes]:
    """Random ones."""
    for seed in range(60):
        random = Random(seed)
        yield b"".join(bytes((size,)) + random.randbytes(size) for size in (60, 40, 40, 30)) + random.randbytes(4)


WORDS = [b"\0\0\0\0", b"\xff\xff"]
