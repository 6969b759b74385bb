"""Live rules and responses: applies the rules that fired for the request, or that select on the broker's error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kproxy.base.cooperative import defer_free, yielding
from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_response, encode
from kproxy.protocol.codec.message import Message
from kproxy.protocol.scan.walk import error_codes_in
from kproxy.rules.bodies import partitions_of_answer
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import (
    Close,
    Decision,
    Delay,
    Drop,
    Edit,
    Fail,
    Hold,
    LeaveOut,
    Reframe,
    Repeat,
    Swallow,
    Swap,
    Throttle,
)
from kproxy.rules.kinds.base.access import can_say
from kproxy.rules.kinds.base.content_rule import hold, hold_delay
from kproxy.rules.kinds.base.records_rule import edits_of
from kproxy.rules.rule_set import ActiveRule
from kproxy.session.compiled_rule import CompiledRule
from kproxy.session.respond.error_responses import Failure, errors_of, fail
from kproxy.session.respond.merge import leave_out, merge, overwrite, overwrite_top

from .engine import Engine, milliseconds
from .evaluation import EvaluatedExchange, Evaluation, PendingResponse, may_hold, passes_filter


class ResponseEvaluation(Evaluation):
    """Decisions about one response, made when the bytes that its exchange needs have arrived.

    repeat, swap   number of extra copies; it is sent after the next one
    hint           throttle_time_ms of the response in seconds, where it is patched in place
    whole          it was complete when evaluated
    content        its bytes as the client would get them without rules, without the size
    late           the response with the error of a rule that will hold it
    """

    repeat = 0
    swap = whole = changed = shows = False
    hint = 0.0
    late: bytes | None = None
    content: bytes | None = None
    errors: Mapping[Entity, int] | None = None

    def __init__(self, engine: Engine, exchange: EvaluatedExchange, now: float) -> None:
        super().__init__(exchange)
        self.engine, self.session, self.now = engine, engine.session, now

    @property
    def replaces(self) -> bool:
        """Return True if other bytes than those of the response leave, or at another time, or the connection ends."""
        changes = bool(self.changes or self.repeat or self.swap)
        return changes or self.frame is not None or self.drop is not None or self.then is not None

    def evaluate(self, size: int, frame: bytes | None) -> None:
        """Evaluate the response; `frame` is the client's, without its size, or None where rules act on the header only.
        A response that cannot be decoded passes unchanged, counted, unless a rule fails closed: the connection ends."""
        exchange = self.exchange
        exchange.response_size, self.content = size, frame
        if frame is not None and exchange.pending:
            self.shows = self.engine.may_show(exchange.program, frame)
            if exchange.only_leaves_out and not self.shows:
                return
        readable = frame is not None and self.read(frame)
        if frame is not None and not readable:
            self.session.counters.count("response_unreadable")
            deciding = (pending.part.running for pending in exchange.pending)
            if any(running.rule.fails_closed and not running.dry_run for running in deciding):
                self.close = "fin"  # the response may contain names or values that the rule forbids
        if frame is not None and exchange.awaits:
            self.engine.subjects.answered(exchange, exchange.response if readable else None)
        if readable:
            self.merge()
        for pending in exchange.pending:
            if (readable or frame is None) and not self.final:
                self.consider(pending)
        if frame is None:
            self.hint = exchange.throttle
        elif readable:
            self.frame = self.encoded(frame)
            if self.changed and self.frame is not None:
                self.report_codes(frame, self.frame)

    def report_codes(self, frame: bytes, sent: bytes) -> None:
        """Tell the observer of error codes that an effect has put into the response itself."""
        observer, key, version = self.session.observer, self.exchange.api.key, self.exchange.version
        if observer is not None:
            before, after = (set(error_codes_in(key, version, one, 0, len(one))[1]) for one in (frame, sent))
            if after - before:
                observer.failed(self.exchange.correlation_id, after - before)

    def read(self, frame: bytes) -> bool:
        exchange = self.exchange
        try:
            exchange.answer_is(decode_response(frame, exchange.api.key, exchange.version, trailing=True))
        except DecodeError:
            return False
        return True

    def merge(self) -> None:
        """Put the errors into the response that were decided when the request came."""
        exchange = self.exchange
        if exchange.failures:
            self.becomes(merge(exchange.request, exchange.response, exchange.failures), exchange.failures)
        if exchange.late:
            self.becomes(overwrite(exchange.request, exchange.response, exchange.late), exchange.late)
        if exchange.whole is not None:
            self.becomes(overwrite_top(exchange.response, exchange.whole), exchange.whole)

    def becomes(self, response: Message, failed: Mapping[Entity, Failure] | Failure) -> None:
        """Take this response in place of the one that came. `failed`: entities, or the response as a whole."""
        self.exchange.answer_is(response)
        defer_free(response.body)
        self.edited = True
        observer = self.session.observer
        if observer is not None:
            failures = [failed] if isinstance(failed, Failure) else failed.values()
            observer.failed(self.exchange.correlation_id, {one.code for one in failures})

    def consider(self, pending: PendingResponse) -> None:
        """Apply one rule that waited for the response: select on its errors, ask its trigger, take what its effect
        decides."""
        running, matched = pending.part.running, pending.entities
        if pending.screens:
            self.screen(pending)
            return
        if not pending.judged:
            found = self.selected(pending.part, matched) if pending.part.by_response else matched
            if found is None or not self.passes(pending.part):
                return
            matched = found
            fired = running.trigger.fires(self.now, self.engine.view.number, self.exchange.client_id)
            self.engine.counted(running, self.exchange, fired and not running.dry_run, response=True)
            if not fired:
                return
        if running.dry_run:
            if running.holds or self.engine.would_act(running, self.exchange, matched, self.now):
                self.engine.count_late(running, self.exchange)
            return
        for decision in self.engine.call_effect(running, self.exchange, matched, self.now):
            if isinstance(decision, Hold):
                if may_hold(self.session, running, decision, self.exchange.response_size):
                    self.hold(running, decision)
                    self.late = self.late or self.failed(decision)
                continue
            if isinstance(decision, LeaveOut):
                if not leave_out(self.exchange.request, self.exchange.response, decision.visible):
                    continue
                decision = Edit()
            self.act(running)
            self.take(decision, running, matched)

    def passes(self, part: CompiledRule) -> bool:
        """Return True if the exchange passes the rule's filter, evaluated with its response."""
        return not part.wanted or passes_filter(self.session, part, self.exchange, self.content, self.now)

    def failed(self, hold: Hold) -> bytes | None:
        """Return the response with the error of a hold's timeout; None: no error."""
        exchange = self.exchange
        if not isinstance(hold.then, int) or not can_say(exchange.api.key, exchange.version, None):
            return None
        return encode(fail(exchange.request, Failure(hold.then)))

    def screen(self, pending: PendingResponse) -> None:
        """Leave out forbidden names from the response; count nothing if it contains none."""
        running, exchange = pending.part.running, self.exchange
        if pending.part.letters is not None and not self.shows:
            return
        if not self.engine.redaction.find(running.rule, exchange, exchange.response):
            return
        if not pending.judged:
            fired = running.trigger.fires(self.now, self.engine.view.number, exchange.client_id)
            self.engine.counted(running, exchange, fired and not running.dry_run, response=True)
            if not fired:
                return
        if running.dry_run:
            self.engine.count_late(running, exchange)
            return
        self.act(running)
        failure = self.engine.redaction.leave_out(running.rule, exchange, exchange.response)
        if failure is not None:
            self.becomes(overwrite_top(exchange.response, failure), failure)
        self.edited = True

    def selected(self, part: CompiledRule, matched: Sequence[Entity]) -> Sequence[Entity] | None:
        """Return the entities that the rule selects by errors and records in the response; None: none."""
        found = self.with_error(part, matched) if part.running.rule.selects_errors else matched
        if found and part.records is not None and part.records.response:
            waiting: list[Entity] = []
            found = part.records.matching(self.exchange, found, self.now, part.running.records, waiting)
            if waiting and not part.running.dry_run:
                self.act(part.running)
                self.hold_records(waiting)
        return found or None

    def hold_records(self, waiting: Sequence[Entity]) -> None:
        """Remove the records of partitions that wait for schemas, so that the client fetches them again."""
        edits = edits_of(self.exchange, "response")
        for place in partitions_of_answer(self.exchange, waiting):
            field = edits.field(place.body)
            if field.entries:
                hold(field, place, field.entries[0])
        self.edited = self.changed = True
        self.delay(hold_delay(self.exchange).seconds, self.now)

    def with_error(self, part: CompiledRule, matched: Sequence[Entity]) -> Sequence[Entity] | None:
        """Return the entities that the broker answered with a selected error; None: none."""
        if self.errors is None:
            asked = dict.fromkeys(
                one for pending in self.exchange.pending if not pending.judged for one in yielding(pending.entities)
            )
            self.errors = errors_of(self.exchange.request, self.exchange.response, asked)
        yes, no = part.running.rule.match, part.running.rule.not_
        found = tuple(
            entity
            for entity in yielding(matched)
            if (yes is None or yes.holds_error(self.errors.get(entity, 0)))
            and not (no is not None and no.sees_error and no.holds_error(self.errors.get(entity, 0)))
        )
        return found or None

    def take(self, decision: Decision, running: ActiveRule, matched: Sequence[Entity]) -> None:
        exchange = self.exchange
        match decision:
            case Edit():
                self.edited = self.changed = True
            case Fail(code=code, message=message, entities=chosen, whole=whole):
                failure = Failure(code, message)
                if whole or not (chosen or matched):
                    self.becomes(overwrite_top(exchange.response, failure), failure)
                else:
                    failures = dict.fromkeys(yielding(chosen or matched), failure)
                    self.becomes(overwrite(exchange.request, exchange.response, failures), failures)
            case Delay(seconds=seconds):
                self.delay(seconds, self.now)
            case Throttle():
                self.throttle_by(running, decision)
            case Reframe(change=change, then=then):
                self.changes.append(change)
                self.then = then or self.then
            case Repeat(times=times):
                self.repeat += times
            case Swap():
                self.swap = True
            case Drop(then=then_):
                self.drop = then_
            case Close(how=how):
                self.close = how
            case Swallow():
                self.swallow = True
            case _:
                raise TypeError(f"{type(decision).__name__} is for requests")

    def encoded(self, frame: bytes) -> bytes | None:
        """Return the response's bytes if they differ from the received ones, else None."""
        exchange = self.exchange
        body = exchange.response.body
        told = milliseconds(exchange.throttle)
        if told and body.get("throttle_time_ms", told) < told:
            body["throttle_time_ms"] = told
            self.edited = True
        return encode(exchange.response) if self.edited else None
