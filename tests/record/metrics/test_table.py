"""Which names have series: first come, what moves most takes a place, silence frees it, and memory stays bounded."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.base import terminal
from kproxy.base.terminal import in_line
from kproxy.record.metrics.table import (
    LONGEST_NAME,
    MINUTES,
    OTHER,
    SILENCE,
    HeavyNames,
    LabelTable,
    label_text,
)

BYTES = ("bytes", "")


def move(table: LabelTable, name: str, weight: float, now: float = 0.0, *, known: bool = True) -> str:
    """Move so much under a name; the name of the series that it was counted in."""
    return table.add(name, [(BYTES, weight)], now, weight=weight, count=1, known=known).name


def total(table: LabelTable) -> float:
    return sum(series.values.get(BYTES, 0.0) for series in table.everything())


def test_names_come_first_and_others_are_added_up() -> None:
    table = LabelTable(2)

    assert [move(table, name, 5) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]
    assert table.overflow == 2
    assert total(table) == 25


def test_a_name_that_moves_more_for_three_minutes_takes_a_place() -> None:
    """The smallest series goes with its numbers, and `other` keeps what the name had moved before: nothing jumps."""
    table = LabelTable(2)
    gone: list[str] = []
    table.gone = lambda series: gone.append(series.name)
    for minute in range(MINUTES):
        move(table, "small", 10)
        move(table, "large", 1000)
        assert move(table, "new", 21) == OTHER
        assert gone == []
        table.end_minute(60.0 * minute)

    assert gone == ["small"]
    assert set(table.series) == {"large", "new"}
    assert table.other.values == {BYTES: 21.0 * MINUTES}
    assert move(table, "new", 21) == "new"
    assert table.series["new"].values == {BYTES: 21.0}


def test_a_name_that_moves_twice_as_much_or_not_each_minute_stays_without() -> None:
    table = LabelTable(1)
    for minute in range(3 * MINUTES):
        move(table, "small", 10)
        move(table, "twice", 20)
        if minute % MINUTES:
            move(table, "now and then", 1000)
        table.end_minute(60.0 * minute)

    assert set(table.series) == {"small"}


def test_one_place_changes_hands_in_a_minute() -> None:
    """So many new names cannot drive out all that there were, however much they move."""
    table = LabelTable(50)
    for number in range(50):
        move(table, f"old-{number}", 1)
    for minute in range(MINUTES + 1):
        for number in range(100):
            move(table, f"new-{number}", 1000)
        table.end_minute(60.0 * minute)

    assert sum(name.startswith("new") for name in table.series) == 2


def test_a_silent_series_frees_its_place_after_an_hour() -> None:
    table = LabelTable(1)
    move(table, "a", 5, now=0.0)
    table.end_minute(SILENCE)
    assert move(table, "b", 5, now=SILENCE) == OTHER
    table.end_minute(SILENCE + 1)

    assert move(table, "b", 5, now=SILENCE + 1) == "b"
    assert table.other.values == {BYTES: 5.0}


def test_names_that_nobody_confirmed_or_that_are_not_chosen_never_get_a_series() -> None:
    """They are no overflow, and not watched for what they move; a name that has a series is counted there."""
    table = LabelTable(3, lambda name: name.startswith("orders"))
    moved = [move(table, "orders.1", 5, known=False), move(table, "payments", 5), move(table, "orders.1", 5),
             move(table, "orders.1", 5, known=False)]  # fmt: skip

    assert moved == [OTHER, OTHER, "orders.1", "orders.1"]
    assert table.overflow == 0
    assert table.heavy.counts == {}


def test_a_name_that_is_other_is_counted_as_other() -> None:
    assert move(LabelTable(3), OTHER, 5) == OTHER


def test_names_are_cut_and_command_nothing() -> None:
    """Such as a terminal on which somebody looks at the metrics; bytes that were no UTF-8 can be encoded."""
    assert label_text("a" * 300) == "a" * 100
    assert label_text("\x1b[2J\n\r\x00\u202e\udcff") == "\\u001b[2J\\u000a\\u000d\\u0000\\u202e\\udcff"
    label_text("\U000e0001" * 300).encode()
    assert len(label_text("\x1b" * 300)) == 100


def test_names_made_up_for_ever_take_no_memory_and_no_place() -> None:
    """A client with a new name for each request: tables stay as large as they may, and series stay whose they are."""
    table = LabelTable(20)
    for number in range(20):
        move(table, f"real-{number}", 10)
    for minute in range(6):
        for number in range(3000):
            move(table, f"made-up-{minute}-{number}", 1)
        for number in range(20):
            move(table, f"real-{number}", 10)
        assert len(table.heavy.counts) <= 40
        assert len(table.heavy._heap) <= 4 * 40
        table.end_minute(60.0 * minute)
        assert len(table.streaks) <= 40

    assert set(table.series) == {f"real-{number}" for number in range(20)}
    assert table.overflow == 18_000
    assert total(table) == 18_000 + 7 * 200


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 50)), max_size=200), st.integers(1, 8))
def test_what_is_certain_is_never_more_than_was_moved(moves: list[tuple[int, int]], most: int) -> None:
    heavy, true = HeavyNames(most), dict[str, float]()
    for number, weight in moves:
        name = str(number)
        heavy.add(name, weight)
        true[name] = true.get(name, 0) + weight

    assert len(heavy.counts) <= most
    assert all(weight <= true[name] for name, weight in heavy.certain().items())
    assert all(count >= true[name] for name, (count, _) in heavy.counts.items())
    assert all(name in heavy.counts for name, weight in true.items() if weight > sum(true.values()) / most)


def test_sums_are_exact_whatever_comes_and_goes() -> None:
    """What goes with a series is the only thing that is missing from the sum of all."""
    random, table = Random(5), LabelTable(4)
    lost: list[float] = []
    table.gone = lambda series: None
    moved = 0.0
    for minute in range(30):
        for _ in range(50):
            weight = random.randrange(1, 9)
            moved += weight
            move(table, f"name-{int(random.expovariate(0.2))}", weight, now=60.0 * minute)
        before = total(table)
        table.end_minute(60.0 * minute)
        lost.append(before - total(table))

    assert min(lost) >= 0
    assert total(table) == moved - sum(lost)


def test_numbers_rest_until_their_name_has_a_place_again() -> None:
    """Where fewer may have a series, those that moved least go; what comes of them meanwhile is `other`'s."""
    table = LabelTable(3, rests=True)
    for number, name in enumerate(("a", "b", "c"), 1):
        move(table, name, number)

    table.use(1, None)
    assert sorted(table.series) == ["c"]
    assert [move(table, name, 10) for name in ("a", "c")] == [OTHER, "c"]
    table.use(3, lambda name: name != "b")
    assert {name: one.values[BYTES] for name, one in table.series.items()} == {"c": 13, "a": 1}
    table.use(3, None)
    move(table, "b", 1)
    assert {name: one.values[BYTES] for name, one in table.series.items()} == {"c": 13, "a": 1, "b": 3}
    assert table.other.values == {BYTES: 10}
    assert table.resting == {}


def test_without_rest_a_name_begins_anew() -> None:
    """As workers count: what they tell is added up from what is new."""
    table = LabelTable(1)
    move(table, "a", 5)
    table.use(1, lambda name: False)
    table.use(1, None)
    move(table, "a", 1)

    assert table.series["a"].values == {BYTES: 1}


@given(st.text(st.sampled_from("ab\\\x00\t\n\u200b\U000e0001é\ud800"), max_size=3 * LONGEST_NAME))
def test_a_label_is_the_beginning_of_the_name_escaped(name: str) -> None:
    assert label_text(name) == in_line(name[:LONGEST_NAME])[:LONGEST_NAME]


def test_what_a_label_cuts_off_is_not_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection may name thousands of topics in a minute, all of them of characters that are not seen."""
    escaped: list[Any] = []
    escape = terminal._escaped
    monkeypatch.setattr(terminal, "_escaped", lambda found: escaped.append(found) or escape(found))
    assert len(label_text("\x01" * 500)) == LONGEST_NAME
    assert len(escaped) < LONGEST_NAME / 5
