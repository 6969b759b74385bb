"""Lint of rules: warnings about valid rules, such as rules that never act.

A rule set with warnings is loaded. Each warning has a position and a reason. "Can never act" is reported only if it is
certain for every request of every connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kproxy.protocol.table import schema
from kproxy.rules.exchange import ConnectionView, Facts, FrameDepth
from kproxy.rules.kinds.base.name_rule import NameRule
from kproxy.rules.kinds.base.rule import Direction, LiveRule, Rule
from kproxy.rules.kinds.limit_versions import LimitVersions, VersionLimits
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.select.frame_match import WITH_RECORDS, FrameMatch, carries
from kproxy.rules.select.match import ConnectionMatch
from kproxy.rules.trigger import When

from .check import ListenerTraits, ParsedRule

DIRECTIONS: tuple[Direction, ...] = ("request", "response")
DECIDING = ("error", "deny", "drop", "disconnect")
"""Kinds that decide a request: rules after them do not act on it."""
MOST_DECIDING = 100
"""Rules, of different selectors, that all those behind them are compared with."""
OF_TLS = ("sni", "certificate")
NAMED = {"topic": "topics", "group": "groups", "transactional_id": "transactional_ids"}

Pair = tuple[int, int]
"""API key and version."""


@dataclass(frozen=True)
class LintWarning:
    """Warning about a valid rule. `where` is a path below the rule."""

    parsed: ParsedRule
    where: tuple[Any, ...]
    text: str

    def __str__(self) -> str:
        source, at = self.parsed.source, (*self.parsed.at, *self.where)
        key = bool(self.where) and not isinstance(self.where[-1], int)
        return f"{source.position(at, key=key)}: {self.text}"


def lint_rules(
    parsed_rules: Sequence[ParsedRule], listeners: Mapping[str, ListenerTraits] | None = None
) -> list[LintWarning]:
    """Return all warnings about rules without errors. Rules of a stage are compared with rules that are always in
    force."""
    warnings: dict[str, LintWarning] = {}
    base = [one for one in parsed_rules if one.stage is None]
    stages = dict.fromkeys((id(one.source), one.stage) for one in parsed_rules if one.stage is not None)
    together = [base, *([one for one in parsed_rules if one.stage is None or (id(one.source), one.stage) == stage]
                        for stage in stages)]  # fmt: skip
    for group in together:
        for warning in of_rules(group, listeners):
            warnings.setdefault(str(warning), warning)
    return list(warnings.values())


def of_rules(
    parsed_rules: Sequence[ParsedRule], listeners: Mapping[str, ListenerTraits] | None
) -> Iterator[LintWarning]:
    """Yield the warnings about rules that are in force at the same time."""
    always = [parsed.rule for parsed in parsed_rules if parsed.rule is not None and parsed.rule.is_unconditional]
    limits = VersionLimits(tuple(rule.limit for rule in always if isinstance(rule, LimitVersions)))
    names = NameMaps.of(layer for rule in always if isinstance(rule, NameRule) for layer in rule.layers())
    earlier: dict[str, Earlier] = {}
    for parsed in parsed_rules:
        rule = parsed.rule
        if rule is None:
            continue
        for where, text in (*of_selectors(rule), *of_listeners(rule, listeners)):
            yield LintWarning(parsed, where, text)
        if isinstance(rule, LiveRule):
            for text in rule.warnings():
                yield LintWarning(parsed, (), text)
            found = *of_format(rule), *of_trigger(rule), *of_live(rule, limits, names, list(earlier.values()))
            for where, text in found:
                yield LintWarning(parsed, where, text)
            if decides(rule):
                decided = Earlier(rule, selectors(rule.match), selectors(rule.not_))
                if len(earlier) < MOST_DECIDING:
                    earlier.setdefault(repr((rule.kind, decided.match, decided.not_)), decided)


class Earlier(NamedTuple):
    """Rule that decides all that it selects, with its selectors."""

    rule: LiveRule
    match: Mapping[str, Any]
    not_: Mapping[str, Any]


LintMessage = tuple[tuple[Any, ...], str]


def of_selectors(rule: Rule) -> Iterator[LintMessage]:
    """Yield a warning if `not` takes away all that `match` selects."""
    given = selectors(rule.not_)
    if given and all(selectors(rule.match).get(name) == value for name, value in given.items()):
        yield ("not",), "this rule can never act: not takes away all that match selects"


def selectors(match: ConnectionMatch | None) -> dict[str, Any]:
    """Return the selectors that are used, with their values."""
    if match is None:
        return {}
    return {name: value for name in type(match).model_fields if (value := getattr(match, name)) is not None}


def of_listeners(rule: Rule, listeners: Mapping[str, ListenerTraits] | None) -> Iterator[LintMessage]:
    """Yield a warning for each selector that only TLS fills, on listeners without it."""
    if listeners is None:
        return
    for name in OF_TLS:
        used = selectors(rule.match).get(name)
        if used and not any(place.tls and rule.may_hold(each, place.cluster) for each, place in listeners.items()):
            yield ("match", name), f"this rule can never act: {name} is told by TLS, which no listener of it has"


def of_format(rule: LiveRule) -> Iterator[LintMessage]:
    """Yield a warning for a `format` that nothing reads."""
    if rule.format != "auto" and not rule.reads_schemas and not rule.selects_records:
        yield ("format",), "this rule reads no keys and values in a format: it has neither records nor fields"


def of_trigger(rule: LiveRule) -> Iterator[LintMessage]:
    """Yield a warning for words of `when` that leave nothing, or do nothing."""
    when: When | None = rule.when
    if when is None:
        return
    if when.first is not None and when.every is not None and when.every > when.first:
        yield ("when",), f"this rule can never act: none of the first {when.first} is a multiple of {when.every}"
    if when.for_ == 0:
        yield ("when", "for"), "this rule can never act: it is in force for no time"
    if when.hold and rule.mode == "dry_run":
        yield ("when", "hold"), "nothing is held by a rule in dry-run mode"
    elif when.hold and rule.connects:
        yield ("when", "hold"), "a rule about new connections holds nothing, because only requests are held"
    elif when.hold and rule.selects_errors:
        yield ("when", "hold"), "nothing is held by a rule that selects errors: the request has gone by then"
    elif when.hold and all(rule.judged_late(key) for key, _ in pairs(rule)):
        yield ("when", "hold"), "nothing is held by a rule that selects records in responses: the request has gone"


def of_live(
    rule: LiveRule, limits: VersionLimits, names: NameMaps | None, earlier: Sequence[Earlier]
) -> Iterator[LintMessage]:
    """Yield warnings about selectors that no request can fulfil, and about rules that others leave nothing to."""
    if rule.connects or rule.family == "code" or rule.start().shape(ANY_CONNECTION) is not None:
        return
    if isinstance(rule.match, FrameMatch):
        yield from of_names(rule.match, names)
    yield from of_records(rule)
    first = next(pairs(rule), None)
    if first is None:
        yield ("match",) if rule.match is not None else (), f"this rule can never act: {why_never(rule)}"
    elif limits.limits and all(limits.refusal(*pair) for pair in pairs(rule)):
        yield ("match",), f"this rule can never act: {limits.refusal(*first)}"
    elif (other := decider(rule, earlier, limits)) is not None:
        yield (), f'this rule can never act: "{other.name}" before it decides every request that it is about'


def pairs(rule: LiveRule) -> Iterator[Pair]:
    """Yield the APIs and versions that the rule acts on."""
    keys = sorted(schema.paths() if rule.match is None or rule.match._keys is None else rule.match._keys)
    for key in keys:
        directions: tuple[Direction, ...] = ("response",) if rule.judged_late(key) else DIRECTIONS
        for version in schema.load(key).versions:
            if rule.about(key, version) and acts(rule, (key, version), directions):
                yield key, version


def acts(rule: LiveRule, pair: Pair, directions: Iterable[Direction]) -> bool:
    return any(rule.depth(direction, *pair) != FrameDepth.NOTHING for direction in directions)


def why_never(rule: LiveRule) -> str:
    match = rule.match
    if match is None:
        return f"{rule.kind}, as it is written here, does nothing with any API"
    keys = sorted(schema.paths() if match._keys is None else match._keys)
    versions = [(key, version) for key in keys for version in schema.load(key).versions]
    about = [pair for pair in versions if match.about_frame(*pair)]
    apis = ", ".join(map(str, match.api)) if match.api is not None else "any API"
    if not about:
        if match.records is not None and not {*keys} & {*WITH_RECORDS}:
            return f"{apis} carries no records, only {', '.join(schema.load(key).name for key in WITH_RECORDS)} do"
        what = "acks" if match.acks is not None else "versions"
        return f"{apis} has no such {what}"
    for name in sorted(match.of_entities):
        if not any(carries(*pair, (name,)) for pair in about):
            return f"requests of {apis} say no {name.replace('_', ' ')}"
    if not any(match.about(*pair) for pair in about):
        return f"no version of {apis} says {' and '.join(sorted(match.of_entities)).replace('_', ' ')} together"
    if any(rule.judged_late(pair[0]) and acts(rule, pair, DIRECTIONS) for pair in about):
        word = "error" if rule.selects_errors else "records"
        return f'it acts on requests, and "{word}" is known only when the response has come'
    return f"{rule.kind}, as it is written here, does nothing with {apis}"


def of_records(rule: LiveRule) -> Iterator[LintMessage]:
    """Yield a warning for each record condition of a rule that selects no topics."""
    sides = [(side, one) for side, one in (("match", rule.match), ("not", rule.not_)) if one is not None]
    if any(one.topic is not None or one.topic_id is not None for _, one in sides):
        return
    for side, one in sides:
        if one.records is not None:
            yield (side, "records"), "decodes the records of every topic; select topics with match: {topic: …}"


def of_names(match: FrameMatch, names: NameMaps | None) -> Iterator[LintMessage]:
    """Yield a warning for each name that is one of the brokers': selectors speak the clients' names."""
    for selector, field in NAMED.items():
        space: NameMap | None = None if names is None else getattr(names, field)
        for index, text in enumerate(getattr(match, selector) or ()):
            if space is None or "*" in text or text.startswith("/") or not space.is_unreachable(text.encode()):
                continue
            client = space.to_client(text.encode())
            reason = "clients cannot reach it" if client is None else f"clients call it {client.decode()}"
            yield (
                ("match", selector, index),
                f'"{text}" never matches: rules select by the names that clients use, and {reason}',
            )


def decides(rule: LiveRule) -> bool:
    """Return True if a rule decides all that it selects, always."""
    quiet = rule.when is not None or rule.mode == "dry_run" or rule.connects
    quiet = quiet or rule.selects_errors or rule.selects_records
    return rule.kind in DECIDING and not quiet


def decider(rule: LiveRule, earlier: Sequence[Earlier], limits: VersionLimits) -> LiveRule | None:
    """Return a rule before this one that surely takes all requests (or all in them) that it is about; or None."""
    match, not_ = selectors(rule.match), selectors(rule.not_)
    for other in earlier:
        if all(match.get(name) == value for name, value in other.match.items()) and other.not_ in ({}, not_):
            concerned = (pair for pair in pairs(rule) if not limits.refusal(*pair))
            if all(other.rule.about(*pair) and acts(other.rule, pair, ("request",)) for pair in concerned):
                return other.rule
    return None


class UnknownCluster:
    """Cluster without any learned topics or brokers."""

    nodes: tuple[int, ...] = ()

    def topic_of(self, topic_id: Any) -> str | None:
        return None


ANY_CONNECTION = ConnectionView(Facts("", "", ""), 0, UnknownCluster())
