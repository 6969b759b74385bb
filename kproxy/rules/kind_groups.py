"""The groups that kinds of rules are listed in, by what they are for."""

from __future__ import annotations

from typing import Final, Literal, get_args

Group = Literal[
    "names",
    "addresses and versions",
    "access",
    "quotas",
    "errors and time",
    "connections and their bytes",
    "frames",
    "the cluster as clients see it",
    "groups, offsets and transactions",
    "records",
    "anything else",
]
"""Group of a kind, which the kind names; groups are listed in this order, and in each the kinds by their names."""
GROUPS: Final[tuple[Group, ...]] = get_args(Group)

_EXPLAINED: Final[dict[Group, str]] = {
    "names": "what clients call things, and what brokers do",
    "access": "who may do what",
    "frames": "lost, cut, spoiled, doubled",
}


def title(group: Group) -> str:
    """Return the group's name with its explanation, if it needs one: the line above its kinds."""
    return f"{group}: {_EXPLAINED[group]}" if group in _EXPLAINED else group
