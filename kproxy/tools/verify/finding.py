"""Definitions of the checks, from `checks.yaml`, findings with their evidence, and the verdict of a verification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal

from kproxy.protocol.table.schema import read_yaml

from .facts import PartitionPlace, Witness
from .read_exchange import BrokerNames

TABLE = files("kproxy.tools.verify") / "checks.yaml"
CheckDetail = Literal["fields", "headers", "records"]


@dataclass(frozen=True, slots=True)
class CheckDefinition:
    """Entry of checks.yaml, which describes the fields."""

    name: str
    level: FindingLevel
    definition: str
    detail: CheckDetail
    apis: tuple[str, ...]
    doubts: tuple[str, ...] = ()
    silent: str = ""
    events: str = ""
    fails: FindingLevel = "proved"
    claim: str = ""
    assumes: str = ""

    @property
    def not_proved(self) -> str:
        """Other causes of a finding; empty if it is always proved."""
        return "; ".join(doubt_text(doubt) for doubt in self.doubts)


@cache
def table() -> Mapping[str, Any]:
    read: Mapping[str, Any] = read_yaml(TABLE)
    return read


@cache
def checks() -> Mapping[str, CheckDefinition]:
    found = {}
    for name, entry in table()["checks"].items():
        apis, doubts = tuple(entry["apis"]), tuple(entry.get("doubts", ()))
        found[name] = CheckDefinition(
            name, entry["level"], entry["definition"], entry["detail"], apis, doubts,
            **{key: entry[key] for key in ("silent", "events", "fails", "claim", "assumes") if key in entry},
        )  # fmt: skip
    return MappingProxyType(found)


def unknown_text(doubt: str) -> str:
    """Reason why a check is undecided if all its findings have this doubt; empty otherwise."""
    text: str = table()["unknown"].get(doubt, "")
    return text


def doubt_text(doubt: str) -> str:
    text: str = table()["doubts"][doubt]
    return text


FindingLevel = Literal["proved", "suspect", "note"]
RecordView = Literal["clients", "brokers", "both"]
LEVELS: tuple[FindingLevel, ...] = ("proved", "suspect", "note")


@dataclass(slots=True)
class Evidence:
    """Exchange that shows a finding. `says`: its relevant part, such as "from 0: at 1 and at 15"."""

    witness: Witness
    says: str


@dataclass(slots=True)
class BatchInQuestion:
    """Batch whose records `explain` compares.

    `exchanges`: numbers of the exchanges that contain the batch, or lack it, each with the batch's base offset there.
    None: the batch was written and its offset is unknown.
    """

    place: PartitionPlace
    exchanges: list[tuple[int, int | None]]


@dataclass(slots=True)
class Finding:
    """Violation of a guarantee at one place.

    `check`: name in checks.yaml. `about`: partition such as "orders[0]", group or producer. `says`: the violation in
    one line. `evidence`: exchanges ordered by time, of the first occurrences only; `times` counts all of them. `view`:
    the views that show the finding. `else_`: sentences about other explanations and the cause. `rules`: kproxy's rules
    that fired on the evidence. `details`: differences of the records, one in a line. `doubts`: names, in checks.yaml,
    of the other explanations.
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
    hint: str = ""


@dataclass(slots=True)
class Verdict:
    """Result of a verification.

    `findings`: sorted by level and time. `clean`: checks that could find a violation in this record, and found none.
    `not_checked`: the other checks without a finding, each with the reason. `counts`: figures of the line
    "checked", such as "acknowledged writes" and "commits". `incomplete`: sentences about missing parts of the record
    (gaps, torn ends, unreadable frames). `views`: the verified views. `names`: the brokers' names of topics and groups.
    `exit_code`: 1 if findings fail the verification, None before `FailOn.decide`; `reason`: its cause, in one line.
    `not_shown`: findings below the level, by check.
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
    not_shown: Counter[str] = field(default_factory=Counter)

    def keep(self, wanted: Callable[[Finding], bool]) -> None:
        """Remove the other findings, and count them."""
        self.not_shown.update(one.check for one in self.findings if not wanted(one))
        self.findings = [one for one in self.findings if wanted(one)]
