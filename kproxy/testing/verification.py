"""Verification of a test's tape: its exchanges in pairs of both sides, and the terms under which they are judged."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kproxy.protocol.framing import acks_of
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.record.captures.pairs import BothSides, SideMatcher
from kproxy.record.exchange import ExchangeOutcome, Form, Frame, ObservedExchange
from kproxy.tools.verify import Verdict, VerifyTerms, explain, verify
from kproxy.tools.verify.finding import LEVELS
from kproxy.tools.verify.options import BadTerm, FailOnTerm, MissingPart, fail_on, outside, terms_of
from kproxy.tools.verify.report import report_text

from .exchanges import Topics
from .recorder import Tape, TapedConnection, TapedExchange, TapedFrame, wants_no_answer
from .rule_arguments import Misuse

ARGUMENTS = frozenset(
    ("view", "only", "without", "level", "compacted", "not_compacted", "retention", "complete", "records")
)
"""Names of a test's arguments for its verification, besides `fail_on`."""
NO_HEADER = 8
"""Bytes that a request has at least."""


class TapedWho:
    """Connection on a tape as an `record.exchange.Who`."""

    listener = broker = None
    client_port = 0

    def __init__(self, connection: TapedConnection, topics: Topics) -> None:
        session = connection.session
        self.number, self.node, self.cluster = session.number, session.facts.node, session.facts.cluster
        self.client_address = session.facts.client_address
        self.principal = session.identity.principal
        name, _, version = (session.identity.software or "").partition("/")
        self.software_name, self.software_version = name or None, version or None
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
"""Exchange of a tape, and the same as an observer would have handed it out."""


class TapeReader:
    """Reader of a tape's exchanges in the form of those of captures. It is made in the proxy's thread, and has all that
    is on the tape then. `wall`: to add to times of the tape, for those since 1970."""

    def __init__(self, tape: Tape, topics: Topics) -> None:
        self.topics, self.wall = topics, time.time() - time.monotonic()
        self.whos: dict[int, TapedWho] = {}
        self.taken, behind = list(tape.taken), tape.behind
        self.behind = [] if behind is None else list(behind.taken)
        self.knows_brokers = behind is not None and not behind.forgotten and not behind.cut
        self.forgotten, self.cut, self.began_before = tape.forgotten, dict(tape.cut), tape.began_before

    def pairs(self) -> list[BothSides]:
        """Return the exchanges in the order of their ends, each with the exchange at the broker if it differs; those
        without an answer are at their beginning."""
        matcher = SideMatcher[Taped, Taped](math.inf)
        matched: list[tuple[Taped | None, Taped | None]] = []
        found = [*((over(one), 0, one) for one in self.behind), *((over(one), 1, one) for one in self.taken)]
        found.sort(key=lambda one: one[:2])
        for _, side, taken in found:
            if len(taken.request) < NO_HEADER or int.from_bytes(taken.request[:2], "big") not in schema.paths():
                continue  # a raw SASL token
            seen = self.observed(taken)
            matched += (matcher.front if side else matcher.behind)(seen, (taken, seen))
        pairs = [both_sides(front, behind) for front, behind in (*matched, *matcher.rest())]
        pairs.sort(key=ended)
        return pairs

    def apis_of(self, number: int) -> frozenset[str]:
        keys = {int.from_bytes(one.request[:2], "big") for one in self.taken if one.connection.session.number == number}
        return frozenset(schema.load(key).name for key in keys & schema.paths().keys())

    def observed(self, taken: TapedExchange) -> ObservedExchange:
        """Return an exchange of the tape as an observer would have handed it out."""
        request = taken.request
        key, version = (int.from_bytes(request[at : at + 2], "big", signed=True) for at in (0, 2))
        length = int.from_bytes(request[8:10], "big", signed=True)
        client_id = None if length < 0 else request[10 : 10 + length].decode("utf-8", "replace")
        connection = taken.connection
        who = self.whos.get(connection.session.number)
        if who is None:
            who = self.whos[connection.session.number] = TapedWho(connection, self.topics)
        outcome: ExchangeOutcome = "answered" if taken.told is not None else "unanswered"
        if taken.told is None and wants_no_answer(request):
            outcome = "no_answer_due"
        seen = ObservedExchange(
            who, 0, key, version, int.from_bytes(taken.correlation, "big", signed=True), client_id,
            self.frame(taken.asked, taken.came), None, outcome,
        )  # fmt: skip
        if taken.told is not None:
            seen.response = self.frame(taken.told, taken.answered or taken.came)
        if key == PRODUCE:
            seen.acks = acks_of(request, version)
        seen.rules, seen.answered_by_rule = list(taken.rules), taken.by_kproxy
        return seen

    def frame(self, frame: TapedFrame, at: float) -> Frame:
        """Return a frame of the tape with its time since 1970."""
        form = Form.HEAD if frame.cut else Form.SKETCH if frame.sketched else Form.WHOLE
        return Frame(frame.size + 4, at + self.wall, at + self.wall, frame.data, form)


def both_sides(front: Taped | None, behind: Taped | None) -> BothSides:
    """Return a pair of exchanges; without the broker's side if it is the same."""
    if front is None or behind is None:
        return BothSides(front and front[1], behind and behind[1])
    return BothSides(front[1], None if same(front[0], behind[0]) else behind[1])


def same(front: TapedExchange, behind: TapedExchange) -> bool:
    """Return True if the same bytes passed at both sides, as far as they are kept."""
    key, version = (int.from_bytes(front.request[at : at + 2], "big", signed=True) for at in (0, 2))
    for one, other, direction in (
        (front.asked, behind.asked, "request"), (front.told, behind.told, "response"),
    ):  # fmt: skip
        if one is None or other is None:
            if one is not other:
                return False
        elif one.size != other.size or one.data != other.data:
            if one.size != other.size or one.sketched == other.sketched:
                return False
            if one.thinned(key, version, direction).data != other.thinned(key, version, direction).data:
                return False
    return True


def ended(pair: BothSides) -> float:
    """Return when an exchange was over, or when it began if it has no answer."""
    seen = pair.front or pair.behind
    frame = None if seen is None else seen.answer or seen.request
    return 0.0 if frame is None else frame.last


def over(taken: TapedExchange) -> float:
    """Return the end time of an exchange; an exchange with a pending response sorts last."""
    if taken.answered is not None:
        return taken.answered
    return taken.came if wants_no_answer(taken.request) else math.inf


def judged(tape: TapeReader, asked: Mapping[str, Any], *, alone: bool) -> Verdict:
    """Return the findings that a tape proves. `asked`: the arguments of a test; `alone`: the topics and groups are
    exclusive to the test. Raises Misuse for arguments that are wrong."""
    terms = terms_asked(asked)
    if terms.view != "clients" and not tape.knows_brokers:
        terms = replace(terms, view="clients")
        terms.incomplete.append(outside("the tape has dropped exchanges at the brokers"))
    if tape.forgotten:
        terms.incomplete.append(outside(f"{tape.forgotten} older exchanges were dropped from the tape"))
    for (number, what), size in tape.cut.items():
        text = f"connection {number}: expected the size of a {what}, got {size}; frames after it are not read"
        terms.incomplete.append(MissingPart(text, undecided=tape.apis_of(number)))
    if asked.get("complete") is None:
        complete = alone and not tape.began_before and not terms.incomplete
        terms = replace(terms, complete=complete, from_start=complete)
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
        raise Misuse(f"there is no argument {name!r}; those there are: {', '.join(sorted(ARGUMENTS))}")
    try:
        return terms_of(asked)
    except BadTerm as error:
        raise Misuse(f"{error.name}: {error}") from None
