"""Disguises of topic ids: no topic has one, none is like another, and each leads back."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kproxy.session.counters import Counters
from kproxy.session.rewrite.context import DISGUISES, MAX_ENTRIES, Context
from kproxy.session.rewrite.names.topic_ids import OURS, disguise, undisguised, version_of

IDS = st.binary(min_size=16, max_size=16)
RESERVED = UUID(int=1).bytes  # of the topic __cluster_metadata


@pytest.fixture(scope="module")
def context() -> Context:
    return Context(Counters(), {})


@given(IDS)
@example(RESERVED)
@example(b"\xff" * 16)
def test_a_disguise_is_nobodys_and_leads_back(context: Context, topic_id: bytes) -> None:
    """Its version is one that Kafka gives no id, and the same id has the same one each time."""
    hidden = disguise(topic_id, context)
    assert version_of(hidden) == OURS
    assert disguise(topic_id, context) == hidden
    assert undisguised(hidden, context) == topic_id
    assert disguise(hidden, context) not in (topic_id, hidden)


@given(IDS, st.integers(1, 127), st.integers(0, 255))
def test_a_change_of_what_is_sent_does_not_steer_what_leaves(
    context: Context, topic_id: bytes, turn: int, mask: int
) -> None:
    """Bits turned over or around in the one are not turned in the other, so no disguise can be aimed."""
    number = int.from_bytes(topic_id, "big")
    turned = (number << turn | number >> 128 - turn) & (1 << 128) - 1
    for other in (turned.to_bytes(16, "big"), bytes(one ^ mask for one in topic_id)):
        if other != topic_id:
            one, two = (int.from_bytes(disguise(each, context), "big") for each in (topic_id, other))
            assert 20 < (one ^ two).bit_count() < 104


def test_the_disguise_of_a_random_id_needs_no_memory() -> None:
    """An answer in a fetch session may name it after any time; those of other versions are kept, bounded."""
    topic_id, context = uuid4().bytes, Context(Counters(), {})
    hidden = disguise(topic_id, context)
    assert undisguised(hidden, Context(Counters(), {})) == topic_id
    for number in range(MAX_ENTRIES[DISGUISES] + 10):
        disguise(number.to_bytes(16, "big"), context)
    assert len(context.memory[DISGUISES]) == MAX_ENTRIES[DISGUISES]
    assert undisguised(hidden, context) == topic_id
