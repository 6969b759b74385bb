"""A log that says the same thing once in a while: what clients can cause at will must not fill a disk."""

from __future__ import annotations

from collections.abc import Hashable
from time import monotonic
from typing import Any

from structlog.typing import FilteringBoundLogger

PAUSE = 5.0
"""Seconds between two lines with the same event and key. Those between are counted in the next one."""
MOST = 1000
"""Keys remembered; then all are forgotten."""


class Throttle:
    """`key` tells apart lines with the same event."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self.log = log
        self.last: dict[Hashable, tuple[float, int]] = {}

    def warning(self, event: str, key: Hashable = None, **fields: Any) -> None:
        now = monotonic()
        when, left_out = self.last.get((event, key), (-PAUSE, 0))
        if now - when < PAUSE:
            self.last[event, key] = when, left_out + 1
            return
        if len(self.last) >= MOST:
            self.last.clear()
        self.last[event, key] = now, 0
        if left_out:
            fields["left_out"] = left_out
        self.log.warning(event, **fields)
