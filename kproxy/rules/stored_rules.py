"""Stored rules: documents by where they come from, and each rule with what has become of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from kproxy.rules.document.check import ParsedRule
from kproxy.rules.document.read import Document, Moment, moment
from kproxy.rules.kinds.base.rule import LiveRule, Rule

from .rule_set import Running

RuleOrigin = Literal["file", "api", "test"]
ORIGINS: tuple[RuleOrigin, ...] = ("file", "api", "test")
"""In the order of their rules."""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """Document in force. `began`: when it (or one with the same scenario in its place) was loaded.

    What comes over the API is stored rule by rule, a scenario as one, so that each can be replaced in its place.
    """

    origin: RuleOrigin
    document: Document
    began: float

    def moment(self, now: float) -> Moment | None:
        """Return the point that its scenario is at; None when it has none, or when it is over."""
        scenario = self.document.scenario
        return None if scenario is None else moment(scenario, max(0.0, now - self.began))

    def next_change(self, now: float) -> float:
        """Return the time when the stage in force ends; infinity: never."""
        at = self.moment(now)
        return math.inf if at is None else self.began + at.ends


@dataclass(frozen=True, slots=True)
class StoredRule:
    """Rule in the store. `since`: when it came, or last changed. `until`: when it goes by itself. `running`: of a live
    rule, once it has been in force. `active`: whether it is in force now."""

    name: str
    rule: Rule
    parsed: ParsedRule
    stored_document: StoredDocument
    content: str
    since: float
    until: float | None
    running: Running | None = None
    active: bool = False

    @property
    def origin(self) -> RuleOrigin:
        return self.stored_document.origin

    @property
    def is_fault(self) -> bool:
        """Return True if the kill switch turns it off."""
        return isinstance(self.rule, LiveRule) and self.rule.is_fault

    @property
    def may_be_meant_for_good(self) -> bool:
        """Return True for a rule of a file that is always in force: no trigger, no time to live, no scenario."""
        rule, stage = self.rule, self.parsed.stage
        ever = stage is None and self.until is None and isinstance(rule, LiveRule) and rule.when is None
        return self.origin == "file" and ever and self.is_fault

    def begins(self, now: float) -> float | None:
        """Return the time since which it would be in force now, were it enabled: a rule of a stage since the stage
        began; None: its stage is not the one in force."""
        if self.parsed.stage is None:
            return self.since
        at = self.stored_document.moment(now)
        return self.stored_document.began + at.began if at is not None and at.stage == self.parsed.stage else None


@dataclass(frozen=True, slots=True)
class StoreChange:
    """Result of an operation: rules that are new, and live rules that are not in force any more (what they hold must be
    let go)."""

    new: tuple[StoredRule, ...] = ()
    left: tuple[Running, ...] = ()


def carry_over(documents: Iterable[StoredDocument], before: dict[str, StoredRule], now: float) -> Iterator[StoredRule]:
    """Yield all rules of valid documents, in order. One that was there before, unchanged and from the same place, goes
    on."""
    for stored in documents:
        for parsed in stored.document.parsed_rules:
            assert parsed.rule is not None, "there is a mistake in it"
            assert parsed.name is not None, "there is a mistake in it"
            content = parsed.rule.content
            until = None if parsed.ttl is None else stored.began + parsed.ttl
            old = before.get(parsed.name)
            if old is not None and old.content == content and _same_place(old, stored, parsed):
                rule = old.rule if old.running is not None else parsed.rule  # the model that is at work
                yield StoredRule(parsed.name, rule, parsed, stored, content, old.since, until, old.running, old.active)
            else:
                yield StoredRule(parsed.name, parsed.rule, parsed, stored, content, now, until)


def _same_place(old: StoredRule, stored: StoredDocument, parsed: ParsedRule) -> bool:
    return (
        old.origin == stored.origin
        and old.parsed.source.file == parsed.source.file
        and old.parsed.stage == parsed.stage
        and (parsed.stage is None or old.stored_document.began == stored.began)
    )
