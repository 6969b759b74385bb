"""Rates as users write them."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules
from kproxy.rules.values.quantities import parse_byte_rate, parse_count_rate


def mistakes_of(text: str) -> list[str]:
    """The mistakes in the rule of one line of flow style, without their places."""
    with pytest.raises(DocumentError) as caught:
        parse_rules(f"rules: [{{name: r, {text}}}]", "f")
    return [line.split(": ", 1)[1] for line in caught.value.mistakes]


@pytest.mark.parametrize(
    ("text", "rate"),
    [("10MB/s", 1e7), ("64KiB/s", 65536), ("60kB/min", 1000), ("3.6MB/h", 1000), ("100 B / s", 100), (5, 5.0)],
)
def test_bytes_in_a_time(text: Any, rate: float) -> None:
    """Sizes as everywhere, per second, minute or hour; a plain number is bytes per second."""
    assert parse_byte_rate(text) == rate


@pytest.mark.parametrize(("text", "rate"), [("200/s", 200), ("30/min", 0.5), ("0.5/s", 0.5), (7, 7.0), (1.5, 1.5)])
def test_a_number_in_a_time(text: Any, rate: float) -> None:
    """Requests and connections."""
    assert parse_count_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("produce: 10MB", 'expected a rate such as 10MB/s (per: s, m, min, h), got text "10MB"'),
        ("produce: 10MB/d", 'expected a rate such as 10MB/s (per: s, m, min, h), got text "10MB/d"'),
        ("produce: 10/s", "expected a size such as 64KiB"),
        ("requests: 10kB/s", 'expected a rate such as 200/s, got text "10kB/s"'),
        ("requests: 0/s", "expected more than 0 per second, got 0/s"),
        ("requests: true", "expected a number, got true"),
    ],
)
def test_what_is_no_rate_is_said_so(text: str, mistake: str) -> None:
    (found,) = mistakes_of(f"kind: quota, {text}")

    assert found.startswith(mistake)
