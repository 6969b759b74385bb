"""Places, faults, plans and runs of an exploration: plain values that travel between processes as JSON.

`dumps` and `loads` turn any of them into bytes and back. What has come over a pipe or from a file is checked by
`loads`; texts in it are as clients and tests wrote them, so whoever shows them makes them safe first.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from kproxy.errors import InputError

T = TypeVar("T")

FaultClass = Literal["transient", "fatal", "crash", "lies"]
"""Group of faults by what a right client makes of it: it passes; it may raise; it passes when it is started again;
it shows what it relies on."""
FAULT_CLASSES: tuple[FaultClass, ...] = ("transient", "fatal", "crash", "lies")
FaultMoment = Literal["before", "after", "crash"]
"""Moment of a fault: the broker has not seen the request; it has done its work; the client dies while it is held."""
MarkKind = Literal["offset", "batch", "ordinal", "first", "last"]
"""Way in which a place is told from others of the same client, API and entity."""
RunEnd = Literal["passed", "failed", "raised", "hang", "died", "skipped", "broken"]
"""End of a run as the process that ran it saw it, before it is judged: failed is an assertion that did not hold (or an
exit code that is not 0), raised another exception, skipped that the test wants to say nothing, broken a failure of
kproxy's own."""
RunOutcome = Literal["passed", "failed", "raised", "hang", "died", "slow", "loud", "not exercised", "broken"]
"""End of a run once it is judged. loud: it raised, as a client may after a fatal fault; slow: passed, in five times
the time; not exercised: nothing failed, and a fault was not applied."""


@dataclass(frozen=True, slots=True)
class PlaceMark:
    """Mark by which a place is told from others of its client, API and entity.

    `nth`: number of the request among those that match the place, from 1; for the kind `offset` among those with this
    `offset` (asked for by Fetch, committed by OffsetCommit and TxnOffsetCommit). The kind `batch` is an ordinal, too:
    that of the attempt number `again` to write the batch number `batch` among new ones. `first` and `last` are ordinals
    where runs count differently.
    """

    kind: MarkKind
    nth: int
    offset: int | None = None
    batch: int = 0
    again: int = 1

    @property
    def identity(self) -> tuple[object, ...]:
        """Return what is the same for the place in runs in which other requests came before it."""
        return ("batch", self.batch, self.again) if self.kind == "batch" else (self.offset, self.nth)


FIRST = PlaceMark("ordinal", 1)
LONGEST_SHORT = 300
"""Characters of a message that are told in a line."""


@dataclass(frozen=True, slots=True)
class ExchangePlace:
    """Place of an exchange in a test's conversation, the same in every run; None for what it does not select by.

    `traits`: what is true of the exchange besides, and no part of what it is: `idempotent`, `transactional`, `records`
    (there are some in it), `batches` (several), `unanswered` (there was no response), `again` (a batch sent before),
    and `topic`, `group`, `transactional_id`, `member` where the request names one.
    """

    api: str
    client_id: str | None = None
    client_software: str | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    mark: PlaceMark = FIRST
    traits: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def lane(self) -> ExchangePlace:
        """Return the place of the first exchange of the same client, API and entity."""
        return ExchangePlace(
            self.api,
            self.client_id,
            self.client_software,
            self.topic,
            self.partition,
            self.group,
            self.transactional_id,
        )

    @property
    def identity(self) -> tuple[object, ...]:
        """Return what is the same for the place in runs in which other requests came before it."""
        return (self.lane, *self.mark.identity)


@dataclass(frozen=True, slots=True)
class KnownFault:
    """Fault that a real cluster shows at one API: a rule without name, `match` and `when`.

    `name`: the same in all explorations, such as `Produce: answer lost`. `needs`, `without`: traits that a place must
    and must not have. `unlike_mock`: the trait with which the mock cluster does not do as brokers do (`always`: in any
    case), so that it is not tried there. `source`: where Kafka's source says so. `goes_on`, of the class crash:
    whether the request that was held reaches the broker after the client's death.
    """

    name: str
    api: str
    kind_of: FaultClass
    moment: FaultMoment
    weight: float
    text: str
    rule: Mapping[str, Any]
    source: str
    needs: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    unlike_mock: str = ""
    goes_on: bool = True


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """Fault of a plan at the place where it is injected."""

    place: ExchangePlace
    fault: KnownFault

    def __hash__(self) -> int:
        return hash((self.place, self.fault.name))


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults of one run, in the order in which they are expected; none for a run without faults."""

    steps: tuple[PlannedFault, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(step.fault.name for step in self.steps)

    @property
    def classes(self) -> frozenset[FaultClass]:
        return frozenset(step.fault.kind_of for step in self.steps)


@dataclass(frozen=True, slots=True)
class StepCounters:
    """Counters of one planned fault's rule at the end of a run, and what went wrong in the rule itself."""

    matched: int = 0
    fired: int = 0
    applied: int = 0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RaisedError:
    """Exception that ended a run: its type, its message, and the last line in the test's own code as `file:line`, and
    its text."""

    type: str
    message: str = ""
    where: str = ""
    line: str = ""

    @property
    def short(self) -> str:
        """Return the type and the first line of the message that has any text."""
        first = next((line.strip() for line in self.message[:LONGEST_SHORT].splitlines() if line.strip()), "")
        return f"{self.type}: {first}" if first else self.type


@dataclass(frozen=True, slots=True)
class ProvedViolation:
    """Guarantee of Kafka that a run's history breaks, as `kproxy verify` says: the check's name and its text."""

    check: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class ExploredRun:
    """Run of a test under a plan, as the process that ran it tells it. Only `plan` and `ended` are always known.

    counters: of the plan's steps, in their order · places: those of its exchanges, in the order of the requests ·
    digest: of exchanges and errors, the same for runs that a client cannot tell apart · errors: names of those that
    clients were told, each once · seconds: of the test itself · patience: longest time-out that clients asked the
    broker for · raised, violations, stacks (of a hang), output (its last lines): what went wrong · problem: why it is
    broken · story: lines about its exchanges · software: names and versions of the client libraries.
    """

    plan: FaultPlan
    ended: RunEnd
    seconds: float = 0.0
    counters: tuple[StepCounters, ...] = ()
    places: tuple[ExchangePlace, ...] = ()
    digest: str = ""
    errors: tuple[str, ...] = ()
    patience: float = 0.0
    raised: RaisedError | None = None
    violations: tuple[ProvedViolation, ...] = ()
    stacks: str = ""
    output: str = ""
    problem: str = ""
    story: tuple[str, ...] = ()
    software: tuple[str, ...] = ()

    @property
    def exercised(self) -> bool:
        """Return True if each fault of the plan was applied."""
        counters = self.counters
        return len(counters) == len(self.plan.steps) and all(one.applied for one in counters)


class Runner(Protocol):
    """Runner of plans, each in an isolated process and cluster.

    `run` takes the next plan only when it can begin with it, so plans may depend on runs that have ended. It yields
    runs as they end, in any order, and returns when all runs of all plans have ended. A run that cannot be made is
    yielded as `broken`. Closing the iterator ends the runs under way.
    """

    jobs: int  # maximum number of runs side by side
    limit: float  # maximum seconds of a run, set by the explorer; a longer run is a hang
    until: float  # end of all runs on the monotonic clock, set by the explorer

    def run(self, plans: Iterable[FaultPlan]) -> Generator[ExploredRun, None, None]:
        """Yield the run of each plan."""


def dumps(value: Any) -> bytes:
    return msgspec.json.encode(value)


def loads(data: bytes | str, type: type[T]) -> T:  # noqa: A002  # as in msgspec
    """Return the value that `dumps` has made bytes of. Raises InputError for others."""
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"no {type.__name__} as JSON: {error}") from None
