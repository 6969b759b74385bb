"""SASL server of a listener: clients authenticate to kproxy, and the broker is not involved.

Strategy. Until a client has authenticated, its frames go through `scan` one by one. SaslHandshake and SaslAuthenticate
are answered here. Any other request except ApiVersions closes the connection, as at a broker (SaslServerAuthenticator).
Responses are entries in the FIFO like all responses made by kproxy. The first request afterwards dials the broker. Then
the request lane is as fast as without authentication; it returns here with a SaslHandshake (KIP-368), and when the
session has ended.

    HANDSHAKE ── SaslHandshake ──▶ TOKEN ── the last token ──▶ OPEN ── the session ends ──▶ ENDED
                                    │  ▲ ◀──────── SaslHandshake ───────┴──────────────────────┘
                 a password to hash │  ├── a wrong token ──▶ REFUSING ── a little later ──▶ REFUSED: it is answered
                                    ▼  │
                                  HASHING: the driver runs it in the background, and frames wait

An ApiVersions request before that is handled as any other, by rules and the FIFO, but its bytes are not sent. The
driver knows the broker's response to such a request (`AskVersions`). With the request's correlation id it is handled as
any response: versions are restricted, rules apply, it is recorded. kproxy ignores the cluster id and node id of version
5 (KIP-1242), which a broker would check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_request
from kproxy.protocol.framing import framed
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.sasl.mechanisms import Accepted, Checker, Denied, LoginSteps, LoginWork
from kproxy.protocol.sasl.scram import ScramKeys, Users
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kproxy.session.commands import BROKER, CLIENT, AskVersions, Compute
from kproxy.session.frame import ANSWER, Need, Replace, Wait
from kproxy.session.lanes.pair import LanePair
from kproxy.session.plan import Step
from kproxy.session.sasl.identity import is_valid
from kproxy.session.sasl.login import ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED, answer_to
from kproxy.session.session_state import LOGIN, NEW, OPEN, REFUSED, STALLED

MOST_REQUESTS = 10
"""ApiVersions requests of one client; brokers take one of a version that they have, and clients need two at most."""
VERSIONS_WAIT = "versions"


class EarlyVersions:
    """Stand-in for the broker towards one client that has not authenticated. `answers` has the broker's so far,
    without their correlation ids, by the command that asked for them."""

    __slots__ = ("answers", "count", "question", "session")

    def __init__(self, session: LanePair) -> None:
        self.session = session
        self.count = 0
        self.question: AskVersions | None = None
        self.answers: dict[AskVersions, bytes] = {}

    def scan(self, buf: Buffer, pos: int, end: int, now: float) -> int:
        """Scan one whole ApiVersions in the place of the lane's `scan_frames`; return where the bytes end that pass."""
        session, lane = self.session, self.session.requests
        version = int.from_bytes(buf[pos + 6 : pos + 8], "big")
        step = lane.plan[API_VERSIONS << 16 | version]
        answer = b""
        if step.plain.watched:  # others are answered here in any case
            try:
                question = AskVersions(version, is_valid(decode_request(buf[pos + 4 : end]).body))
            except DecodeError as error:
                session.close("decode", str(error), "client")
                return pos
            if question not in self.answers:
                self.question = question
                session.commands.append(question)
                lane.disposition = Wait(VERSIONS_WAIT)
                return pos
            answer = self.answers[question]
        stop = lane.scan_frames(buf, pos, end, now)
        if session.phase.ends or (stop < end and not isinstance(lane.disposition, Replace)):
            return stop
        self.count += 1
        if self.count > MOST_REQUESTS:
            session.close(
                "unauthenticated", f"ApiVersions came more than {MOST_REQUESTS} times before authentication", "client"
            )
            return pos
        return self.answer_instead(answer, buf, pos, end, now)

    def answer_instead(self, answer: bytes, buf: Buffer, pos: int, end: int, now: float) -> int:
        """Take the bytes that would go to the broker, and hand its known `answer` to the response lane."""
        session, lane = self.session, self.session.requests
        disposition, sent, then = lane.disposition, bytes(buf[pos:end]), None
        if isinstance(disposition, Replace):
            sent, then = b"".join(disposition.pieces), disposition.then
        lane.disposition = Replace([], end, then=then)
        to_client, to_broker = session.marks.acted[CLIENT], session.marks.acted[BROKER]
        to_client += to_broker  # the rules' changes count as applied when the response has been sent
        to_broker.clear()
        if not sent or then is not None:  # answered by kproxy, dropped by a rule, or the last that comes
            return pos
        if sent[4:8] != buf[pos + 4 : pos + 8] or len(sent) - 4 != int.from_bytes(sent[:4], "big", signed=True):
            session.close("api_blocked", "a rule has made of ApiVersions what brokers do not answer")
            return pos
        correlation = sent[8:12]
        if session.observer is not None:
            session.observer.acted(int.from_bytes(correlation, "big", signed=True), (), answered=True)
        frame = (len(answer) + 4).to_bytes(4, "big") + correlation + answer
        session.responses.receive_slowly(frame, 0, len(frame), now)
        return pos

    def take_answer(self, answer: bytes, now: float) -> None:
        """Take the broker's answer to the ApiVersions that was asked for last, and go on with the request that waits
        for it."""
        lane = self.session.requests
        if self.question is not None:
            self.answers[self.question], self.question = answer, None
        if lane.blocked == VERSIONS_WAIT:
            lane.unblock(now)
        self.session.run_pending(now)


UNSUPPORTED_SASL_MECHANISM: Final = 33
LONGEST: Final = 16384
"""Bytes of a frame before authentication. Brokers allow 512 KiB (sasl.server.max.receive.size), for Kerberos; with
PLAIN and SCRAM it is some hundred. These few bytes are not counted as held memory, which is for clients
that have authenticated."""
SMALLEST: Final = 10
"""Bytes of a request, as in session/lanes/request_scan.py."""
TOO_SOON: Final = 1.0
"""Seconds before a client may authenticate again, as at a broker (KafkaChannel)."""
WAITS = "authentication"
AFTER = "SaslAuthenticate request received after successful authentication"


@dataclass(frozen=True)
class SaslSettings:
    """Authentication settings of a listener. `session`: seconds until a client has to authenticate again, 0: never.
    `delay`: seconds that a refusal takes, so that guessing takes long. `patience`: seconds that a client has to
    authenticate in, 0: any."""

    mechanisms: Sequence[str]
    checker: Checker
    session: float = 0.0
    delay: float = 0.1
    patience: float = 0.0


class State(Enum):
    """State of one client's authentication (see the module)."""

    HANDSHAKE, TOKEN, HASHING, OPEN, ENDED, REFUSING, REFUSED = range(7)


ALLOWED: Final = {
    State.HANDSHAKE: (API_VERSIONS, SASL_HANDSHAKE),
    State.TOKEN: (SASL_AUTHENTICATE,),
    State.ENDED: (SASL_HANDSHAKE,),
}


class TokenRequest(NamedTuple):
    """SaslAuthenticate request of the client that an answer is for."""

    step: Step
    correlation: int


class SaslServer:
    """SASL server of one connection. `name` is the client's user name, once it has authenticated."""

    def __init__(self, session: LanePair, terms: SaslSettings) -> None:
        self.session, self.terms = session, terms
        self.state = State.HANDSHAKE
        self.name = self.mechanism = ""
        self.bare = False  # tokens come without headers: the handshake was of version 0 (KIP-43)
        self.exchange: LoginSteps | None = None
        self.request: TokenRequest | None = None  # None: the token is bare
        self.begun = self.accepted_at = 0.0
        self.refusal = ""  # why the client could not authenticate, for the log
        self.early_versions = EarlyVersions(session)

    @property
    def open(self) -> bool:
        """Return True if the client's frames go on without a look, as it has authenticated."""
        return self.state is State.OPEN

    @property
    def hashing(self) -> bool:
        """Return True if a `Compute` is under way."""
        return self.state is State.HASHING

    @property
    def has_refused(self) -> bool:
        """Return True if the client has received its refusal, or will with the bytes due."""
        return self.state is State.REFUSED

    # ---- the client's requests

    def require(self) -> None:
        """Require the client to authenticate (again) before its next request is forwarded."""
        session = self.session
        if session.phase is NEW or session.phase is OPEN:  # a session that drains, or lets nothing pass, stays so
            session.phase = session.phase.to(LOGIN)
        session.logins.choose_scan()

    def accept_requests(self) -> None:
        """Let the client's requests go on, as it has authenticated."""
        session = self.session
        if session.phase is LOGIN:
            session.phase = session.phase.to(NEW if session.requests.is_new else OPEN)
        session.logins.choose_scan()

    def refuse_requests(self) -> None:
        """Take no more requests of a client that could not authenticate."""
        session = self.session
        if session.phase is not STALLED:
            session.phase = session.phase.to(REFUSED)
            session.kept_from_client = True
        session.has_pending = True
        session.logins.choose_scan()

    # ---- the driver's calls

    def begin(self, now: float) -> None:
        """Start the clock for a client that has just connected, if its patience is limited."""
        if self.terms.patience:
            self.session.timers.at(now + self.terms.patience, self.check_patience)

    def check_patience(self, now: float) -> None:
        """Close the connection of a client that has had time enough to authenticate, unless kproxy let it wait."""
        if self.name or self.refusal:
            return
        if self.state is State.HASHING or self.session.requests.blocked:
            self.session.timers.at(now + self.terms.patience, self.check_patience)
        else:
            text = f"the client has not authenticated in {self.terms.patience:g} s"
            self.session.close("unauthenticated", text, "client")

    def versions_known(self, answer: bytes, now: float) -> None:
        self.early_versions.take_answer(answer, now)

    # ---- frames

    def scan(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Scan the client's frames one by one, in place of the request lane, until it has authenticated, or done it
        again."""
        lane = self.session.requests
        while n - pos >= 4 and self.state in ALLOWED:
            size = int.from_bytes(buf[pos : pos + 4], "big", signed=True)
            if not (0 if self.bare else SMALLEST) <= size <= LONGEST:
                return lane.stop(lane.bad_size(buf, pos, size), pos)
            end = pos + 4 + size
            if end > n:
                lane.disposition = Need(4 + size)
                return pos
            if self.bare:
                self.bare_token(bytes(buf[pos + 4 : end]), now)
                lane.disposition = Replace([], end)
                return pos
            key = int.from_bytes(buf[pos + 4 : pos + 6], "big", signed=True)
            if key not in ALLOWED[self.state]:
                self.stop(key)
                return pos
            scan = self.early_versions.scan if key == API_VERSIONS else lane.scan_frames
            stop = scan(buf, pos, end, now)
            if stop < end or lane.disposition is not None:
                return stop
            pos = end
        if pos >= n:
            lane.skip = 0
            return n
        lane.disposition = Need(4) if self.state in ALLOWED else Wait(WAITS)
        return pos

    def stop(self, key: int) -> None:
        """Close the connection over a request that may not come now."""
        known = schema.paths().get(key)
        what = schema.load(key).name if known else f"API key {key}"
        if self.state is State.ENDED:
            self.session.counters.count("client_sessions_ended")
            after = f"{self.terms.session:g} s"
            text = f'the session of user "{self.name}" has ended after {after}, and {what} came, not SaslHandshake'
            self.session.close("unauthenticated", text, "client")
        else:
            wanted = " or ".join(schema.load(one).name for one in ALLOWED[self.state])
            text = f"{what} came before authentication, expected {wanted}"
            self.session.close("unauthenticated", text, "client")

    def answer(self, step: Step, correlation: int, frame: bytes, now: float) -> bytes | None:
        try:
            body = decode_request(frame).body
        except DecodeError as error:
            self.session.close("decode", str(error), "client")
            return None
        if step.key == SASL_HANDSHAKE:
            answer = self.handshake(step, correlation, body["mechanism"] or "", now)
        elif self.state is State.TOKEN:
            self.session.identity.request(step, frame)
            self.request = TokenRequest(step, correlation)
            self.take(bytes(body["auth_bytes"] or b""), now)
            return None
        else:
            return answer_with(step, correlation, ILLEGAL_SASL_STATE, AFTER)
        if self.state is State.TOKEN:
            self.session.identity.request(step, frame)
            self.session.identity.response(step, answer[4:])
        return answer

    def handshake(self, step: Step, correlation: int, mechanism: str, now: float) -> bytes:
        if self.state is State.OPEN and not (
            self.terms.session and step.version > 0 and now - self.accepted_at >= TOO_SOON
        ):
            return answer_with(step, correlation, ILLEGAL_SASL_STATE)
        offered = (self.mechanism,) if self.name else tuple(self.terms.mechanisms)  # another one is for another time
        if mechanism not in offered:
            self.end(f"a SASL mechanism that is not one of {', '.join(offered)}")
            return answer_with(step, correlation, UNSUPPORTED_SASL_MECHANISM, mechanisms=list(offered))
        self.state, self.mechanism, self.begun = State.TOKEN, mechanism, now
        self.bare = step.version == 0
        self.exchange = self.terms.checker.begin(mechanism)
        self.require()
        return answer_with(step, correlation, 0, mechanisms=list(self.terms.mechanisms))

    def bare_token(self, token: bytes, now: float) -> None:
        """Take a token without a header, after a handshake of version 0 (KIP-43)."""
        self.session.identity.watch.raw_token(CLIENT, token)
        self.request = None
        self.take(token, now)

    def computed(self, result: ScramKeys | Users, now: float) -> None:
        """Go on with the result of a `Compute`: the keys made of the password, or the users."""
        self.state = State.TOKEN
        self.take(result, now)
        lane = self.session.requests
        if self.state in (State.TOKEN, State.OPEN) and lane.blocked == WAITS:
            lane.unblock(now)
        self.session.run_pending(now)

    def take(self, given: bytes | ScramKeys | Users, now: float) -> None:
        """Advance the exchange by one step: an answer, a refusal, or something to compute before there is one."""
        session, request = self.session, self.request
        try:
            token = self.advance(given, now)
        except Denied as error:
            self.refuse(error, now)
            return
        if isinstance(token, LoginWork):
            self.state = State.HASHING
            session.logins.choose_scan()
            session.commands.append(Compute(token.work))
        elif request is None:
            session.identity.watch.raw_token(BROKER, token)
            session.inflight.fifo.append((0, ANSWER, now, framed(token)))
            session.has_pending = True
        else:
            lifetime = int(self.terms.session * 1000) if self.open else 0
            answer = answer_with(request.step, request.correlation, 0, auth_bytes=token, session_lifetime_ms=lifetime)
            session.identity.response(request.step, answer[4:])
            session.requests.answer(request.correlation, answer, now)

    # ---- what comes of it

    def advance(self, given: bytes | ScramKeys | Users, now: float) -> bytes | LoginWork:
        """Return the next message of the exchange. Raises Denied."""
        assert self.exchange is not None
        try:
            return self.exchange.send(given)
        except StopIteration as end:
            accepted: Accepted = end.value
        if self.name not in ("", accepted.name):
            message = f"Cannot change principals during re-authentication from User:{self.name}: to another one"
            raise Denied(message, f'user "{self.name}" authenticates again as another one')
        self.name, self.state, self.exchange, self.bare = accepted.name, State.OPEN, None, False
        self.accepted_at = now
        self.session.counters.count("client_logins")
        self.accept_requests()
        if self.terms.session:
            self.session.timers.at(now + self.terms.session, self.expire)
        return accepted.answer

    def expire(self, now: float) -> None:
        """End the session, unless it was renewed since."""
        if self.state is State.OPEN and now >= self.accepted_at + self.terms.session:
            self.state = State.ENDED
            self.require()

    def refuse(self, error: Denied, now: float) -> None:
        """Refuse the client a little later, and end the connection. A bare token gets no answer (KIP-43)."""
        session, request = self.session, self.request
        refusal = b""
        if request is not None:
            refusal = answer_with(request.step, request.correlation, SASL_AUTHENTICATION_FAILED, str(error))
            session.identity.response(request.step, refusal[4:])

        def send_refusal(then: float) -> None:
            if not session.phase.ends:
                if request is not None:
                    session.requests.answer(request.correlation, refusal, then)
                self.state = State.REFUSED
                session.run_pending(then)

        self.end(f"authentication failed: {error.why} ({self.mechanism})", State.REFUSING)
        session.timers.at(now + self.terms.delay, send_refusal)

    def end(self, refusal: str, state: State = State.REFUSED) -> None:
        """Have the connection closed as soon as everything that is due has been answered and the state is REFUSED."""
        self.session.counters.count("client_logins_refused")
        self.state, self.exchange, self.refusal = state, None, refusal
        self.refuse_requests()


def answer_with(step: Step, correlation: int, code: int, text: str | None = None, **values: Any) -> bytes:
    """Return an answer with this error code; 0: none."""
    return answer_to(step.key, step.version, correlation, error_code=code, error_message=text, **values)
