"""Triggers: whether a rule acts on a matching request, by `when:`. The same seed and traffic give the same decisions.

Counts are kept per rule, connection or client id (`count_scope`). The generator of chances is seeded by seed, rule name
and count key, so other rules and connections do not change them.

Workers share the counts and the sequence of draws of a rule: a worker loads the shared count, decides, and stores it.
The position in the sequence is one of the numbers; a worker skips draws of other workers. Counts per connection stay in
one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import isnan, nan
from random import Random
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from kproxy.base.bounded_map import BoundedMap
from kproxy.rules.values.model import Model, Wrong
from kproxy.rules.values.quantities import Seconds, Seed, parse_duration

from .shared_numbers import NumberCells, SharedNumbers


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


def requests_or_time(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


Number = Annotated[int, Field(ge=1)]
OrdinalNumbers = Annotated[
    list[Number], BeforeValidator(_as_list, json_schema_input_type=int | list[int]), Field(min_length=1)
]

After = Annotated[
    int | float,
    BeforeValidator(requests_or_time, json_schema_input_type=int | str),
    Field(ge=0),
]
"""A number of requests (int), or seconds (float)."""


class When(Model):
    """Words of `when:`, evaluated in this order: after, then nth/first/every, then probability and ramp, then for and
    times.

    Requests with at least one matching entity count, including retries, in order of arrival. `count: all` includes
    requests that an earlier rule has handled.
    """

    nth: OrdinalNumbers | None = Field(
        default=None, description="only requests with this number or these numbers, from 1"
    )
    first: Number | None = Field(default=None, description="the first requests, up to this number")
    every: Number | None = Field(default=None, description="requests with a number that is a multiple of this")
    times: Number | None = Field(default=None, description="maximum number of requests that the rule acts on")
    once: Literal[True] | None = Field(default=None, description="the same as `times: 1`")
    probability: float | None = Field(default=None, gt=0, le=1, description="chance of acting")
    seed: Seed | None = Field(default=None, description="seed of the chances (default: random, logged)")
    after: After | None = Field(
        default=None, description="ignore this number of requests, or all requests for this duration"
    )
    for_: Seconds | None = Field(
        default=None, alias="for", description="act for this duration after that, then never again"
    )
    ramp: Seconds | None = Field(
        default=None, description="time until the chance has grown from 0 to `probability` (default: 1)"
    )
    hold: Literal[True] | None = Field(
        default=None, description="hold the request until the admin API or a test resumes it"
    )
    count_scope: Literal["rule", "connection", "client"] = Field(
        default="rule", description="one count for the rule, for each connection, or for each client id"
    )
    count: Literal["unhandled", "all"] = Field(
        default="unhandled",
        description="matching requests that count: all, or only unhandled ones, which no earlier rule answered, "
        "dropped or disconnected. The rule acts on unhandled requests only",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        if "once" in raw and "times" in raw:
            yield ("once",), 'expected either "once" or "times", got both'
        if "nth" in raw and ("first" in raw or "every" in raw):
            yield ("nth",), 'expected either "nth" or "first" and "every", got both'
        if "count" in raw and not ({"nth", "first", "every"} & raw.keys() or type(raw.get("after")) is int):
            yield ("count",), '"count" needs "nth", "first", "every" or "after" with a number'
        if "seed" in raw and not ("probability" in raw or "ramp" in raw):
            yield ("seed",), '"seed" needs "probability" or "ramp"'

    @property
    def limit(self) -> int | None:
        """Return how often the rule acts at most; None: without end."""
        return 1 if self.once else self.times

    @property
    def by_chance(self) -> bool:
        """Return True if the rule acts by chance, so that a seed is needed."""
        return self.probability is not None or self.ramp is not None


BLOCK = 1 << 12
"""Chances that come from one generator. A trigger that workers share may begin in the middle, and passes over fewer
than that, which takes 20 µs at most; to make the next generator takes 10 µs."""
MOST_COUNTS = 10_000
"""Connections or client ids with own counts; beyond that the least recently used one is evicted."""


class TriggerCount:
    """Count of one key: requests seen, requests acted on, and draws."""

    __slots__ = ("draws", "fired", "random", "seed", "seen", "since")

    def __init__(self, seed: str, let_go: int) -> None:
        self.seed = seed
        self.seen = -let_go  # numbers are from 1 on for the first that is not let go
        self.fired = self.draws = 0
        self.random = Random(seed)  # not for secrets; a str is hashed by SHA-512, the same on every machine
        self.since: float | None = None

    def next_block(self) -> None:
        self.random = Random(f"{self.seed}#{self.draws // BLOCK}")


class Trigger:
    """Trigger of one rule. `began` is when the rule began to be in force, in monotonic seconds."""

    def __init__(self, when: When | None, seed: str, began: float) -> None:
        self.when, self.seed, self.began = when, seed, began
        self.counts: BoundedMap[object, TriggerCount] = BoundedMap(MOST_COUNTS)

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

    def count_handled(self, now: float, connection: object = None, client_id: str | None = None) -> None:
        """Count a matching request that an earlier rule has handled."""
        when = self.when
        if when is not None:
            self.begun(when, self.count(when, connection, client_id), now)

    def open(self, now: float) -> bool:
        """Return True if a rule without requests, such as one about the line itself, is in force now: `after` and
        `for`."""
        when = self.when
        if when is None:
            return True
        since = self.began + (when.after if isinstance(when.after, float) else 0.0)
        return now >= since and (when.for_ is None or now < since + when.for_)

    def next_change(self, now: float) -> float | None:
        """Return the time of the next change of `open`, or None."""
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
        scope = when.count_scope
        key = None if scope == "rule" else connection if scope == "connection" else client_id or ""
        count = self.counts.get(key)
        if count is None:
            # every connection draws the same chances: which one comes first is not in the user's hands
            seed = f"{self.seed}:{key}" if scope == "client" else self.seed
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


class SharedTrigger(Trigger):
    """Trigger that counts with other processes, by `common`. Numbers: seen, fired, draws, since (NaN: not yet)."""

    def __init__(self, when: When | None, seed: str, began: float, common: SharedNumbers) -> None:
        super().__init__(when, seed, began)
        self.common = common
        self.cells: BoundedMap[str | None, NumberCells] = BoundedMap(MOST_COUNTS)

    def fires(self, now: float, connection: object = None, client_id: str | None = None) -> bool:
        when = self.when
        if when is None or when.count_scope == "connection":
            return super().fires(now, connection, client_id)
        with self.loaded(when, now, connection, client_id):
            return super().fires(now, connection, client_id)

    def count_handled(self, now: float, connection: object = None, client_id: str | None = None) -> None:
        when = self.when
        if when is None or when.count_scope == "connection":
            super().count_handled(now, connection, client_id)
            return
        with self.loaded(when, now, connection, client_id):
            super().count_handled(now, connection, client_id)

    @contextmanager
    def loaded(self, when: When, now: float, connection: object, client_id: str | None) -> Iterator[None]:
        """Have in the count what all processes have counted, and give them what it is at the end."""
        count = self.count(when, connection, client_id)
        cells = self.cells_of(None if when.count_scope == "rule" else client_id or "")
        load(count, cells.take(now), let_go(when))
        try:
            yield
        finally:
            cells.put(count.seen, count.fired, count.draws, nan if count.since is None else count.since)

    def cells_of(self, what: str | None) -> NumberCells:
        if what not in self.cells:
            self.cells[what] = self.common.cells(what)
        return self.cells[what]


def load(count: TriggerCount, numbers: tuple[float, ...] | None, let_go: int) -> None:
    """Set a count to the shared numbers; None: initial values."""
    seen, fired, draws, since = numbers[:4] if numbers is not None else (-let_go, 0, 0, nan)
    count.seen, count.fired = int(seen), int(fired)
    count.since = None if isnan(since) else since
    if draws != count.draws:
        pass_over(count, int(draws))


def pass_over(count: TriggerCount, draws: int) -> None:
    """Move a count's generator to the draw after `draws` draws."""
    before, count.draws = count.draws, draws
    block, over = divmod(draws, BLOCK)
    if not before < draws or before // BLOCK != block or not before % BLOCK:
        count.random, before = Random(f"{count.seed}#{block}" if block else count.seed), block * BLOCK
    over = draws - before
    if over:
        count.random.getrandbits(64 * over)  # a chance takes 64 bits out of the generator
