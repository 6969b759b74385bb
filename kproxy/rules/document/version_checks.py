"""Checks between rules that limit versions: whether together they leave nothing of an API.

Strategy: of the rules that stand before, it is enough to know for each API the one that begins highest and the one that
ends lowest: if any of them leaves nothing beside a rule, one of these two does. So each rule is looked at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kproxy.rules.kinds.limit_versions import LimitVersions
from kproxy.rules.version_limits import Limit, Span, spelled
from kproxy.wire.table import schema

from .parsed_rules import ParsedRule


@dataclass
class Extremes:
    """Rules with the same selectors, or all: by API key the rule that begins highest, and the one that ends lowest."""

    highest: dict[int, tuple[int, Span, str]] = field(default_factory=dict)
    lowest: dict[int, tuple[int, Span, str]] = field(default_factory=dict)

    def add(self, limit: Limit) -> None:
        """Count a rule's limit among those that stand before. An API that it hides on purpose is no mistake."""
        for key, span in limit.spans.items():
            if span[0] > span[1]:
                continue
            if key not in self.highest or span[0] > self.highest[key][0]:
                self.highest[key] = span[0], span, limit.rule
            if key not in self.lowest or span[1] < self.lowest[key][0]:
                self.lowest[key] = span[1], span, limit.rule

    def leaving_nothing(self, key: int, span: Span) -> tuple[Span, str] | None:
        """Return the span and the name of a rule that leaves nothing of this API beside `span`."""
        high, low = self.highest.get(key), self.lowest.get(key)
        if high is not None and high[0] > span[1]:
            return high[1], high[2]
        return (low[1], low[2]) if low is not None and low[0] < span[0] else None


def check_versions(parsed_rules: Sequence[ParsedRule]) -> None:
    """Note, at the rule that stands later, an API of which two rules that surely hold together leave no version.

    Rules hold together that have the same selectors, and any with one that has none.
    """
    limits = [(parsed, parsed.rule) for parsed in parsed_rules if isinstance(parsed.rule, LimitVersions)]
    every, general, by_selector = Extremes(), Extremes(), dict[str, Extremes]()
    for parsed, rule in limits:
        same = by_selector.setdefault(repr((rule.match, rule.not_)), Extremes())
        limit = rule.limit
        _check(parsed, rule, limit, [every] if rule.is_unconditional else [general, same])
        for extremes in (every, general) if rule.is_unconditional else (every, same):
            extremes.add(limit)


def _check(parsed: ParsedRule, rule: LimitVersions, limit: Limit, before: Sequence[Extremes]) -> None:
    for name in rule.apis or ():
        key = schema.names().get(str(name))
        key = int(name) if key is None else key
        span = limit.span(key)
        conflict = (
            None if span is None else next(filter(None, (each.leaving_nothing(key, span) for each in before)), None)
        )
        if conflict is not None:
            message = f'nothing is left of {name}: the rule "{conflict[1]}" allows {spelled(conflict[0])}'
            parsed.note(("apis", name), message)
