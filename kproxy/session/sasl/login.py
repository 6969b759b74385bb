"""Logins in Kafka's frames (KIP-43, KIP-152), for any mechanism: kproxy's own, and raw tokens of clients.

    steps = log_in(credentials)
    frame = next(steps)                 # a request with its size: send it, then pass the response without its size,
    frame = steps.send(response)        # until it stops; its return value is a `LoggedIn`

ApiVersions comes first, as in every client: it lists the broker's versions of SaslAuthenticate. When a session is
renewed (KIP-368), the version is known already.

From SaslHandshake v1 on, tokens are in SaslAuthenticate frames. After a v0 handshake, and in the first frames of a 0.9
GSSAPI client, they are raw: a size and the token, both ways, without headers or an end marker. For mechanisms with a
fixed number of rounds, `RawTokens` counts the tokens. For the others, the client's next frame decides: a Kafka request
starts with the zero byte of a small api key, a GSSAPI token never does (RFC 4121: 0x60, 0x05 …).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kproxy.base.errors import DecodeError, LoginFailed, LoginRefused
from kproxy.protocol import Message, decode_response, encode
from kproxy.protocol.framing import framed
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE

if TYPE_CHECKING:
    from kproxy.runtime.upstreams.own_connection import OwnCredentials
    from kproxy.session.plan import Step
    from kproxy.session.sasl_server import SaslServer

CORRELATION: Final = -0x6B71
HANDSHAKE: Final = 1
"""Version of SaslHandshake; with 0 bare tokens would follow. Kafka has had it since 1.0."""
NEWEST: Final = 2
"""Version of SaslAuthenticate; from 1 on the response contains the session lifetime."""
MAX_RESPONSE: Final = 65536  # bytes of a broker's response to a login, without its size
LONGEST_TEXT: Final = 300
"""Maximum length of a broker's error message in characters; Kafka's have some hundred."""

Steps = Generator[bytes, bytes, "LoggedIn"]


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """Outcome of a login: `version` is that of SaslAuthenticate, `lifetime` the seconds until the broker requires the
    next login; 0: never."""

    version: int
    lifetime: float


def log_in(credentials: OwnCredentials, version: int | None = None) -> Steps:
    """Log in with these credentials (see the module). `version` of SaslAuthenticate, None: ask the broker. Raises
    LoginRefused and LoginFailed."""
    tokens = credentials.tokens()
    token = next(tokens)
    if version is None:
        version = newest_version(read_response((yield request_frame(API_VERSIONS, 0, {})), API_VERSIONS, 0))
    body = read_response(
        (yield request_frame(SASL_HANDSHAKE, HANDSHAKE, {"mechanism": credentials.mechanism})),
        SASL_HANDSHAKE,
        HANDSHAKE,
    )
    if body["error_code"]:
        offered = ", ".join(one for one in body["mechanisms"] or () if one)
        reason = f"error {body['error_code']} to SaslHandshake for {credentials.mechanism}"
        if body["error_code"] == ILLEGAL_SASL_STATE:
            reason += ": this listener of the broker has no SASL"
        raise LoginRefused(
            credentials.clean(f"{reason}; the broker offers {offered}" if offered else reason)[:LONGEST_TEXT]
        )
    while True:
        body = read_response(
            (yield request_frame(SASL_AUTHENTICATE, version, {"auth_bytes": token})), SASL_AUTHENTICATE, version
        )
        if body["error_code"]:
            reason = credentials.clean(body["error_message"] or "")[:LONGEST_TEXT]
            raise LoginRefused(f"error {body['error_code']}: {reason}" if reason else f"error {body['error_code']}")
        try:
            token = tokens.send(bytes(body["auth_bytes"] or b""))
        except StopIteration:
            return LoggedIn(version, max(0, body.get("session_lifetime_ms", 0)) / 1000)


def newest_version(body: Mapping[str, Any]) -> int:
    """Return the version of SaslAuthenticate to use, from the body of an ApiVersions response. Raises LoginFailed."""
    versions = {entry["api_key"]: entry["max_version"] for entry in body["api_keys"] or ()}
    if body["error_code"]:
        raise LoginFailed(f"the broker answers ApiVersions 0 with error {body['error_code']}")
    if versions.get(SASL_HANDSHAKE, 0) < HANDSHAKE or SASL_AUTHENTICATE not in versions:
        raise LoginFailed("the broker has no SaslAuthenticate (KIP-152); Kafka has it since 1.0")
    return int(min(NEWEST, versions[SASL_AUTHENTICATE]))


def request_frame(key: int, version: int, body: dict[str, Any]) -> bytes:
    """Return a request of this API with its size in front."""
    header = {
        "request_api_key": key,
        "request_api_version": version,
        "correlation_id": CORRELATION,
        "client_id": "kproxy",
    }
    return framed(encode(Message(schema.load(key), version, header, body)))


def read_response(frame: bytes, key: int, version: int) -> dict[str, Any]:
    """Return the body of the broker's response. Raises LoginFailed if it does not answer kproxy's request."""
    if len(frame) > MAX_RESPONSE:
        raise LoginFailed(f"the broker answers with {len(frame)} bytes, expected at most {MAX_RESPONSE}")
    try:
        message = decode_response(frame, key, version, trailing=True)
    except DecodeError as error:
        raise LoginFailed(f"the broker's answer cannot be read: {error}") from None
    if message.header["correlation_id"] != CORRELATION:
        correlation = message.header["correlation_id"]
        raise LoginFailed(f"the broker answers with correlation id {correlation}, expected {CORRELATION}")
    return message.body


ROUNDS: Final = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
MAX_TOKEN: Final = 524288  # sasl.server.max.receive.size of brokers
GSSAPI_FIRST: Final = 0x60  # [APPLICATION 0] of the initial context token, RFC 2743 section 3.1
OAUTH_FAILED: Final = b"\x01"  # the client's answer to an error, RFC 7628 section 3.2.3


class RawTokens:
    """Raw tokens of one connection: detects which frames are currently tokens. Tokens are neither kept nor
    parsed; only the first byte is inspected."""

    __slots__ = ("from_broker", "from_client", "mechanism", "rounds")

    def __init__(self, mechanism: str) -> None:
        self.mechanism = mechanism
        self.rounds = ROUNDS.get(mechanism)
        self.from_client = 0
        self.from_broker = 0

    def client_sends_token(self, size: int, first: int) -> bool:
        """Return True if the client's next frame, of this size and first byte (-1: none), is a token."""
        if self.rounds is not None:
            return self.from_client < self.rounds
        if self.mechanism == "OAUTHBEARER":
            return self.from_client == 0 or size == len(OAUTH_FAILED)
        return size == 0 or first != 0

    @property
    def answered(self) -> bool:
        """Return True if no token of the broker is due."""
        return self.from_broker >= self.from_client

    def broker_sends_token(self, awaited: bool) -> bool:
        """Return True if the broker's next frame is a token. `awaited`: a Kafka request is in flight."""
        if self.rounds is not None:
            return self.from_broker < self.from_client
        return not awaited


ILLEGAL_SASL_STATE: Final = 34
SASL_AUTHENTICATION_FAILED: Final = 58
NOT_HERE: Final = "SaslAuthenticate request received, but this listener has no authentication"


class NoSasl:
    """End of SASL where clients do not authenticate: requests are answered as on a broker's listener without SASL."""

    def answer(self, step: Step, correlation: int, frame: bytes, now: float) -> bytes:
        if step.key == SASL_HANDSHAKE:
            return answer_to(step.key, step.version, correlation, error_code=ILLEGAL_SASL_STATE)
        code = ILLEGAL_SASL_STATE
        return answer_to(step.key, step.version, correlation, error_code=code, error_message=NOT_HERE)


NO_SASL: Final = NoSasl()


def answer_to(key: int, version: int, correlation: int, **values: Any) -> bytes:
    """Return a response with its size; missing fields have their defaults, and fields that the version lacks are
    dropped."""
    struct = layout.body(key, version, "response")
    body = struct.defaults()
    body |= {name: value for name, value in values.items() if name in body}
    return framed(encode(Message(schema.load(key), version, {"correlation_id": correlation}, body)))


class LaneLogins:
    """Logins on one session, as its lanes ask for them. `raw`: set while bare tokens may come; `sasl`: who answers the
    client's SASL in the broker's place, None if the broker does."""

    raw: RawTokens | None = None
    sasl: SaslServer | NoSasl | None = None

    def begin_raw(self, raw: RawTokens) -> None:
        """Look for raw SASL tokens, which may come from both sides now."""
        raise NotImplementedError

    def end_raw(self) -> None:
        raise NotImplementedError

    def choose_scan(self) -> None:
        """Choose the scan for the next frame of the client."""
        raise NotImplementedError

    @property
    def await_broker(self) -> bool:
        """Return True while the broker's answer to a message that determines the client's principal is pending."""
        raise NotImplementedError

    def note_answer(self) -> None:
        """Have the frame tried again that waits for the client's principal: the broker has answered a message of
        SASL."""
        raise NotImplementedError
