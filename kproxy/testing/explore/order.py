"""Order of plans, and plans with several faults.

The plan with the highest priority comes next. The priority is the product, over the faults of a plan, of
weight(fault) · weight(API) · 0.3 ^ reached(fault) · 0.8 ^ tried(place) / (1 + reached(API, class)), halved for each
further fault. Plans under way count as reached. Errors at the first and at the last exchange of a lane have counts of
their own: the effects of an early error show in later exchanges, and no later exchange repairs the last one. Plans with
the same faults are a heap by place. Counts of places only grow, so a plan on top moves down if its place was tried.
A second fault is tried only at places that appear after the first one, and at the next exchange of the same lane.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from math import prod
from random import Random

from kproxy.base.errors import InputError
from kproxy.rules.select.match import is_pattern, text_test

from .model import ExchangePlace, ExploredRun, FaultClass, FaultPlan, KnownFault, PlannedFault
from .places import FIRST_RANK, LAST_RANK, POLLED, LearnedPlaces
from .plan import DEFAULT_CLASSES, SELECTORS, FaultTable, fault_table

AGAIN, SAME_PLACE, DEEPER = 0.3, 0.8, 0.5
EDGES = {FIRST_RANK: 0.4, LAST_RANK: 0.8}  # weights of errors at the ends of a lane
INNER = 0  # edge of plans that are not such errors
MOST_PLANS = 50_000  # waiting plans; no time limit reaches as many
MOST_FOLLOWERS = 24  # places of one run at which a further fault is tried


@dataclass(frozen=True, slots=True)
class OrderSettings:
    classes: tuple[FaultClass, ...] = DEFAULT_CLASSES
    depth: int = 2
    only: str = ""
    on_mock: bool = False
    seed: int = 0


HeapKey = tuple[tuple[str, ...], int]  # names of the faults, and the edge


class PlanOrder:
    """Plans that wait for their turn. `reached`, `kinds`, `tried`: runs, under way or ended, by fault and edge, by API,
    class and edge, and by place. `refused`: plans beyond MOST_PLANS. `unlike_mock`: names of faults that are excluded
    on the mock."""

    def __init__(self, learned: LearnedPlaces, settings: OrderSettings, table: FaultTable | None = None) -> None:
        self.learned, self.settings, self.table = learned, settings, table or fault_table()
        self.wanted = place_filter(settings.only)
        self.reached: Counter[tuple[str, int]] = Counter()
        self.kinds: Counter[tuple[str, FaultClass, int]] = Counter()
        self.tried: Counter[ExchangePlace] = Counter()
        self.known = KnownPlaces(learned.places)
        self.refused = 0
        self.unlike_mock: set[str] = set()
        self._random = Random(settings.seed)
        self._met: set[FaultPlan] = set()
        self._digests: set[str] = set()
        self._heaps: dict[HeapKey, list[tuple[int, int, float, int, FaultPlan]]] = {}
        self.left = 0
        for place in learned.places:
            self.add_all(FaultPlan(), place)

    def faults_at(self, place: ExchangePlace) -> Iterator[KnownFault]:
        if not self.wanted(place):
            return
        if self.settings.on_mock:
            self.unlike_mock |= {fault.name for fault in self.table.untried(place, self.settings.classes)}
        yield from self.table.at(place, self.settings.classes, self.settings.on_mock)

    @property
    def all_faults(self) -> set[str]:
        """Return the names of the faults that can occur at the learned places."""
        return {fault.name for place in self.learned.places for fault in self.faults_at(place)}

    def allowed(self, plan: FaultPlan) -> FaultPlan | None:
        """Return a plan of an earlier exploration with the faults of today's table; None if the settings exclude it.
        Selectors that shrinking has removed match each text of `only`."""
        wanted, steps = place_filter(self.settings.only, missing=True), []
        for step in plan.steps:
            faults = self.table.at(step.place, self.settings.classes, self.settings.on_mock)
            fault = next((one for one in faults if one.name == step.fault.name), None)
            if fault is None or not wanted(step.place):
                return None
            steps.append(PlannedFault(step.place, fault))
        return FaultPlan(tuple(steps)) if 0 < len(steps) <= self.settings.depth else None

    def add_all(self, before: FaultPlan, place: ExchangePlace) -> None:
        for fault in self.faults_at(place):
            self.add(FaultPlan((*before.steps, PlannedFault(place, fault))))

    def add(self, plan: FaultPlan) -> None:
        if plan in self._met:
            return
        if self.left >= MOST_PLANS:
            self.refused += 1
            return
        self._met.add(plan)
        self.left += 1
        rank = sum(self.learned.ranks.get(step.place, 0) for step in plan.steps)
        entry = (self._tries(plan), rank, self._random.random(), len(self._met), plan)
        heapq.heappush(self._heaps.setdefault((plan.faults, self.edge(plan)), []), entry)

    def edge(self, plan: FaultPlan) -> int:
        """Return the rank of a single error at the first or last of several exchanges of a lane; INNER for others."""
        step = plan.steps[0]
        rank = self.learned.ranks.get(step.place, 0)
        return rank if rank in EDGES and len(plan.steps) == 1 and "error" in step.fault.rule else INNER

    def _tries(self, plan: FaultPlan) -> int:
        return sum(self.tried[step.place] for step in plan.steps)

    def priority(self, plan: FaultPlan) -> float:
        edge = self.edge(plan)
        return EDGES.get(edge, DEEPER ** (len(plan.steps) - 1)) * prod(
            step.fault.weight
            * self.table.weights.get(step.place.api, 0.1)
            * AGAIN ** self.reached[step.fault.name, edge]
            * (1.0 if edge else SAME_PLACE ** self.tried[step.place])
            / (1 + self.kinds[step.fault.api, step.fault.kind_of, edge])
            for step in plan.steps
        )

    def next(self) -> FaultPlan | None:
        """Remove the plan with the highest priority and count it as reached; None if no plan is left."""
        best: tuple[float, int, float, int] | None = None
        chosen: HeapKey = (), INNER
        for key, heap in self._heaps.items():
            while heap[0][0] < (tries := self._tries(heap[0][-1])):
                heapq.heapreplace(heap, (tries, *heap[0][1:]))
            _, rank, tie, number, plan = heap[0]
            promise = (-self.priority(plan), rank, tie, number)
            if best is None or promise < best:
                best, chosen = promise, key
        if best is None:
            return None
        *_, plan = heapq.heappop(self._heaps[chosen])
        if not self._heaps[chosen]:
            del self._heaps[chosen]
        self.left -= 1
        self.count(plan)
        return plan

    def count(self, plan: FaultPlan) -> None:
        """Count the faults of a plan as reached, and its places as tried."""
        edge = self.edge(plan)
        for step in plan.steps:
            self.reached[step.fault.name, edge] += 1
            self.kinds[step.fault.api, step.fault.kind_of, edge] += 1
            if not edge:
                self.tried[step.place] += 1

    def not_exercised(self, run: ExploredRun) -> None:
        edge = self.edge(run.plan)
        for step, one in zip_longest(run.plan.steps, run.counters[: len(run.plan.steps)]):
            if one is None or not one.applied:
                self.reached[step.fault.name, edge] -= 1
                self.kinds[step.fault.api, step.fault.kind_of, edge] -= 1

    def passed(self, run: ExploredRun) -> None:
        """Add the plans with a further fault after a passed run, unless a run with the same digest has passed."""
        if not run.plan.steps or len(run.plan.steps) >= self.settings.depth or run.digest in self._digests:
            return
        self._digests.add(run.digest)
        for place in followers(run, self.known, self.learned):
            self.add_all(run.plan, place)


class KnownPlaces:
    """Places of runs without faults, stable or not."""

    def __init__(self, places: Iterable[ExchangePlace] = ()) -> None:
        self.identities: set[tuple[object, ...]] = set()
        self.polled: set[tuple[object, ...]] = set()
        self.add(places)

    def add(self, places: Iterable[ExchangePlace]) -> None:
        for place in places:
            self.identities.add(place.identity)
            self.polled.add((place.lane, place.mark.offset))

    def __contains__(self, place: ExchangePlace) -> bool:
        """Return True for a place of these runs; the ordinals of polls do not count."""
        if place.api in POLLED:
            return (place.lane, place.mark.offset) in self.polled
        return place.identity in self.identities


def followers(run: ExploredRun, known: KnownPlaces, learned: LearnedPlaces) -> list[ExchangePlace]:
    """Return the places for a further fault after those of the run's plan: new places, and the next one of the same
    lane."""
    last = run.plan.steps[-1].place
    taken = {step.place.identity for step in run.plan.steps}
    places = [place for place in run.places if learned.tells(place)]
    at = position(places, last)
    after = places if at is None else places[at + 1 :]
    following = (place for place in after if at is not None and place.lane == last.lane and place.identity not in taken)
    found: dict[ExchangePlace, None] = dict.fromkeys(islice(following, 1))
    for place in after:
        if len(found) >= MOST_FOLLOWERS:
            break
        if place not in known and place.identity not in taken:
            found[place] = None
    return list(found)


def position(places: Sequence[ExchangePlace], wanted: ExchangePlace) -> int | None:
    """Return the index of the request at which the rule of a place acts; None if the run lacks it."""
    mark = wanted.mark
    for number, place in enumerate(places):
        if place.lane == wanted.lane and (place.mark.offset, place.mark.nth) == (mark.offset, mark.nth):
            return number
    return None


def place_filter(text: str, missing: bool = False) -> Callable[[ExchangePlace], bool]:
    """Return a test for places from a text such as `api=Produce,client_id=app-*`. `missing`: result of a part if the
    place lacks its selector. Raises InputError."""
    if not isinstance(text, str):  # of a test's marker
        raise InputError(f"only: expected a text such as api=Produce, got {text!r}")
    tests = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, pattern = part.partition("=")
        if not sign or name not in ("api", *SELECTORS) or not pattern:
            raise InputError(f"only: expected NAME=TEXT with one of api, {', '.join(SELECTORS)}, got {part!r}")
        try:
            test = text_test(pattern)
        except ValueError as error:
            raise InputError(f"only: expected a pattern, got {part!r}: {error}") from None
        apis = fault_table().by_api
        if name == "api" and not any(map(test, apis)):
            raise InputError(f"only: expected an API that has faults ({', '.join(sorted(apis))}), got {pattern!r}")
        if name == "partition" and not is_pattern(pattern) and not pattern.isdecimal():
            raise InputError(f"only: expected a number as partition, got {pattern!r}")
        tests.append((name, test))
    return lambda place: all(
        missing if getattr(place, name) is None else test(str(getattr(place, name))) for name, test in tests
    )
