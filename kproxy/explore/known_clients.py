"""Known behaviour of client libraries, read from `known_clients.yaml`. Findings that match point to it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from kproxy.wire.table.schema import read_yaml

from .model import RunOutcome
from .result import FaultFinding

TABLE = files("kproxy.explore") / "known_clients.yaml"


@dataclass(frozen=True, slots=True)
class KnownBehaviour:
    """Entry of the table; the file describes its fields."""

    name: str
    client: str
    since: str
    symptom: str
    reference: str
    outcome: RunOutcome
    faults: tuple[str, ...]
    error: str = "*"
    where: str = "*"
    software: str = ""
    fixed: str = ""

    def matches(self, finding: FaultFinding) -> bool:
        """Return True if a finding has the outcome, faults, error, line and client version of this entry."""
        signature, faults = finding.signature, finding.smallest.faults
        return (
            signature.outcome == self.outcome
            and bool(faults)
            and all(any(fnmatchcase(name, one) for one in self.faults) for name in faults)
            and fnmatchcase(f"{signature.type}: {signature.message}", self.error)
            and fnmatchcase(signature.where, self.where)
            and self.has_version(finding.example.run.software)
        )

    def has_version(self, software: Iterable[str]) -> bool:
        """Return True if a client has an affected version, or if this library sends no version."""
        found = [match[1] for one in software if self.software and (match := re.search(self.software, one))]
        since, fixed = numbers(self.since), numbers(self.fixed)
        return not self.software or any(
            since <= numbers(one) and not (fixed and fixed <= numbers(one)) for one in found
        )

    @property
    def versions(self) -> str:
        """Return the affected versions, such as `2.16.0 and newer`."""
        return f"{self.since} and newer" + (f", before {self.fixed}" if self.fixed else "")

    def lines(self) -> Iterator[str]:
        """Yield the lines of a report about it."""
        yield f"known behaviour of {self.client} {self.versions}: {self.symptom} ({self.reference})"
        marker = "" if self.error == "*" else f", or @pytest.mark.kproxy_explore(ignore=[{json.dumps(self.error)}])"
        yield f"to ignore it: the options baseline and update{marker}"


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version such as `2.16.0`."""
    return tuple(int(part) for part in version.split(".") if part)


@cache
def known_behaviours() -> tuple[KnownBehaviour, ...]:
    """Return the entries of the table."""
    return tuple(
        KnownBehaviour(name, **{**entry, "faults": tuple(entry["faults"])}) for name, entry in read_yaml(TABLE).items()
    )


def known_behaviour(finding: FaultFinding) -> KnownBehaviour | None:
    """Return the first entry that a finding matches, if any."""
    return next((one for one in known_behaviours() if one.matches(finding)), None)
