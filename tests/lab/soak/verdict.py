"""Holds what clients know for certain against what is in the topics: each finding is a sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.lab.soak.clients.common import MARK, number_of, value
from tests.lab.soak.journals import Log

Findings = list[str]
SHOWN = 5
"""Examples in a finding."""


def some(things: Iterable[Any]) -> str:
    """The first few."""
    shown = list(things)
    return ", ".join(map(str, shown[:SHOWN])) + (f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else "")


def numbered(log: Log, acked: Mapping[int, Sequence[tuple[int | None, int]]], written: int) -> Findings:
    """The idempotent producer: every record that it wrote was acknowledged, and is there once, in order, where it was
    said to be, and as it was written. One that the broker had already when it came again is acknowledged without an
    offset."""
    found: Findings = []
    for partition, records in log.items():
        there = [number for _, number in _numbers(partition, records, found)]
        found += in_order(f"partition {partition}", there, written)
        said = acked.get(partition, ())
        at = {offset: number for offset, number in said if offset is not None}
        numbers = {number for _, number in said}
        if len(numbers) != written or len(said) != written:
            found.append(f"partition {partition}: {len(numbers)} of {written} records were acknowledged")
        if len(at) != sum(offset is not None for offset, _ in said):
            found.append(f"partition {partition}: two records were acknowledged at one offset")
        elsewhere = [
            at[offset] for (offset, _), number in zip(records, there, strict=False) if at.get(offset, number) != number
        ]
        if elsewhere or at.keys() - {offset for offset, _ in records}:
            found.append(
                f"partition {partition}: records are not at the offsets that were acknowledged: {some(elsewhere)}"
            )
    return found


def transformed(log: Log, written: int) -> Findings:
    """Exactly once: each record of each partition has been changed once, in the order of its source."""
    found: Findings = []
    for partition, records in log.items():
        bare = []
        for offset, record in records:
            if not record.startswith(MARK):
                found.append(f"partition {partition}, offset {offset}: not what the transformer writes")
            else:
                bare.append((offset, record[len(MARK) :]))
        found += in_order(f"changed partition {partition}",
                          [number for _, number in _numbers(partition, bare, found)], written)  # fmt: skip
    return found


def in_order(where: str, there: Sequence[int], written: int) -> Findings:
    """Whether these are 0 … written - 1; if not, what is lost, doubled or in another order."""
    if there == list(range(written)):
        return []
    found: Findings = []
    seen: set[int] = set()
    doubled = [number for number in there if number in seen or seen.add(number)]
    if lost := sorted(set(range(written)) - seen):
        found.append(f"{where}: {len(lost)} of {written} records are lost: {some(lost)}")
    if doubled:
        found.append(f"{where}: {len(doubled)} records are there twice: {some(doubled)}")
    if never := sorted(seen - set(range(written))):
        found.append(f"{where}: {len(never)} records that nobody wrote: {some(never)}")
    if turned := [f"{after} after {before}" for before, after in pairwise(there) if after < before]:
        found.append(f"{where}: in another order: {some(turned)}")
    return found


def _numbers(partition: int, records: Iterable[tuple[int, bytes]], found: Findings) -> list[tuple[int, int]]:
    numbers = []
    for offset, record in records:
        try:
            of, number = number_of(record)
        except ValueError as wrong:
            found.append(f"partition {partition}, offset {offset}: {wrong}")
            continue
        if of != partition:
            found.append(f"partition {partition}, offset {offset}: a record of partition {of}")
        numbers.append((offset, number))
    return numbers


def members(log: Log, journals: Mapping[str, Sequence[Mapping[str, Any]]]) -> Findings:
    """The group: every record was read; a member begins where the group has committed, never before what was
    acknowledged and never behind what was asked for; and reads what lies there, without a gap."""
    found: Findings = []
    lines = sorted(
        ((note["at"], name, note) for name, notes in journals.items() for note in notes), key=lambda x: x[:2]
    )
    commits = _Commits()
    truth = {partition: dict(_numbers(partition, records, found)) for partition, records in log.items()}
    read: dict[int, set[int]] = defaultdict(set)
    due: dict[str, dict[int, int]] = {}
    for at, name, note in lines:
        if "begins" in note:
            due[name] = {int(partition): offset for partition, offset in note["begins"].items()}
            found += commits.begins(name, due[name], note["asked"])
        for partition, offset, number, count in note.get("read", ()):
            if due[name].get(partition) != offset:
                found.append(f"{name}: partition {partition} goes on at {offset}, not at {due[name].get(partition)}")
            due[name][partition] = offset + count
            wrong = [o for o in range(count) if truth[partition].get(offset + o) != number + o]
            if wrong:
                found.append(
                    f"{name}: partition {partition} has others than were read at {some(offset + o for o in wrong)}"
                )
            read[partition].update(range(offset, offset + count))
        commits.take(at, note)
        found += [f"{name}: {note[key]}" for key in ("wrong", "fatal") if key in note]
    for partition, records in truth.items():
        if missed := sorted(records.keys() - read[partition]):
            found.append(f"the group has not read {len(missed)} records of partition {partition}: {some(missed)}")
    return found


class _Commits:
    """What the group has committed, as far as its members know."""

    def __init__(self) -> None:
        self.asked: dict[int, int] = defaultdict(int)
        self.done: dict[int, list[tuple[float, int]]] = defaultdict(list)

    def take(self, at: float, note: Mapping[str, Any]) -> None:
        for partition, offset in note.get("commits", {}).items():
            self.asked[int(partition)] = max(self.asked[int(partition)], offset)
        for partition, offset in note.get("committed", {}).items():
            self.done[int(partition)].append((at, offset))

    def begins(self, name: str, places: Mapping[int, int], asked: float) -> Findings:
        found = []
        for partition, offset in places.items():
            least = max((done for at, done in self.done[partition] if at < asked), default=0)
            if not least <= offset <= self.asked[partition]:
                found.append(f"{name}: partition {partition} begins at {offset}, "
                             f"committed were {least} to {self.asked[partition]}")  # fmt: skip
        return found


def java(log: Log, acked: Sequence[tuple[int, int, int]]) -> Findings:
    """Kafka's own producer, idempotent, too: what was acknowledged is there, once, in order, at that offset."""
    found: Findings = []
    there = {(partition, offset): int(record) for partition, records in log.items() for offset, record in records}
    if missing := [one for one in acked if there.get(one[:2]) != one[2]]:
        found.append(f"Java: {len(missing)} acknowledged records are not where they should be: {some(missing)}")
    for partition, records in log.items():
        numbers = [int(record) for _, record in records]
        if wrong := [f"{after} after {before}" for before, after in pairwise(numbers) if after <= before]:
            found.append(f"Java, partition {partition}: doubled or in another order: {some(wrong)}")
    return found


def example(partition: int, numbers: Iterable[int]) -> list[tuple[int, bytes]]:
    """Records with these numbers, at the offsets from 0 on: for tests of the judge."""
    return [(offset, value(partition, number)) for offset, number in enumerate(numbers)]
