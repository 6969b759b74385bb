"""kproxy's own login on a connection to a broker, in Kafka's frames (KIP-43, KIP-152), for any mechanism.

    steps = log_in("PLAIN", tokens)
    frame = next(steps)                 # a request with its size: send it, then hand in the answer without its size,
    frame = steps.send(answer)          # until it stops; what it returns then is a `LoggedIn`

ApiVersions first, as every client does it, tells which version of SaslAuthenticate the broker has. When a session is
renewed (KIP-368) that is known already.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kproxy.base.errors import DecodeError, LoginFailed, LoginRefused
from kproxy.protocol import Message, decode_response, encode
from kproxy.protocol.framing import framed
from kproxy.protocol.sasl.mechanisms import Tokens
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE

ILLEGAL_SASL_STATE: Final = 34
CORRELATION: Final = -0x6B71
HANDSHAKE: Final = 1
"""Version of SaslHandshake; with 0 bare tokens would follow. Kafka has had it since 1.0."""
NEWEST: Final = 2
"""Version of SaslAuthenticate; from 1 on the broker says how long the session lasts."""
MAX_RESPONSE: Final = 65536  # bytes of a broker's response to a login, without its size
LONGEST_TEXT: Final = 300
"""Characters of a broker's own words that are told; Kafka's have some hundred."""

Steps = Generator[bytes, bytes, "LoggedIn"]


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """Outcome of a login: `version` is that of SaslAuthenticate, `lifetime` the seconds until the broker wants the next
    one; 0: never."""

    version: int
    lifetime: float


class Credentials(Protocol):
    """Credentials that kproxy logs in with. `tokens` may raise LoginFailed; `clean` removes secrets from a text."""

    @property
    def mechanism(self) -> str: ...
    def tokens(self) -> Tokens: ...
    def clean(self, text: str) -> str: ...


def log_in(credentials: Credentials, version: int | None = None) -> Steps:
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
