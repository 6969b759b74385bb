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

    `findings`: proved ones first, then by time. `clean`: checks that looked and found nothing. `not_checked`: check and
    the reason why it could not look, or not at everything. `counts`: "acknowledged writes", "read afterwards",
    "commits", "groups", "transactions" and so on, for the line "checked". `incomplete`: what is to be said of the
    record as a whole (gaps, torn ends, frames that cannot be read), in sentences. `views`: those that were looked at.
    `names`: what topics and groups are called at the broker, for whoever reads the record again.
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
