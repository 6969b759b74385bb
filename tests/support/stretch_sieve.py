"""Search for the longest stretch of all cases at a price that can be paid.

`python -m tests.support.stretches --sieve FILE` runs it. With frames of 100,000 elements all 107,000 cases would take
days, so each is measured with a tenth of that, once. A stretch that grows with the frame is ten times longer with all
elements: a case over a tenth of the bound, less a fifth for inexact measurements, is measured twice more, and, if none
of the three is short, with all elements. So the cases that are let go take less than 4 ms at 10,000: fixed work (places
to stop are about a thousand elements apart) and short linear work. FILE has a line of JSON for each case that is done;
with the same file the search goes on where it ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from zlib import crc32

from tests.support.stretches import BOTH, Case

FEWER, ALL = 10_000, 100_000
SUSPECT, BOUND = 0.004, 0.050
"""Seconds of CPU time of one stretch: the most with FEWER elements for which a case is not measured with ALL, and the
most that there may be with ALL."""
TRIES = 3


GROUPS = {
    "names": ("rename_", "prefix", "advertise", "limit_versions"),
    "access": ("deny", "read_only", "require", "quota"),
    "whole exchanges": (
        "error", "delay", "disconnect", "drop", "throttle_time", "reorder_responses", "duplicate_response",
        "wrong_correlation_id", "python", "set",
    ),
    "bytes": ("truncate", "short_body", "bad_length", "trailing_bytes", "unknown_tag", "corrupt"),
    "records": (
        "drop_records", "reorder_records", "duplicate_records", "corrupt_records", "poison_records", "set_record",
        "malformed_batch", "empty_fetch", "set_watermark", "short_session", "add_header",
        "filter_records", "set_field", "mask",
    ),
}  # fmt: skip
"""Kinds by the subject they are about; a word ending in `_` stands for all that begin with it. The others are about
clusters and groups."""
OTHERS = "clusters and groups"
ALIKE = ("whole exchanges", "bytes")
"""Groups of kinds for which one API is as good as another."""


def group_of(kind: str) -> str:
    """Return the group in whose row of the table a kind is."""
    for group, words in GROUPS.items():
        if any(kind == word or (word.endswith("_") and kind.startswith(word)) for word in words):
            return group
    return OTHERS


@dataclass
class Finding:
    """Measurement of one case. `few`, `many`: milliseconds with FEWER and ALL elements; `total`: milliseconds of all
    stretches in the last measurement."""

    case: str
    kind: str
    way: str
    rules: str
    few: float
    many: float | None = None
    total: float = 0.0
    where: str = ""
    error: str = ""

    @property
    def most(self) -> float:
        """Return the milliseconds of the longest stretch with ALL elements, estimated if it was not measured."""
        return self.many if self.many is not None else self.few * ALL / FEWER

    @property
    def long(self) -> bool:
        """Return True if the stretch is longer than BOUND, or the case failed."""
        return bool(self.error) or (self.many or 0.0) > BOUND * 1000


def name(case: Case) -> str:
    """Return a name that tells the case from all others."""
    return f"{case} {case.rules}"


def in_order(found: Iterable[Case]) -> list[Case]:
    """Return the cases so that the telling ones come first: the last version of an API, of these the rules that select
    topics or nothing, of these both frames long, of these the kinds that know messages. Cases with the same frames are
    together; their order is else random, so that a search that is not at its end has seen some of all APIs."""
    found = list(found)
    last: dict[str, int] = {}
    for case in found:
        last[case.api] = max(last.get(case.api, 0), case.version)

    def rank(case: Case) -> tuple[bool, bool, int, bool, int]:
        place = crc32(f"{case.api} {case.version} {case.deep}".encode())
        way = (BOTH, "response", "request").index(case.way)
        alike = group_of(case.kind) in ALIKE
        return case.version != last[case.api], '"group": "name-' in case.rules, way, alike, place

    return sorted(found, key=rank)


def sift(case: Case) -> Finding:
    """Measure one case as far as it takes to know that it is short, or how long it is."""
    found = Finding(str(case), case.kind, case.way, case.rules, 0.0)
    try:
        few = [case.measure(FEWER)]
        while few[-1].longest > SUSPECT and len(few) < TRIES:
            few.append(case.measure(FEWER))
        found.few = round(min(one.longest for one in few) * 1000, 2)
        found.total = round(min(one.total for one in few) * 1000, 1)
        if found.few <= SUSPECT * 1000:
            return found
        many = [case.measure(ALL)]
        while many[-1].longest > BOUND and len(many) < TRIES:
            many.append(case.measure(ALL))
        found.many = round(min(one.longest for one in many) * 1000, 1)
        found.total = round(min(one.total for one in many) * 1000, 1)
        if found.long:
            found.where = case.measure(ALL, trace=True).where
    except Exception as error:  # noqa: BLE001  # a case that fails is a finding, and the others are measured all the same
        found.error = repr(error)
    return found


def known(path: Path) -> dict[str, Finding]:
    """Return the findings of former searches by the case's name; of a case that was done twice, the later."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    findings = [Finding(**json.loads(line)) for line in lines]
    return {f"{one.case} {one.rules}": one for one in findings}


def search(path: Path, wanted: Iterable[Case]) -> Iterator[Finding]:
    """Yield the findings of cases that FILE does not have yet, and write them into it. A case that was too long is
    measured again."""
    before = known(path)
    with path.open("a", encoding="utf-8", buffering=1) as file:
        for case in wanted:
            there = before.get(name(case))
            if there is not None and not there.long:
                continue
            found = sift(case)
            file.write(json.dumps(asdict(found)) + "\n")
            yield found
