"""The kinds by what they are for."""

from __future__ import annotations

from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.groups import GROUPS


def test_every_kind_is_in_one_group_and_in_the_order_of_the_table() -> None:
    """None is left out, none is there twice."""
    assert [kind for kinds in GROUPS.values() for kind in kinds] == list(KINDS)
