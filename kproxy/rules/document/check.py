"""Checks between rules: names given twice, rules that can never act, listeners that do not exist, and rules that
together leave no version of an API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kproxy.rules.kinds.advertise import Advertise, AdvertiseRule
from kproxy.rules.kinds.base.name_rule import NameRule
from kproxy.rules.kinds.base.rule import Rule
from kproxy.rules.kinds.client_rack import ClientRack
from kproxy.rules.kinds.limit_versions import Limit, LimitVersions, Span, spelled
from kproxy.rules.names.conflicts import check_name_conflicts
from kproxy.rules.select.selected import keys_of
from kproxy.rules.values.model import ValidWords
from kproxy.rules.values.source import counted

from .parsed_rules import ListenerTraits, ParsedRule

FIRST_TAKEN: Mapping[type[Rule], str] = {AdvertiseRule: "advertises", ClientRack: "says the rack"}
"""Kinds of which the first rule that matches a connection is taken, with what it does."""


def check_alone(parsed_rules: Sequence[ParsedRule], listeners: Mapping[str, ListenerTraits] | None) -> None:
    """Note what is wrong with each rule where these listeners are; nothing, where they are not known."""
    if listeners is None:
        return
    clusters = dict.fromkeys(place.cluster for place in listeners.values())
    names = {"listener": ValidWords("listener", listeners), "cluster": ValidWords("cluster", clusters)}
    for parsed in parsed_rules:
        if parsed.rule is not None:
            with counted(parsed.source.hints):
                _check_selectors(parsed, parsed.rule, names)
        if isinstance(parsed.rule, AdvertiseRule):
            _check_tls(parsed, parsed.rule, listeners)
            _check_transparent(parsed, parsed.rule, listeners)


def check_together(parsed_rules: Sequence[ParsedRule]) -> None:
    """Note what rules that are in force at the same time do to each other, at the rule that stands later."""
    for kind, word in FIRST_TAKEN.items():
        _check_first(word, [(one, one.rule) for one in parsed_rules if isinstance(one.rule, kind)])
    check_versions(parsed_rules)
    check_name_conflicts([(one, one.rule) for one in parsed_rules if isinstance(one.rule, NameRule)])


def meets_others(parsed: ParsedRule) -> bool:
    """Return True if `check_together` can find something about this rule."""
    return isinstance(parsed.rule, (*FIRST_TAKEN, LimitVersions, NameRule))


def check_names(parsed_rules: Sequence[ParsedRule]) -> None:
    """Note names that are given twice, at the rule that stands later."""
    first: dict[str, ParsedRule] = {}
    for parsed in parsed_rules:
        if parsed.name is not None and (other := first.setdefault(parsed.name, parsed)) is not parsed:
            parsed.note(("name",), f'the name "{parsed.name}" is taken, first at {other.position}')


def _check_first(word: str, rules: Sequence[tuple[ParsedRule, Rule]]) -> None:
    """Note rules behind one for all connections: the first that matches is taken, which leaves nothing for the next."""
    general: Rule | None = None
    for parsed, rule in rules:
        if general is not None:
            parsed.note((), f'this rule can never act, "{general.name}" {word} for all connections before it')
        elif rule.is_unconditional:
            general = rule


def _check_selectors(parsed: ParsedRule, rule: Rule, names: Mapping[str, ValidWords]) -> None:
    for side, match in (("match", rule.match), ("not", rule.not_)):
        for selector, known in names.items():
            texts = getattr(match, selector) or () if match is not None else ()
            for index, text in enumerate(texts):
                if "*" not in text and not text.startswith("/") and text not in known:
                    parsed.note((side, selector, index), known.unknown(text))


def _check_tls(parsed: ParsedRule, rule: AdvertiseRule, listeners: Mapping[str, ListenerTraits]) -> None:
    if not rule.needs_tls:
        return
    plain = [name for name, place in listeners.items() if not place.tls and rule.may_hold(name, place.cluster)]
    if plain:
        field = "sni" if rule.sni is not None else "nodes"
        parsed.note((field,), f"{why_tls(rule)}, and listener {', '.join(plain)} has none")


def _check_transparent(parsed: ParsedRule, rule: AdvertiseRule, listeners: Mapping[str, ListenerTraits]) -> None:
    there = [name for name, place in listeners.items() if place.transparent and rule.may_hold(name, place.cluster)]
    if there:
        parsed.note((), f"brokers keep their own addresses on listener {', '.join(there)}, which is transparent")


def why_tls(advertise: Advertise) -> str:
    """Return the reason, in words, for which an advertise rule needs TLS."""
    if advertise.sni is not None:
        return "sni needs TLS towards clients"
    ports = ", ".join(map(str, advertise.shared_ports))
    return f"nodes that share port {ports} need TLS towards clients to be told apart"


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

    Rules hold together that have the same selectors, and any with one that has none. Of the rules that stand before, it
    is enough to know for each API the one that begins highest and the one that ends lowest: if any of them leaves
    nothing beside a rule, one of these two does. So each rule is looked at once.
    """
    limits = [(parsed, parsed.rule) for parsed in parsed_rules if isinstance(parsed.rule, LimitVersions)]
    every, general, by_selector = Extremes(), Extremes(), dict[str, Extremes]()
    for parsed, rule in limits:
        same = by_selector.setdefault(repr((rule.match, rule.not_)), Extremes())
        limit = rule.limit
        _check_limit(parsed, rule, limit, [every] if rule.is_unconditional else [general, same])
        for extremes in (every, general) if rule.is_unconditional else (every, same):
            extremes.add(limit)


def _check_limit(parsed: ParsedRule, rule: LimitVersions, limit: Limit, before: Sequence[Extremes]) -> None:
    for name in rule.apis or ():
        (key,) = keys_of(name)
        span = limit.span(key)
        conflict = (
            None if span is None else next(filter(None, (each.leaving_nothing(key, span) for each in before)), None)
        )
        if conflict is not None:
            message = f'nothing is left of {name}: the rule "{conflict[1]}" allows {spelled(conflict[0])}'
            parsed.note(("apis", name), message)
