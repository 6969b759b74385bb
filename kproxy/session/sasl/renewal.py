"""The broker's session of a connection on which kproxy has logged in itself, renewed before it ends (KIP-368).

Strategy. From SaslHandshake to the end of the login a broker takes nothing else on this connection, and it closes one
whose session has ended at its next request. So when it is time, the client's next frame waits where it begins; as soon
as no frame of the client is under way to the broker, the login's requests go out one by one. Each has its place in the
FIFO, behind what the client has asked before, and its response never reaches the client.
"""

from __future__ import annotations

from typing import Final

from kproxy.base.errors import LoginFailed
from kproxy.protocol.primitives import Buffer
from kproxy.session.commands import BROKER, Send
from kproxy.session.inflight import OWN
from kproxy.session.lanes.frame import Wait
from kproxy.session.lanes.pair import LanePair
from kproxy.session.phase import STALLED

from .login import CORRELATION, Credentials, LoggedIn, Steps, log_in

WHEN: Final = 0.85
"""Part of its lifetime after which a session is renewed, and up to a tenth later, so that not all connections do it at
once: Java clients do it in the same span (KIP-368)."""
SPREAD: Final = 0.1
SOONEST: Final = 1.05
"""Seconds after a login before which brokers refuse the next one (a second, in KafkaChannel)."""
MARGIN: Final = 1.0
"""Seconds that there are at least for the renewal itself, which waits for its turn like any request."""
PATIENCE: Final = 30.0
"""Seconds from when it is time to when it must be done; brokers cut the connection off at the session's end anyway."""
WAITS = "login"


class Renewal:
    """Renewal of kproxy's login on one session's broker connection. `busy`: the client's frames wait, or the request
    lane is about to be let go."""

    def __init__(self, session: LanePair, credentials: Credentials, login: LoggedIn, now: float) -> None:
        self.session, self.credentials, self.version = session, credentials, login.version
        self.steps: Steps | None = None
        self.busy = self.done = False
        self.deadline = 0.0
        self.schedule(login, now)

    def schedule(self, login: LoggedIn, now: float) -> None:
        if login.lifetime:
            part = WHEN + SPREAD * (self.session.number * 0.618 % 1)
            soon = min(login.lifetime * part, login.lifetime - MARGIN)
            self.session.timers.at(now + max(soon, SOONEST), self.due)

    def due(self, now: float) -> None:
        """Begin the renewal: from now on no frame of the client begins."""
        session = self.session
        if session.phase is STALLED or session.phase.ends:
            return
        self.busy, self.done, self.steps = True, False, None
        self.deadline = now + PATIENCE
        session.timers.at(self.deadline, self.expire)
        session.requests.scan = self.hold
        session.run_pending(now)

    def hold(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Stop at every frame; the `scan` of the request lane while the login is renewed."""
        if pos < n:
            self.session.requests.disposition = Wait(WAITS)
        return pos

    def run(self, now: float) -> None:
        """Go on with the renewal once no frame stands in its way; let the client's frames pass when it is done."""
        session = self.session
        if self.done:
            self.busy = self.done = False
            session.logins.choose_scan()
            if session.requests.blocked == WAITS:
                session.requests.unblock(now)
        elif self.steps is None and not session.requests.skip:
            try:
                self.steps = log_in(self.credentials, self.version)
                self.ask(next(self.steps), now)
            except LoginFailed as error:
                self.fail(str(error))

    def ask(self, request: bytes, now: float) -> None:
        self.session.inflight.fifo.append((CORRELATION, OWN, now, self.answer))
        self.session.commands.append(Send(BROKER, request))

    def answer(self, frame: bytes, now: float) -> None:
        """Take the broker's response to a request of the login, when its turn in the FIFO has come."""
        assert self.steps is not None
        try:
            self.ask(self.steps.send(frame), now)
        except StopIteration as end:
            self.session.counters.count("broker_sessions_renewed")
            self.schedule(end.value, now)
            self.done = self.session.has_pending = True  # not now: what stands before this answer has not left yet
        except LoginFailed as error:
            self.fail(str(error))

    def fail(self, why: str) -> None:
        """Close the connection, which costs nothing else: all that went out before has been answered."""
        self.session.counters.count("broker_renewals_failed")
        text = f"kproxy's login at the broker cannot be renewed: {self.credentials.clean(why)}"
        self.session.close("broker_login", text, "broker")

    def expire(self, now: float) -> None:
        if self.busy and now >= self.deadline:
            self.fail(f"not done in {PATIENCE:g} s")
