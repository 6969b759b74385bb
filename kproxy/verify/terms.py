"""Terms of a verification: which checks, whose view, and what is known beside the record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from kproxy.errors import InputError, KproxyError
from kproxy.rules.document.quantities import parse_duration

from .checks import checks
from .finding import LEVELS, FindingLevel, RecordView

MEMORY = 1 << 30


@dataclass(slots=True)
class RecordClock:
    """Clock that the times of a record are of. `back`: seconds by which it has been seen to go back, at most: of two
    exchanges that are closer in time, nobody knows which was first."""

    back: float = 0.0

    def goes_back(self, seconds: float) -> None:
        """Note that it has gone back by so many seconds."""
        self.back = max(self.back, seconds)


@dataclass(frozen=True, slots=True)
class VerifyTerms:
    """Terms of one verification.

    `only` (empty: all), `without`: names of checks. `level`: the lowest that is told. `compacted`: topics that are.
    `retention`: seconds for which a topic keeps records. `complete`: all traffic of these topics and groups is in the
    record, so that absence proves, too. `skew`: seconds by which clocks of the record may differ. `memory`: bytes for
    what is remembered. `records`: every record is compared, not only headers of batches. `incomplete`: sentences about
    the record as a whole, and `clock`: what its times are worth; whoever reads it adds to them until the verdict.
    """

    view: RecordView = "both"
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    level: FindingLevel = "suspect"
    compacted: frozenset[str] = frozenset()
    retention: Mapping[str, float] = field(default_factory=dict)
    complete: bool = False
    skew: float = 0.0
    memory: int = MEMORY
    records: bool = False
    incomplete: list[str] = field(default_factory=list)
    clock: RecordClock = field(default_factory=RecordClock)

    @property
    def proves_absence(self) -> bool:
        """Return True if what is not in the record has not been."""
        return self.complete and not self.incomplete

    def wants(self, check: str) -> bool:
        """Return True if the check of this name is to be done."""
        return check not in self.without and (not self.only or check in self.only)


class BadTerm(InputError):
    """Term of a verification that makes no sense. `name`: which one; the message says what is wrong with it."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(message)


def terms_of(given: Mapping[str, Any]) -> VerifyTerms:
    """Return the terms that are given by their names, as a user writes them: names of checks and topics in lists or
    alone, durations as texts. Those that are not given, or None, are as in VerifyTerms. Raises BadTerm."""
    read = {name: value for name, value in given.items() if value is not None}
    for name in sorted(set(read) - TERMS):
        raise BadTerm(name, f"there is no such term; those there are: {', '.join(sorted(TERMS))}")
    for name, choices in (("view", get_args(RecordView)), ("level", LEVELS)):
        if name in read:
            one_of(name, read[name], choices)
    for name in ("only", "without"):
        if name in read:
            read[name] = names_of_checks(name, listed(read[name]))
    if "compacted" in read:
        read["compacted"] = frozenset(listed(read["compacted"]))
    if "retention" in read:
        read["retention"] = seconds_by_topic(read["retention"])
    return VerifyTerms(**read)


TERMS = frozenset(
    ("view", "only", "without", "level", "compacted", "retention", "complete", "skew", "memory", "records")
)
"""Names of the terms that a user may give."""


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """Check that a value is one of these. Raises BadTerm."""
    if value not in choices:
        raise BadTerm(name, f"one of {', '.join(choices)} is wanted, found {value!r}")


def listed(names: str | Iterable[str]) -> list[str]:
    """Return names that may also be a single one."""
    return [names] if isinstance(names, str) else list(names)


def names_of_checks(name: str, given: Iterable[str]) -> frozenset[str]:
    """Return these names. Raises BadTerm for one that no check has."""
    for unknown in sorted(set(given) - set(checks())):
        raise BadTerm(name, f"there is no check {unknown}; kproxy verify --list prints them")
    return frozenset(given)


def seconds_by_topic(given: Mapping[str, Any]) -> dict[str, float]:
    """Return for how many seconds topics keep records. Raises BadTerm for what is no duration."""
    try:
        return {topic: float(parse_duration(time)) for topic, time in dict(given).items()}
    except (KproxyError, ValueError, TypeError) as error:
        raise BadTerm("retention", str(error)) from None
