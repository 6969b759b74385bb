"""Features that need versions which were cut."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.session.rewrite.versions import cap

NOTHING = (0, -1)


def answer(**levels: int) -> dict[str, Any]:
    """What a broker of Kafka 4.3 says, with these features finalized."""
    newest = {0: 13, 3: 13, 26: 5, 28: 5, 68: 1, 69: 1, 76: 1, 77: 1, 78: 2, 79: 2, 88: 0}
    names = {name.replace("_", "."): level for name, level in levels.items()}
    return {
        "api_keys": [{"api_key": key, "min_version": 0, "max_version": last} for key, last in newest.items()],
        "supported_features": [{"name": name, "min_version": 0, "max_version": level} for name, level in names.items()],
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level} for name, level in names.items()
        ],
    }


@pytest.mark.parametrize(
    ("feature", "level", "spans", "left"),
    [
        ("transaction_version", 2, {0: (0, 11)}, 1),
        ("transaction_version", 2, {28: (0, 4)}, 1),
        ("transaction_version", 2, {26: NOTHING}, 1),
        ("transaction_version", 2, {0: (3, 12)}, 2),
        ("transaction_version", 2, {3: (0, 9)}, 2),
        ("transaction_version", 1, {0: (0, 9)}, 1),
        ("group_version", 1, {68: NOTHING}, None),
        ("group_version", 1, {68: (0, 0)}, 1),
        ("group_version", 1, {69: NOTHING}, 1),
        ("share_version", 1, {78: NOTHING}, None),
        ("share_version", 1, {79: (0, 1)}, 1),
        ("streams_version", 1, {88: NOTHING}, None),
        ("metadata_version", 29, {0: (0, 1), 68: NOTHING}, 29),
    ],
)
def test_a_feature_goes_with_the_versions_it_needs(
    feature: str, level: int, spans: dict[int, tuple[int, int]], left: int | None
) -> None:
    """It is taken back by one level, and at level 0 it is not listed: neither as finalized nor as supported."""
    body = answer(**{feature: level, "kraft_version": 1})

    cap(body, spans.get)

    name = feature.replace("_", ".")
    finalized = {
        one["name"]: (one["min_version_level"], one["max_version_level"]) for one in body["finalized_features"]
    }
    supported = {one["name"]: one["max_version"] for one in body["supported_features"]}
    assert finalized == {"kraft.version": (1, 1)} | ({} if left is None else {name: (left, left)})
    assert supported == {"kraft.version": 1} | ({} if left is None else {name: left})


def test_an_api_that_the_broker_lacks_takes_nothing_back() -> None:
    """The broker knows why it says so; only what was cut counts."""
    body = answer(group_version=1)
    body["api_keys"] = [entry for entry in body["api_keys"] if entry["api_key"] != 68]

    assert cap(body, {68: NOTHING, 3: (0, 9)}.get)
    assert body["finalized_features"][0]["max_version_level"] == 1


def test_an_answer_without_features_is_cut_all_the_same() -> None:
    """Versions below 3 have none."""
    body = {"api_keys": [{"api_key": 0, "min_version": 0, "max_version": 13}]}

    assert cap(body, {0: (0, 11)}.get)
    assert body == {"api_keys": [{"api_key": 0, "min_version": 0, "max_version": 11}]}
