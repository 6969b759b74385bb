"""Finds the rules that can be about a request without asking each of them: a thousand rules for a thousand topics cost
what one does.

Strategy. A rule that selects by text stands in the index of the first field that it does so with. Exact texts are a
table; globs and regular expressions are one RE2 set, which a text goes through once whatever their number, and what it
said is remembered. Rules that select by no text, or whose selectors may hold for what lacks the field, are found for
every request, or for those without it. `candidates` may find too much, for each is still asked, never too little;
`about` says exactly whose selectors hold for an entity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from kproxy.base.weak_method import unheld
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.access import AccessRule
from kproxy.rules.kinds.base.rule import LIMITING, LiveRule
from kproxy.rules.select.frame_match import OF_ENTITY, AnswerMatch, FrameMatch
from kproxy.rules.select.match import PatternSet, is_pattern, readable

from .rule_part import Part

FIELDS = ("topic", "group", "transactional_id", "member", "client_id", "principal", "client_software")
MOST_TEXTS = 4096
"""Texts of one field, API and version whose rules are remembered; the one used longest ago goes."""
LONGEST_TEXT = 512
"""Characters of a text that is remembered, so that all of them take some 4 MB at most: longer ones are tried anew."""
HOLDS = (LiveRule.holds_for, AccessRule.holds_for)
MATCHES = (FrameMatch.holds_entity, AnswerMatch.holds_entity)
"""Ways to match that are known to be false for an entity whose text is not selected. Rules with others are general."""

Numbers = frozenset[int]
NOBODY: Numbers = frozenset()


class FieldIndex:
    """Index of the rules that select on one field. `lenient` are those that may hold where a request lacks it,
    `doubting` those that may hold for a topic whose id has no known name yet."""

    __slots__ = ("__weakref__", "doubting", "exact", "lenient", "numbers", "patterns", "remembered")

    def __init__(self) -> None:
        self.exact: dict[str, set[int]] = {}
        self.numbers: set[int] = set()
        self.patterns = PatternSet()
        self.lenient = self.doubting = NOBODY
        self.remembered = lru_cache(MOST_TEXTS)(unheld(self.tried))

    def add(self, number: int, rule: LiveRule, texts: Iterable[str]) -> None:
        """Add one rule, which selects by these texts and patterns."""
        self.numbers.add(number)
        for text in texts:
            if is_pattern(text):
                self.patterns.add(text, number)
            else:
                self.exact.setdefault(text, set()).add(number)
        if isinstance(rule.match, AnswerMatch):
            self.lenient |= {number}
        if indexed_by(rule) == "principal" and rule.family in LIMITING:  # see FrameMatch.suspect_anyone
            self.lenient |= {number}
        if isinstance(rule, AccessRule):
            self.doubting |= {number}

    def about(self, text: str | None) -> Numbers:
        """Return the numbers of the rules whose selector holds for `text`; None: the request has no such field, or no
        name for its topic id."""
        if text is None:
            return self.lenient | self.doubting
        if not text.isascii():
            text = readable(text)
        return self.remembered(text) if len(text) <= LONGEST_TEXT else self.tried(text)

    def tried(self, text: str) -> Numbers:
        return frozenset((*self.exact.get(text, NOBODY), *self.patterns.matching(text)))


class PartIndex:
    """Index over the rules of one (api, version). `general` can apply to any request; `tests` are those of entities, by
    rule; `tested` the tests of rules that no entity field indexes; `excluding` those of `not:`; `scanned` those of
    `general` that are found by searching the frame's bytes (`session/live/name_scan.py`)."""

    __slots__ = ("by_entity", "excluding", "fields", "general", "parts", "scanned", "tested", "tests")

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        self.fields: dict[str, FieldIndex] = {}
        general = []
        for number, part in enumerate(parts):
            name = None if part.matcher.unnamed or part.screens else indexed_by(part.running.rule)
            if name is None:
                general.append(number)
                continue
            match = part.running.rule.match
            assert match is not None
            self.fields.setdefault(name, FieldIndex()).add(number, part.running.rule, getattr(match, name))
        self.general = frozenset(general)
        self.scanned = frozenset(number for number in general if parts[number].letters is not None)
        self.by_entity = [(name, field) for name, field in self.fields.items() if name in OF_ENTITY]
        indexed = {number for _, field in self.by_entity for number in field.numbers}
        self.tests = [part.matcher.entity for part in parts]
        self.tested = [(number, test) for number, test in enumerate(self.tests) if test and number not in indexed]
        excluding = [(number, part.matcher.not_entity) for number, part in enumerate(parts)]
        self.excluding = [(number, test) for number, test in excluding if test is not None]

    def candidates(self, exchange: Exchange, groups: Iterable[int]) -> Iterable[int]:
        """Return the numbers of the rules that can apply to a request, in file order. `groups`: those that its entities
        have."""
        if not self.fields:
            return range(len(self.parts))
        numbers = set(self.general)
        numbers.update(groups)
        for name, field in self.fields.items():
            if name not in OF_ENTITY:
                numbers.update(field.about(getattr(exchange, name)))
        return sorted(numbers)

    def about(self, entity: Entity) -> list[int]:
        """Return the numbers of the rules that select entities and that select this one; `not:` is not looked at."""
        found = [number for number, test in self.tested if test(entity)]
        for name, field in self.by_entity:
            for number in field.about(getattr(entity, name)):
                test = self.tests[number]
                if test is None or test(entity):
                    found.append(number)
        return found


def indexed_by(rule: LiveRule) -> str | None:
    """Return the field of its first selector of text, if the rule cannot match where that does not hold."""
    if rule.match is None or type(rule).holds_for not in HOLDS or type(rule.match).holds_entity not in MATCHES:
        return None
    return next((name for name in FIELDS if getattr(rule.match, name) is not None), None)
