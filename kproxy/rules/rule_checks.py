"""What can be wrong between rules: names given twice, rules that can never act, listeners that do not exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kproxy.rules.explain import unknown
from kproxy.rules.kinds.advertise import Advertise, AdvertiseRule
from kproxy.rules.kinds.base import Rule
from kproxy.rules.kinds.rename_topic import RenameTopic
from kproxy.rules.name_layer import Layer
from kproxy.rules.version_checks import check_versions
from kproxy.rules.written import Place, Written

SAMPLE = b"0kproxy0"
"""Stands for what a `*` may stand for; legal, and in nobody's pattern."""


def check_rules(written: Sequence[Written], listeners: Mapping[str, Place] | None) -> None:
    """Note all such mistakes at the rule that stands later."""
    _check_names(written)
    advertise = [(one, one.rule) for one in written if isinstance(one.rule, AdvertiseRule)]
    _check_advertise(advertise)
    check_versions(written)
    for group in _bound_together([(one, one.rule) for one in written if isinstance(one.rule, RenameTopic)]):
        _check_lost_names(group)
    if listeners is not None:
        for one in written:
            if one.rule is not None:
                _check_selectors(one, one.rule, listeners)
        for one, rule in advertise:
            _check_tls(one, rule, listeners)


def _check_names(written: Sequence[Written]) -> None:
    first: dict[str, Written] = {}
    for one in written:
        if one.name is not None and (other := first.setdefault(one.name, one)) is not one:
            one.note(("name",), f'the name "{one.name}" is taken, first at {other.position}')


def _check_advertise(rules: Sequence[tuple[Written, AdvertiseRule]]) -> None:
    """The first rule that matches is taken, so one for all connections leaves nothing for the next."""
    general: AdvertiseRule | None = None
    for one, rule in rules:
        if general is not None:
            one.note((), f'this rule can never act, "{general.name}" advertises for all connections before it')
        elif rule.is_unconditional:
            general = rule


def _bound_together(rules: Sequence[tuple[Written, RenameTopic]]) -> Iterator[list[tuple[Written, RenameTopic]]]:
    """Rename rules that surely hold for the same connections: with the same selectors, or with none."""
    for selector in dict.fromkeys(_selector(rule) for _, rule in rules):
        group = [(one, rule) for one, rule in rules if rule.is_unconditional or _selector(rule) == selector]
        if len(group) > 1:
            yield group


def _selector(rule: RenameTopic) -> str:
    return repr((rule.match, rule.not_))


def _check_lost_names(group: Sequence[tuple[Written, RenameTopic]]) -> None:
    """A name that one rule gives must not be the target of a later rule for another name: it would be unreachable."""
    steps = [(one, rule, Layer.of(rule.topics)) for one, rule in group]
    for number, (one, _, layer) in enumerate(steps):
        for entry in layer.entries:
            taken = _taken_by(entry.to_broker(entry.client.fill(SAMPLE)), steps[number + 1 :])
            if taken is not None:
                one.note(("topics", entry.key), f'"{entry.value}" would be unreachable: {taken}')


def _taken_by(name: bytes, later: Sequence[tuple[Written, RenameTopic, Layer]]) -> str | None:
    for _, rule, layer in later:
        entry = layer.winner(name)
        if entry is not None:
            name = entry.to_broker(name)
        elif (source := layer.source(name)) is not None:
            what = source.decode().replace(SAMPLE.decode(), "…")
            return f'the rule "{rule.name}" gives that name to "{what}"'
    return None


def _check_selectors(one: Written, rule: Rule, listeners: Mapping[str, Place]) -> None:
    clusters = {place.cluster for place in listeners.values()}
    for side, match in (("match", rule.match), ("not", rule.not_)):
        for selector, known in (("listener", listeners), ("cluster", clusters)):
            texts = getattr(match, selector) or () if match is not None else ()
            for index, text in enumerate(texts):
                if "*" not in text and not text.startswith("/") and text not in known:
                    one.note((side, selector, index), unknown(selector, text, known))


def _check_tls(one: Written, rule: AdvertiseRule, listeners: Mapping[str, Place]) -> None:
    if not rule.needs_tls:
        return
    plain = [name for name, place in listeners.items() if not place.tls and rule.may_hold(name, place.cluster)]
    if plain:
        field = "sni" if rule.sni is not None else "nodes"
        one.note((field,), f"{why_tls(rule)}, and listener {', '.join(plain)} has none")


def why_tls(advertise: Advertise) -> str:
    """The reason in words."""
    if advertise.sni is not None:
        return "sni needs TLS towards clients"
    ports = ", ".join(map(str, advertise.shared_ports))
    return f"nodes that share port {ports} need TLS towards clients to be told apart"
