"""Finds the rules that can be about a request without asking each of them: a thousand rules for a thousand topics cost
what one does.

Strategy. A rule that selects by text stands in the index of the first field that it does so with. Exact texts are a
table; globs and regular expressions are tried once for each text that comes, and what they said is remembered. Rules
that select by no text, or whose selectors may hold for what lacks the field, are found for every request, or for those
without it. What is found may be too much, for each is still asked; it is never too little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from kproxy.rules.answer_match import AnswerMatch
from kproxy.rules.entity import Entity
from kproxy.rules.frame_match import OF_ENTITY, FrameMatch
from kproxy.rules.kinds.access import AccessRule
from kproxy.rules.kinds.live import LiveRule
from kproxy.rules.match import readable
from kproxy.wire.breath import each

if TYPE_CHECKING:
    from kproxy.rules.exchange import Exchange

    from .ruled import Part

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
    """The rules that select on one field. `lenient` are those that may hold where a request lacks it, `doubting` those
    that may hold for a topic id that nobody has named."""

    __slots__ = ("doubting", "exact", "lenient", "remembered", "tests")

    def __init__(self) -> None:
        self.exact: dict[str, set[int]] = {}
        self.tests: list[tuple[Callable[[str], bool], int]] = []
        self.lenient = self.doubting = NOBODY
        self.remembered = lru_cache(MOST_TEXTS)(self.tried)

    def add(self, number: int, rule: LiveRule, texts: Iterable[str], tests: Iterable[Callable[[str], bool]]) -> None:
        """One rule, which selects by these texts and patterns."""
        for text in texts:
            self.exact.setdefault(text, set()).add(number)
        self.tests.extend((test, number) for test in tests)
        if isinstance(rule.match, AnswerMatch):
            self.lenient |= {number}
        if isinstance(rule, AccessRule):
            self.doubting |= {number}

    def about(self, text: str | None) -> Numbers:
        """The rules whose selector holds for it; None: the request has no such thing, or no name for it."""
        if text is None:
            return self.lenient | self.doubting
        text = readable(text)
        return self.remembered(text) if len(text) <= LONGEST_TEXT else self.tried(text)

    def tried(self, text: str) -> Numbers:
        found = self.exact.get(text, NOBODY)
        return frozenset((*found, *(number for test, number in self.tests if test(text))))


class PartIndex:
    """Over the rules of one (api, version). `general` can be about any request."""

    __slots__ = ("fields", "general", "parts")

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
            self.fields.setdefault(name, FieldIndex()).add(number, part.running.rule, *match.words(name))
        self.general = frozenset(general)

    def candidates(self, exchange: Exchange, found: Sequence[Entity]) -> Sequence[Part]:
        """Those that can be about a request with these entities, in file order."""
        if not self.fields:
            return self.parts
        numbers = self.general
        for name, field in self.fields.items():
            if name in OF_ENTITY:
                numbers = numbers.union(*(field.about(text) for text in each({getattr(one, name) for one in found})))
            else:
                numbers |= field.about(getattr(exchange, name))
        return [self.parts[number] for number in sorted(numbers)]


def indexed_by(rule: LiveRule) -> str | None:
    """The field of its first selector of text, if it cannot match where that does not hold."""
    if rule.match is None or type(rule).holds_for not in HOLDS or type(rule.match).holds_entity not in MATCHES:
        return None
    return next((name for name in FIELDS if getattr(rule.match, name) is not None), None)
