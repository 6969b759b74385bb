"""Property: of all topic ids in a tenant's requests only its own, zeros and impossible ones leave, in any order."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.protocol.framing import framed
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Struct
from kproxy.session.counters import Counters
from kproxy.session.plan import STOP, Plan
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.names.topic_ids import OURS, disguise, version_of
from kproxy.tools.rehearse.dialogue import defaults
from tests.support.frames import message
from tests.support.random_values import random_struct

from .recording_broker import RecordingBroker

RULES = "rules:\n- {name: a, kind: prefix, prefix: a.}\n"
TOPICS = {
    "a.mine": UUID(int=0x1234 << 100 | 0x4000 << 64 | 5),
    "b.secret": UUID(int=0x77 << 90 | 0x4000 << 64 | 9 << 60),
}
MINE, SECRET = TOPICS.values()
PLAN = Plan(RecordingBroker(RULES, TOPICS).talk.session.plan.bound)
WITH_IDS = [
    (api.key, version) for api in schema.apis() for version in api.versions
    if PLAN[api.key << 16 | version].request != STOP
    and any(slot.kind == "topic_id" for slot in layout.body(api.key, version, "request").everywhere())
]  # fmt: skip
STEPS = st.one_of(
    st.builds(lambda bit: lambda one: one ^ 1 << bit, st.integers(0, 127)),
    st.builds(lambda mask, at: lambda one: one ^ mask << at, st.integers(1, 255), st.integers(0, 120)),
    st.builds(lambda by: lambda one: (one << by | one >> 128 - by) & (1 << 128) - 1, st.integers(1, 127)),
    st.just(lambda one: int.from_bytes(one.to_bytes(16, "big")[::-1], "big")),
    st.just(lambda one: int.from_bytes(disguise(one.to_bytes(16, "big"), Context(Counters(), {})), "big")),
)


@st.composite
def made_up(draw: Any) -> UUID:
    """Somebody's id, or anybody's, after some turns."""
    number = draw(st.sampled_from([MINE.int, SECRET.int, 0, 1, 2]) | st.integers(0, (1 << 128) - 1))
    for step in draw(st.lists(STEPS, max_size=4)):
        number = step(number)
    return UUID(int=number)


def with_ids(struct: Struct, value: Any, ids: list[UUID], rng: Random) -> Any:
    """The decoded value with these in place of its topic ids."""
    if value is None:
        return None
    found = dict(value)
    for slot in struct.all_slots:
        item, inner = found[slot.name], slot.struct
        if inner is not None and slot.array:
            found[slot.name] = item and [with_ids(inner, one, ids, rng) for one in item]
        elif inner is not None:
            found[slot.name] = with_ids(inner, item, ids, rng)
        elif slot.kind == "topic_id":
            found[slot.name] = rng.choice(ids)
        elif slot.name == "acks":
            found[slot.name] = 1
    return found


def ids_of(struct: Struct, value: Any) -> set[UUID]:
    found: set[UUID] = set()
    for slot in struct.all_slots:
        item = value[slot.name] if value is not None else None
        if slot.struct is not None:
            for one in (item or ()) if slot.array else (item,):
                found |= ids_of(slot.struct, one)
        elif slot.kind == "topic_id" and item is not None:
            found.add(item)
    return found


@settings(max_examples=60)
@given(st.lists(st.sampled_from(WITH_IDS), min_size=1, max_size=4), st.lists(made_up(), min_size=1, max_size=6),
       st.randoms(use_true_random=False), st.sampled_from([0, 0, 7, 64]))  # fmt: skip
def test_ids_that_leave_are_ones_own_or_nobodys(
    asked: list[tuple[int, int]], ids: list[UUID], rng: Random, chunk: int
) -> None:
    """Several requests pipelined under one correlation id, whole or in pieces."""
    sent = b""
    for key, version in asked:
        struct = layout.body(key, version, "request")
        body = defaults(key, version, "request") | with_ids(struct, random_struct(struct, rng), ids, rng)
        sent += framed(message(key, version, "request", body, 1, None))
    broker = RecordingBroker(RULES, TOPICS).send(sent, chunk)
    assert not broker.closed
    assert [(one.api.key, one.version) for one in broker.reached] == asked
    for reached in broker.reached:
        for one in ids_of(layout.body(reached.api.key, reached.version, "request"), reached.body):
            assert one in (MINE, UUID(int=0)) or (version_of(one.bytes) == OURS and one != SECRET)
