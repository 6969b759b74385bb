"""Checks between rules: names given twice, rules that can never act, listeners that do not exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kproxy.rules.kinds.advertise import Advertise, AdvertiseRule
from kproxy.rules.kinds.base.name_rule import NameRule
from kproxy.rules.kinds.base.rule import Rule
from kproxy.rules.kinds.limit_versions import LimitVersions
from kproxy.rules.names.conflicts import check_name_conflicts

from .hints import counted
from .model import unknown
from .parsed_rules import ListenerTraits, ParsedRule
from .version_checks import check_versions


def check_alone(parsed_rules: Sequence[ParsedRule], listeners: Mapping[str, ListenerTraits] | None) -> None:
    """Note what is wrong with each rule where these listeners are; nothing, where they are not known."""
    if listeners is None:
        return
    clusters = {place.cluster: None for place in listeners.values()}
    for parsed in parsed_rules:
        if parsed.rule is not None:
            with counted(parsed.source.hints):
                _check_selectors(parsed, parsed.rule, {"listener": listeners, "cluster": clusters})
        if isinstance(parsed.rule, AdvertiseRule):
            _check_tls(parsed, parsed.rule, listeners)
            _check_transparent(parsed, parsed.rule, listeners)


def check_together(parsed_rules: Sequence[ParsedRule]) -> None:
    """Note what rules that are in force at the same time do to each other, at the rule that stands later."""
    _check_advertise([(one, one.rule) for one in parsed_rules if isinstance(one.rule, AdvertiseRule)])
    check_versions(parsed_rules)
    check_name_conflicts([(one, one.rule) for one in parsed_rules if isinstance(one.rule, NameRule)])


def meets_others(parsed: ParsedRule) -> bool:
    """Return True if `check_together` can find something about this rule."""
    return isinstance(parsed.rule, AdvertiseRule | LimitVersions | NameRule)


def check_names(parsed_rules: Sequence[ParsedRule]) -> None:
    """Note names that are given twice, at the rule that stands later."""
    first: dict[str, ParsedRule] = {}
    for parsed in parsed_rules:
        if parsed.name is not None and (other := first.setdefault(parsed.name, parsed)) is not parsed:
            parsed.note(("name",), f'the name "{parsed.name}" is taken, first at {other.position}')


def _check_advertise(rules: Sequence[tuple[ParsedRule, AdvertiseRule]]) -> None:
    """Note rules behind one for all connections: the first that matches is taken, which leaves nothing for the next."""
    general: AdvertiseRule | None = None
    for parsed, rule in rules:
        if general is not None:
            parsed.note((), f'this rule can never act, "{general.name}" advertises for all connections before it')
        elif rule.is_unconditional:
            general = rule


def _check_selectors(parsed: ParsedRule, rule: Rule, names: Mapping[str, Mapping[str, object]]) -> None:
    for side, match in (("match", rule.match), ("not", rule.not_)):
        for selector, known in names.items():
            texts = getattr(match, selector) or () if match is not None else ()
            for index, text in enumerate(texts):
                if "*" not in text and not text.startswith("/") and text not in known:
                    parsed.note((side, selector, index), unknown(selector, text, known))


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
