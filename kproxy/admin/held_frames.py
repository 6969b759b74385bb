"""Held frames of this process: how the admin API shows them, and the actions on them.

Reading a frame runs as a turn of its connection, not in a thread. A turn yields to other connections, and two actions
on one frame never overlap. A thread would make the event loop wait for the interpreter lock at each of its system
calls. Lists yield after each frame.
"""

from __future__ import annotations

import binascii
import math
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import trio

from kproxy.base.cooperative import free_after, yield_now, yielding
from kproxy.base.errors import plural
from kproxy.protocol import Message
from kproxy.protocol.elements import partitions
from kproxy.protocol.table.errors import error_name
from kproxy.record.live_view.frame_steps import NO_RECORDS
from kproxy.record.live_view.masks import MASKED, ViewerMasks
from kproxy.record.observer.credentials import take_out, withheld_body
from kproxy.rules.bodies import carries_records
from kproxy.rules.rule_set import HowGone
from kproxy.rules.select.selected import error_number
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.scheduler import in_turns
from kproxy.session.held_edit import BadEdit, MessageEdit, answer_of
from kproxy.session.held_frames import LONGEST_HOLD, MOST_BYTES, HeldFrame, HeldRegistry

from .held import (
    MOST_LISTED,
    AnswerBody,
    ClaimBody,
    CloseBody,
    DropBody,
    ExtendBody,
    HeldBody,
    HeldExchangeShown,
    HeldRows,
    HeldShown,
    ResumeBody,
    RevisedBody,
    bytes_of,
)
from .models import calendar_time
from .problem import Problem

PATIENCE = 10.0  # Seconds for a turn of the connection: all others may have theirs before
SHORTEST_REQUEST, SHORTEST_RESPONSE = 10, 4  # Bytes of the shortest frames, without their sizes
REQUEST_PARTS: tuple[tuple[int, int, str], ...] = (
    (0, 2, "the API"),
    (2, 4, "its version"),
    (4, 8, "the correlation id"),
)
RESPONSE_PARTS: tuple[tuple[int, int, str], ...] = ((0, 4, "the correlation id"),)
HOW = {
    "client_left": "gone with its client",
    "rule_gone": "resumed because its rule is not in force",
    "timed_out": "ended by its timeout",
}

FRESH = 0.25  # seconds that an unchanged row is reused for other viewers

T = TypeVar("T")


class MadeRow(NamedTuple):
    """Cached row of a list of held frames, with its expiry."""

    until: float
    row: tuple[str, str, str]


class HeldFrames:
    """Held frames of one process. `most_bytes`: limit of one frame; `records`: users' records may be shown, as
    `masks` masks them."""

    def __init__(
        self, desk: HeldRegistry, reactor: Reactor, most_bytes: int, records: bool = True,
        masks: ViewerMasks | None = None,
    ) -> None:  # fmt: skip
        self.desk, self.reactor, self.most_bytes, self.records = desk, reactor, most_bytes, records
        self.masks = masks
        self.made: dict[str, MadeRow] = {}
        desk.tell.append(self.on_change)

    # ---- look

    async def show_all(self) -> HeldRows:
        """Oldest first."""
        held = list(islice((held for held in self.desk.held.values() if held is first_of(held)), MOST_LISTED))
        return HeldRows(rows=await self.rows(held), passed_over=self.desk.passed_over)

    async def rows(self, frames: Iterable[HeldFrame]) -> list[tuple[str, str, str]]:
        """Return for each frame its start, its id and its JSON. Frames released during the call are missing."""
        rows: list[tuple[str, str, str]] = []

        def make() -> Iterator[None]:
            for held in frames:
                if held.gone is None:
                    rows.append(self.row(held))
                yield

        await in_turns(make())
        return rows

    def row(self, held: HeldFrame) -> tuple[str, str, str]:
        """Return start, id and JSON of a frame, cached for all viewers."""
        now, made = self.desk.clock(), self.made.get(held.id)
        if made is None or now > made.until:
            shown = self.show(held)
            made = self.made[held.id] = MadeRow(now + FRESH, (shown.since, shown.id, shown.model_dump_json()))
        return made.row

    def on_change(self, what: str, held: HeldFrame, how: HowGone | None, who: str) -> None:
        """Evict the row of a changed or released frame."""
        self.made.pop(held.id, None)
        self.made.pop(first_of(held).id, None)

    def show(self, held: HeldFrame) -> HeldShown:
        return HeldShown(**self.fields(held))

    def fields(self, held: HeldFrame) -> dict[str, Any]:
        """Return the fields of a `HeldShown` without reading the frame."""
        session, exchange, now = held.session, held.evaluation.exchange, self.desk.clock()
        why_not, holds = self.why_not(held), held.evaluation.holds or [held]
        last = max(holds, key=lambda one: math.inf if one.until is None else one.until)  # the frame goes on after it
        left = None if last.until is None else round(max(0.0, last.until - now), 3)
        longest = None if last.until is None else round(max(0.0, last.since + LONGEST_HOLD - now), 3)
        return {
            "id": held.id, "rule": held.running.name, "rules": [one.running.name for one in holds], "at": held.at,
            "exchange": HeldExchangeShown(
                connection=session.number, listener=session.facts.listener,
                client_address=session.facts.client_address, client=exchange.client_id,
                principal=session.identity.principal, api=exchange.api.name, version=exchange.version,
                correlation_id=exchange.correlation_id,
            ),
            "since": calendar_time(held.since),
            "ends_in": left, "longest": longest,
            "on_timeout": error_name(last.then) if isinstance(last.then, int) else last.then,
            "revision": held.revision, "behind": held.behind, "bytes": held.size + 4,
            "client_ended": held.ended,
            "editable": not why_not, "why_not": why_not or None, "claimed_by": held.claimant(now) or None,
            "gone": held.gone,
        }  # fmt: skip

    def why_not(self, held: HeldFrame) -> str:
        """Return why a frame is not editable; empty if it is."""
        if held.gone is not None:
            return "it is not held any more"
        if held.at == "request" and held.is_decided:
            return "another rule answers it"
        if held.is_long:
            return f"it is longer than {MOST_BYTES >> 20} MiB"
        if not held.is_whole:
            return "not all of it is here: its rule looks at its header only"
        return ""

    async def show_frame(self, number: str, first: int) -> str:
        """Return one frame with its bytes, and its steps from number `first` on, as JSON. Raises Problem."""
        held = self.find(number)
        return await self.in_turn(held, lambda: self.shown_frame(held, held.frame(), first))

    def shown_frame(self, held: HeldFrame, frame: bytes | None, first: int = 0) -> str:
        """Return a frame as JSON, with its own bytes or with these."""
        yield_now()
        made = bytes_of(held, frame, self.records, first, self.masks).shown()
        yield_now()
        return f"{self.show(held).model_dump_json()[:-1]},{made.decode()}}}"

    def find(self, number: str) -> HeldFrame:
        """Return the held frame with this id. Raises Problem, with the outcome if it was released."""
        held = self.desk.held.get(number)
        if held is not None:
            return held
        now = self.desk.clock()
        self.desk.forget(now)
        gone = self.desk.gone.get(number)
        if gone is None:
            raise no_such_held(number)
        by = f" by {gone.who}" if gone.who else ""
        how = HOW.get(gone.how, gone.how)
        raise Problem(404, "no_such_held", f'"{number}" was {how}{by} {now - gone.when:.0f} s ago')

    # ---- decide

    async def call(self, number: str, body: HeldBody) -> HeldShown:
        """Apply an action other than a preview. Raises Problem."""
        held = self.find(number)
        await self.in_turn(held, lambda: self.act(held, body))
        return self.show(held)

    async def preview(self, number: str, body: ResumeBody) -> str:
        """Return a frame with an edit applied, as JSON. Raises Problem."""
        held = self.find(number)

        def look() -> str:
            self.check_revision(held, body)
            return self.shown_frame(held, self.edited(held, body))

        return await self.in_turn(held, look)

    def check_revision(self, held: HeldFrame, body: HeldBody) -> None:
        """Raise Problem if the frame was released, or changed since this revision."""
        self.find(held.id)
        if isinstance(body, RevisedBody) and body.revision != held.revision:
            who = held.claimant(self.desk.clock())
            by = f", {who} is at it" if who else ""
            text = f'"{held.id}" has changed: revision {held.revision} now, not {body.revision}{by}'
            raise Problem(409, "held_changed", text)

    def act(self, held: HeldFrame, body: HeldBody) -> None:
        """Apply an action for all rules that hold the frame. Raises Problem."""
        self.check_revision(held, body)
        others = [one for one in held.evaluation.holds if one is not held]
        match body:
            case ResumeBody():
                self.resume(held, body)
            case AnswerBody():
                answer = self.answer(held, body)
                self.check_revision(held, body)
                held.answer(answer)
                held.let_go("answered", body.who)
            case DropBody(connection=connection):
                held.drop(connection)
                held.let_go("dropped", body.who)
            case CloseBody(close_with=how):
                held.close(how)
                held.let_go("closed", body.who)
            case ExtendBody(by=by_seconds):
                if held.until is None:
                    raise Problem(409, "not_editable", "it is held without a time, by when: {hold: true}")
                for one in (held, *others):
                    one.extend(by_seconds)
                return
            case ClaimBody(who=who):
                for one in (held, *others):
                    one.claim(who, self.desk.clock())
                return
        for one in others:
            one.let_go("resumed", body.who)

    def resume(self, held: HeldFrame, body: ResumeBody) -> None:
        if body.set is None and body.bytes is None:
            held.let_go("resumed", body.who)
            return
        frame = self.edited(held, body)
        self.check_revision(held, body)  # its rule may be removed, or another hold was decided
        if body.bytes is not None:
            held.leaves_as(frame)
        else:
            held.becomes(frame)
        held.let_go("edited", body.who)

    async def resume_all(self, rule: str | None, who: str) -> int:
        """Resume the frames of this rule; None: of all rules. Return their number."""
        chosen = [held for held in self.desk.held.values() if rule is None or held.running.name == rule]

        def let_go() -> Iterator[None]:
            for held in chosen:
                held.let_go("resumed", who)
                yield

        await in_turns(let_go())
        return len(chosen)

    # ---- edits

    def edited(self, held: HeldFrame, body: ResumeBody) -> bytes:
        """Return the edited frame in the client's names, without its size. Raises Problem."""
        why_not, frame, exchange = self.why_not(held), held.frame(), held.evaluation.exchange
        if why_not or frame is None:
            raise Problem(409, "not_editable", why_not or "not all of it is here")
        key, version = exchange.api.key, exchange.version
        if body.bytes is not None:
            if body.set is not None:
                raise invalid([("bytes", "fields and bytes cannot be set together")])
            self.check_hidden(held, frame)
            return self.checked(held, decoded(body.bytes), frame)
        if not body.set:
            return frame
        masked = self.masks_records(held, frame)
        records = [one.path for one in body.set if "records" in one.path]
        if records and masked:
            raise invalid([(path, f"expected another field, {MASKED}") for path in records])
        try:
            edit = MessageEdit(frame, key, version, held.at)
            before = topics_of(edit.message) if masked else []
            made = edit.made([(one.path, one.value) for one in body.set])
        except BadEdit as error:
            raise invalid(error.mistakes) from None
        # Topics decide the masks: records of another topic would be shown without them.
        if masked and topics_of(edit.message) != before:
            raise invalid([("", f"expected the topic of each partition to stay, {MASKED}")])
        return self.fitting(made)

    def check_hidden(self, held: HeldFrame, frame: bytes) -> None:
        """Raise Problem if bytes of the frame are redacted: an edit would overwrite them."""
        exchange = held.evaluation.exchange
        key, version = exchange.api.key, exchange.version
        why = withheld_body(key, version, held.at) or take_out(frame, key, version, held.at)[1]
        if not why and not self.records and carries_records(key, held.at):
            why = NO_RECORDS
        if not why and self.masks_records(held, frame):
            why = MASKED
        if why:
            raise Problem(409, "not_editable", f"bytes of it are not shown ({why}): fields can be set, bytes cannot")

    def masks_records(self, held: HeldFrame, frame: bytes) -> bool:
        """Return True if a rule masks records of the frame for viewers."""
        made = bytes_of(held, frame, self.records, 0, self.masks)
        return self.masks is not None and self.masks.hides(made.seen, made.at, made.whole(frame))

    def checked(self, held: HeldFrame, data: bytes, frame: bytes) -> bytes:
        """Return bytes that replace a frame, if their header matches the exchange. Raises Problem."""
        mistakes = []
        if held.at == "request":
            names, shortest = REQUEST_PARTS, SHORTEST_REQUEST
        else:
            names, shortest = RESPONSE_PARTS, SHORTEST_RESPONSE
        if len(data) < shortest:
            raise invalid([(f"byte {len(data)}", f"a {held.at} has {shortest} bytes at least")])
        for start, end, what in names:
            if data[start:end] != frame[start:end]:
                mistakes.append((f"byte {start}", f"{what} has to stay as it is"))
        read = held.evaluation.exchange.step.plain.acks
        if held.at == "request" and read is not None and not mistakes:
            acks = read(data, 0, len(data), int.from_bytes(data[8:10], "big", signed=True))
            if acks is None or (acks == 0) != (held.evaluation.exchange.acks == 0):
                mistakes.append(("acks", "with acks 0 no answer is due, which has to stay as it is"))
        if mistakes:
            raise invalid(mistakes)
        return self.fitting(data)

    def fitting(self, data: bytes) -> bytes:
        """Return the frame unless it exceeds `most_bytes`. Raises Problem."""
        if len(data) > self.most_bytes:
            raise Problem(413, "too_large", f"expected a frame of at most {self.most_bytes} bytes, got {len(data)}")
        return data

    def answer(self, held: HeldFrame, body: AnswerBody) -> bytes:
        """Return the response to send in the broker's place, without its size. Raises Problem."""
        exchange = held.evaluation.exchange
        if held.at == "response":
            raise Problem(409, "no_answer_due", "it is a response, resume it with other fields")
        if not held.is_answered:
            raise Problem(409, "no_answer_due", "a Produce request with acks 0 is not answered")
        given = [name for name in ("error", "body", "bytes") if getattr(body, name) is not None]
        if len(given) != 1:
            raise invalid([("", "expected one of error, body and bytes")])
        if body.bytes is not None:
            data = decoded(body.bytes)
            if data[:4] != exchange.correlation_id.to_bytes(4, "big", signed=True):
                raise invalid([("byte 0", "the correlation id has to be that of the request")])
            return self.fitting(data)
        if body.body is not None:
            try:
                return self.fitting(answer_of(exchange.api, exchange.version, exchange.correlation_id, body.body))
            except BadEdit as error:
                raise invalid(error.mistakes) from None
        try:
            code = error_number(body.error)
        except ValueError as error:
            raise invalid([("error", str(error))]) from None
        if not code:
            raise invalid([("error", "0 is no error, an answer without one has a body")])
        said = held.error(code, held.frame())
        if said is None:
            raise Problem(409, "no_answer_due", f"a response of {exchange.api.name} has no place for an error, or the "
                          "request cannot be read")  # fmt: skip
        return said

    # ---- turns

    async def in_turn(self, held: HeldFrame, work: Callable[[], T]) -> T:
        """Run `work` as a turn of the frame's connection. Raises its error, and Problem on timeout."""
        owner = held.session.owner
        if owner is None:
            return work()
        done, results, errors = trio.Event(), list[T](), list[Exception]()

        def run() -> None:
            try:
                results.append(free_after(held.size, work))
            except Exception as error:  # noqa: BLE001  # it is the caller's
                errors.append(error)
            finally:
                self.reactor.notify(done)

        owner.watch(run)
        with trio.move_on_after(PATIENCE):
            if not (results or errors):
                await done.wait()
        if errors:
            raise errors[0]
        if not results:
            self.find(held.id)
            raise Problem(503, "not_everywhere", f"the connection of {held.id} has had no turn for {PATIENCE:g} s")
        return results[0]


def first_of(held: HeldFrame) -> HeldFrame:
    """Return the first hold of the same frame, whose id stands for the frame."""
    holds = held.evaluation.holds
    return holds[0] if holds else held


def topics_of(message: Message) -> list[tuple[str | None, UUID | None]]:
    """Return name and id of the topic of each partition."""
    return [(one.topic, one.topic_id) for one in yielding(partitions(message))]


def decoded(text: str) -> bytes:
    """Decode base64. Raises Problem."""
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid([("bytes", "this is no base64")]) from None


def invalid(mistakes: Any) -> Problem:
    """Problem of an edit that does not fit; `mistakes` are (where, message)."""
    count = len(mistakes)
    return Problem(422, "invalid_edit", f"nothing was changed: {plural(count, 'mistake')}", mistakes)


def no_such_held(number: str) -> Problem:
    return Problem(404, "no_such_held", f'no frame "{number[:60]}" is held')
