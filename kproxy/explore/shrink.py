"""The smallest plan that fails in the same way, found greedily.

A candidate takes one step from a plan: a fault fewer; an earlier exchange; a transient fault for another; an error for
a broken connection; a selector fewer. It is accepted if it fails with the same signature, and then all steps are tried
again from there. Steps only lead to smaller plans, so shrinking ends. The result
has no candidate that is accepted, unless time was up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from .faults import FaultTable, breaks_connection, fault_table
from .model import ExchangePlace, FaultClass, FaultPlan, MarkKind, PlaceMark, PlannedFault
from .places import by_lane

FirstFailing = Callable[[Sequence[FaultPlan]], int | None]
"""Function that runs plans side by side and returns the number of the first one that still fails with the signature;
None: none of them does."""
DROPPED = ("client_software", "partition", "topic", "client_id", "group", "transactional_id")
"""Selectors in the order in which it is tried to do without them."""
MOST_FAULTS = 6
"""Faults that are tried in the place of one."""


class Shrinking:
    """Steps that can be taken from a plan. `places`: those that runs were seen to have."""

    def __init__(
        self, places: Iterable[ExchangePlace] = (), table: FaultTable | None = None, on_mock: bool = False
    ) -> None:
        self.lanes, self.table, self.on_mock = by_lane(places), table or fault_table(), on_mock

    def shrink(
        self, plan: FaultPlan, first_failing: FirstFailing, time_is_up: Callable[[], bool]
    ) -> tuple[FaultPlan, bool]:
        """Return the smallest plan reached by accepted steps, and True unless time was up before the last step."""
        refused: set[FaultPlan] = set()
        found = True
        while found:
            found = False
            for candidates in self.rounds(plan):
                fresh = [one for one in dict.fromkeys(candidates) if one not in refused]
                if not fresh:
                    continue
                if time_is_up():
                    return plan, False
                number = first_failing(fresh)
                if number is None:
                    refused.update(fresh)
                    continue
                refused.update(fresh[:number])
                plan, found = fresh[number], True
                break
        return plan, not time_is_up()  # time may have ended the last round

    def rounds(self, plan: FaultPlan) -> Iterator[Iterable[FaultPlan]]:
        """Yield the candidates of a plan, those together that are tried side by side."""
        yield self.with_fewer_faults(plan)
        for step_candidates in (self.earlier, self.gentler, self.unbroken, self.less_selected):
            yield [one for number in range(len(plan.steps)) for one in changed(plan, number, step_candidates)]

    def with_fewer_faults(self, plan: FaultPlan) -> list[FaultPlan]:
        """Return the plans that lack one of several faults, the later ones first."""
        steps = plan.steps
        if len(steps) < 2:
            return []
        return [FaultPlan(steps[:number] + steps[number + 1 :]) for number in reversed(range(len(steps)))]

    def earlier(self, step: PlannedFault) -> Iterator[PlannedFault]:
        """Yield the same fault at earlier exchanges: the first, one in the middle, the one before."""
        mark = step.place.mark
        lane = self.lanes.get(step.place.lane, [])
        if mark.offset is not None:
            before = sorted({one.mark.offset for one in lane if one.mark.offset is not None} & set(range(mark.offset)))
            for offset in dict.fromkeys((before[0], before[len(before) // 2], before[-1])) if before else ():
                yield moved(step, lane, PlaceMark("offset", 1, offset))
        for nth in dict.fromkeys((1, mark.nth // 2, mark.nth - 1)):
            if 0 < nth < mark.nth:
                kind: MarkKind = "ordinal" if mark.offset is None else "offset"
                yield moved(step, lane, PlaceMark(kind, nth, mark.offset))

    def gentler(self, step: PlannedFault) -> Iterator[PlannedFault]:
        """Yield transient faults in the place of one that is not."""
        if step.fault.kind_of != "transient":
            transient: tuple[FaultClass, ...] = ("transient",)
            faults = sorted(self.table.at(step.place, transient, self.on_mock), key=lambda one: -one.weight)
            for fault in faults[:MOST_FAULTS]:
                yield replace(step, fault=fault)

    def unbroken(self, step: PlannedFault) -> Iterator[PlannedFault]:
        """Yield errors of the same class and moment in the place of a broken connection."""
        if breaks_connection(step.fault):
            for fault in self.table.at(step.place, (step.fault.kind_of,), self.on_mock):
                if fault.moment == step.fault.moment and not breaks_connection(fault) and "error" in fault.rule:
                    yield replace(step, fault=fault)

    def less_selected(self, step: PlannedFault) -> Iterator[PlannedFault]:
        for name in DROPPED:
            if getattr(step.place, name) is not None:
                without: dict[str, Any] = {name: None}
                yield replace(step, place=replace(step.place, **without))


def with_faults_of(plan: FaultPlan, other: FaultPlan) -> FaultPlan | None:
    """Return a plan with the faults of another at its own places; None if they are the same, or of other APIs."""
    apis, others = ([step.place.api for step in one.steps] for one in (plan, other))
    if apis != others or plan.faults == other.faults:
        return None
    pairs = zip(plan.steps, other.steps, strict=True)
    return FaultPlan(tuple(replace(step, fault=theirs.fault) for step, theirs in pairs))


def changed(
    plan: FaultPlan, number: int, candidates: Callable[[PlannedFault], Iterable[PlannedFault]]
) -> Iterator[FaultPlan]:
    """Yield the plans in which one step is changed into each of its candidates."""
    for step in candidates(plan.steps[number]):
        if step not in plan.steps:
            yield FaultPlan((*plan.steps[:number], step, *plan.steps[number + 1 :]))


def moved(step: PlannedFault, lane: Sequence[ExchangePlace], mark: PlaceMark) -> PlannedFault:
    """Return the same fault at another exchange of the same lane, as it was seen there if it was."""
    wanted = (mark.offset, mark.nth)
    known = next((one for one in lane if (one.mark.offset, one.mark.nth) == wanted), None)
    traits = step.place.traits if known is None else known.traits
    return replace(step, place=replace(step.place, mark=mark, traits=traits))
