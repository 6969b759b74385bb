"""The selectors of one rule for one (api, version), compiled: what can be decided before a request comes is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.frame_match import FrameMatch
from kproxy.rules.kinds.live import LiveRule
from kproxy.wire.breath import each, spread_tuple

EntityTest = Callable[[Entity], bool]
FrameTest = Callable[[Exchange], bool]


class Matcher:
    """Tests are None where there is nothing to test."""

    __slots__ = ("entity", "excluding", "frames", "not_entity", "not_frames", "rule", "unnamed")

    def __init__(self, rule: LiveRule, key: int, version: int) -> None:
        self.rule = rule
        yes, no = rule.match, rule.not_
        self.frames: tuple[FrameTest, ...] = () if yes is None else yes.frame_tests
        self.entity = entity_test(rule)
        if no is not None and not no.about(key, version):
            no = None
        self.excluding = no
        self.not_frames: tuple[FrameTest, ...] = () if no is None else no.frame_tests
        self.not_entity: EntityTest | None = None if no is None or not no.of_entities else no.holds_entity
        self.unnamed = rule.may_be_unnamed(key, version)

    def matching(self, exchange: Exchange, open_: Sequence[Entity]) -> tuple[Entity, ...] | None:
        """The open entities that the rule is about; None: it is not about this request."""
        if not self.concerns(exchange):
            return None
        excluded = self.excluding is not None and self.excludes(self.excluding, exchange)
        if not open_ and self.entity is None:
            return ()  # there is nothing that `not:` could be about, either
        found = open_ if self.entity is None else [one for one in each(open_) if self.entity(one)]
        if excluded and self.not_entity is not None:
            found = [one for one in each(found) if not self.not_entity(one)]
        if not found:
            return () if self.unnamed and self.rule.unnamed(exchange) else None
        return spread_tuple(tuple(found))

    def concerns(self, exchange: Exchange) -> bool:
        """Whether it is about such a frame, whatever that asks for."""
        for test in self.frames:
            if not test(exchange):
                return False
        return self.not_entity is not None or self.excluding is None or not self.excludes(self.excluding, exchange)

    def excludes(self, no: FrameMatch, exchange: Exchange) -> bool:
        """Whether `not:` holds, as far as it is not about entities."""
        return no.holds(exchange.connection.facts) and all(test(exchange) for test in self.not_frames)


def entity_test(rule: LiveRule) -> EntityTest | None:
    """The test of one entity; None: any will do."""
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
