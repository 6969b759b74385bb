"""The selectors of one rule for one (api, version), compiled: what can be decided before a request comes is."""

from __future__ import annotations

from collections.abc import Callable

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.frame_match import FrameMatch
from kproxy.rules.kinds.live import LiveRule

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

    def holds(self, exchange: Exchange) -> bool | None:
        """None: the rule is not about this request. Else whether what `not:` says of entities is to be left out."""
        for test in self.frames:
            if not test(exchange):
                return None
        excluded = self.excluding is not None and self.excludes(self.excluding, exchange)
        return None if excluded and self.not_entity is None else excluded

    def of_none(self, exchange: Exchange) -> bool:
        """Whether the rule has a say in a request of which it selects nothing."""
        return self.unnamed and self.rule.unnamed(exchange)

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
