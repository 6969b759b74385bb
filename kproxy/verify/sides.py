"""Comparison of what clients saw with what brokers did: who did it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .facts import CommitToldFact, Fact, ReadFact, WriteFact
from .finding import Finding
from .suspicion import NATURAL, rules_of

CLEAN_BROKERS = "Brokers' view: clean."
BOTH = "Brokers' view: the same, so the cluster did it, or the client that sent it."
BROKERS_ONLY = "Clients' view: clean."


NOT_ALL_OF_BROKERS = "Brokers' view: not all of it is in the record."


def differing(front: Sequence[Fact], behind: Sequence[Fact]) -> frozenset[str]:
    """Return the partitions of which an exchange has other batches, offsets or transactions at the client than at the
    broker."""
    mine, theirs = contents(front), contents(behind)
    return frozenset(about for about, content in mine.items() if about in theirs and theirs[about] != content)


def contents(facts: Sequence[Fact]) -> dict[str, Any]:
    """Return the batches, offsets and transactions of an exchange, by partition, and by a group's partition."""
    found: dict[str, Any] = {}
    for fact in facts:
        if isinstance(fact, WriteFact | ReadFact):
            batches = [(one.base, one.delta, one.identity, one.marker) for one in fact.batches]
            if isinstance(fact, WriteFact):
                found[str(fact.place)] = batches, fact.result, fact.base, fact.acks
            else:
                found[str(fact.place)] = batches, fact.position, fact.last_stable, fact.aborted, fact.committed_only
        elif isinstance(fact, CommitToldFact):
            found[f"group {fact.group}, {fact.place}"] = fact.offset
    return found


def both_sides(clients: list[Finding], brokers: list[Finding], blind: Callable[[str], bool]) -> list[Finding]:
    """Return the findings of both views, each once, with who did it in words. `blind`: whether the brokers' view lacks
    something that the check of this name needs."""
    places = {(one.check, one.about) for one in clients}
    shared = {(one.check, one.about) for one in brokers} & places
    elsewhere: dict[tuple[str, int], list[Finding]] = {}
    for finding in brokers:  # names that the record does not tell are others there
        if (finding.check, finding.about) not in places:
            for one in finding.evidence:
                elsewhere.setdefault((finding.check, one.witness.number), []).append(finding)
    matched: set[int] = set()
    for finding in clients:
        numbers = {(finding.check, one.witness.number) for one in finding.evidence} & elsewhere.keys()
        if (finding.check, finding.about) in shared or numbers:
            finding.view = "both"
            add(finding, BOTH)
        else:
            by_something_between(finding, blind=blind(finding.check))
        for number in numbers:
            matched.update(map(id, elsewhere[number]))
            elsewhere[number] = []
    alone = [one for one in brokers if (one.check, one.about) not in shared and id(one) not in matched]
    for finding in alone:
        add(finding, BROKERS_ONLY)
    return clients + alone


def by_something_between(finding: Finding, *, blind: bool) -> None:
    """Say who did what clients saw and brokers did not; what became of a log by itself is no reason for it if what is
    told of the partition is something else at the broker."""
    altered = any(one.witness.made_by_kproxy or finding.about in one.witness.differs for one in finding.evidence)
    if not blind and finding.level == "suspect" and finding.doubts and altered and NATURAL.issuperset(finding.doubts):
        finding.level, finding.doubts = "proved", ()
        finding.else_ = finding.hint
    rules = rules_of(one.witness for one in finding.evidence)
    names = ", ".join(f'"{rule}"' for rule in rules)
    by = f" Something between did it: rule{'s' if len(rules) > 1 else ''} {names} fired." if rules else ""
    if not rules and any(one.witness.altered or one.witness.made_by_kproxy for one in finding.evidence):
        by = " Something between did it; the record names no rule of kproxy that fired."
    add(finding, (NOT_ALL_OF_BROKERS if blind else CLEAN_BROKERS) + by)


def add(finding: Finding, sentence: str) -> None:
    """Add a sentence in front of what else a finding says."""
    finding.else_ = " ".join(filter(None, (sentence, finding.else_)))
