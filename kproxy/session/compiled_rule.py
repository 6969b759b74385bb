"""Compiled selectors of rules for one (api, version), and an index of the rules by the texts that they select.

Strategy. Everything that does not depend on the request is decided beforehand (`CompiledRule`). With the index
(`RuleIndex`), a thousand rules for a thousand topics cost as much as one. A rule that selects by text is indexed by the
first field that it selects by. Exact texts are a dict. Globs and regular expressions are one RE2 set, so a text is
matched once against all of them; the result is cached. Rules that do not select by text are found for every request.
Rules whose selectors may match without the field are found for requests without it. `candidates` never misses a rule,
but may return false positives, which are evaluated afterwards. `about` is exact for an entity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from kproxy.base.bounded_map import unheld
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, FrameDepth
from kproxy.rules.kinds.base.access import AccessRule
from kproxy.rules.kinds.base.content_rule import HidingRule
from kproxy.rules.kinds.base.record_selector import RecordSelector
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.rule_set import ActiveRule
from kproxy.rules.select.frame_match import OF_ENTITY, AnswerMatch, FrameMatch
from kproxy.rules.select.match import PatternSet, is_pattern, readable

EntityTest = Callable[[Entity], bool]
FrameTest = Callable[[Exchange], bool]


class RuleMatcher:
    """Rule matcher of one API version. Tests are None where there is nothing to test."""

    __slots__ = ("entity", "excluding", "frames", "not_entity", "not_frames", "rule", "unnamed")

    def __init__(self, rule: LiveRule, key: int, version: int) -> None:
        self.rule = rule
        yes, no = rule.match, rule.not_
        self.frames: tuple[FrameTest, ...] = () if yes is None else yes.frame_tests
        self.entity = entity_test(rule)
        if no is not None and (no.records is not None or not no.about(key, version)):
            no = None  # with a record condition, all of `not:` is evaluated with the records
        self.excluding = no
        self.not_frames: tuple[FrameTest, ...] = () if no is None else no.frame_tests
        self.not_entity: EntityTest | None = None if no is None or not no.of_entities else no.holds_entity
        self.unnamed = rule.may_be_unnamed(key, version) and (rule.match is None or rule.match.records is None)

    def holds(self, exchange: Exchange) -> bool | None:
        """Return None if the rule does not apply to this request, else True if the entities selected by `not:` are
        excluded."""
        for test in self.frames:
            if not test(exchange):
                return None
        excluded = self.excluding is not None and self.excludes(self.excluding, exchange)
        return None if excluded and self.not_entity is None else excluded

    def of_none(self, exchange: Exchange) -> bool:
        """Return True if the rule applies to a request without selected entities."""
        return self.unnamed and self.rule.unnamed(exchange)

    def excludes(self, no: FrameMatch, exchange: Exchange) -> bool:
        """Return True if `not:` holds, apart from its selectors of entities."""
        return no.holds(exchange.connection.facts) and all(test(exchange) for test in self.not_frames)


class CompiledRule(NamedTuple):
    """Rule for one API and version, with the decode depth that it needs for request and response."""

    running: ActiveRule
    matcher: RuleMatcher
    request: FrameDepth
    response: FrameDepth
    by_response: bool = False
    """Set if it selects on the broker's error or on records in the response, so that it is applied to the response."""
    screens: bool = False
    """Responses may mention names that it forbids."""
    letters: tuple[bytes, ...] | None = None
    """A frame without any of these names does not mention what the rule selects (`LiveRule.letters`); None: unknown."""
    wanted: str = ""
    """Text of the filter that the exchange must also pass; empty for none."""
    late: bool = False
    """Set if that filter is evaluated with the response only."""
    records: RecordSelector | None = None
    """Selects partitions by the content of their records; None: all."""


def entity_test(rule: LiveRule) -> EntityTest | None:
    """Return the test of one entity; None: any will do."""
    if type(rule).holds_for is not LiveRule.holds_for:
        return rule.holds_for
    match = rule.match
    if match is None:
        return None
    if type(match).holds_entity is not FrameMatch.holds_entity:
        return match.holds_entity
    tests = match.entity_tests
    if len(tests) > 1:
        return lambda entity: all(test(entity) for test in tests)
    return tests[0] if tests else None


FIELDS = ("topic", "group", "transactional_id", "member", "client_id", "principal", "client_software")
MOST_TEXTS = 4096
"""Texts of one field, API and version whose matches are cached; LRU."""
LONGEST_TEXT = 512
"""Characters of the longest text that is cached, which bounds the cache to some 4 MB; longer texts are matched each
time."""
HOLDS = (LiveRule.holds_for, AccessRule.holds_for, HidingRule.holds_for)
MATCHES = (FrameMatch.holds_entity, AnswerMatch.holds_entity)
"""Match results known to be false for an entity whose text is not selected. Rules with others are general."""

Numbers = frozenset[int]
NOBODY: Numbers = frozenset()


class FieldIndex:
    """Index of the rules that select on one field. `lenient` are rules that may match a request without the field,
    `doubting` those that may match a topic id without a known name."""

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
        if indexed_by(rule) == "principal" and rule.limits_clients:  # see FrameMatch.suspect_anyone
            self.lenient |= {number}
        if isinstance(rule, (AccessRule, HidingRule)):
            self.doubting |= {number}

    def about(self, text: str | None) -> Numbers:
        """Return the numbers of the rules whose selector matches `text`; None: the request does not have the field, or
        its topic id has no name."""
        if text is None:
            return self.lenient | self.doubting
        if not text.isascii():
            text = readable(text)
        return self.remembered(text) if len(text) <= LONGEST_TEXT else self.tried(text)

    def tried(self, text: str) -> Numbers:
        return frozenset((*self.exact.get(text, NOBODY), *self.patterns.matching(text)))


class RuleIndex:
    """Index over the rules of one (api, version). `general` can apply to any request. `tests` are the tests of
    entities, by rule. `tested` are the tests of rules that are not indexed by an entity field. `excluding` are those of
    `not:`. `scanned` are rules of `general` found by searching the frame's bytes (`session/literal_search.py`)."""

    __slots__ = ("by_entity", "excluding", "fields", "general", "parts", "scanned", "tested", "tests")

    def __init__(self, parts: Sequence[CompiledRule]) -> None:
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
        """Return the numbers of the rules that select entities, this one among them, ignoring `not:`."""
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
