"""Rehearsal of rules on exchanges that a running proxy has kept, for whoever writes a rule: how many would it be about?

Strategy. Connection by connection, beginning with the one that was last heard of, until all is looked at or the time is
over. The rules are alone in this: what others in force would do before them is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from kproxy.protocol.table.api_keys import METADATA
from kproxy.record.exchange import ObservedExchange, Who
from kproxy.rules.document.read import Document
from kproxy.rules.document.store import RuleStore
from kproxy.rules.exchange import Facts

from .candidate import Candidate
from .exchange import PackedExchange, RecordedClient
from .packing import unfit

MOST_EXCHANGES = 5000
"""Exchanges that are looked at, the latest ones."""
MOST_RULES = 50
"""Rules that are rehearsed together; each that binds connections is a rehearsal of its own."""
MOST_ANSWERS = 20
"""Metadata answers that topic ids are looked up in, the latest ones."""


@dataclass(slots=True)
class RuleMatches:
    """Matches of one rule: exchanges that its selectors held for, and those that its trigger chose of them. A rule that
    binds connections has fired where a frame would have been another one."""

    name: str
    kind: str
    matched: int = 0
    fired: int = 0


@dataclass(slots=True)
class KeptMatches:
    """Matches of rules among kept exchanges. `of`: how many were rehearsed; `unfit`: how many could not be, since not
    all of their bytes are there; `kept`: how many there are."""

    kept: int
    of: int = 0
    unfit: int = 0
    rules: list[RuleMatches] = field(default_factory=list)


def rehearse_kept(
    document: Document, kept: Sequence[ObservedExchange], in_time: Callable[[], bool], *, records: bool = True
) -> KeptMatches:
    """Rehearse the rules of a document on these exchanges, the latest of which comes first, as long as `in_time()`.
    `records`: whether their filters may ask about records.

    Raises DocumentError for a document with mistakes.
    """
    kept = kept[:MOST_EXCHANGES]
    found = KeptMatches(len(kept))
    by_connection: dict[int, list[ObservedExchange]] = {}
    for seen in kept:
        by_connection.setdefault(id(seen.who), []).append(seen)
    began = min((seen.request.first for seen in kept if seen.request is not None), default=0.0)
    store = RuleStore()
    store.put(document, "api", began)
    rules = store.rule_set
    by_rule = {rule.name: RuleMatches(rule.name, rule.kind) for rule in rules.rules}
    found.rules = list(by_rule.values())
    candidate = Candidate(rules, began, topics_in(kept), records=records)
    for number, seen_here in enumerate(by_connection.values()):
        if not in_time():
            break
        seen_here.sort(key=lambda seen: seen.number)
        caller = RecordedClient(str(number), facts_of(seen_here[0].who))
        for rule, _ in candidate.findings(caller, packed(seen_here, found, in_time)):
            if rule:
                by_rule[rule].matched += 1
                by_rule[rule].fired += 1
    for counts in candidate.counted():
        one = by_rule[counts.rule]
        one.matched, one.fired = counts.matched, counts.fired
    return found


def packed(
    seen_here: Sequence[ObservedExchange], found: KeptMatches, in_time: Callable[[], bool]
) -> Iterator[PackedExchange]:
    """Yield the exchanges of one connection as a rehearsal takes them, and count them."""
    for seen in seen_here:
        if not in_time():
            return
        request, response = seen.request, seen.response
        if request is None or unfit(seen) is not None:
            found.unfit += 1
            continue
        found.of += 1
        data, when = (None, None) if response is None else (response.data, response.first)
        yield PackedExchange(
            seen.number, seen.key, seen.version, seen.correlation_id, seen.client_id, request.data, request.first, data,
            when,
        )  # fmt: skip


def facts_of(who: Who) -> Facts:
    """Return the facts of a connection that rules bind to, as far as whoever watched it knows them."""
    return Facts(who.listener or "", who.cluster or "", who.client_address, node=who.node)


def topics_in(kept: Sequence[ObservedExchange]) -> dict[UUID, str]:
    """Return the names of topics by their ids, as the latest Metadata answers tell them."""
    names: dict[UUID, str] = {}
    answers = [seen for seen in kept if seen.key == METADATA and seen.response is not None]
    for seen in reversed(answers[:MOST_ANSWERS]):
        for topic in (seen.response_body or {}).get("topics") or ():
            topic_id, name = topic.get("topic_id"), topic.get("name")
            if isinstance(topic_id, UUID) and isinstance(name, str) and name:
                names[topic_id] = name
    return names
