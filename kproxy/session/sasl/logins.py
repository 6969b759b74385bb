"""Logins on one session: the client's at the broker or at kproxy, and kproxy's own at the broker.

They decide how the client's next frame is scanned: by whoever answers a login, not at all while one is renewed, or as
usual.
"""

from __future__ import annotations

from typing import Any

from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.session.commands import CLIENT, Send
from kproxy.session.inflight import ANSWER
from kproxy.session.lanes.frame import IDENTITY
from kproxy.session.lanes.pair import LanePair

from .lane_logins import SASL_AUTHENTICATION_FAILED, LaneLogins, answer_to
from .login import Credentials, LoggedIn
from .raw_tokens import RawTokens
from .renewal import Renewal
from .server import SaslServer


class Logins(LaneLogins):
    """Logins on one session (see the module)."""

    # What most connections never need stands here: it costs nothing to set up.
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
        """Hand the result of a `Compute` to the SASL server that asked for it."""
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
        """Return why the client could not authenticate, once it has been told; empty before that."""
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
            self.session.has_pending = True  # not now: what stands before this answer has not left yet

    # ---- kproxy, at the broker

    def logged_in(self, credentials: Credentials, login: LoggedIn, now: float) -> None:
        """Note that kproxy itself has logged in at the broker, before any request of the client goes there."""
        if not self.session.phase.ends:
            self.renewal = Renewal(self.session, credentials, login, now)

    def refused_by_broker(self, message: str, now: float) -> None:
        """Close because the broker does not take kproxy's credentials. The client is told so where it has asked for the
        versions, the one request whose answer has a place for it in every case."""
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
