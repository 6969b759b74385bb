"""Rules as they are parsed from their documents, before they become a rule set."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import merge
from typing import Any, NamedTuple

from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.rules.kinds.advertise import Advertise, AdvertiseRule
from kproxy.rules.kinds.base.name_rule import NameRule, RenameRule
from kproxy.rules.kinds.base.rule import LIMITING, LiveRule, Rule
from kproxy.rules.kinds.client_rack import ClientRack
from kproxy.rules.kinds.limit_versions import Limit, LimitVersions, Span, spelled
from kproxy.rules.names.composed import AnyLayer
from kproxy.rules.names.layer import NAMESPACES, ByPrefix, Layer, NamePattern, PrefixLayer, RenameEntry
from kproxy.rules.select.frame_match import WITH_RECORDS
from kproxy.rules.select.selected import keys_of
from kproxy.rules.values.model import ValidWords
from kproxy.rules.values.source import Source, Where, counted


class ListenerTraits(NamedTuple):
    """Listener as far as rules must know it: its cluster, whether it speaks TLS, and whether brokers keep their own
    addresses there."""

    cluster: str
    tls: bool
    transparent: bool = False


@dataclass(frozen=True)
class ParsedRule:
    """Rule and its position. `rule` is None if it has errors, `name` if it has no name.

    at: path in the source. stage: index of the scenario's stage, or None. ttl: seconds until the rule is removed, or
    None. raw: the text as written, without `ttl`.
    """

    name: str | None
    rule: Rule | None
    source: Source
    at: Where
    stage: int | None = None
    ttl: float | None = None
    raw: dict[Any, Any] = field(default_factory=dict)

    def note(self, where: tuple[Any, ...], message: str, *, key: bool = False) -> None:
        self.source.note((*self.at, *where), message, key=key)

    @cached_property
    def position(self) -> str:
        """Return the rule's place in its document as `file:line:column`."""
        return self.source.position(self.at)


MOST_STEPS = 60_000
"""Steps from rule to rule, of all names together: a second or two."""
SAMPLE = b"0kproxy0"
"""Text for a `*`: legal, and unlikely in a user's pattern."""


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
        """Note each line that no name reaches, or whose names a later rule takes. Raises TooManySteps."""
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
        """Return the next step that may concern the name, or -1."""
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


FIRST_TAKEN: Mapping[type[Rule], str] = {AdvertiseRule: "advertises", ClientRack: "says the rack"}
"""Kinds of which only the first matching rule applies to a connection, with the verb for messages."""


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


def check_records(parsed: ParsedRule) -> None:
    """Note record conditions that the rule cannot fulfil."""
    rule = parsed.rule
    if not isinstance(rule, LiveRule) or not rule.selects_records:
        return
    no = rule.not_
    if no is not None and no.records is not None and no.sees_error:
        parsed.note(("not", "records"), "expected either records or error in not, got both", key=True)
    reads = [key for key in WITH_RECORDS if key != PRODUCE and rule.about(key, schema.load(key).versions.last)]
    if rule.family in LIMITING and reads:
        side = "match" if rule.match is not None and rule.match.records is not None else "not"
        names = " and ".join(schema.load(key).name for key in reads)
        parsed.note(
            (side, "records"),
            f"expected match: {{api: Produce}} with records in a rule of the kind {rule.kind}, got {names}: it decides "
            "about requests, and their records are in the response",
            key=True,
        )


def check_together(parsed_rules: Sequence[ParsedRule]) -> None:
    """Note conflicts of rules that are in force at the same time, at the later rule."""
    for kind, word in FIRST_TAKEN.items():
        _check_first(word, [(one, one.rule) for one in parsed_rules if isinstance(one.rule, kind)])
    check_versions(parsed_rules)
    check_name_conflicts([(one, one.rule) for one in parsed_rules if isinstance(one.rule, NameRule)])


def meets_others(parsed: ParsedRule) -> bool:
    """Return True if `check_together` can find something about this rule."""
    return isinstance(parsed.rule, (*FIRST_TAKEN, LimitVersions, NameRule))


def check_names(parsed_rules: Sequence[ParsedRule]) -> None:
    """Note duplicate names, at the later rule."""
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
        """Add a rule's limit. An API that the rule hides on purpose is skipped."""
        for key, span in limit.spans.items():
            if span[0] > span[1]:
                continue
            if key not in self.highest or span[0] > self.highest[key][0]:
                self.highest[key] = span[0], span, limit.rule
            if key not in self.lowest or span[1] < self.lowest[key][0]:
                self.lowest[key] = span[1], span, limit.rule

    def leaving_nothing(self, key: int, span: Span) -> tuple[Span, str] | None:
        """Return the span and name of a rule that has no version in common with `span`."""
        high, low = self.highest.get(key), self.lowest.get(key)
        if high is not None and high[0] > span[1]:
            return high[1], high[2]
        return (low[1], low[2]) if low is not None and low[0] < span[0] else None


def check_versions(parsed_rules: Sequence[ParsedRule]) -> None:
    """Note, at the later rule, an API of which two rules that match the same connections leave no version.

    Rules match the same connections if they have equal selectors, or if one has none. For each API, only the highest
    first version and the lowest last version of earlier rules matter. So each rule is read once.
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
