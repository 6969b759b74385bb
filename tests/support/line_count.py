"""Count of the Python lines that a block executes, as a measure of its work on any machine.

with LineCount() as count:
    talk.client(frame)
count.total       # lines executed in all
count.longest     # lines between two places where other connections may run (kproxy/wire/breath.py)
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Self

from kproxy.wire import breath


class LineCount:
    """Counter of the lines that a `with` block executes."""

    def __init__(self) -> None:
        self.total = self.longest = self.last = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.total += 1
        return self.trace

    def rest(self) -> None:
        """End a stretch at a place where other connections may run."""
        self.longest = max(self.longest, self.total - self.last)
        self.last = self.total

    def __enter__(self) -> Self:
        self.hook, self.tracer = breath.use(self.rest), sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(self.tracer)
        breath.use(self.hook)
        self.rest()
