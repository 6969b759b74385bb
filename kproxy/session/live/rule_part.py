"""Selectors of one rule for one (api, version), compiled: what does not depend on the request is decided beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, FrameDepth
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.rule_set import Running
from kproxy.rules.select.frame_match import FrameMatch

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
        if no is not None and not no.about(key, version):
            no = None
        self.excluding = no
        self.not_frames: tuple[FrameTest, ...] = () if no is None else no.frame_tests
        self.not_entity: EntityTest | None = None if no is None or not no.of_entities else no.holds_entity
        self.unnamed = rule.may_be_unnamed(key, version)

    def holds(self, exchange: Exchange) -> bool | None:
        """Return None if the rule does not apply to this request, else True if the entities that `not:` selects are to
        be left out."""
        for test in self.frames:
            if not test(exchange):
                return None
        excluded = self.excluding is not None and self.excludes(self.excluding, exchange)
        return None if excluded and self.not_entity is None else excluded

    def of_none(self, exchange: Exchange) -> bool:
        """Return True if the rule applies to a request of which it selects no entity."""
        return self.unnamed and self.rule.unnamed(exchange)

    def excludes(self, no: FrameMatch, exchange: Exchange) -> bool:
        """Return True if `not:` holds, apart from its selectors of entities."""
        return no.holds(exchange.connection.facts) and all(test(exchange) for test in self.not_frames)


class Part(NamedTuple):
    """Rule of one API and version, with the depth to which it must see the two frames of an exchange."""

    running: Running
    matcher: RuleMatcher
    request: FrameDepth
    response: FrameDepth
    by_error: bool = False
    """Set if it selects on the broker's error, so that it can be applied to the response only."""
    screens: bool = False
    """Answers may mention what it forbids."""
    letters: tuple[bytes, ...] | None = None
    """A frame without any of these names nothing that it selects (`LiveRule.letters`); None: nobody can tell."""
    wanted: str = ""
    """Text of the filter that the exchange has to pass, too, empty for none."""
    late: bool = False
    """Set if that filter is asked of the response only."""


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
