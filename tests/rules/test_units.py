"""Durations and sizes with their units."""

from __future__ import annotations

import pytest

from kproxy.rules.values.quantities import parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("200ms", 0.2), ("1.5m", 90), ("2 h", 7200), ("1d", 86400), (5, 5.0), (0.5, 0.5)]
)
def test_a_duration_is_seconds(text: object, seconds: float) -> None:
    """With a unit, or as a plain number of seconds."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"), [("64KiB", 65536), ("100MB", 100_000_000), ("1kB", 1000), ("10B", 10), (7, 7), ("0.5MiB", 524288)]
)
def test_a_size_is_bytes(text: object, size: int) -> None:
    """kB and MB are decimal, KiB and MiB binary."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["10", "s", "10 parsecs", "-1s", "1,5s", "10S", ""])
def test_a_bad_duration_names_the_units(text: str) -> None:
    """Text without a unit, or with another one, is refused."""
    with pytest.raises(ValueError, match="units: ms, s, m, min, h, d"):
        parse_duration(text)


def test_a_bad_size_names_the_units() -> None:
    """Upper and lower case matter: kb is no unit."""
    with pytest.raises(ValueError, match="units: B, kB, KB, MB, GB, KiB, MiB, GiB"):
        parse_size("64kb")
