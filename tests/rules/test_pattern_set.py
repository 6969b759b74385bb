"""Many patterns at once: the same as each by itself, at a cost that does not grow with their number."""

from __future__ import annotations

from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.rules.select import match
from kproxy.rules.select.match import PatternSet, text_test
from tests.support.line_count import LineCount

TEXTS = st.text(st.sampled_from("ab-é.\n\udc80"), max_size=8)
GLOBS = st.text(st.sampled_from("ab-.*"), min_size=1, max_size=7)
EXPRESSIONS = st.sampled_from(["/a(b|-).*/", "/[ab]+/", "/a.?/", "/(?i)AB.*/", "/.*a.*b.*/", "/a|b/", "/a$/", "//"])


def made(patterns: list[str]) -> PatternSet:
    found = PatternSet()
    for number, pattern in enumerate(patterns):
        found.add(pattern, number)
    return found


def expected(patterns: list[str], text: str) -> list[int]:
    return [number for number, pattern in enumerate(patterns) if text_test(pattern)(text)]


@given(st.lists(st.one_of(GLOBS, EXPRESSIONS).filter(lambda one: "*" in one or one[0] == "/"), max_size=30), TEXTS)
def test_together_they_hold_for_what_each_holds_for(patterns: list[str], text: str) -> None:
    """Globs of one star and of several, regular expressions, text with line ends and bytes that are not UTF-8."""
    assert sorted(made(patterns).matching(text)) == expected(patterns, text)


def test_a_pattern_that_is_there_twice_has_both_numbers() -> None:
    """Two rules may select by the same."""
    assert sorted(made(["a*", "a*", "a*b*", "a*b*"]).matching("ab")) == [0, 1, 2, 3]


@pytest.mark.parametrize("memory", [1, 100_000, 700_000, 1_000_000])
def test_where_a_set_has_no_memory_each_is_tried(monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    """RE2 cannot make it, or says that nothing matches, which must not let anything pass."""
    monkeypatch.setattr(match, "SET_MEMORY", memory)
    patterns = [f"team-{number}-*-x*" for number in range(500)]

    assert list(made(patterns).matching("team-7-a-xyz")) == [7]
    assert not list(made(patterns).matching("team-7-a-yz"))


def test_a_long_expression_is_tried_by_itself() -> None:
    """It would leave no room for others."""
    found = made(["a*b*", "/a(b{100}c{100}){9}/"])

    assert [one.numbers for one in found.sets] == [[0]]
    assert [number for _, number in found.alone] == [1]


GROWING = pytest.mark.parametrize("pattern", ["team-{}-*", "*-{}", "team-{}-*-x*", "*team{}*", "/team-{}-[a-z]+/"])


def few_and_many(pattern: str) -> tuple[Any, Any]:
    few, many = (made([pattern.format(number) for number in range(count)]) for count in (50, 800))
    for found in (few, many):
        list(found.matching("team-1-x"))
    return few, many


def match_all(found: Any, count: int) -> None:
    for number in range(count):
        list(found.matching(f"topic-{number}-abc"))


@GROWING
def test_match_takes_the_same_lines_for_more_patterns(pattern: str) -> None:
    spent = []
    for found in few_and_many(pattern):
        with LineCount() as count:
            match_all(found, 100)
        spent.append(count.total)
    assert spent[1] < 2 * spent[0]


@pytest.mark.measured
@GROWING
def test_match_takes_little_more_time_for_more_patterns(pattern: str) -> None:
    """Sixteen times as many patterns take less than four times as long."""

    def cost(found: Any) -> float:
        began = thread_time()
        match_all(found, 2000)
        return thread_time() - began

    few, many = few_and_many(pattern)
    assert min(cost(many) for _ in range(3)) < 4 * min(cost(few) for _ in range(3))
