"""Explanations for a failed test: why a rule did nothing, and which exchanges went through instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .embedded import Embedded
from .exchanges import SeenExchange, SeenExchanges
from .injected import Injected
from .rule_arguments import Misuse, match_of

MOST_LINES = 12
"""Items shown of one list; a test that talks to more APIs or topics is told of those it used most."""
LOG_LINES = 20
HIDDEN = ("name", "kind")
MOCK = " (librdkafka's mock, see its limits in docs/testing.md; Apache Kafka: --kproxy-upstream=kafka)"


def written(rule: Injected) -> str:
    """Return the rule as the call of `inject` for it, after its place if a file defines it."""
    params = "".join(f", {name}={value!r}" for name, value in rule.rule.items() if name not in HIDDEN)
    if rule.place:
        return f"{rule.place}: {rule.kind}{params}"
    return f"inject({rule.kind!r}{params})"


def explain(rule: Injected, seen: SeenExchanges, bootstrap: str) -> str:
    """Return the lines that say at which stage a rule stopped, and which exchanges were there instead."""
    return "\n".join(f"  {line}" for line in (written(rule), *reasons(rule, seen, bootstrap)))


def reasons(rule: Injected, seen: SeenExchanges, bootstrap: str) -> Iterator[str]:
    """Yield the rule's counters and problems, the stage at which it stopped, and the exchanges that went through."""
    if rule.running is None:
        yield f"rules of the kind {rule.kind} bind when a connection opens, and do not count"
        return
    counters = rule.counters
    yield str(counters)
    yield from (*rule.problems, *rule.notes)
    if not seen.all:
        yield f"nothing has gone through kproxy: do the clients connect to {bootstrap}?"
    elif not counters.matched:
        yield from unmatched(rule.rule.get("match") or {}, seen)
    elif not counters.fired:
        yield f"its trigger let none of them fire it: when={rule.rule.get('when')}"
    elif not counters.applied:
        yield from unapplied(rule, seen)
    if seen.all:
        yield f"seen: {summary(seen.all)}"


def unapplied(rule: Injected, seen: SeenExchanges) -> Iterator[str]:
    """Yield why a rule that fired was not applied: how many of its requests are unanswered, and why."""
    open_ones = [one for one in seen.all if rule.name in one.taken.rules and one.answered is None]
    if not open_ones:
        yield "it fired, and had nothing to change in those requests and responses"
    for cause, number in Counter(one.taken.cut_by for one in open_ones).items():
        requests = f"{number} request{'s' if number > 1 else ''} that it fired for"
        if not cause:
            held = "held by this rule or still" if (rule.rule.get("when") or {}).get("hold") else "still"
            yield f"{requests}: {held} unanswered, the connection is open"
        elif cause.startswith("client_"):
            yield f"{requests}: the client closed the connection ({cause}) before the response was sent"
        else:
            yield f"{requests}: the connection was closed ({cause}) before the response was sent"


def unmatched(match: Mapping[str, Any], seen: SeenExchanges) -> Iterator[str]:
    """Yield for each selector alone how many exchanges it matches."""
    for name, value in match.items():
        try:
            found = len(seen.where(match_of({name: value})))
        except Misuse:
            continue
        yield f"{name}={value!r} alone matches {found or 'none'} of {len(seen.all)} exchanges"


def summary(exchanges: list[SeenExchange]) -> str:
    """Return the most frequent exchanges in one line: `4 × Produce 9 (orders), Produce 9 (orders) →
    NOT_LEADER_OR_FOLLOWER`."""
    counts = Counter(map(str, exchanges))
    listed = [f"{count} × {text}" if count > 1 else text for text, count in counts.most_common(MOST_LINES)]
    rest = len(counts) - len(listed)
    return ", ".join(listed) + (f", and {rest} others" if rest else "")


def overview(engine: Embedded, loaded: Sequence[Injected], injected: Sequence[Injected], seen: SeenExchanges) -> str:
    """Return the report for a failed test: seed, rules of files and of the test, traffic and log."""
    seed = engine.store.seed
    brokers = engine.upstream + (MOCK if engine.mock else "")
    lines = [f"seed {seed} (the same chances again: --kproxy-seed={seed})",
             f"clients at {engine.bootstrap_servers}, brokers at {brokers}"]  # fmt: skip
    # A production file may have hundreds of rules: those that matched come first, and only so many others are listed.
    matched = [one for one in loaded if one.running is not None and one.matched]
    others = [one for one in loaded if one not in matched]
    for rule in (*matched, *others[:MOST_LINES], *injected):
        counters = "" if rule.running is None else f": {rule.counters}"
        lines.append(f'rule "{rule.name}"{" (removed)" if rule.removed else ""}{counters}')
        lines.append(f"  {written(rule)}")
        lines += [f"  {problem}" for problem in (*rule.problems, *rule.notes)]
    if len(others) > MOST_LINES:
        lines.append(f"and {len(others) - MOST_LINES} more rules of files, which matched nothing")
    older = f" (and {seen.forgotten} exchanges before that)" if seen.forgotten else ""
    lines.append(f"went through: {summary(seen.all) or 'nothing'}{older}")
    lines += seen.missing.values()
    log = engine.log().splitlines()[-LOG_LINES:]
    return "\n".join([*lines, *(["log:"] if log else []), *(f"  {line}" for line in log)])
