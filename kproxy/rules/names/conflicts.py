"""Conflicts between name rules: names that a later rule takes away, and names that never get to a rule.

Strategy. Each name that a rule gives is followed through the rules behind it. Which of them a name meets next is looked
up, in dicts of exact names and of the prefixes of globs, so that thousands of rules of which each has names of its own
cost a few look-ups each; and two ways that come together at a rule are followed from there once. Rules that build on
each other by the thousand are refused after so many steps: every frame would take as many.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import NamedTuple

from kproxy.rules.document.parsed_rules import ParsedRule
from kproxy.rules.kinds.base.name_rule import NameRule, RenameRule

from .composed import AnyLayer
from .layer import NAMESPACES, ByPrefix, Layer, NamePattern, PrefixLayer, RenameEntry

MOST_STEPS = 60_000
"""Steps from rule to rule, of all names together: a second or two."""
SAMPLE = b"0kproxy0"
"""Stands for what a `*` may stand for; legal, and in nobody's pattern."""


class NameRuleStep(NamedTuple):
    """Step of a name on its way to the brokers: one rule."""

    parsed: ParsedRule
    rule: NameRule
    layer: AnyLayer


NameRules = Sequence[tuple[ParsedRule, NameRule]]


class TooManySteps(Exception):
    """More steps than `MOST_STEPS` would be needed."""


def check_name_conflicts(rules: NameRules) -> None:
    """Note what rules that surely hold for the same connections take from each other."""
    left = MOST_STEPS
    layers = {id(rule): list(rule.layers()) for _, rule in rules}
    for group in _bound_together(rules):
        for space in NAMESPACES:
            steps = [
                NameRuleStep(one, rule, layer) for one, rule in group for at, layer in layers[id(rule)] if at is space
            ]
            path = NamePath(steps, left)
            try:
                path.check()
            except TooManySteps:
                message = f"names would take more than {MOST_STEPS} steps through all the name rules for the same"
                group[-1][0].note((), f"{message} connections: write fewer of them, or fewer that build on each other")
                return
            left = path.left


def _bound_together(rules: NameRules) -> Iterator[NameRules]:
    """Yield groups of rules, in order, that have the same selectors or none."""
    general: list[int] = []
    by_selector: dict[str, list[int]] = {}
    for number, (_, rule) in enumerate(rules):
        if rule.is_unconditional:
            general.append(number)
        else:
            by_selector.setdefault(repr((rule.match, rule.not_)), []).append(number)
    for special in by_selector.values() or ([],):
        if len(special) + len(general) > 1:
            yield [rules[number] for number in merge(special, general)]


class NamePath:
    """Steps of one group of rules in one namespace, and how names go through them. `left`: steps that may still be
    taken."""

    def __init__(self, steps: Sequence[NameRuleStep], left: int) -> None:
        self.steps, self.left = steps, left
        self.prefixes: list[int] = []
        self.exact: dict[bytes, list[int]] = {}
        globs: list[tuple[NamePattern, tuple[int, RenameEntry]]] = []
        for number, step in enumerate(steps):
            if isinstance(step.layer, PrefixLayer):
                self.prefixes.append(number)
                continue
            for entry in step.layer.entries:
                for pattern in (entry.client, entry.broker):
                    if entry.is_glob:
                        globs.append((pattern, (number, entry)))
                    elif self.exact.setdefault(pattern.prefix, [number])[-1] != number:
                        self.exact[pattern.prefix].append(number)
        self.globs = ByPrefix(globs)
        self.taken: dict[tuple[bytes, int], str | None] = {}  # by name and step that it comes from

    def check(self) -> None:
        """Note each line of which no name gets to its rule, or of which a later rule takes the names. Raises
        TooManySteps."""
        for number, step in enumerate(self.steps):
            self.spend()
            if isinstance(step.rule, RenameRule) and isinstance(step.layer, Layer):
                for entry in step.layer.entries:
                    self._check_entry(step.parsed, step.rule.field, entry, number)

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooManySteps

    def _check_entry(self, parsed: ParsedRule, field: str, entry: RenameEntry, number: int) -> None:
        never = _never_comes(entry, self.steps[number - 1] if number else None)
        if never is not None:
            parsed.note((field, entry.key), f'"{entry.key}" never comes to this rule: {never}', key=True)
        elif (taken := self.taken_by(entry.to_broker(entry.client.fill(SAMPLE)), number)) is not None:
            parsed.note((field, entry.key), f'"{entry.value}" would be unreachable: {taken}')

    def taken_by(self, name: bytes, number: int) -> str | None:
        """Return which rule behind step `number` gives the same name to another one, in words: the name would be
        unreachable. None: no rule does. Raises TooManySteps."""
        passed: list[tuple[bytes, int]] = []
        conflict: str | None = None
        while True:
            self.spend()
            if (name, number) in self.taken:
                conflict = self.taken[name, number]
                break
            passed.append((name, number))
            number = self.next_step(name, number)
            if number < 0:
                break
            step = self.steps[number]
            if isinstance(step.layer, PrefixLayer):
                name = step.layer.forward(name)
            elif (entry := step.layer.winner(name)) is not None:
                name = entry.to_broker(name)
            elif (source := step.layer.source(name)) is not None:
                what = source.decode().replace(SAMPLE.decode(), "…")
                conflict = f'the rule "{step.rule.name}" gives that name to "{what}"'
                break
        self.taken.update(dict.fromkeys(passed, conflict))
        return conflict

    def next_step(self, name: bytes, number: int) -> int:
        """Return the first step behind this one that may be about the name; -1: there is none."""
        nearest = [steps[at] for steps in (self.exact.get(name, ()), self.prefixes)
                   if (at := bisect_right(steps, number)) < len(steps)]  # fmt: skip
        for at, _ in self.globs.matching(name):
            self.spend()
            if at > number:
                nearest.append(at)
        return min(nearest, default=-1)


def _never_comes(entry: RenameEntry, last: NameRuleStep | None) -> str | None:
    """Return why no name of this entry gets past the prefix rule before it, in words; None: some do. All names that get
    past one begin with its prefix, unless another rename follows it."""
    if last is None or not isinstance(last.layer, PrefixLayer):
        return None
    prefix, begins = last.layer.prefix, entry.client.prefix
    if begins.startswith(prefix) or (entry.is_glob and prefix.startswith(begins)):
        return None
    return f'the rule "{last.rule.name}" puts "{prefix.decode()}" in front before it; put this rule first'
