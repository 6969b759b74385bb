"""Made-up conversations, faults and runs, and a runner that plays a program with a bug instead of running one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from math import inf

from kproxy.testing.explore.model import (
    ExchangePlace,
    ExploredRun,
    FaultPlan,
    PlannedFault,
    RaisedError,
    RunEnd,
    StepCounters,
)
from kproxy.testing.explore.places import EntityFacts, ExchangeFacts, common_places, digest_of, errors_of, places_of
from kproxy.testing.explore.plan import FaultTable

TABLE = FaultTable({
    "connections": {
        "answer lost": {"class": "transient", "moment": "after", "weight": 1.0, "source": "s",
                        "text": "the answer is lost", "without": ["unanswered"],
                        "rule": {"kind": "disconnect", "close_with": "rst", "at": "response"}},
        "never arrives": {"class": "transient", "moment": "before", "weight": 0.6, "source": "s",
                          "text": "the request never arrives", "rule": {"kind": "disconnect", "close_with": "rst"}},
    },
    "Produce": {
        "weight": 1.0, "connections": ["answer lost", "never arrives"], "unlike_mock": {"answer lost": "idempotent"},
        "faults": [
            {"error": "REQUEST_TIMED_OUT", "class": "transient", "moment": "after", "weight": 0.8, "source": "s"},
            {"error": "TOPIC_AUTHORIZATION_FAILED", "class": "fatal", "moment": "before", "weight": 0.4, "source": "s"},
        ],
    },
    "OffsetCommit": {
        "weight": 0.9, "connections": ["answer lost"],
        "faults": [
            {"error": "NOT_COORDINATOR", "class": "transient", "moment": "before", "weight": 0.5, "source": "s"},
        ],
    },
    "Metadata": {"weight": 0.1, "connections": ["never arrives"]},
})  # fmt: skip
"""A small table of faults, so that tests can count."""


def exchange(api: str, *, client: str = "app", **entity: object) -> ExchangeFacts:
    """Return an exchange about one thing."""
    return ExchangeFacts(api, client, entities=(EntityFacts(**entity),))


def produce(number: int, **more: object) -> ExchangeFacts:
    """Return a write of the batch with this number to out[0]."""
    facts = {"topic": "out", "partition": 0, "batch": number, "traits": frozenset({"records", "topic"}), **more}
    return exchange("Produce", **facts)


def commit(offset: int) -> ExchangeFacts:
    return exchange("OffsetCommit", topic="in", partition=0, group="g", offset=offset)


COPY = (exchange("Metadata", topic="out"), *(one for number in (1, 2, 3) for one in (produce(number), commit(number))))
"""A program that copies three records, each with a write and a commit."""


def stable(exchanges: Sequence[ExchangeFacts]) -> tuple[ExchangePlace, ...]:
    """Return the places of a test that has these exchanges in each run."""
    places = places_of(exchanges)
    return common_places(places, places).places


def fault(name: str, table: FaultTable = TABLE):
    return next(one for one in table.all if one.name == name)


def planned(api: str, name: str, place: ExchangePlace, table: FaultTable = TABLE) -> PlannedFault:
    """Return a fault at a place."""
    return PlannedFault(place, fault(f"{api}: {name}", table))


def plan(*steps: PlannedFault) -> FaultPlan:
    """Return a plan with these faults."""
    return FaultPlan(steps)


def made_run(of: FaultPlan, ended: RunEnd = "passed", exchanges: Sequence[ExchangeFacts] = COPY, **more) -> ExploredRun:
    """Return a run whose faults were all applied."""
    fields = {
        "counters": tuple(StepCounters(1, 1, 1) for _ in of.steps), "places": places_of(exchanges),
        "digest": digest_of(exchanges), "errors": errors_of(exchanges), "seconds": 1.0, **more,
    }  # fmt: skip
    return ExploredRun(of, ended, **fields)


def failed_run(of: FaultPlan, message: str = "lost 1", where: str = "test_copy.py:7", **more) -> ExploredRun:
    """Return a run in which an assertion did not hold."""
    return made_run(of, "failed", raised=RaisedError("AssertionError", message, where), **more)


class FakeRunner:
    """Runner that plays a program: `program` gets a plan and the number of the run, and returns its run.

    `jobs` plans are taken before the first run ends, and runs end in another order than they began. `now`: fake clock,
    which the runs advance and `until` stops. `ran`: all plans, in the order in which they began; `closed`: iterators
    closed before their end.
    """

    def __init__(self, program: Callable[[FaultPlan, int], ExploredRun], jobs: int = 4) -> None:
        self.program, self.jobs, self.limit, self.until = program, jobs, 0.0, inf
        self.ran: list[FaultPlan] = []
        self.now = 0.0
        self.closed = 0

    def clock(self) -> float:
        return self.now

    def run(self, plans: Iterable[FaultPlan]) -> Generator[ExploredRun, None, None]:
        waiting, under_way = iter(plans), list[ExploredRun]()
        try:
            while self.now < self.until:
                while len(under_way) < self.jobs and (next_plan := next(waiting, None)) is not None:
                    self.ran.append(next_plan)
                    under_way.append(self.program(next_plan, len(self.ran)))
                if not under_way:
                    return
                ended = under_way.pop(len(self.ran) % len(under_way))
                self.now += ended.seconds / self.jobs
                if self.now > self.until:
                    self.now = self.until
                    return
                yield ended
        except GeneratorExit:
            self.closed += 1
            raise


def retried(places: Sequence[ExchangeFacts], of: FaultPlan) -> tuple[ExchangeFacts, ...]:
    """Return the exchanges of a program that sends again each write at which a plan has a fault."""
    found: list[ExchangeFacts] = []
    for one in places:
        while True:
            found.append(one)
            last = stable(found)[-1]
            if one.api != "Produce" or not any(matches(step.place, last) for step in of.steps):
                break
    return tuple(found)


def matches(wanted: ExchangePlace, place: ExchangePlace) -> bool:
    """Return True if a rule for one place acts at the other."""
    if (wanted.api, wanted.mark.nth, wanted.mark.offset) != (place.api, place.mark.nth, place.mark.offset):
        return False
    names = ("client_id", "topic", "partition", "group", "transactional_id")
    return all(getattr(wanted, name) in (None, getattr(place, name)) for name in names)


def without_traits(place: ExchangePlace) -> ExchangePlace:
    """Return a place of which nothing is known besides."""
    return replace(place, traits=frozenset())
