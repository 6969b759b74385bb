"""Which APIs and versions a rule selects, seen in what was written."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.rules.select.selected import chosen, spans


def found(match: Any) -> list[tuple[str, tuple[int, ...], tuple[Any, ...], bool]]:
    return [(one.api.name, one.versions, one.where, one.by_name) for one in chosen({"match": match})]


def test_an_api_is_selected_by_name_or_number() -> None:
    """With all of its versions, or those that are selected."""
    assert found({"api": "Heartbeat"}) == [("Heartbeat", (0, 1, 2, 3, 4), ("match", "api"), True)]
    assert found({"api": 12, "version": ">=3"}) == [("Heartbeat", (3, 4), ("match", "api"), True)]
    assert found({"api": ["ListGroups", "Heartbeat"], "version": [0, "4-5"]}) == [
        ("ListGroups", (0, 4, 5), ("match", "api", 0), True), ("Heartbeat", (0, 4), ("match", "api", 1), True),
    ]  # fmt: skip


def test_a_pattern_stands_for_several() -> None:
    """None of which is meant by its name."""
    several = found({"api": "Describe*Groups"})

    assert ("DescribeGroups", False) in [(name, by_name) for name, _, _, by_name in several]


@pytest.mark.parametrize(
    "match", [None, 5, {}, {"topic": "a"}, {"api": None}, {"api": "Fetsch"}, {"api": [None, {}]}, {"api": True}]
)
def test_what_selects_none_is_none(match: Any) -> None:
    """Mistakes are somebody else's to report."""
    assert found(match) == []


def test_a_wrong_version_leaves_all() -> None:
    """It is reported by its own type."""
    assert found({"api": "Heartbeat", "version": "x"})[0][1] == (0, 1, 2, 3, 4)


def test_versions_are_shown_as_ranges() -> None:
    """As the table writes them."""
    assert spans([0, 1, 2, 5]) == "0-2,5"
    assert spans([]) == ""
