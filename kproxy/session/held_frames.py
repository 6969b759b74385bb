"""Frames that rules hold: the decisions about one frame, and the registry of all held frames of this process.

Decisions are stored in the frame's own evaluation, so the lane applies, counts and orders them as for any other rule.
The frame is shown with the client's names; names are rewritten when it is sent. It stays in its lane's buffer, and is
copied only on request. The registry has limits, and keeps the outcome of a released frame for a minute.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kproxy.base.errors import DecodeError, EncodeError
from kproxy.protocol import decode_request, encode
from kproxy.protocol.framing import framed
from kproxy.rules.exchange import AfterDrop, Hold, How
from kproxy.rules.kinds.base.access import can_say
from kproxy.rules.rule_set import ActiveRule, HowGone
from kproxy.session.respond.error_responses import Failure, fail

if TYPE_CHECKING:
    from .frame import FrameView
    from .lanes.assembler import Assembler
    from .live.evaluation import Evaluation

SIZE = 4
MOST_BYTES = 16 << 20
"""Bytes of frames that kinds of rules hold which are made for it, and of the longest one that is looked into; `when:
{hold: true}` has its bound by connections."""
LONGEST_HOLD = 600.0
"""Seconds that a frame is held at most, extensions included."""
CLAIM = 30.0
"""Seconds that a claim lasts. The frame is held at least as long."""
MOST_BEHIND = 100
"""Frames that wait after a held one, up to the maximum that is counted."""


class HeldFrame:
    """Request or response that one rule holds. `evaluation` is the frame's own, and waits while any rule holds it.

    id        `CONNECTION-NUMBER`, the number counting the frames held on that connection
    since     its start, monotonic seconds; `until`: its timeout, None: never
    then      action at the timeout: it passes, its connection is closed, or it gets this error code
    revision  counts its edits from 1
    late      the response with the rule's error, if it may be needed
    ended     the client sends nothing more: it has left, or waits for pending responses
    gone      its outcome; empty while it is held
    """

    def __init__(
        self, session: Any, lane: Assembler, evaluation: Evaluation, running: ActiveRule, at: str,
        hold: Hold | None, now: float, size: int,
    ) -> None:  # fmt: skip
        self.session, self.lane, self.evaluation, self.running, self.at = session, lane, evaluation, running, at
        session.holds += 1
        self.id = f"{session.number}-{session.holds}"
        self.since, self.size = now, size
        self.until = None if hold is None else now + hold.seconds
        self.then = "pass" if hold is None else hold.then
        self.by_intercept = hold is not None
        self.revision = 1
        self.claimed_by, self.claimed_until = "", 0.0
        self.late: bytes | None = None
        self.ended = False
        self.gone: HowGone | None = None

    # ---- what it is

    def frame(self) -> bytes | None:
        """Return the frame in the client's names, without its size; None if not all of it is here, or it is too long
        to be looked at."""
        return None if self.is_long else self.evaluation.frame or self.came()

    def came(self) -> bytes | None:
        """Return the frame as received, without its size: responses in the broker's names; None as for `frame`."""
        if not self.is_whole or self.is_long:
            return None
        with memoryview(self.lane.kept or b"") as kept:
            return bytes(kept[SIZE : SIZE + self.size])

    @property
    def is_long(self) -> bool:
        """Return True if the frame is too long to decode: decoded, it takes forty times its bytes."""
        return self.size > MOST_BYTES

    @property
    def is_whole(self) -> bool:
        """Return True if it is complete, which is not the case if its rules read headers only."""
        kept = self.lane.kept or b""
        return SIZE < SIZE + self.size <= len(kept)

    @property
    def behind(self) -> int:
        """Return how many frames wait after it that have been received, fully or in part."""
        kept = self.lane.kept or b""
        at = count = 0
        while at < len(kept) and count <= MOST_BEHIND:
            at += SIZE + int.from_bytes(kept[at : at + SIZE], "big")
            count += 1
        return max(0, count - 1)

    @property
    def is_answered(self) -> bool:
        """Return True if a response is due, so that kproxy can give one."""
        return self.at == "request" and self.evaluation.exchange.acks != 0

    @property
    def is_decided(self) -> bool:
        """Return True if kproxy already answers in the broker's place, so that the request is not forwarded."""
        return getattr(self.evaluation, "answer", None) is not None

    def claimant(self, now: float) -> str:
        """Return the name in the claim in force; empty without one."""
        return self.claimed_by if now < self.claimed_until else ""

    @property
    def goes_nowhere(self) -> bool:
        """Return True if it has been decided that it does not go on, whichever rules hold it still."""
        return self.is_decided or self.evaluation.drop is not None or self.evaluation.close is not None

    # ---- decisions

    def becomes(self, frame: bytes) -> None:
        """Have this frame, in the client's names and without its size, go on in its place."""
        self.evaluation.frame = frame
        self.decided()

    def leaves_as(self, content: bytes) -> None:
        """Have exactly these bytes leave, without their size here, whatever rewrites there are."""
        out = framed(content)
        self.evaluation.changes.append(lambda _: out)
        self.decided()

    def answer(self, content: bytes) -> None:
        """Answer the request with this frame, without its size; it is not forwarded."""
        self.evaluation.answer = content  # type: ignore[attr-defined]  # of a request, checked by `is_answered`
        self.decided()
        self.evaluation.exchange.end()

    def error(self, code: int, frame: bytes | None) -> bytes | None:
        """Return the response with this error, both without their sizes; None if the response cannot carry it. `frame`:
        the request in the client's names, as far as it is here."""
        exchange = self.evaluation.exchange
        if frame is None or not self.is_answered or not can_say(exchange.api.key, exchange.version, None):
            return None
        try:
            return encode(fail(decode_request(frame, trailing=True), Failure(code)))
        except (DecodeError, EncodeError):
            return None

    def drop(self, then: AfterDrop) -> None:
        """Drop it; `then` is the action on its connection."""
        self.evaluation.drop = then
        self.decided()

    def close(self, how: How) -> None:
        self.evaluation.close = how
        self.decided()

    def decided(self) -> None:
        """Have those who look at the same frame, which other rules hold as well, look again.

        The fetch or share session of the request is removed: the broker's state no longer matches the client's. The
        client receives an error with its next request, and starts over.
        """
        exchange = self.evaluation.exchange
        if self.at == "request" and exchange.session is not None:
            self.session.engine.subjects.end(exchange, exchange.session)
        for other in tuple(self.evaluation.holds):
            if other is not self:
                other.changed()

    def extend(self, seconds: float) -> None:
        """Hold the frame longer, LONGEST_HOLD in all at most. The revision stays: the frame has not changed."""
        if self.until is not None:
            self.hold_until(self.until + seconds)

    def claim(self, who: str, now: float) -> None:
        """Note the name of a user, and hold the frame for CLAIM seconds at least. A claim is not exclusive."""
        if who:
            self.claimed_by, self.claimed_until = who, now + CLAIM
        self.hold_until(now + CLAIM)

    def hold_until(self, when: float) -> None:
        if self.until is not None:
            self.until = max(self.until, min(when, self.since + LONGEST_HOLD))
        self.session.shared.desk.changed(self)
        self.wake()

    def changed(self) -> None:
        self.revision += 1
        self.session.shared.desk.changed(self)

    # ---- the end

    def expire(self, frame: FrameView) -> None:
        """Apply the timeout's action, if the time has passed; `frame` is the frame as received."""
        if self.until is None or frame.now < self.until or self.gone is not None:
            return
        if self.goes_nowhere:  # dropped by the hold of another rule
            pass
        elif isinstance(self.then, int):
            if self.at == "response":
                said = self.late
            else:
                said = self.error(self.then, self.evaluation.frame or (None if frame.missing else frame.content()))
            if said is None:
                self.close("fin")
            elif self.at == "request":
                self.answer(said)
            else:
                self.becomes(said)
        elif self.then == "close":
            self.close("fin")
        self.release("timed_out")

    def let_go(self, how: HowGone = "resumed", who: str = "") -> None:
        """Let it go on as has been decided, and have its lane look at it again."""
        if self.gone is None:
            self.release(how, who)
            if not self.evaluation.holds:
                self.wake()

    def release(self, how: HowGone, who: str = "") -> None:
        self.gone = how
        if self in self.evaluation.holds:
            self.evaluation.holds.remove(self)
        if self in self.running.held:
            self.running.held.remove(self)
        self.session.shared.desk.left(self, how, who)

    def wake(self) -> None:
        owner = self.session.owner
        if owner is not None:
            owner.released()


def still_held(held: Sequence[HeldFrame], lane: Assembler, session: Any, frame: FrameView) -> bool:
    """Return True while any rule holds the frame; its lane is called when the first of their times is over.

    A lane checks again when the time is extended, so this is only called if it would not check earlier.
    """
    for one in tuple(held):
        one.expire(frame)
    if not held:
        return False
    times = [one.until for one in held if one.until is not None]
    evaluation = held[0].evaluation
    if times and not frame.now < evaluation.looked_at <= min(times):
        evaluation.looked_at = min(times)
        session.timers.at(min(times), lane.try_again)
    return True


def let_all_go(held: Iterable[HeldFrame], how: HowGone) -> None:
    """Remove the frames of a connection that has ended."""
    for one in tuple(held):
        one.release(how)


TellHeld = Callable[[str, HeldFrame, HowGone | None, str], None]
"""Callback for ("added", frame, None, ""), ("changed", frame, None, "") or ("gone", frame, how, who)."""


KNOWN = 60.0
"""Seconds that the outcome of a frame is kept."""
MOST_KNOWN = 1000
"""Outcomes that are kept at a time."""

JudgeFilter = Callable[[str, Any, Any, bytes, bytes | None, float], bool]
"""Says whether a filter, by its text, holds for a session's exchange with this request and response, both without their
sizes; the response is None before it has come. The last argument is the time, monotonic."""


class GoneFrame(NamedTuple):
    """Frame that was held, its outcome, who requested it (empty: automatic), and when, monotonic."""

    id: str
    how: HowGone
    who: str
    when: float


class HeldRegistry:
    """Held frames of this process, by id, and those released within the last minute.

    `clock` gives monotonic seconds, `judge` evaluates filters; the process sets both. `tell` are callbacks for frames
    that arrive, change and leave; they must return quickly and not raise.
    """

    clock: Callable[[], float] = staticmethod(lambda: 0.0)

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.use_limit(most_bytes)
        self.held: dict[str, HeldFrame] = {}
        self.gone: OrderedDict[str, GoneFrame] = OrderedDict()
        self.bytes = 0
        self.passed_over = 0
        self.tell: list[TellHeld] = []
        self.judge: JudgeFilter = lambda wanted, session, exchange, request, response, now: True

    def use_limit(self, most_bytes: int) -> None:
        self.most_bytes = min(most_bytes, MOST_BYTES)

    def enter(self, held: HeldFrame) -> None:
        self.held[held.id] = held
        self.bytes += held.size if held.by_intercept else 0
        held.running.held.append(held)
        for tell in self.tell:
            tell("added", held, None, "")

    def changed(self, held: HeldFrame) -> None:
        for tell in self.tell:
            tell("changed", held, None, "")

    def left(self, held: HeldFrame, how: HowGone, who: str) -> None:
        if self.held.pop(held.id, None) is None:
            return
        self.bytes -= held.size if held.by_intercept else 0
        now = self.clock()
        self.gone[held.id] = GoneFrame(held.id, how, who, now)
        self.forget(now)
        for tell in self.tell:
            tell("gone", held, how, who)

    def forget(self, now: float) -> None:
        """Forget frames that went too long ago, or too many frames ago."""
        while self.gone and (len(self.gone) > MOST_KNOWN or next(iter(self.gone.values())).when < now - KNOWN):
            self.gone.popitem(last=False)
