"""A pattern made of names matches these names and no other, however many there are."""

from __future__ import annotations

from random import Random

import pytest
import re2

from kproxy.protocol.primitives import MAX_STRING
from kproxy.session.rewrite.names.regex import branches, pattern_of


def matches(pattern: bytes, name: bytes) -> bool:
    return re2.fullmatch(pattern.decode(), name.decode()) is not None


@pytest.mark.parametrize("letters", ["ab", "ab.", "a-_.9Z"])
def test_shared_beginnings_match_the_same_names(letters: str) -> None:
    """That form equals plain alternatives, on names that are in the set and on those beside it."""
    rng = Random(4)
    for _ in range(60):
        pool = [bytes(rng.choices(letters.encode(), k=rng.randrange(1, 6))) for _ in range(40)]
        names = set(pool[: rng.randrange(1, 30)])
        short = b"^(?:" + b"|".join(branches(sorted(names), 0, len(names), 0)) + b")$"
        for name in pool:
            assert matches(pattern_of(names), name) is matches(short, name) is (name in names)


def test_order_does_not_matter() -> None:
    """The same set gives the same bytes, so that a member's pattern changes only if the set does."""
    assert pattern_of([b"b", b"a"]) == pattern_of(iter([b"a", b"b"])) == b"^(?:a|b)$"


def test_ten_thousand_numbered_names_fit_into_a_string() -> None:
    """Plain alternatives would take 300 kB."""
    names = [b"tenant-a.events.partitioned-%05d" % number for number in range(10_000)]
    pattern = pattern_of(names)
    assert len(pattern) <= MAX_STRING
    assert matches(pattern, names[4711])
    assert not matches(pattern, names[4711] + b"0")
    assert not matches(pattern, names[4711][:-1])


def test_no_names() -> None:
    """An empty set is a legal pattern that no topic matches."""
    assert pattern_of([]) == b"^$"
    assert not matches(b"^$", b"a")
