"""Exchanges that rules cannot be about, whatever is in them: these need not be rehearsed."""

from __future__ import annotations

from collections.abc import Sequence

from kproxy.core.plan import MOST_STEPS, Plan
from kproxy.core.step import HEAD, Step


class Opaque(dict[int, bool]):
    """Table of the exchanges that none of some plans looks into.

    `api key << 16 | version` → True if so; filled in as they come.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        super().__init__()
        self.plans = plans

    def __missing__(self, code: int) -> bool:
        opaque = all(is_opaque(plan[code]) for plan in self.plans)
        if len(self) < MOST_STEPS:
            self[code] = opaque
        return opaque


def is_opaque(step: Step) -> bool:
    """Return True if both frames would pass as they are, whatever is in them (but for acks, which is only read)."""
    return (
        step.request in (None, HEAD) and step.rewrite_request is None and step.response is None and step.program is None
    )
