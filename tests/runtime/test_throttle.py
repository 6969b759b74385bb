"""What clients cause again and again is said once in a while, and how often it was left out."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.runtime import capacity as log_throttle
from kproxy.runtime.capacity import BURST, MOST, PAUSE, LogThrottle


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Lines:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, dict[str, Any]]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.said.append(("warning", event, fields))

    def info(self, event: str, **fields: Any) -> None:
        self.said.append(("info", event, fields))

    @property
    def left_out(self) -> int:
        return sum(fields.get("left_out", 0) for _, _, fields in self.said)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(log_throttle, "monotonic", made)
    return made


def test_a_key_has_one_line_in_a_while_with_the_number_of_those_left_out(clock: Clock) -> None:
    """Of each key and event, at every level."""
    lines: Any = Lines()
    log = LogThrottle(lines)
    for _ in range(10):
        log.warning("closed", key="a", why=1)
        log.info("closed", key="b")
        log.warning("refused")
    assert [line[:2] for line in lines.said] == [("warning", "closed"), ("info", "closed"), ("warning", "refused")]
    clock.now += PAUSE
    log.warning("closed", key="a", why=2)

    assert lines.said[-1] == ("warning", "closed", {"why": 2, "left_out": 9})


def test_any_number_of_keys_has_a_bounded_number_of_lines(clock: Clock) -> None:
    """No more than BURST of one event in PAUSE seconds; none is lost from the count, other events are told."""
    lines: Any = Lines()
    log = LogThrottle(lines)
    many = 5 * MOST
    for number in range(many):
        clock.now += 0.9 * PAUSE / many
        log.warning("closed", key=number)
    assert len(lines.said) == BURST
    log.warning("refused")
    assert len(lines.said) == BURST + 1
    assert len(log.last) <= MOST
    clock.now += PAUSE
    log.warning("closed", key="last")

    assert len(lines.said) == BURST + 2
    assert lines.left_out == many - BURST
