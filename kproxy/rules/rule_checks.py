"""Checks between rules: names given twice, rules that can never act, listeners that do not exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kproxy.rules.explain import unknown
from kproxy.rules.hints import counted
from kproxy.rules.kinds.advertise import Advertise, AdvertiseRule
from kproxy.rules.kinds.base import Rule
from kproxy.rules.kinds.limit_versions import LimitVersions
from kproxy.rules.kinds.name_rule import NameRule
from kproxy.rules.name_conflicts import check_name_conflicts
from kproxy.rules.parsed_rules import ListenerTraits, ParsedRule
from kproxy.rules.version_checks import check_versions


def check_alone(parsed_rules: Sequence[ParsedRule], listeners: Mapping[str, ListenerTraits] | None) -> None:
    """Note what is wrong with each rule where these listeners are; nothing, where they are not known."""
    if listeners is None:
        return
    clusters = {place.cluster: None for place in listeners.values()}
    for one in parsed_rules:
        if one.rule is not None:
            with counted(one.source.hints):
                _check_selectors(one, one.rule, {"listener": listeners, "cluster": clusters})
        if isinstance(one.rule, AdvertiseRule):
            _check_tls(one, one.rule, listeners)
            _check_transparent(one, one.rule, listeners)


def check_together(parsed_rules: Sequence[ParsedRule]) -> None:
    """Note what rules that are in force at the same time do to each other, at the rule that stands later."""
    _check_advertise([(one, one.rule) for one in parsed_rules if isinstance(one.rule, AdvertiseRule)])
    check_versions(parsed_rules)
    check_name_conflicts([(one, one.rule) for one in parsed_rules if isinstance(one.rule, NameRule)])


def meets_others(one: ParsedRule) -> bool:
    """Return True if `check_together` can find something about this rule."""
    return isinstance(one.rule, AdvertiseRule | LimitVersions | NameRule)


def check_names(parsed_rules: Sequence[ParsedRule]) -> None:
    """Note names that are given twice, at the rule that stands later."""
    first: dict[str, ParsedRule] = {}
    for one in parsed_rules:
        if one.name is not None and (other := first.setdefault(one.name, one)) is not one:
            one.note(("name",), f'the name "{one.name}" is taken, first at {other.position}')


def _check_advertise(rules: Sequence[tuple[ParsedRule, AdvertiseRule]]) -> None:
    """Note rules behind one for all connections: the first that matches is taken, which leaves nothing for the next."""
    general: AdvertiseRule | None = None
    for one, rule in rules:
        if general is not None:
            one.note((), f'this rule can never act, "{general.name}" advertises for all connections before it')
        elif rule.is_unconditional:
            general = rule


def _check_selectors(one: ParsedRule, rule: Rule, names: Mapping[str, Mapping[str, object]]) -> None:
    for side, match in (("match", rule.match), ("not", rule.not_)):
        for selector, known in names.items():
            texts = getattr(match, selector) or () if match is not None else ()
            for index, text in enumerate(texts):
                if "*" not in text and not text.startswith("/") and text not in known:
                    one.note((side, selector, index), unknown(selector, text, known))


def _check_tls(one: ParsedRule, rule: AdvertiseRule, listeners: Mapping[str, ListenerTraits]) -> None:
    if not rule.needs_tls:
        return
    plain = [name for name, place in listeners.items() if not place.tls and rule.may_hold(name, place.cluster)]
    if plain:
        field = "sni" if rule.sni is not None else "nodes"
        one.note((field,), f"{why_tls(rule)}, and listener {', '.join(plain)} has none")


def _check_transparent(one: ParsedRule, rule: AdvertiseRule, listeners: Mapping[str, ListenerTraits]) -> None:
    there = [name for name, place in listeners.items() if place.transparent and rule.may_hold(name, place.cluster)]
    if there:
        one.note((), f"brokers keep their own addresses on listener {', '.join(there)}, which is transparent")


def why_tls(advertise: Advertise) -> str:
    """Return the reason, in words, for which an advertise rule needs TLS."""
    if advertise.sni is not None:
        return "sni needs TLS towards clients"
    ports = ", ".join(map(str, advertise.shared_ports))
    return f"nodes that share port {ports} need TLS towards clients to be told apart"
