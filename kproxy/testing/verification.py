"""Verification of a test's tape: its exchanges in pairs of both sides, and the terms under which they are judged."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kproxy.protocol.table import schema
from kproxy.record.captures.pairs import BothSides, SideMatcher
from kproxy.record.exchange import ExchangeOutcome, Frame, ObservedExchange
from kproxy.runtime.connection_view import ConnectionInfo
from kproxy.tools.verify import Verdict, VerifyTerms, explain, verify
from kproxy.tools.verify.finding import LEVELS
from kproxy.tools.verify.options import BadTerm, FailOnTerm, MissingPart, fail_on, outside, terms_of
from kproxy.tools.verify.report import report_text

from .exchanges import Topics
from .recorder import BEHIND, FRONT, Tape, TapedExchange, thinned
from .rule_arguments import Misuse

ARGUMENTS = frozenset(
    ("view", "only", "without", "level", "compacted", "not_compacted", "retention", "assume_complete", "records")
)
"""Names of a test's arguments for its verification, besides `fail_on`."""


class TapedWho:
    """Connection on a tape as an `record.exchange.Who`."""

    listener = broker = None
    client_port = 0

    def __init__(self, who: ConnectionInfo, topics: Topics) -> None:
        self.number, self.node, self.cluster = who.number, who.node, who.cluster
        self.client_address, self.principal = who.client_address, who.principal
        self.software_name, self.software_version = who.software_name, who.software_version
        self.names = {str(ident): name for ident, name in topics.names.items()}

    def broker_topic(self, _topic: str) -> str | None:
        """Return None: a tape does not contain the broker's names."""
        return None

    def broker_group(self, _group: str) -> str | None:
        """Return None: a tape does not contain the broker's names."""
        return None

    def topic_of(self, topic_id: str) -> str | None:
        """Return the name of a topic by its id, None where no answer has shown it."""
        return self.names.get(topic_id)


Taped = tuple[TapedExchange, ObservedExchange]
"""Exchange of a tape, and its copy with times since 1970."""


class TapeReader:
    """Reader of a tape's exchanges in the form of those of captures. It is made in the proxy's thread, and has all that
    is on the tape then. `wall`: to add to times of the tape, for those since 1970."""

    def __init__(self, tape: Tape, topics: Topics) -> None:
        self.topics, self.wall = topics, time.time() - time.monotonic()
        self.whos: dict[int, TapedWho] = {}
        self.taken, self.behind = tape.exchanges(FRONT), tape.exchanges(BEHIND)
        self.knows_brokers = not tape.behind.forgotten and not tape.behind.invalid
        self.forgotten, self.invalid = tape.front.forgotten, dict(tape.front.invalid)
        self.began_before = tape.began_before

    def pairs(self) -> list[BothSides]:
        """Return the exchanges in the order of their ends, each with the exchange at the broker if it differs; those
        without a response are at their beginning."""
        matcher = SideMatcher[Taped, Taped](math.inf)
        matched: list[tuple[Taped | None, Taped | None]] = []
        found = [*((over(one), 0, one) for one in self.behind), *((over(one), 1, one) for one in self.taken)]
        found.sort(key=lambda one: one[:2])
        for _, side, taken in found:
            if taken.seen.key in schema.paths():
                seen = self.observed(taken)
                matched += (matcher.front if side else matcher.behind)(seen, (taken, seen))
        pairs = [both_sides(front, behind) for front, behind in (*matched, *matcher.flush())]
        pairs.sort(key=ended)
        return pairs

    def apis_of(self, number: int) -> frozenset[str]:
        keys = {one.seen.key for one in self.taken if one.seen.who.number == number}
        return frozenset(schema.load(key).name for key in keys & schema.paths().keys())

    def observed(self, taken: TapedExchange) -> ObservedExchange:
        """Return a copy of an exchange with times since 1970, and without the rules of the mock cluster."""
        seen = taken.seen
        who = self.whos.get(seen.who.number)
        if who is None:
            who = self.whos[seen.who.number] = TapedWho(taken.who, self.topics)
        outcome: ExchangeOutcome = "unanswered" if seen.outcome == "closed" else seen.outcome
        return replace(
            seen, who=who, number=0, request=self.frame(seen.request), response=self.frame(seen.answer),
            outcome=outcome, rules=taken.rules, _bodies=[None, None],
        )  # fmt: skip

    def frame(self, frame: Frame | None) -> Frame | None:
        """Return the frame with times since 1970."""
        if frame is None:
            return None
        return replace(frame, first=frame.first + self.wall, last=frame.last + self.wall)


def both_sides(front: Taped | None, behind: Taped | None) -> BothSides:
    """Return a pair of exchanges; without the broker's side if it is the same."""
    if front is None or behind is None:
        return BothSides(front and front[1], behind and behind[1])
    return BothSides(front[1], None if same(front[0].seen, behind[0].seen) else behind[1])


def same(front: ObservedExchange, behind: ObservedExchange) -> bool:
    """Return True if the same bytes passed at both sides, as far as they are kept."""
    for one, other, direction in (
        (front.request, behind.request, "request"), (front.answer, behind.answer, "response"),
    ):  # fmt: skip
        if one is None or other is None:
            if one is not other:
                return False
        elif one.size != other.size or one.data != other.data:
            if one.size != other.size or one.form == other.form:
                return False
            first, second = thinned(one, front, direction), thinned(other, behind, direction)
            if first is None or second is None or first.data != second.data:
                return False
    return True


def ended(pair: BothSides) -> float:
    """Return when an exchange was over, or when it began if it has no response."""
    seen = pair.front or pair.behind
    frame = None if seen is None else seen.answer or seen.request
    return 0.0 if frame is None else frame.last


def over(taken: TapedExchange) -> float:
    """Return the end time of an exchange; an exchange with a pending response sorts last."""
    if taken.answered is not None:
        return taken.answered
    return taken.request.last if taken.seen.outcome == "no_answer_due" else math.inf


def judged(tape: TapeReader, asked: Mapping[str, Any], *, alone: bool) -> Verdict:
    """Return the findings that a tape proves. `asked`: the arguments of a test; `alone`: the topics and groups are
    exclusive to the test. Raises Misuse for arguments that are wrong."""
    terms = terms_asked(asked)
    if terms.view != "clients" and not tape.knows_brokers:
        terms = replace(terms, view="clients")
        terms.incomplete.append(outside("the tape has dropped exchanges at the brokers"))
    if tape.forgotten:
        terms.incomplete.append(outside(f"{tape.forgotten} older exchanges were dropped from the tape"))
    for (number, what), size in tape.invalid.items():
        text = f"connection {number}: expected the size of a {what}, got {size}; frames after it are not read"
        terms.incomplete.append(MissingPart(text, undecided=tape.apis_of(number)))
    if asked.get("assume_complete") is None:
        complete = alone and not tape.began_before and not terms.incomplete
        terms = replace(terms, assume_complete=complete, from_start=complete)
    pairs = tape.pairs()
    verdict = verify(pairs, terms)
    if any(one.batches for one in verdict.findings):
        explain(verdict, pairs)
    return verdict


def failure(tape: TapeReader, asked: Mapping[str, Any], given: FailOnTerm, *, alone: bool) -> str:
    """Return the report if there are findings of `fail_on`, the empty text otherwise. Raises Misuse."""
    try:
        policy = fail_on(given)
    except BadTerm as error:
        raise Misuse(f"fail_on: {error}") from None
    level = terms_asked(asked).level
    verdict = judged(tape, {**asked, "level": max(level, policy.lowest, key=LEVELS.index)}, alone=alone)
    policy.decide(verdict, level)
    return report_text(verdict, "the exchanges of this test") if verdict.exit_code else ""


def terms_asked(asked: Mapping[str, Any]) -> VerifyTerms:
    """Return the terms that a test's arguments ask for. Raises Misuse."""
    for name in sorted(set(asked) - ARGUMENTS):
        raise Misuse(f"expected an argument of verify, got {name!r}; arguments: {', '.join(sorted(ARGUMENTS))}")
    try:
        return terms_of(asked)
    except BadTerm as error:
        raise Misuse(f"{error.name}: {error}") from None
