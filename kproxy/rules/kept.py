"""What a rule store keeps: documents by where they come from, and each rule with what has become of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from kproxy.rules.document import Document
from kproxy.rules.kinds.base import Rule
from kproxy.rules.kinds.live import LiveRule
from kproxy.rules.running import Running
from kproxy.rules.scenario import Moment, moment
from kproxy.rules.written import Written

Origin = Literal["file", "api", "test"]
ORIGINS: tuple[Origin, ...] = ("file", "api", "test")
"""In the order of their rules."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A document in force. `began`: when it (or one with the same scenario in its place) was loaded.

    What comes over the API is stored rule by rule, a scenario as one, so that each can be replaced in its place.
    """

    origin: Origin
    document: Document
    began: float

    def moment(self, now: float) -> Moment | None:
        """Where its scenario is; None when it has none, or when it is over."""
        scenario = self.document.scenario
        return None if scenario is None else moment(scenario, max(0.0, now - self.began))

    def next_change(self, now: float) -> float:
        """When the stage in force ends; infinity: never."""
        at = self.moment(now)
        return math.inf if at is None else self.began + at.ends


@dataclass(frozen=True, slots=True)
class Kept:
    """A rule in the store. `since`: when it came, or last changed. `until`: when it goes by itself. `running`: of a
    live rule, once it has been in force. `active`: whether it is in force now."""

    name: str
    rule: Rule
    written: Written
    stored: Stored
    content: str
    since: float
    until: float | None
    running: Running | None = None
    active: bool = False

    @property
    def origin(self) -> Origin:
        return self.stored.origin

    @property
    def is_fault(self) -> bool:
        """Whether the kill switch turns it off."""
        return isinstance(self.rule, LiveRule) and self.rule.is_fault

    @property
    def may_be_meant_for_good(self) -> bool:
        """Return True for a rule of a file that is always in force: no trigger, no time to live, no scenario."""
        rule, stage = self.rule, self.written.stage
        ever = stage is None and self.until is None and isinstance(rule, LiveRule) and rule.when is None
        return self.origin == "file" and ever and self.is_fault

    def begins(self, now: float) -> float | None:
        """Since when it would be in force now, were it enabled: a rule of a stage since the stage began; None: its
        stage is not the one in force."""
        if self.written.stage is None:
            return self.since
        at = self.stored.moment(now)
        return self.stored.began + at.began if at is not None and at.stage == self.written.stage else None


@dataclass(frozen=True, slots=True)
class Change:
    """What an operation came to: rules that are new, and live rules that are not in force any more (what they hold
    must be let go)."""

    new: tuple[Kept, ...] = ()
    left: tuple[Running, ...] = ()


def keep(documents: Iterable[Stored], before: dict[str, Kept], now: float) -> Iterator[Kept]:
    """All rules of valid documents, in order. One that was there before, unchanged and from the same place, goes on."""
    for stored in documents:
        for written in stored.document.written:
            assert written.rule is not None, "there is a mistake in it"
            assert written.name is not None, "there is a mistake in it"
            content = written.rule.content
            until = None if written.ttl is None else stored.began + written.ttl
            old = before.get(written.name)
            if old is not None and old.content == content and _same_place(old, stored, written):
                rule = old.rule if old.running is not None else written.rule  # the model that is at work
                yield Kept(written.name, rule, written, stored, content, old.since, until, old.running, old.active)
            else:
                yield Kept(written.name, written.rule, written, stored, content, now, until)


def _same_place(old: Kept, stored: Stored, written: Written) -> bool:
    return (
        old.origin == stored.origin
        and old.written.source.file == written.source.file
        and old.written.stage == written.stage
        and (written.stage is None or old.stored.began == stored.began)
    )
