"""Triggers: whether a rule acts on a request that it is about. The same seed and the same traffic give the same
answers.

Counts are kept per rule, or per connection or client id (`count_per`); chances come from a generator that is seeded by
the seed, the rule's name and what is counted for, so that no other rule and no other connection moves them.
"""

from __future__ import annotations

from collections import OrderedDict
from random import Random

from kproxy.rules.when import When

BLOCK = 1 << 12
"""Chances that come from one generator. Whoever has to begin in the middle (`rules.shared_trigger`) passes over fewer
than that, which takes 20 µs at most; to make the next generator takes 10 µs."""
MOST_COUNTS = 10_000
"""Connections or client ids with a count of their own; beyond that the one that was quiet for the longest
starts anew."""


class TriggerCount:
    """Count of one key: how often its rule was asked and acted, and with which chances."""

    __slots__ = ("draws", "fired", "random", "seed", "seen", "since")

    def __init__(self, seed: str, let_go: int) -> None:
        self.seed = seed
        self.seen = -let_go  # numbers are from 1 on for the first that is not let go
        self.fired = self.draws = 0
        self.random = Random(seed)  # not for secrets; a str is hashed by SHA-512, the same on every machine
        self.since: float | None = None

    def next_block(self) -> None:
        """Make the generator for the next chances."""
        self.random = Random(f"{self.seed}#{self.draws // BLOCK}")


class Trigger:
    """Trigger of one rule. `began` is when the rule began to be in force, in monotonic seconds."""

    def __init__(self, when: When | None, seed: str, began: float) -> None:
        self.when, self.seed, self.began = when, seed, began
        self.counts: OrderedDict[object, TriggerCount] = OrderedDict()

    def fires(self, now: float, connection: object = None, client_id: str | None = None) -> bool:
        """Count one matching request, and return True if the rule acts on it."""
        when = self.when
        if when is None:
            return True
        count = self.count(when, connection, client_id)
        if not self.begun(when, count, now) or not in_turn(when, count.seen):
            return False
        since = count.since if count.since is not None else now
        if when.by_chance:
            grown = 1.0 if not when.ramp else min(1.0, (now - since) / when.ramp)
            if not count.draws % BLOCK and count.draws:
                count.next_block()
            count.draws += 1
            if count.random.random() >= (when.probability or 1.0) * grown:
                return False
        if when.for_ is not None and now >= since + when.for_:
            return False
        if when.limit is not None and count.fired >= when.limit:
            return False
        count.fired += 1
        return True

    def open(self, now: float) -> bool:
        """Return True if a rule without requests, such as one about the line itself, is in force now: `after` and
        `for`."""
        when = self.when
        if when is None:
            return True
        since = self.began + (when.after if isinstance(when.after, float) else 0.0)
        return now >= since and (when.for_ is None or now < since + when.for_)

    def next_change(self, now: float) -> float | None:
        """Return the time when `open` will say something else; None: never."""
        when = self.when
        if when is None:
            return None
        since = self.began + (when.after if isinstance(when.after, float) else 0.0)
        ends = () if when.for_ is None else (since + when.for_,)
        return min((time for time in (since, *ends) if time > now), default=None)

    def over(self, now: float) -> bool:
        """Return True if `for` has passed, so that the rule never acts again."""
        when = self.when
        return (
            when is not None
            and when.for_ is not None
            and not isinstance(when.after, int)
            and (now >= self.began + (when.after or 0.0) + when.for_)
        )

    def count(self, when: When, connection: object, client_id: str | None) -> TriggerCount:
        key = None if when.count_per == "rule" else connection if when.count_per == "connection" else client_id or ""
        count = self.counts.get(key)
        if count is None:
            if len(self.counts) >= MOST_COUNTS:
                self.counts.popitem(last=False)
            # every connection draws the same chances: which one comes first is not in the user's hands
            seed = f"{self.seed}:{key}" if when.count_per == "client" else self.seed
            count = self.counts[key] = TriggerCount(seed, let_go(when))
        elif key is not None:
            self.counts.move_to_end(key)
        return count

    def begun(self, when: When, count: TriggerCount, now: float) -> bool:
        """Return True if `after` is past, and count the request then; `count.since` is when that was."""
        if isinstance(when.after, float):
            start = self.began + when.after
            if now < start:
                return False
            count.since = start
        elif when.after is None:
            count.since = self.began
        count.seen += 1
        if count.seen <= 0:
            return False
        if count.since is None:
            count.since = now
        return True


def in_turn(when: When, number: int) -> bool:
    """Return True if `nth`, `first` and `every` let the request with this number through."""
    if when.nth is not None and number not in when.nth:
        return False
    if when.first is not None and number > when.first:
        return False
    return when.every is None or number % when.every == 0


def let_go(when: When) -> int:
    """Return how many requests `after` lets go first."""
    return when.after if isinstance(when.after, int) else 0
