"""Histories of a small model: nothing is proved of lawful ones, whatever is left out; one broken step is found."""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.record.captures.pairs import BothSides
from kproxy.tools.verify import VerifyTerms, verify
from tests.tools.verify.coordinator_model import CoordinatorModel
from tests.tools.verify.model import Model
from tests.tools.verify.operated_model import OperatedModel, apart, cut, unreadable

STEPS = 12
HISTORIES = 400 if os.environ.get("KPROXY_TEST_ALL") else 6
BROKEN = (
    "lost-write", "offset-given-twice", "inconsistent-offset", "duplicate-sequence", "aborted-read", "lost-commit",
    "hidden-transaction",
    "torn-transaction", "zombie-write", "out-of-range", "log-goes-back", "refused-but-stored",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_lawful_histories_prove_nothing(seed: int) -> None:
    pairs = Model(seed).run(STEPS)
    random = Random(seed)
    for share in (1.0, 0.9, 0.5):
        kept = [one for one in pairs if random.random() < share]
        proved = [one for one in verify(kept).findings if one.level == "proved"]
        assert proved == [], share


def proved(pairs: list[BothSides], **terms: bool) -> list[str]:
    """Return the proved findings."""
    return [f"{one.check} {one.about}" for one in verify(pairs, VerifyTerms(**terms)).findings if one.level == "proved"]


@settings(max_examples=HISTORIES, derandomize=True, deadline=None, database=None)
@given(seed=st.integers(0, 1 << 32), share=st.floats(0, 1), offset=st.floats(-5, 5))
def test_lawful_operations_prove_nothing(seed: int, share: float, offset: float) -> None:
    """Neither if the record is complete, nor if parts are missing, nor if two proxies recorded it."""
    model, random = OperatedModel(seed), Random(seed)
    pairs = model.run(STEPS)
    assert proved(pairs) == []
    assert model.hidden or proved(pairs, assume_complete=True) == []
    assert proved([one for one in pairs if random.random() < share]) == []
    assert proved(cut(pairs, share)) == []
    assert proved(unreadable(pairs)) == []
    two = apart(pairs, offset)
    assert proved(two) == []
    assert model.hidden or proved(two, assume_complete=True) == []


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_step_is_found(broken: str) -> None:
    """In nearly all histories: of some the broken step has no witness, as when nobody asks for a commit again."""
    found = tried = 0
    for seed in range(60):
        model = Model(seed, broken)
        pairs = model.run(STEPS)
        if model.spoilt and tried < 3:
            tried += 1
            found += any(one.check == broken for one in verify(pairs, VerifyTerms(assume_complete=True)).findings)
        if tried == 3:
            break
    assert tried == 3 and found >= 2, (tried, found)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_coordinators_lawful_history_proves_nothing(seed: int) -> None:
    """Nor does a part of it, nor a record that has exchanges without a response last, as when connections end late."""
    pairs, random = CoordinatorModel(seed).run(STEPS), Random(seed)
    late = sorted(pairs, key=lambda pair: pair.front is None or pair.front.answer is None)
    part = [one for one in pairs if random.random() < 0.8]
    for kept, complete in ((pairs, True), (late, True), (pairs, False), (part, False)):
        found = verify(kept, VerifyTerms(assume_complete=complete)).findings
        assert [one for one in found if one.level == "proved"] == []
    for complete in (False, True):
        assert proved(apart(CoordinatorModel(seed).run(STEPS), random.uniform(-5, 5)), assume_complete=complete) == []


@pytest.mark.parametrize(
    "broken",
    [
        "lost-commit", "aborted-commit", "producer-id-reused", "producer-epoch-goes-back", "two-owners",
        "generation-goes-back",
    ],
)  # fmt: skip
def test_coordinators_broken_step_is_found(broken: str) -> None:
    """Some histories have no witness of the broken step."""
    found = 0
    for seed in range(40):
        pairs = CoordinatorModel(seed, broken).run(STEPS)
        found += any(one.check == broken for one in verify(pairs, VerifyTerms(assume_complete=True)).findings)
        if found == 2:
            return
    raise AssertionError(f"expected 2 histories of 40 with a finding, got {found}")
