"""Matches of rules among the exchanges that a process has kept for the view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import monotonic

import trio
from pydantic import Field

from kproxy.record.exchange import ObservedExchange
from kproxy.rules.document.read import read_document
from kproxy.rules.values.source import json_source
from kproxy.runtime.rules.keeper import DOCUMENTS

from .models import Shown

LONGEST_LOOK = 0.2
"""Seconds in which kept exchanges are looked at."""
KEPT = "<kept>"
"""Text in place of a file's name: the document was checked before."""


class RuleMatchesShown(Shown):
    """Matches of one rule among the kept exchanges."""

    name: str
    kind: str
    matched: int = Field(description="exchanges that its selectors held for")
    fired: int = Field(description="those of them that its trigger chose")


class MatchesShown(Shown):
    """Matches of the checked rules among the exchanges that are kept for the view. Rules in force are not looked at."""

    of: int = Field(description="exchanges that were looked at, the latest ones")
    kept: int = Field(description="exchanges that there are to look at; there may not have been the time for all")
    unfit: int = Field(description="exchanges that cannot be looked at, since not all of their bytes are kept")
    matched: int = Field(description="of all rules together")
    fired: int = Field(description="of all rules together")
    rules: list[RuleMatchesShown]


async def rehearse(text: str, kept: Sequence[ObservedExchange], records: bool = True) -> MatchesShown:
    """Return the matches of rules, a JSON document without mistakes, among exchanges that this process has kept, the
    latest of which comes first. `records`: whether a rule's filter may ask about records; else it holds for nothing,
    since how many matches there are would tell what is in them."""
    return await trio.to_thread.run_sync(rehearsed, text, kept, records, limiter=DOCUMENTS)


def rehearsed(text: str, kept: Sequence[ObservedExchange], records: bool = True) -> MatchesShown:
    from kproxy.tools.rehearse.whatif.kept import rehearse_kept

    until = monotonic() + LONGEST_LOOK
    document = read_document(json_source(KEPT, text.encode()), from_api=True)
    found = rehearse_kept(document, kept, lambda: monotonic() < until, records=records)
    rules = [
        RuleMatchesShown(name=one.name, kind=one.kind, matched=one.matched, fired=one.fired) for one in found.rules
    ]
    return shown_matches(found.of, found.kept, found.unfit, rules)


def shown_matches(of: int, kept: int, unfit: int, rules: Sequence[RuleMatchesShown]) -> MatchesShown:
    matched, fired = sum(one.matched for one in rules), sum(one.fired for one in rules)
    return MatchesShown(of=of, kept=kept, unfit=unfit, matched=matched, fired=fired, rules=list(rules))


def together(answers: Iterable[MatchesShown]) -> MatchesShown:
    """Add up what several processes have found."""
    rules: dict[str, RuleMatchesShown] = {}
    of = kept = unfit = 0
    for one in answers:
        of, kept, unfit = of + one.of, kept + one.kept, unfit + one.unfit
        for found in one.rules:
            sums = rules.setdefault(found.name, RuleMatchesShown(name=found.name, kind=found.kind, matched=0, fired=0))
            sums.matched, sums.fired = sums.matched + found.matched, sums.fired + found.fired
    return shown_matches(of, kept, unfit, list(rules.values()))
