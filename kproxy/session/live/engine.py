"""Live rules and requests: which rules apply to a request, which of them fire, and how that changes the request.

Strategy. Everything is decided in one call, once a frame: rules in file order, each with the entities that no earlier
rule has taken out (see `RequestEvaluation`). A waiting frame keeps its evaluation; nothing is counted twice. Rules that
act on the response are kept with the exchange, and are evaluated in `response_evaluation.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from kproxy.base.cooperative import defer_free, yielding
from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_request, decode_response, encode
from kproxy.protocol.codec.message import Message
from kproxy.protocol.table.api_keys import FETCH, METADATA, PRODUCE, SHARE_ACKNOWLEDGE, SHARE_FETCH
from kproxy.rules.bodies import PartitionBody, partitions_of_answer, partitions_of_request
from kproxy.rules.content.edits import RECORDS
from kproxy.rules.content.schemas import SchemaKey, unknown_schemas
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import (
    Answer,
    Await,
    Close,
    ConnectionView,
    Decision,
    Delay,
    Drop,
    Edit,
    Fail,
    FrameDepth,
    Hold,
    Reframe,
    Swallow,
    Throttle,
    TrafficShape,
)
from kproxy.rules.kinds.base.record_selector import NOT_ENOUGH_REPLICAS, schema_reason
from kproxy.rules.kinds.base.rule import UNCOUNTED
from kproxy.rules.rule_set import ActiveRule
from kproxy.session.cluster import Cluster
from kproxy.session.commands import CLIENT, Reshape
from kproxy.session.compiled_rule import CompiledRule
from kproxy.session.fetch_sessions import LISTING, SHARE_LISTING
from kproxy.session.frame import RequestView
from kproxy.session.partition_session import OPENING
from kproxy.session.plan import Step
from kproxy.session.respond.error_responses import Failure, fail, fail_each
from kproxy.session.respond.merge import without
from kproxy.session.rewrite.context import NeedsLookup
from kproxy.session.rule_program import RuleProgram
from kproxy.session.session_state import DRAINING, SessionState

from .entity_resolver import EntityResolver
from .evaluation import (
    EvaluatedExchange,
    PendingResponse,
    RequestEvaluation,
    TriggerResults,
    UnmatchedRequest,
    may_hold,
    passes_filter,
)
from .response_redaction import RedactionState
from .selection import MOST_MATCHED, CachedAnswer, FrameTemplate, Selection, SessionSelection, key_of

NO_TOPICS: dict[str, list[str]] = {"topics": []}
"""Asks which brokers there are, from Metadata 1 on. An answer that names none is believed by no client."""
SESSIONS = {FETCH: LISTING} | dict.fromkeys((SHARE_FETCH, SHARE_ACKNOWLEDGE), SHARE_LISTING)
"""How the requests list partitions that belong to sessions."""


class Engine:
    """Live rules of one connection, applied to its requests."""

    __slots__ = ("_redaction", "change", "cluster", "session", "shapes", "shaping", "subjects", "view")

    def __init__(self, session: SessionState) -> None:
        names = session.plan.bound.names
        self.session = session
        self.cluster = Cluster(session.context, None if names is None else names.topics)
        self.view = ConnectionView(session.facts, session.number, self.cluster, session.identity)
        self.view.unix_time, self.view.decoder = session.shared.unix_time, session.shared.decoder
        self.view.trace_sample, self.view.content = session.shared.trace_sample, session.shared.content
        self.subjects = EntityResolver(session, self.cluster)
        self._redaction: RedactionState | None = None
        self.shapes: tuple[TrafficShape, ...] = ()
        self.shaping: dict[ActiveRule, TrafficShape] = {}  # by the rules in force, dry runs included
        self.change: float | None = None  # when it has to be processed again

    @property
    def redaction(self) -> RedactionState:
        """Return the state of the redaction of responses, made when the first rule needs it."""
        if self._redaction is None:
            self._redaction = RedactionState(self.session.context, self.cluster)
        return self._redaction

    # ---- the connection

    def connect(self, now: float) -> None:
        """Apply the rules about connections to a client that has just connected; the first one that ends the connection
        wins."""
        session = self.session
        decided = False
        for running in session.plan.connecting:
            rule = running.rule
            if not rule.connects or not (rule.match is None or rule.match.of_connection):
                continue
            if decided:
                self.count_handled(running, None, now)
                continue
            fired = running.trigger.fires(now, self.view.number)
            decisions = self.decided(running, now) if fired else ()
            running.count(fired=bool(decisions) if running.dry_run else fired)
            for decision in decisions if not running.dry_run else ():
                match decision:
                    case Close(how=how):
                        session.mark(CLIENT, [running])
                        session.close_by_rule(how, [running])
                        decided = True
                        break
                    case Swallow() | Drop():
                        session.mark(CLIENT, [running])
                        session.stall()
                        decided = True
                        break
                    case Delay(seconds=seconds):
                        running.was_applied()
                        session.flow.delay_client(seconds, now, session.timers)
                    case _:
                        raise TypeError(f"{type(decision).__name__} is not for connections")

    def decided(self, running: ActiveRule, now: float) -> Sequence[Decision]:
        """Return the decisions of the rule about a new connection; none, and counted, if its effect raises."""
        try:
            return running.effect.on_connect(self.view, now)
        except Exception as error:  # noqa: BLE001  # as in `asked`
            running.failed(error)
            self.session.counters.count("rules_failed")
            return ()

    def reshape(self, now: float) -> None:
        """Find out which rules shape the connection's bytes now, and set a timer for the next change. During a drain no
        rule does."""
        session, before, self.shaping = self.session, self.shaping, {}
        changes = []
        for running in session.plan.shaped if session.phase is not DRAINING else ():
            shape = running.effect.shape(self.view)
            if shape is None:
                continue
            change = running.trigger.next_change(now)
            if change is not None:
                changes.append(change)
            if running.trigger.open(now):
                self.shaping[running] = shape
        for running, shape in self.shaping.items():
            if before.get(running) != shape:
                running.count(fired=True)
                if not running.dry_run:
                    running.was_applied()
        if changes and (self.change is None or not now < self.change <= min(changes)):
            self.change = min(changes)
            session.timers.at(self.change, self.reshape)
        shapes = tuple(shape for running, shape in self.shaping.items() if not running.dry_run)
        if shapes != self.shapes:
            self.shapes = shapes
            session.commands.append(Reshape(shapes))

    # ---- requests

    def request(
        self,
        frame: RequestView,
        came: float,
        drawn: TriggerResults | None = None,
        template: FrameTemplate | None = None,
        cached: Selection | None = None,
    ) -> RequestEvaluation | UnmatchedRequest | NeedsLookup | None:
        """Evaluate the rules for a request; the first bytes that the step's rule program needs have arrived.

        `drawn`: results of triggers evaluated earlier, by rule. `template`: cached facts of requests with the same
        beginning. `cached`: entities of such a request about the same partition.

        Return None if no rule applies, and UnmatchedRequest if rules apply to the response only. The call is repeated
        after a lookup. Raises DecodeError.
        """
        assert frame.step.program is not None
        every = program = frame.step.program
        if template is not None:
            candidates = template.candidates
        else:
            prefilter = program.prefilter
            candidates = None if prefilter is None else prefilter.candidates(frame, self.view, self.cluster)
        if candidates is not None:
            if not candidates and not program.screens:
                return None
            if not candidates and (self._redaction is None or not self._redaction.ids):
                return UnmatchedRequest(bytes(frame.buf[frame.start : frame.end]), came)
            if candidates:
                program = program.chosen(candidates) or program
        exchange = self.exchange(frame, program, came)
        evaluation = RequestEvaluation(exchange, drawn)
        evaluation.candidates = candidates
        needed = self.redaction.unknown(exchange) if program.screens else None
        selection = self.select(frame, exchange, every, needed, cached)
        if isinstance(selection, NeedsLookup):
            return selection
        if isinstance(selection, Selection):
            evaluation.selection = selection
        if isinstance(selection, Failure):
            self.reset_session(evaluation, exchange, selection)
            return evaluation
        if self.evaluate_rules(exchange, selection, evaluation, came) and (
            candidates is not None or every.decided_by_header
        ):
            asked = (*evaluation.drawn, *evaluation.asked)
            if template is None or template.may_wait:
                evaluation.fast_path_args = terms_of(asked, exchange)
            evaluation.pending_triggers = program.waiting(asked, evaluation.fast_path_args)
        if evaluation.final:
            return evaluation
        self.conclude(evaluation, exchange, selection)
        if evaluation.answer is not None or not exchange.response_depth():
            exchange.end()
        else:
            exchange.outlive(frame)
        return evaluation

    def select(
        self, frame: RequestView, exchange: EvaluatedExchange, every: RuleProgram, needed: NeedsLookup | None,
        cached: Selection | None,
    ) -> Selection | SessionSelection | Failure | NeedsLookup:  # fmt: skip
        """Return the entities of the request that rules of the program `every` select, or the error of a request of an
        unknown session. A lookup contains the lookup `needed`. Raises DecodeError."""
        if not exchange.program.reads_entities:
            return needed or Selection(every, ())
        found = cached if needed is None and cached is not None else self.subjects.of(exchange, every, frame, needed)
        if isinstance(found, (Selection, SessionSelection)):
            exchange.find = found.all
        if isinstance(found, Selection):
            exchange.listed = found.entities
            if exchange.program.reads_schemas:
                return self.schemas_of_request(exchange, found) or found
        return found

    # ---- schemas for conditions about records

    # The records are read before the rules are evaluated: an evaluation draws triggers, so it cannot be repeated.
    def schemas_of_request(self, exchange: EvaluatedExchange, selection: Selection) -> NeedsLookup | None:
        """Return the lookup of schemas that conditions about the records of a Produce need; None: no lookup, or its
        result is known."""
        self.view.decoder, looked_up = self.session.shared.decoder, self.session.context.looked_up
        waited = looked_up is not None and looked_up.schemas
        if waited or exchange.api.key != PRODUCE or self.session.shared.find_schemas() is None:
            return None
        every = selection.program
        entities: dict[Entity, None] = {}
        subjects = False
        for number in every.index.candidates(exchange, selection.groups):
            part = every.parts[number]
            excluded = part.matcher.holds(exchange) if part.running.rule.reads_schemas else None
            if excluded is not None:
                entities |= dict.fromkeys(selection.matched(part, number, excluded, ()))
                subjects = subjects or part.running.rule.selects_subjects
        return self.unknown_schemas(partitions_of_request(exchange, tuple(entities)), subjects)

    def schemas_of_response(self, exchange: EvaluatedExchange, content: bytes) -> NeedsLookup | None:
        """Return the lookup of schemas that conditions about the records of a response need, as `schemas_of_request`.
        `content`: the response without its size."""
        pending = [one for one in exchange.pending if one.part.running.rule.reads_schemas]
        self.view.decoder = self.session.shared.decoder
        if not pending or self.session.shared.find_schemas() is None:
            return None
        try:
            exchange.answer_is(decode_response(content, exchange.api.key, exchange.version, trailing=True))
        except DecodeError:
            return None
        entities = tuple(dict.fromkeys(entity for one in pending for entity in one.entities))
        subjects = any(one.part.running.rule.selects_subjects for one in pending)
        return self.unknown_schemas(partitions_of_answer(exchange, entities), subjects)

    def unknown_schemas(self, partitions: Iterable[PartitionBody], subjects: bool) -> NeedsLookup | None:
        cache = self.session.shared.find_schemas()
        unknown: dict[SchemaKey, None] = {}
        most = self.view.content.max_decompressed_bytes
        for place in partitions:
            data = place.body.get(RECORDS)
            if data and cache is not None:
                unknown_schemas(data, cache, unknown, subjects=subjects, most=most)
        return NeedsLookup(schemas=tuple(unknown)) if unknown else None

    def evaluate_rules(
        self, exchange: EvaluatedExchange, selection: Selection | SessionSelection, evaluation: RequestEvaluation,
        now: float,
    ) -> bool:  # fmt: skip
        """Apply all rules that can apply, until one ends the frame or nothing is left; return True if each was
        asked."""
        every, size = selection.program, len(selection)
        numbers = iter(every.index.candidates(exchange, selection.groups))
        for number in numbers:
            self.evaluate_rule(every.parts[number], number, exchange, selection, evaluation, now)
            if evaluation.final or (size and (exchange.decided or len(exchange.failures) == size)):
                for left in numbers if every.counts_all else ():
                    self.count_matching(every.parts[left], left, exchange, selection, evaluation, now)
                return False
        return True

    def count_matching(
        self, part: CompiledRule, number: int, exchange: EvaluatedExchange, selection: Selection | SessionSelection,
        evaluation: RequestEvaluation, now: float,
    ) -> None:  # fmt: skip
        """Count the request for a rule that counts all and matches it, although others have decided about it."""
        running, matcher = part.running, part.matcher
        if not running.counts_all or part.by_response or part.late or running in evaluation.drawn:
            return
        excluded = matcher.holds(exchange)
        if excluded is None:
            return
        if matcher.entity is not None or selection or part.records is not None:
            matched = selection.matched(part, number, excluded, ())
            if part.records is not None and matched:
                matched = part.records.matching(exchange, matched, now, running.records)
            if not matched and not matcher.of_none(exchange):
                return
        if not part.wanted or passes_filter(self.session, part, exchange, None, now):
            self.count_handled(running, exchange.client_id, now)

    def count_handled(self, running: ActiveRule, client_id: str | None, now: float) -> None:
        """Count a request or connection that the rule can no longer act on, if it counts all matches."""
        if running.counts_all:
            running.trigger.count_handled(now, self.view.number, client_id)
            running.count(fired=False)

    def may_show(self, program: RuleProgram, frame: bytes) -> bool:
        """Return True if the answer `frame`, without its size, has to be read to find out whether it mentions what is
        forbidden."""
        scan = program.answer_scan
        return scan is None or scan.may_name(self.cluster, frame, 0, len(frame), "response")

    def watched(self, step: Step, watched: UnmatchedRequest) -> EvaluatedExchange:
        """Return the exchange of a request without applicable rules, for rules that check its response."""
        program = step.program
        assert program is not None
        exchange = self.exchange(RequestView.of(step, watched.request, watched.came), program, watched.came)
        exchange.pend_screens()
        return exchange

    def reset_session(self, evaluation: RequestEvaluation, exchange: EvaluatedExchange, failure: Failure) -> None:
        """Answer with the error of an unknown fetch or share session, so that the client lists all its partitions."""
        answer = fail(exchange.request, failure)
        if "session_id" in answer.body:
            answer.body["session_id"] = 0  # brokers use it for "none"
        evaluation.answer = encode(answer)
        exchange.decided = True

    def exchange(self, frame: RequestView, program: RuleProgram, came: float) -> EvaluatedExchange:
        """Return a new exchange for the request; its body is decoded only when a rule asks for it."""
        client_id = frame.client_id if program.names_client else None
        exchange = EvaluatedExchange(
            frame.step, program, self.view, frame.correlation, client_id, frame.end - frame.start - 4, came
        )
        if program.request == FrameDepth.BODY:
            exchange.read_request = lambda: decode_request(frame.buf[frame.start + 4 : frame.end], trailing=True)
        if program.filters:
            exchange.content = frame.content
        exchange.acks = frame.acks
        return exchange

    def evaluate_rule(
        self, part: CompiledRule, number: int, exchange: EvaluatedExchange, selection: Selection | SessionSelection,
        evaluation: RequestEvaluation, now: float,
    ) -> None:  # fmt: skip
        """Apply one rule: match its selectors, evaluate its trigger, and apply its effect's decision."""
        running, matcher = part.running, part.matcher
        excluded = matcher.holds(exchange)
        if excluded is None:
            return
        matched: Sequence[Entity] = ()
        if matcher.entity is not None or selection or part.records is not None:
            matched = selection.matched(part, number, excluded, exchange.failures)
            if part.records is not None and not part.records.response and matched:
                waiting: list[Entity] = []
                matched = part.records.matching(exchange, matched, now, running.records, waiting)
                if waiting and not running.dry_run:
                    retry = Fail(NOT_ENOUGH_REPLICAS, schema_reason(running.name), tuple(waiting))
                    evaluation.act(running)
                    self.apply_decision(retry, running, waiting, selection, evaluation, now)
            if not matched and not matcher.of_none(exchange):
                if running.counts_all and exchange.failures:
                    self.count_matching(part, number, exchange, selection, evaluation, now)
                if part.screens:
                    self.redaction.begin(part, exchange, evaluation, judged=False)
                return
        if len(matched) > MOST_MATCHED and exchange.session is not None and not running.dry_run:
            unknown = self.subjects.too_many(exchange, exchange.session)
            if unknown is not None:
                self.reset_session(evaluation, exchange, unknown)
                return
        filtered = part.wanted and (part.late or not passes_filter(self.session, part, exchange, None, now))
        if part.by_response or filtered:
            if part.response:
                exchange.pending.append(PendingResponse(part, matched, judged=False))
        elif running.dry_run:
            self.rehearse(part, matched, evaluation, now)
        elif self.fires(running, exchange, evaluation, now):
            self.run_rule(part, matched, selection, evaluation, now)

    def rehearse(
        self, part: CompiledRule, matched: Sequence[Entity], evaluation: RequestEvaluation, now: float
    ) -> None:
        """Count a rule in dry-run mode: it fires if it would act on the request, or later on the response."""
        running, exchange = part.running, evaluation.exchange
        if evaluation.drawn.get(running) is False:  # counted when the trigger was evaluated
            return
        fires = self.fires(running, exchange, evaluation, now, count=False)
        session = exchange.session
        # A rule in force ends such a session, since its effect would go through all partitions for each request.
        ends_session = session is not None and not session.opening and len(matched) > MOST_MATCHED
        acts = fires and (ends_session or running.holds)
        if fires and part.request and not acts:
            acts = self.would_act(running, exchange, matched, now)
        if fires and part.screens and not acts:
            acts = self.redaction.changes(part, exchange)
        self.counted(running, exchange, acts, response=False)
        if acts:
            exchange.counted.add(running)
        if fires and part.response and not ends_session:  # also if it acts: the effect may keep state for the response
            exchange.pending.append(PendingResponse(part, matched, judged=True))
        if fires and part.screens:
            exchange.pending.append(PendingResponse(part, (), judged=True, screens=True))

    def would_act(
        self, running: ActiveRule, exchange: EvaluatedExchange, matched: Sequence[Entity], now: float
    ) -> bool:
        """Return True if the effect of a rule in dry-run mode would act on the current frame.

        An effect that raises is counted. It would have closed the connection if the rule fails closed.
        """
        try:
            return running.effect.would_act(exchange, matched, now)
        except DecodeError:
            return not exchange.response_size  # a request that cannot be read is rejected, a response passes
        except Exception as error:  # noqa: BLE001  # as in `asked`
            running.failed(error)
            self.session.counters.count("rules_failed")
            return running.rule.fails_closed

    def count_late(self, running: ActiveRule, exchange: EvaluatedExchange) -> None:
        """Count that a rule in dry-run mode would act on the response, once an exchange."""
        if running not in exchange.counted:
            exchange.counted.add(running)
            running.count_fired()
            self.session.report_fired(running, exchange.correlation_id, None)

    def run_rule(
        self, part: CompiledRule, matched: Sequence[Entity], selection: Selection | SessionSelection,
        evaluation: RequestEvaluation, now: float,
    ) -> None:  # fmt: skip
        """Apply the effect of a rule that has fired, and keep its decision about the response."""
        running, exchange = part.running, evaluation.exchange
        if running.holds:
            evaluation.hold(running, None)
        if part.response:
            exchange.pending.append(PendingResponse(part, matched, judged=True))
        if part.screens:
            self.redaction.begin(part, exchange, evaluation, judged=True)
        if part.request:
            for decision in self.call_effect(running, exchange, matched, now):
                if isinstance(decision, Hold):
                    if may_hold(self.session, running, decision, exchange.request_size):
                        evaluation.hold(running, decision)
                    continue
                if decision != UNCOUNTED:
                    evaluation.act(running)
                self.apply_decision(decision, running, matched, selection, evaluation, now)

    def fires(
        self, running: ActiveRule, exchange: EvaluatedExchange, evaluation: RequestEvaluation, now: float, *,
        count: bool = True,
    ) -> bool:  # fmt: skip
        """Return the result of the trigger of a rule that matches a request; evaluate it unless that was done before.

        `count`: count the result here, with the match.
        """
        fired = evaluation.drawn.get(running)
        if fired is False:  # which was counted when the trigger was evaluated
            return False
        if fired is None:
            evaluation.asked.append(running)
            trigger = running.trigger
            fired = trigger.when is None or trigger.fires(now, self.view.number, exchange.client_id)
        if count:
            self.counted(running, exchange, fired, response=False)
        return fired

    def counted(self, running: ActiveRule, exchange: EvaluatedExchange, fired: bool, *, response: bool) -> None:
        """Count that the rule's selectors matched this exchange, and whether its trigger fired (`fired`), at its
        request or response; notify the observer if it fired."""
        answered = None if response else exchange.acks != 0
        self.session.counted(running, exchange.correlation_id, fired=fired, answered=answered)

    def call_effect(
        self, running: ActiveRule, exchange: EvaluatedExchange, matched: Sequence[Entity], now: float
    ) -> Sequence[Decision]:
        """Return the decisions of the rule's effect about the request, or about the response once it has come.

        An effect that raises is counted and decides nothing (promise 5). If its rule fails closed, the connection is
        closed.
        """
        answered = bool(exchange.response_size)
        decide = running.effect.on_response if answered else running.effect.on_request
        try:
            return decide(exchange, matched, now)
        except Exception as error:  # traffic of others continues in any case
            if isinstance(error, DecodeError) and not answered:
                raise  # an unreadable request must not bypass a rule
            running.failed(error)
            self.session.counters.count("rules_failed")
            return (Close("fin"),) if running.rule.fails_closed else ()

    # ---- decisions

    def apply_decision(
        self, decision: Decision, running: ActiveRule, matched: Sequence[Entity],
        selection: Selection | SessionSelection, evaluation: RequestEvaluation, now: float,
    ) -> None:  # fmt: skip
        """Note in the evaluation and its exchange how one decision changes them. Raises TypeError for one meant for
        responses."""
        exchange = evaluation.exchange
        match decision:
            case Fail(code=code, message=message, entities=chosen, whole=whole, records=records):
                failure = Failure(code, message, records)
                if whole:
                    exchange.whole = failure
                    exchange.decided = True
                else:
                    for entity in yielding(chosen or matched) if not exchange.decided else ():
                        if chosen and entity not in selection:
                            continue
                        if exchange.failures.setdefault(entity, failure) is failure:
                            exchange.refuses |= running.rule.family != "fault"
            case Answer(body=body):
                header = {"correlation_id": exchange.correlation_id}
                self.answer(evaluation, Message(exchange.api, exchange.version, header, body))
                exchange.decided = True
            case Edit():
                evaluation.edited = True
            case Delay() | Await():
                evaluation.postpone(running, decision, now)
            case Throttle():
                evaluation.throttle_by(running, decision)
            case Reframe(change=change, then=then):
                evaluation.changes.append(change)
                evaluation.then = then or evaluation.then
            case Drop(then=then_):
                evaluation.drop = then_
            case Close(how=how):
                evaluation.close = how
            case Swallow():
                evaluation.swallow = True
            case _:
                raise TypeError(f"{type(decision).__name__} is for responses")

    def conclude(
        self, evaluation: RequestEvaluation, exchange: EvaluatedExchange, selection: Selection | SessionSelection
    ) -> None:
        """Make the answer or the frame that leaves, once all rules have been applied."""
        if exchange.whole is not None and evaluation.answer is None:
            if exchange.acks == 0:
                evaluation.close = "fin"
            else:
                self.answer(evaluation, fail(exchange.request, exchange.whole))
                exchange.whole = None
        elif exchange.failures and evaluation.answer is None:
            if exchange.api.key == FETCH and not exchange.refuses:
                exchange.refuses = self.hides(exchange, selection)
            self.fail_some(evaluation, exchange, selection)
        if exchange.find is not None and evaluation.answer is None and not evaluation.final:
            sent = self.subjects.forwarded(exchange, exchange.failures)
            if sent is not None:
                defer_free(sent.body)
                evaluation.frame = encode(sent)
        if evaluation.edited and evaluation.frame is None and evaluation.answer is None and not evaluation.final:
            evaluation.frame = encode(exchange.request)

    def hides(self, exchange: EvaluatedExchange, selection: Selection | SessionSelection) -> bool:
        """Return True if an access rule forbids an entity that a fault rule before it has answered with an error."""
        for number, part in enumerate(selection.program.parts):
            if part.running.rule.family == "access" and not part.running.dry_run:
                excluded = part.matcher.holds(exchange)
                matched = () if excluded is None else selection.matched(part, number, excluded, ())
                if any(one in exchange.failures for one in yielding(matched)):
                    return True
        return False

    def answer(self, evaluation: RequestEvaluation, response: Message) -> None:
        """Answer the request in the broker's place with `response`."""
        exchange = evaluation.exchange
        defer_free(response.body)
        if exchange.throttle > 0 and "throttle_time_ms" in response.body:
            response.body["throttle_time_ms"] = milliseconds(exchange.throttle)
        if exchange.find is not None:
            self.subjects.answered_here(exchange, response)
        evaluation.answer = encode(response)

    def fail_some(
        self, evaluation: RequestEvaluation, exchange: EvaluatedExchange, selection: Selection | SessionSelection
    ) -> None:
        """Take the failed entities, perhaps all, out of the request so that the broker does not see them; answer for
        them here."""
        failures = exchange.failures
        all_ = len(failures) == len(selection)
        if exchange.api.key == FETCH and not exchange.refuses:  # a broker's session continues despite faults
            exchange.request.body["max_wait_ms"] = 0  # the broker answers at once, and its answer is overwritten
            exchange.late, exchange.failures = failures, {}
            evaluation.edited = True
            return
        if exchange.api.key in SESSIONS:
            self.refuse_some(evaluation, exchange, all_)
            return
        rest = without(exchange.request, tuple(failures)) if not all_ else None
        if rest is None and exchange.api.key == METADATA and exchange.version > 0:
            rest = replace(exchange.request, body=exchange.request.body | NO_TOPICS)
        if exchange.acks == 0:  # no response: a broker closes, so that the client looks for another leader
            evaluation.close_after = "fin"
            evaluation.frame = encode(rest) if rest is not None else None
            evaluation.close = "fin" if rest is None else None
        elif rest is not None:
            evaluation.frame = encode(rest)
        elif isinstance(selection, SessionSelection) or not selection.names_one or exchange.throttle:
            self.answer(evaluation, fail_each(exchange.request, failures))
        else:
            self.answer_one(evaluation, exchange, selection)

    def answer_one(self, evaluation: RequestEvaluation, exchange: EvaluatedExchange, selection: Selection) -> None:
        """Answer a request about one entity, with the cached response if the error is the same."""
        (failure,), cached, program = exchange.failures.values(), selection.answer, exchange.program
        if cached is not None and cached.failure == failure:
            evaluation.answer = exchange.correlation_id.to_bytes(4, "big", signed=True) + cached.content
        else:
            self.answer(evaluation, fail_each(exchange.request, exchange.failures))
        repeats = evaluation.by_triggers and program.decided_by_prefix and not program.counts_all
        if evaluation.answer is not None and not failure.records:
            asked = (*evaluation.drawn, *evaluation.asked) if repeats else ()
            selection.answer = CachedAnswer(failure, asked, evaluation.answer[4:])

    def refuse_some(self, evaluation: RequestEvaluation, exchange: EvaluatedExchange, all_: bool) -> None:
        """Refuse partitions of a Fetch or share request, which are not forwarded; its session can leave them out.

        A Fetch goes on without a session, so that none holds a refused partition; the client lists all of them each
        time.
        """
        request, listing = exchange.request, SESSIONS[exchange.api.key]
        refused = {key_of(one) for one in yielding(exchange.failures)}
        left = any(key not in refused for key, _ in listing.listed(request.body))
        if exchange.api.key == FETCH:
            goes_on = left
            if exchange.session is not None and not left:
                self.subjects.end(exchange, exchange.session)
        else:
            goes_on = not all_ and (left or request.body["share_session_epoch"] != OPENING)
        if goes_on:
            evaluation.edited = True  # `forwarded` leaves them out
        else:
            self.answer(evaluation, fail_each(request, exchange.failures))


def terms_of(asked: Iterable[ActiveRule], exchange: EvaluatedExchange) -> dict[ActiveRule, Any]:
    """Return the terms for requests with this beginning, of the rules that have terms."""
    found = {}
    for running in asked:
        if not running.holds and (terms := running.terms(exchange)) is not None:
            found[running] = terms
    return found


def milliseconds(seconds: float) -> int:
    """Return the milliseconds for a throttle_time_ms field, which is 32 bits wide."""
    return min(round(seconds * 1000), 2**31 - 1)
