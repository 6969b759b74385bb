"""reorder_records: records that change places."""

from __future__ import annotations

from typing import Any

VALUES = [f"v{number}" for number in range(20)]


def test_offsets_stay_and_records_move(carried: Any, form: dict[str, int]) -> None:
    """All are there, in another order; the same seed makes the same one. Lone messages of old formats cannot move."""
    batch = carried.batch(*VALUES, **form)
    first, again, other = (
        carried.read(carried(f"kind: reorder_records\nseed: {seed}").fetched(batch)["records"]) for seed in (1, 1, 2)
    )

    assert [offset for offset, _ in first] == list(range(5, 25))
    assert sorted(value for _, value in first) == sorted(VALUES)
    assert first == again
    movable = form["magic"] == 2 or form["codec"] > 0
    assert (first != other) == movable
    assert ([value for _, value in first] != VALUES) == movable


def test_only_the_chosen_take_part(carried: Any) -> None:
    """Of two that are chosen each is at its own place or at the other's."""
    talk = carried("kind: reorder_records\noffsets: [5, 9]\nat: fetch\nseed: 3")
    found = talk.read(talk.fetched(talk.batch(*VALUES))["records"])

    assert {value for offset, value in found if offset in (5, 9)} == {"v0", "v4"}
    assert [value for offset, value in found if offset not in (5, 9)] == [v for v in VALUES if v not in ("v0", "v4")]
