"""Brokers by id."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.rules.values.quantities import includes


@pytest.mark.parametrize(
    ("written", "meant"),
    [("2", {2}), ("[1, 3]", {1, 3}), ("2-3", {2, 3}), ("[1, '>=3']", {1, 3, 4}), ("all", {0, 1, 2, 3, 4})],
)
def test_ids_ranges_and_all(written: str, meant: set[int], hand: Any) -> None:
    """Nobody (-1) is no broker."""
    nodes = hand.rule(f"kind: hide_node, node: {written}").node

    assert {node for node in range(-1, 5) if includes(nodes, node)} == meant


def test_what_is_none(mistakes_of: Any) -> None:
    assert mistakes_of("kind: hide_node, node: foo") == ["expected a number or a range such as 0-11 or >=4, got 'foo'"]
