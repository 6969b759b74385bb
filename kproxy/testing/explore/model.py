"""Places, faults, plans and runs of an exploration: values that travel as JSON. Their texts come from clients and
tests."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from kproxy.base.errors import InputError

T = TypeVar("T")

# a right client passes; may raise; passes after a restart; shows its assumptions
FaultClass = Literal["transient", "fatal", "crash", "lies"]
FAULT_CLASSES: tuple[FaultClass, ...] = ("transient", "fatal", "crash", "lies")
# before or after the broker's work; the client dies while the request is held
FaultMoment = Literal["before", "after", "crash"]
MarkKind = Literal["offset", "batch", "ordinal", "first", "last"]
# failed: an assertion or the exit code; raised: another exception; skipped: by the test; broken: a failure of kproxy
RunEnd = Literal["passed", "failed", "raised", "hang", "died", "skipped", "broken"]
# loud: raised after a fatal fault; slow: passed in five times the time; not exercised: a fault was not applied
RunOutcome = Literal["passed", "failed", "raised", "hang", "died", "slow", "loud", "not exercised", "broken"]


@dataclass(frozen=True, slots=True)
class PlaceMark:
    """Mark that distinguishes a place from others of its client, API and entity. `nth`: ordinal of the request among
    those that match the place, and the `offset` that Fetch requests or a commit has. For `batch`: ordinal of attempt
    `again` to write batch number `batch`. `first`, `last`: ordinals in lanes whose counts differ between runs."""

    kind: MarkKind
    nth: int
    offset: int | None = None
    batch: int = 0
    again: int = 1

    @property
    def identity(self) -> tuple[object, ...]:
        """Return the parts that other requests before the place do not change."""
        return ("batch", self.batch, self.again) if self.kind == "batch" else (self.offset, self.nth)


FIRST = PlaceMark("ordinal", 1)
LONGEST_SHORT = 300  # characters of a message in one line


@dataclass(frozen=True, slots=True)
class ExchangePlace:
    """Place of an exchange, the same in each run; None for a missing selector. `traits`: `idempotent`, `transactional`,
    `records` (at least one), `batches` (several), `unanswered`, `again` (a batch sent before), and `topic`, `group`,
    `transactional_id`, `member` if the request names one."""

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
        return replace(self, mark=FIRST, traits=frozenset())

    @property
    def identity(self) -> tuple[object, ...]:
        """Return the parts that other requests before the place do not change."""
        return (self.lane, *self.mark.identity)


@dataclass(frozen=True, slots=True)
class KnownFault:
    """Fault that a real cluster shows at one API: a rule without name, `match` and `when`."""

    name: str  # the same in all explorations, such as `Produce: answer lost`
    api: str
    kind_of: FaultClass
    moment: FaultMoment
    weight: float
    text: str
    rule: Mapping[str, Any]
    source: str  # place in Kafka's source
    needs: frozenset[str] = frozenset()  # traits that a place must have
    without: frozenset[str] = frozenset()  # traits that a place must not have
    unlike_mock: str = ""  # trait with which the mock differs from brokers; `always`
    goes_on: bool = True  # of a crash: the broker receives the held request


@dataclass(frozen=True, slots=True)
class PlannedFault:
    place: ExchangePlace
    fault: KnownFault

    def __hash__(self) -> int:
        return hash((self.place, self.fault.name))


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults of one run, in the expected order. A run without faults has none."""

    steps: tuple[PlannedFault, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(step.fault.name for step in self.steps)

    @property
    def classes(self) -> frozenset[FaultClass]:
        return frozenset(step.fault.kind_of for step in self.steps)


@dataclass(frozen=True, slots=True)
class StepCounters:
    matched: int = 0
    fired: int = 0
    applied: int = 0
    problems: tuple[str, ...] = ()  # errors of the rule itself


@dataclass(frozen=True, slots=True)
class RaisedError:
    type: str
    message: str = ""
    where: str = ""  # last line in the test's own code, as `file:line`
    line: str = ""  # text of that line

    @property
    def short(self) -> str:
        """Return the type and the first line of the message."""
        first = next((line.strip() for line in self.message[:LONGEST_SHORT].splitlines() if line.strip()), "")
        return f"{self.type}: {first}" if first else self.type


@dataclass(frozen=True, slots=True)
class ProvedViolation:
    """Violation that `kproxy verify` proves from the exchanges of a run."""

    check: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class ExploredRun:
    """Run of a test under a plan, as its process reports it. Only `plan` and `ended` are always known."""

    plan: FaultPlan
    ended: RunEnd
    seconds: float = 0.0  # of the test itself
    counters: tuple[StepCounters, ...] = ()  # by step of the plan
    places: tuple[ExchangePlace, ...] = ()  # in the order of requests
    digest: str = ""  # of exchanges and errors; equal if a client cannot tell the runs apart
    errors: tuple[str, ...] = ()  # names of errors in responses, each once
    patience: float = 0.0  # longest time-out that clients requested
    raised: RaisedError | None = None
    violations: tuple[ProvedViolation, ...] = ()
    stacks: str = ""  # of a hang
    output: str = ""  # its end
    problem: str = ""  # why it is broken, or the test's line where it hangs
    story: tuple[str, ...] = ()  # lines for its exchanges
    software: tuple[str, ...] = ()  # names and versions of client libraries

    @property
    def exercised(self) -> bool:
        """Return True if each fault of the plan was applied."""
        counters = self.counters
        return len(counters) == len(self.plan.steps) and all(one.applied for one in counters)


class Runner(Protocol):
    """Runner of plans, each in an isolated process and cluster. `run` takes the next plan only when it can begin with
    it. It yields runs as they end. A run that cannot be made is `broken`. Closing the iterator ends the runs under
    way."""

    jobs: int  # maximum number of runs side by side
    limit: float  # maximum seconds of a run, set by the explorer; a longer run is a hang
    until: float  # end of all runs on the monotonic clock, set by the explorer

    def run(self, plans: Iterable[FaultPlan]) -> Generator[ExploredRun, None, None]: ...


def dumps(value: Any) -> bytes:
    return msgspec.json.encode(value)


def loads(data: bytes | str, type: type[T]) -> T:  # noqa: A002  # as in msgspec
    """Return a value that `dumps` encoded. Raises InputError."""
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"no {type.__name__} as JSON: {error}") from None
