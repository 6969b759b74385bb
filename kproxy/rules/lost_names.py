"""What can be wrong between name rules: names that a later rule takes away, and names that never get to a rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kproxy.rules.kinds.name_rule import NameRule, RenameRule
from kproxy.rules.name_layer import Entry, Layer
from kproxy.rules.name_prefix import PrefixLayer
from kproxy.rules.names import AnyLayer
from kproxy.rules.namespace import NAMESPACES, Namespace
from kproxy.rules.written import Written

SAMPLE = b"0kproxy0"
"""Stands for what a `*` may stand for; legal, and in nobody's pattern."""


class Step(NamedTuple):
    """One rule on the way of a name to the brokers."""

    written: Written
    rule: NameRule
    layer: AnyLayer


def check_lost_names(rules: Sequence[tuple[Written, NameRule]]) -> None:
    """Note what rules that surely hold for the same connections take from each other."""
    for group in _bound_together(rules):
        for space in NAMESPACES:
            steps = list(_steps(group, space))
            for number, step in enumerate(steps):
                if isinstance(step.rule, RenameRule) and isinstance(step.layer, Layer):
                    for entry in step.layer.entries:
                        _check_entry(step.written, step.rule.field, entry, steps[:number], steps[number + 1 :])


def _bound_together(rules: Sequence[tuple[Written, NameRule]]) -> Iterator[list[tuple[Written, NameRule]]]:
    """Rules with the same selectors, or with none."""
    for selector in dict.fromkeys(_selector(rule) for _, rule in rules):
        group = [(one, rule) for one, rule in rules if rule.is_unconditional or _selector(rule) == selector]
        if len(group) > 1:
            yield group


def _selector(rule: NameRule) -> str:
    return repr((rule.match, rule.not_))


def _steps(group: Sequence[tuple[Written, NameRule]], space: Namespace) -> Iterator[Step]:
    for one, rule in group:
        for at, layer in rule.layers():
            if at is space:
                yield Step(one, rule, layer)


def _check_entry(one: Written, field: str, entry: Entry, before: Sequence[Step], after: Sequence[Step]) -> None:
    never = _never_comes(entry, before)
    taken = _taken_by(entry.to_broker(entry.client.fill(SAMPLE)), after)
    if never is not None:
        one.note((field, entry.key), f'"{entry.key}" never comes to this rule: {never}', key=True)
    elif taken is not None:
        one.note((field, entry.key), f'"{entry.value}" would be unreachable: {taken}')


def _never_comes(entry: Entry, before: Sequence[Step]) -> str | None:
    """All names that get past a prefix rule begin with its prefix, unless another rename follows it."""
    last = before[-1] if before else None
    if last is None or not isinstance(last.layer, PrefixLayer):
        return None
    prefix, begins = last.layer.prefix, entry.client.prefix
    if begins.startswith(prefix) or (entry.is_glob and prefix.startswith(begins)):
        return None
    return f'the rule "{last.rule.name}" puts "{prefix.decode()}" in front before it; put this rule first'


def _taken_by(name: bytes, later: Sequence[Step]) -> str | None:
    """A name that one rule gives must not be the target of a later rule for another name: it would be unreachable."""
    for _, rule, layer in later:
        if isinstance(layer, PrefixLayer):
            name = layer.forward(name)
        elif (entry := layer.winner(name)) is not None:
            name = entry.to_broker(name)
        elif (source := layer.source(name)) is not None:
            what = source.decode().replace(SAMPLE.decode(), "…")
            return f'the rule "{rule.name}" gives that name to "{what}"'
    return None
