"""Terms of a verification: which checks, whose view, and what is known beside the record."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from kproxy.errors import InputError, KproxyError
from kproxy.rules.document.quantities import parse_duration
from kproxy.terminal import in_line

from .checks import checks
from .finding import LEVELS, Finding, FindingLevel, RecordView, Verdict, number_of

MEMORY = 1 << 30
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Names of topics that brokers accept."""
LONGEST_SHOWN = 80
"""Characters of a wrong value in an error."""
CONFIG_APIS = frozenset(("DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs"))
TOPIC_APIS = frozenset(("Metadata", "CreateTopics", "DeleteTopics"))
NO_APIS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MissingPart:
    """Part of the traffic that a record lacks.

    `apis`: the only APIs that the missing exchanges can have; None for any. `undecided`: a check that reads one of
    these APIs cannot be decided. It is None for any API, and empty if the part lies before the record or after it.
    """

    text: str
    apis: frozenset[str] | None = None
    undecided: frozenset[str] | None = None

    def __str__(self) -> str:
        return self.text

    def hides(self, apis: frozenset[str] | None) -> bool:
        """Return True if an exchange of these APIs may be missing. None: any API except those of configs."""
        if self.apis is None:
            return True
        return bool(self.apis - CONFIG_APIS if apis is None else self.apis & apis)

    def leaves_open(self, apis: Iterable[str]) -> bool:
        """Return True if a check that reads these APIs cannot be decided."""
        return self.undecided is None or not self.undecided.isdisjoint(apis)


def outside(text: str, apis: frozenset[str] | None = None) -> MissingPart:
    """Return a part before the record's first exchange or after its last one."""
    return MissingPart(text, apis, NO_APIS)


def of_apis(text: str, *apis: str) -> MissingPart:
    """Return a part with exchanges of these APIs only."""
    return MissingPart(text, frozenset(apis), frozenset(apis))


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

    `only` (empty: all), `without`: names of checks. `level`: the lowest of findings. `compacted`, `not_compacted`:
    topics that brokers compact, or never do. `retention`: seconds that a topic keeps records. `complete`: all
    traffic of these topics and groups is in the record, so that absence is a proof. `skew`: seconds by which clocks of
    the record may differ. `memory`: bytes for facts. `records`: every record is compared, not only headers of batches.
    `incomplete`: parts that the record lacks. `clock`: how far its times can be trusted. The reader of the record adds
    to both until the verdict.
    """

    view: RecordView = "both"
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    level: FindingLevel = "suspect"
    compacted: frozenset[str] = frozenset()
    not_compacted: frozenset[str] = frozenset()
    retention: Mapping[str, float] = field(default_factory=dict)
    complete: bool = False
    from_start: bool = False  # the record begins with the creation of all its topics
    skew: float = 0.0
    memory: int = MEMORY
    records: bool = False
    incomplete: list[MissingPart] = field(default_factory=list)
    clock: RecordClock = field(default_factory=RecordClock)

    def proves_absence(self, apis: frozenset[str] | None = None) -> bool:
        """Return True if an exchange of these APIs that is not in the record did not happen.

        None: of any API except those of configs.
        """
        return self.complete and not any(part.hides(apis) for part in self.incomplete)

    def undecided(self, apis: Iterable[str]) -> str:
        """Return why a check that reads these APIs cannot be decided; empty if it can."""
        return next((part.text for part in self.incomplete if part.leaves_open(apis)), "")

    def wants(self, check: str) -> bool:
        """Return True if the check of this name is to be done."""
        return check not in self.without and (not self.only or check in self.only)


class BadTerm(InputError):
    """Term of a verification that makes no sense. `name`: which one; the message says what is wrong with it."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class FailOn:
    """Condition of a failed verification. `level`: the lowest failing level of most checks; `levels`: the lowest
    failing level of each check."""

    level: FindingLevel
    levels: Mapping[str, FindingLevel]

    def __str__(self) -> str:
        """Return these terms as a value of `--fail-on`."""
        return ",".join((self.level, *self.own(self.levels)))

    def own(self, names: Iterable[str]) -> list[str]:
        """Return CHECK=LEVEL for those of these checks whose level is not that of most checks."""
        return [f"{check}={self.levels[check]}" for check in names if self.levels[check] != self.level]

    @property
    def lowest(self) -> FindingLevel:
        return max(self.levels.values(), key=LEVELS.index)

    def fails(self, finding: Finding) -> bool:
        """Return True if a finding fails the verification."""
        return LEVELS.index(finding.level) <= LEVELS.index(self.levels[finding.check])

    def decide(self, verdict: Verdict, level: FindingLevel) -> None:
        """Set exit code and reason of a verdict. Then remove findings below `level` that do not fail it."""
        failing = Counter((one.level, one.check) for one in verdict.findings if self.fails(one))
        found = "; ".join(
            f"{number_of(count, f'{level} finding')} of {check}" for (level, check), count in failing.items()
        )
        names = dict.fromkeys(check for _, check in failing)
        own, of_all = self.own(names), any(self.levels[check] == self.level for check in names)
        verdict.exit_code = int(bool(failing))
        verdict.reason = f"{found} (--fail-on {','.join([self.level, *own] if of_all else own)})"
        if not failing:
            own = self.own(self.levels)
            verdict.reason = (
                f"no finding of --fail-on {self.level}" + f", with another level for {len(own)} checks" * bool(own)
            )
        shown = LEVELS.index(level)
        verdict.findings = [one for one in verdict.findings if self.fails(one) or LEVELS.index(one.level) <= shown]


FailOnTerm = str | Iterable[str] | None
"""Value of `--fail-on`; None for the default."""


def fail_on(given: FailOnTerm = None) -> FailOn:
    """Return the terms of failing: LEVEL for all checks, and CHECK=LEVEL, in a list or separated by commas. A check
    that is not given has the level of its definition, unless LEVEL is given. Raises BadTerm."""
    words = [word.strip() for one in listed(given or ()) for word in one.split(",") if word.strip()]
    base = [word for word in words if "=" not in word]
    if len(base) > 1:
        raise BadTerm("fail_on", f"expected one level for all checks, got {', '.join(base)}")
    for level in base:
        one_of("fail_on", level, LEVELS, "a level or CHECK=LEVEL, with a level of ")
    levels: dict[str, Any] = {name: base[0] if base else check.fails for name, check in checks().items()}
    for word in words:
        check, sign, level = word.partition("=")
        if sign:
            names_of_checks("fail_on", [check])
            one_of("fail_on", level, LEVELS, at=word)
            levels[check] = level
    return FailOn(cast("FindingLevel", base[0]) if base else "proved", levels)


def terms_of(given: Mapping[str, Any]) -> VerifyTerms:
    """Return the terms that are given by their names, as a user writes them: names of checks and topics in lists or
    alone, durations as texts. Those that are not given, or None, are as in VerifyTerms. Raises BadTerm."""
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
    if both := sorted(read.get("compacted", frozenset()) & read.get("not_compacted", frozenset())):
        raise BadTerm("not_compacted", f"expected topics that are not in compacted, got {both[0]}")
    if "retention" in read:
        read["retention"] = seconds_by_topic(read["retention"])
    return VerifyTerms(**read)


TERMS = frozenset(
    (
        "view",
        "only",
        "without",
        "level",
        "compacted",
        "not_compacted",
        "retention",
        "complete",
        "skew",
        "memory",
        "records",
    )
)
"""Names of the terms that a user may give."""


def one_of(name: str, value: Any, choices: Sequence[str], what: str = "one of ", at: str = "") -> None:
    """Check that a value is one of these. `what`, `at`: begin and end of the error. Raises BadTerm."""
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
    """Return these names. Raises BadTerm for one that no topic can have, and for none at all."""
    topics = frozenset(given)
    for topic in sorted(topics, key=str):
        if not TOPIC_NAME.fullmatch(str(topic)) or str(topic) != topic:
            raise BadTerm(name, f"expected names of topics, got {in_line(repr(topic)[:LONGEST_SHOWN])}")
    if not topics:
        raise BadTerm(name, "expected names of topics, got none")
    return topics


def seconds_by_topic(given: Mapping[str, Any]) -> dict[str, float]:
    """Return for how many seconds topics keep records. Raises BadTerm for what is no duration."""
    try:
        return {topic: float(parse_duration(time)) for topic, time in dict(given).items()}
    except (KproxyError, ValueError, TypeError) as error:
        raise BadTerm("retention", str(error)) from None
