"""Logins on one session: the client's at the broker or at kproxy, and kproxy's own at the broker.

They determine the scan of the client's next frame: by the SASL server during a login, not at all during a renewal, or
as usual.

Strategy of a renewal (KIP-368). From SaslHandshake to the end of a login, a broker accepts no other request on the
connection, and it closes a connection with an expired session at the next request. So before the session ends, the
client's next frame waits. When no frame of the client is under way to the broker, the requests of the login are sent
one by one. Each has its place in the FIFO after the client's earlier requests, and its response never reaches the
client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kproxy.base.errors import LoginFailed
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.session.commands import BROKER, CLIENT, Send
from kproxy.session.frame import ANSWER, IDENTITY, OWN, Wait
from kproxy.session.lanes.pair import LanePair
from kproxy.session.sasl.login import (
    CORRELATION,
    SASL_AUTHENTICATION_FAILED,
    LaneLogins,
    LoggedIn,
    RawTokens,
    Steps,
    answer_to,
    log_in,
)
from kproxy.session.session_state import STALLED

from .sasl_server import SaslServer

if TYPE_CHECKING:
    from kproxy.runtime.upstreams.own_connection import OwnCredentials

WHEN: Final = 0.85
"""Part of its lifetime until a session is renewed, and up to a tenth later, so that not all connections do it at
once: Java clients use the same range (KIP-368)."""
SPREAD: Final = 0.1
SOONEST: Final = 1.05
"""Seconds after a login while brokers refuse the next one (a second, in KafkaChannel)."""
MARGIN: Final = 1.0
"""Seconds that there are at least for the renewal itself, which waits for its turn like any request."""
PATIENCE: Final = 30.0
"""Seconds from when it is time to when it must be done; brokers cut the connection off at the session's end anyway."""
WAITS = "login"


class Renewal:
    """Renewal of kproxy's login on one session's broker connection. `busy`: the client's frames wait, or the request
    lane is about to be let go."""

    def __init__(self, session: LanePair, credentials: OwnCredentials, login: LoggedIn, now: float) -> None:
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
        """Begin the renewal: the client's frames wait until it is done."""
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
        """Continue the renewal when no frame blocks it; release the client's frames when it is done."""
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
            self.done = self.session.has_pending = True  # not now: earlier frames have not left yet
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


class Logins(LaneLogins):
    """Logins on one session (see the module)."""

    # Defaults of attributes that most connections never set: they cost nothing to set up.
    server: SaslServer | None = None
    """The one who answers the client's SASL, where clients authenticate to kproxy."""
    renewal: Renewal | None = None
    """Set if kproxy has logged in at the broker itself."""

    def __init__(self, session: LanePair) -> None:
        self.session = session

    # ---- the client, at kproxy

    def serve(self, server: SaslServer) -> None:
        """Have the client authenticate to this SaslServer before its requests go on."""
        self.sasl = self.server = server
        server.require()

    def versions_known(self, answer: bytes, now: float) -> None:
        """Take the broker's answer, without its correlation id, to the ApiVersions that `AskVersions` named."""
        if self.server is not None and not self.session.phase.ends:
            self.server.versions_known(answer, now)

    def computed(self, result: Any, now: float) -> None:
        """Pass the result of a `Compute` to the SASL server that requested it."""
        session = self.session
        if self.server is not None and not session.phase.ends:
            self.server.computed(result, now)
            if CLIENT in session.ended and not session.requests.blocked:
                session.eof(CLIENT, now)

    @property
    def hashing(self) -> bool:
        """Return True while a password is being checked: its request is in flight, though its answer has no place
        yet."""
        return self.server is not None and self.server.hashing

    @property
    def refusal(self) -> str:
        """Return why the client could not authenticate, after it has received the error; empty before that."""
        return self.server.refusal if self.server is not None and self.server.has_refused else ""

    # ---- the client, at the broker

    def begin_raw(self, raw: RawTokens) -> None:
        self.raw = raw
        requests, responses = self.session.requests, self.session.responses
        requests.scan = requests.usual_scan = requests.scan_tokens
        responses.scan = responses.scan_tokens

    def end_raw(self) -> None:
        self.raw = None
        requests, responses = self.session.requests, self.session.responses
        requests.scan = requests.usual_scan = requests.scan_frames
        responses.scan = responses.scan_frames

    @property
    def await_broker(self) -> bool:
        return self.session.identity.awaits or (self.raw is not None and not self.raw.answered)

    def note_answer(self) -> None:
        if self.session.requests.blocked == IDENTITY:
            self.session.has_pending = True  # not now: earlier frames have not left yet

    # ---- kproxy, at the broker

    def logged_in(self, credentials: OwnCredentials, login: LoggedIn, now: float) -> None:
        """Note that kproxy itself has logged in at the broker, before any request of the client is forwarded."""
        if not self.session.phase.ends:
            self.renewal = Renewal(self.session, credentials, login, now)

    def refused_by_broker(self, message: str, now: float) -> None:
        """Close because the broker does not take kproxy's credentials. The client receives the error in the response to
        ApiVersions, the one response that can carry it in every case."""
        session = self.session
        while session.inflight.fifo and not session.phase.ends:
            correlation, step, _, note = session.inflight.fifo.popleft()
            if step is ANSWER:
                session.commands.append(Send(CLIENT, note))
            elif step.key == API_VERSIONS:
                code = SASL_AUTHENTICATION_FAILED
                session.commands.append(Send(CLIENT, answer_to(step.key, step.version, correlation, error_code=code)))
            else:
                break
        session.close("broker_login", message, "broker")

    def end(self) -> None:
        """Let go of the session, which is over, and of all who log in: they would wait for the garbage collector."""
        self.sasl = self.server = self.renewal = None
        del self.session

    # ---- what they are for

    def choose_scan(self) -> None:
        requests = self.session.requests
        if self.renewal is not None and self.renewal.busy:
            requests.scan = self.renewal.hold
        elif self.server is not None and not self.server.open:
            requests.scan = self.server.scan
        else:
            requests.scan = requests.usual_scan
