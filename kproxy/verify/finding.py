"""Findings of a verification: what a check found, how sure that is, and the exchanges that show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .broker_names import BrokerNames
from .facts import PartitionPlace, Witness

FindingLevel = Literal["proved", "suspect", "note"]
RecordView = Literal["clients", "brokers", "both"]
LEVELS: tuple[FindingLevel, ...] = ("proved", "suspect", "note")


@dataclass(slots=True)
class Evidence:
    """Exchange that shows a finding, with what in it does. `says`: such as "from 0: at 1 and at 15"."""

    witness: Witness
    says: str


@dataclass(slots=True)
class BatchInQuestion:
    """Batch that a finding is about, for whoever compares its records. `exchanges`: numbers of those that brought it or
    should have, each with the offset at which it begins there (None: written, offset not told)."""

    place: PartitionPlace
    exchanges: list[tuple[int, int | None]]


@dataclass(slots=True)
class Finding:
    """Guarantee that the record breaks, at one place.

    `check`: its name in checks.yaml. `about`: "orders[0]", a group or a producer. `says`: one line, what is wrong.
    `evidence`: in time's order. `view`: whose record shows it; "both": the clients' and the brokers'. `else_`: what
    else it could be, and who did it, in sentences. `rules`: of kproxy, that fired on this evidence. `details`: what is
    different in its records, a line each. `times`: how often it was found there; `evidence` has the first ones.
    """

    check: str
    level: FindingLevel
    about: str
    says: str
    evidence: list[Evidence]
    view: RecordView = "both"
    else_: str = ""
    rules: tuple[str, ...] = ()
    details: list[str] = field(default_factory=list)
    times: int = 1
    batches: list[BatchInQuestion] = field(default_factory=list)
    doubts: tuple[str, ...] = ()
    """Names, in checks.yaml, of what else it could be; `else_` has them in words."""
    hint: str = ""


@dataclass(slots=True)
class Verdict:
    """Result of a verification.

    `findings`: proved ones first, then by time. `clean`: checks that could find a violation in this record, and found
    none. `not_checked`: the other checks without a finding, each with the reason. `counts`: figures of the line
    "checked", such as "acknowledged writes" and "commits". `incomplete`: sentences about missing parts of the record
    (gaps, torn ends, unreadable frames). `views`: the verified views. `names`: the brokers' names of topics and groups.
    `exit_code`: 1 if findings fail the verification, None before `FailOn.decide`; `reason`: its cause, in one line.
    """

    findings: list[Finding]
    clean: list[str]
    not_checked: dict[str, str]
    counts: dict[str, int]
    exchanges: int
    connections: int
    incomplete: list[str] = field(default_factory=list)
    views: tuple[RecordView, ...] = ("clients", "brokers")
    names: BrokerNames | None = None
    exit_code: int | None = None
    reason: str = ""


def number_of(count: int, what: str) -> str:
    """Return a number with what it counts, in the plural unless it is one."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {plural(what)}"


def plural(what: str) -> str:
    """Return the plural of a noun that may have an adjective in front."""
    return f"{what}es" if what.endswith("ch") else f"{what}s"


def singular(what: str) -> str:
    """Return the singular of the last noun, for a count of one."""
    return what.removesuffix("s")
