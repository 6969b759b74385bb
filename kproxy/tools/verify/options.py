"""Options of a verification, missing parts of its record, and the condition of its exit code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from kproxy.base.errors import InputError, KproxyError, plural
from kproxy.base.terminal import in_line
from kproxy.rules.values.quantities import parse_duration

from .finding import LEVELS, Finding, FindingLevel, RecordView, Verdict, checks

MEMORY = 1 << 30
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")  # names that brokers accept
LONGEST_SHOWN = 80  # characters of a wrong value in an error
CONFIG_APIS = frozenset(("DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs"))
TOPIC_APIS = frozenset(("Metadata", "CreateTopics", "DeleteTopics"))
ELECTION_APIS = CONFIG_APIS | TOPIC_APIS | {"ElectLeaders"}
NO_APIS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MissingPart:
    """Part of the traffic that a record lacks.

    `apis`: the only APIs that the missing exchanges can have; None for any. `undecided`: a check that reads one of
    these APIs cannot be decided. None: any API. Empty: the part lies before or after the record.
    """

    text: str
    apis: frozenset[str] | None = None
    undecided: frozenset[str] | None = None

    def __str__(self) -> str:
        return self.text

    def hides(self, apis: frozenset[str] | None) -> bool:
        """True if an exchange of these APIs may be missing. None: any API except those of configs."""
        if self.apis is None:
            return True
        return bool(self.apis - CONFIG_APIS if apis is None else self.apis & apis)

    def leaves_open(self, apis: Iterable[str]) -> bool:
        """True if a check that reads these APIs cannot be decided."""
        return self.undecided is None or not self.undecided.isdisjoint(apis)


def outside(text: str, apis: frozenset[str] | None = None) -> MissingPart:
    """Return a part before the record's first exchange or after its last one."""
    return MissingPart(text, apis, NO_APIS)


def of_apis(text: str, *apis: str) -> MissingPart:
    """Return a part with exchanges of these APIs only."""
    return MissingPart(text, frozenset(apis), frozenset(apis))


@dataclass(slots=True)
class RecordClock:
    """Clock of the record's times. `back`: the longest backward step that was seen, in seconds.

    The order of two exchanges that are closer in time is unknown.
    """

    back: float = 0.0

    def goes_back(self, seconds: float) -> None:
        self.back = max(self.back, seconds)


@dataclass(frozen=True, slots=True)
class VerifyTerms:
    """Options of a verification, and the limits of its record.

    `only` (empty: all), `without`: names of checks. `level`: the lowest level of findings. `compacted`,
    `not_compacted`: topics that brokers compact, or never do. `retention`: seconds that topics keep records.
    `assume_complete`: the record has all traffic of its topics and groups, so absence is a proof. `client_names`: it
    has one side only, so two clients may have one name for two things, or two names for one. `from_start`: it also has
    the creation of all its topics. `skew`: seconds by which its clocks may differ. `memory`: bytes for facts.
    `records`: every record is compared, not only batch headers. `incomplete`, `clock`: missing parts and trust in
    times; the record's reader adds to both until the verdict.
    """

    view: RecordView = "both"
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    level: FindingLevel = "suspect"
    compacted: frozenset[str] = frozenset()
    not_compacted: frozenset[str] = frozenset()
    retention: Mapping[str, float] = field(default_factory=dict)
    assume_complete: bool = False
    from_start: bool = False
    client_names: bool = False
    skew: float = 0.0
    memory: int = MEMORY
    records: bool = False
    incomplete: list[MissingPart] = field(default_factory=list)
    clock: RecordClock = field(default_factory=RecordClock)

    def proves_absence(self, apis: frozenset[str] | None = None) -> bool:
        """True if every exchange of these APIs is in the record. None: all APIs except those of configs."""
        return self.assume_complete and not any(part.hides(apis) for part in self.incomplete)

    def undecided(self, apis: Iterable[str]) -> str:
        """Return why a check that reads these APIs cannot be decided; empty if it can."""
        return next((part.text for part in self.incomplete if part.leaves_open(apis)), "")

    def wants(self, check: str) -> bool:
        return check not in self.without and (not self.only or check in self.only)


class BadTerm(InputError):
    """Wrong value of an option. `name`: the option."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class FailOn:
    """Levels that fail a verification. `level`: the lowest failing level of most checks; `levels`: of each check."""

    level: FindingLevel
    levels: Mapping[str, FindingLevel]

    def __str__(self) -> str:
        return ",".join((self.level, *self.own(self.levels)))

    def own(self, names: Iterable[str]) -> list[str]:
        """Return CHECK=LEVEL of the checks whose level differs from most checks."""
        return [f"{check}={self.levels[check]}" for check in names if self.levels[check] != self.level]

    @property
    def lowest(self) -> FindingLevel:
        return max(self.levels.values(), key=LEVELS.index)

    def fails(self, finding: Finding) -> bool:
        return LEVELS.index(finding.level) <= LEVELS.index(self.levels[finding.check])

    def decide(self, verdict: Verdict, level: FindingLevel) -> None:
        """Set exit code and reason. Then remove findings below `level` that do not fail the verdict."""
        failing = Counter((one.level, one.check) for one in verdict.findings if self.fails(one))
        verdict.exit_code = int(bool(failing))
        if failing:
            found = "; ".join(f"{plural(count, f'{one} finding')} of {name}" for (one, name), count in failing.items())
            names = dict.fromkeys(check for _, check in failing)
            own, of_all = self.own(names), any(self.levels[check] == self.level for check in names)
            verdict.reason = f"{found} (--fail-on {','.join([self.level, *own] if of_all else own)})"
        else:
            other = len(self.own(self.levels))
            verdict.reason = f"no finding of --fail-on {self.level}"
            if other:
                verdict.reason += f", with another level for {plural(other, 'check')}"
        shown = LEVELS.index(level)
        verdict.keep(lambda one: self.fails(one) or LEVELS.index(one.level) <= shown)


FailOnTerm = str | Iterable[str] | None  # value of --fail-on; None: default


def fail_on(given: FailOnTerm = None) -> FailOn:
    """Return the failing levels: LEVEL for all checks and CHECK=LEVEL for one, in a list or separated by commas.

    LEVEL replaces the levels of the checks' definitions. Raises BadTerm.
    """
    words = [word.strip() for one in listed(given or ()) for word in one.split(",") if word.strip()]
    base = [word for word in words if "=" not in word]
    if given is not None and not words:
        raise BadTerm("fail_on", "expected a level or CHECK=LEVEL, got none")
    if len(base) > 1:
        raise BadTerm("fail_on", f"expected one level for all checks, got {', '.join(base)}")
    for level in base:
        one_of("fail_on", level, LEVELS, "a level or CHECK=LEVEL, with a level of ")
    given_before: dict[str, Any] = {}
    levels: dict[str, Any] = {name: base[0] if base else check.fails for name, check in checks().items()}
    for word in words:
        check, sign, level = word.partition("=")
        if sign:
            names_of_checks("fail_on", [check])
            one_of("fail_on", level, LEVELS, at=word)
            if given_before.setdefault(check, level) != level:
                raise BadTerm("fail_on", f"expected one level, got {given_before[check]} and {level} (at {check})")
    levels |= given_before
    return FailOn(cast("FindingLevel", base[0]) if base else "proved", levels)


def terms_of(given: Mapping[str, Any]) -> VerifyTerms:
    """Return the terms of a user's values: names in lists or alone, durations as text, None for a default. Raises
    BadTerm."""
    read = {name: value for name, value in given.items() if value is not None}
    for name in sorted(set(read) - TERMS):
        raise BadTerm(name, f"expected one of {', '.join(sorted(TERMS))}, got {name!r}")
    for name, choices in (("view", get_args(RecordView)), ("level", LEVELS)):
        if name in read:
            one_of(name, read[name], choices)
    for name in ("only", "without"):
        if name in read:
            read[name] = names_of_checks(name, listed(read[name]))
    for name in ("compacted", "not_compacted"):
        if name in read:
            read[name] = names_of_topics(name, listed(read[name]))
    if both := sorted(read.get("only", frozenset()) & read.get("without", frozenset())):
        raise BadTerm("without", f"expected checks that are not in only, got {both[0]}")
    if both := sorted(read.get("compacted", frozenset()) & read.get("not_compacted", frozenset())):
        raise BadTerm("not_compacted", f"expected topics that are not in compacted, got {both[0]}")
    if "retention" in read:
        read["retention"] = seconds_by_topic(read["retention"])
    return VerifyTerms(**read)


# options that a user may give
TERMS = frozenset((
    "view", "only", "without", "level", "compacted", "not_compacted", "retention", "assume_complete", "skew", "memory",
    "records",
))  # fmt: skip


def one_of(name: str, value: Any, choices: Sequence[str], what: str = "one of ", at: str = "") -> None:
    """Raise BadTerm if a value is not one of these. `what`, `at`: begin and end of the error."""
    if value not in choices:
        place = f" (at {at})" if at else ""
        raise BadTerm(name, f"expected {what}{', '.join(choices)}, got {value!r}{place}")


def listed(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def names_of_checks(name: str, given: Iterable[str]) -> frozenset[str]:
    """Return names of checks. Raises BadTerm for an unknown one."""
    names = frozenset(given)
    for unknown in sorted(names - set(checks())):
        raise BadTerm(name, f"expected a check that `kproxy verify --list` prints, got {unknown!r}")
    return names


def names_of_topics(name: str, given: Iterable[str]) -> frozenset[str]:
    """Return names of topics. Raises BadTerm for an invalid name and for no name."""
    topics = frozenset(given)
    for topic in sorted(topics, key=str):
        if not TOPIC_NAME.fullmatch(str(topic)) or str(topic) != topic:
            raise BadTerm(name, f"expected names of topics, got {in_line(repr(topic)[:LONGEST_SHOWN])}")
    if not topics:
        raise BadTerm(name, "expected names of topics, got none")
    return topics


def seconds_by_topic(given: Mapping[str, Any]) -> dict[str, float]:
    """Parse durations by topic. Raises BadTerm."""
    if given:
        names_of_topics("retention", given)
    try:
        return {topic: float(parse_duration(time)) for topic, time in dict(given).items()}
    except (KproxyError, ValueError, TypeError) as error:
        raise BadTerm("retention", str(error)) from None
