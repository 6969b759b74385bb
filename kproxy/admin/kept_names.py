"""Names in the exchanges that a process has kept for the view, to complete a filter with while it is typed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import monotonic

from pydantic import Field

from kproxy.record.exchange import ObservedExchange
from kproxy.runtime.io.turns import in_turns

from .models import Shown
from .tail_lines import whole

MOST_EXCHANGES = 5000
"""Exchanges that are looked at, the latest ones."""
MOST_NAMES = 500
"""Names of each sort; who has more types some letters first."""
LONGEST_LOOK = 0.2
"""Seconds for all exchanges; names that come often come early."""
LONGEST_NAME = 249
"""Characters; Kafka's topics have no more, and longer names complete nothing."""


class KeptNamesShown(Shown):
    """Names in the exchanges that are kept for the view, the latest first."""

    topics: list[str] = Field(default=[], description="as clients call them")
    groups: list[str] = []
    client_ids: list[str] = []
    principals: list[str] = []
    transactional_ids: list[str] = []


async def names_in(kept: Sequence[ObservedExchange]) -> KeptNamesShown:
    """Return the names in these exchanges, the latest of which comes first."""
    found = KeptNamesShown()
    await in_turns(collect(kept[:MOST_EXCHANGES], found, monotonic() + LONGEST_LOOK))
    return found


def collect(kept: Sequence[ObservedExchange], into: KeptNamesShown, until: float) -> Iterator[None]:
    """Add the names of one exchange a step, until there are enough or the time is over."""
    sorts: dict[str, dict[str, None]] = {name: {} for name in KeptNamesShown.model_fields}
    read: set[tuple[object, ...]] = set()
    try:
        for seen in kept:
            if monotonic() > until:
                return
            add(sorts["client_ids"], (seen.client_id,))
            add(sorts["principals"], (seen.who.principal,))
            like = seen.client_id, seen.key, seen.request and seen.request.size
            if like not in read:  # one like it has the same names, most of the time
                read.add(like)
                data = whole(seen)
                add(sorts["topics"], (topic.get("topic") for topic in data.get("topics") or ()))
                add(sorts["groups"], (data.get("group"),))
                add(sorts["transactional_ids"], (data.get("transactional_id"),))
            yield
    finally:
        for name, values in sorts.items():
            setattr(into, name, list(values))


def add(names: dict[str, None], more: Iterable[object]) -> None:
    for name in more:
        if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and len(names) < MOST_NAMES:
            names[name] = None


def joined(answers: Iterable[KeptNamesShown]) -> KeptNamesShown:
    """Return the names that any of several processes has."""
    answers = list(answers)
    sorts = {}
    for name in KeptNamesShown.model_fields:
        values: dict[str, None] = {}
        for one in answers:
            add(values, getattr(one, name))
        sorts[name] = list(values)
    return KeptNamesShown(**sorts)
