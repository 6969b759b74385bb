"""Comparison of what clients saw with what brokers did: who did it."""

from __future__ import annotations

from .finding import Finding
from .suspicion import NATURAL, rules_of

CLEAN_BROKERS = "Brokers' view: clean."
BOTH = "Brokers' view: the same, so the cluster did it, or the client that sent it."
BROKERS_ONLY = "Clients' view: clean."


def both_sides(clients: list[Finding], brokers: list[Finding]) -> list[Finding]:
    """Return the findings of both views, each once, with who did it in words."""
    by_place: dict[tuple[str, str], list[Finding]] = {}
    by_exchange: dict[tuple[str, int], list[Finding]] = {}
    for finding in brokers:
        by_place.setdefault((finding.check, finding.about), []).append(finding)
        for one in finding.evidence:
            by_exchange.setdefault((finding.check, one.witness.number), []).append(finding)
    matched: set[int] = set()
    for finding in clients:
        same = list(by_place.get((finding.check, finding.about), ()))
        for one in finding.evidence:  # brokers may have other names
            same += by_exchange.get((finding.check, one.witness.number), ())
        if same:
            matched |= {id(one) for one in same}
            finding.view = "both"
            add(finding, BOTH)
        else:
            by_something_between(finding)
    for finding in brokers:
        if id(finding) not in matched:
            add(finding, BROKERS_ONLY)
    return clients + [one for one in brokers if id(one) not in matched]


def by_something_between(finding: Finding) -> None:
    """Say who did what clients saw and brokers did not; what became of a log by itself is no reason for it."""
    altered = any(one.witness.altered or one.witness.made_by_kproxy for one in finding.evidence)
    if finding.level == "suspect" and finding.doubts and altered and NATURAL.issuperset(finding.doubts):
        finding.level, finding.doubts = "proved", ()
        finding.else_ = finding.hint
    rules = rules_of(one.witness for one in finding.evidence)
    names = ", ".join(f'"{rule}"' for rule in rules)
    by = f" Something between did it: rule{'s' if len(rules) > 1 else ''} {names} fired." if rules else ""
    if not rules and altered:
        by = " Something between did it; the record names no rule of kproxy that fired."
    add(finding, CLEAN_BROKERS + by)


def add(finding: Finding, sentence: str) -> None:
    """Add a sentence in front of what else a finding says."""
    finding.else_ = " ".join(filter(None, (sentence, finding.else_)))
