"""Count of the Python lines that a block executes, as a measure of its work on any machine:

with LineCount() as count:
    talk.client(frame)
count.total       # lines executed in all
count.longest     # lines between two places where other connections may run (kproxy/base/cooperative.py)

Long calls of C code, such as a regular expression, count as one line. Only a clock can measure these: see the marker
`measured` in CONTRIBUTING.md.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from types import CellType, FrameType
from typing import Any, Self

from kproxy.base import cooperative


def line_tracer() -> tuple[Callable[[FrameType, str, Any], Any], CellType]:
    """Return a trace function, and the cell with the number of lines that it counted.

    A function with a cell takes half the time of a method with an attribute.
    """
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if event == "line":
            lines += 1
        return trace

    cells = dict(zip(trace.__code__.co_freevars, trace.__closure__ or (), strict=True))
    return trace, cells["lines"]


class LineCount:
    """Counter of the lines that a `with` block executes.

    `fine`: each call of `yield_point` ends a stretch. Otherwise only each 32nd does, as in a proxy. `where`: the stack
    at the end of the longest stretch, if `trace`. `looks`: number of stretches.
    """

    def __init__(self, *, fine: bool = False, trace: bool = False) -> None:
        self.fine, self.with_stack = fine, trace
        self.longest = self.last = self.looks = 0
        self.where = ""
        self.trace, self._lines = line_tracer()

    @property
    def total(self) -> int:
        lines: int = self._lines.cell_contents
        return lines

    def look(self) -> None:
        """End a stretch at a place where other connections may run."""
        self.looks += 1
        lines = self._lines.cell_contents  # read without a call, which would count
        if lines - self.last > self.longest:
            self.longest = lines - self.last
            if self.with_stack:
                self.where = "".join(traceback.format_stack(limit=14)[:-1])
        self.last = lines

    def apart(self, work: Callable[[], Any]) -> Any:
        """Do work that a proxy does in a thread. Its lines are not counted."""
        self.look()
        sys.settrace(None)
        try:
            return work()
        finally:
            sys.settrace(self.trace)

    def __enter__(self) -> Self:
        self.hook, self.tracer = cooperative.install_hooks(self.look, self.apart), sys.gettrace()
        self.every, self.left = cooperative.EVERY, cooperative.YieldState.left
        if self.fine:
            cooperative.EVERY = cooperative.YieldState.left = 0
        sys.settrace(self.trace)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(self.tracer)
        cooperative.EVERY, cooperative.YieldState.left = self.every, self.left
        cooperative.install_hooks(self.hook)
        self.look()
