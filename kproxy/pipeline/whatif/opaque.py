"""Which exchanges rules cannot be about, whatever is in them: these need not be rehearsed."""

from __future__ import annotations

from collections.abc import Sequence

from kproxy.core.plan import MOST_STEPS, Plan
from kproxy.core.step import HEAD, Step


class Opaque(dict[int, bool]):
    """`api key << 16 | version` → whether none of these plans looks into such frames; filled in as they come."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        super().__init__()
        self.plans = plans

    def __missing__(self, code: int) -> bool:
        found = all(is_opaque(plan[code]) for plan in self.plans)
        if len(self) < MOST_STEPS:
            self[code] = found
        return found


def is_opaque(step: Step) -> bool:
    """Whether both frames would pass as they are, whatever is in them (but for acks, which is only read)."""
    return (
        step.request in (None, HEAD) and step.rewrite_request is None and step.response is None and step.ruled is None
    )
