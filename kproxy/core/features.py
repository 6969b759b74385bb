"""Features that a broker says are on, and the versions without which clients must not believe it.

A client that sees `transaction.version` 2 uses Produce 12, TxnOffsetCommit 5 and EndTxn 5 without looking whether there
are such versions (KIP-890). The features of the other group protocols say that their APIs are there (KIP-848, KIP-932,
KIP-1071). So a feature is taken back to a lower level when ApiVersions answers are cut below what it needs.
`metadata.version` and the like tell what the cluster stores, not what clients may ask, and stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

NEEDED: Final[Mapping[tuple[str, int], Mapping[int, int]]] = {
    ("transaction.version", 2): {0: 12, 26: 5, 28: 5},
    ("group.version", 1): {68: 0},
    ("share.version", 1): {76: 0, 78: 0, 79: 0},
    ("streams.version", 1): {88: 0},
}
"""(feature, level) → API key → the version that the level needs of it."""


def take_back(body: dict[str, Any], before: Mapping[int, int], after: Mapping[int, int]) -> None:
    """Lower, in place, the levels of features in an ApiVersions response to those that its versions still allow.

    `before` and `after` the cut: API key → newest version. What the broker itself lacks is its own business: only a
    version that the cut has taken counts. Level 0 is off, and brokers do not list what is off.
    """
    for (name, level), needs in NEEDED.items():
        if any(before.get(key, -1) >= version > after.get(key, -1) for key, version in needs.items()):
            _lower(body, "finalized_features", "max_version_level", "min_version_level", name, level - 1)
            _lower(body, "supported_features", "max_version", "min_version", name, level - 1)


def _lower(body: dict[str, Any], field: str, most: str, least: str, name: str, level: int) -> None:
    listed = body.get(field)
    if not listed:
        return
    kept = []
    for feature in listed:
        if feature["name"] == name and feature[most] > level:
            feature = feature | {most: level, least: min(feature[least], level)}
        if feature["name"] != name or feature[most] > 0:
            kept.append(feature)
    body[field] = kept
