"""Raw SASL tokens: what follows a SaslHandshake v0, and what a 0.9 GSSAPI client opens with.

Strategy. From SaslHandshake v1 on tokens travel in SaslAuthenticate frames, which are frames like any other. After a v0
handshake they come bare: a size and the token, both ways, without headers, and nothing marks the end (KIP-43, KIP-152).
For mechanisms with a fixed number of rounds the tokens are counted. For the others the client's next frame decides: a
Kafka request starts with the zero byte of a small api key, a GSSAPI token never does (RFC 4121: 0x60, 0x05 …).
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from kproxy.core.step import Step
from kproxy.wire import Message, encode
from kproxy.wire.table import layout, schema
from kproxy.wire.table.api_keys import SASL_HANDSHAKE

ROUNDS: Final = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
MAX_TOKEN: Final = 524288  # sasl.server.max.receive.size of brokers
GSSAPI_FIRST: Final = 0x60  # [APPLICATION 0] of the initial context token, RFC 2743 section 3.1
OAUTH_FAILED: Final = b"\x01"  # the client's answer to an error, RFC 7628 section 3.2.3


class RawTokens:
    """Raw tokens of one connection: tells which frames are tokens just now. None is kept or looked into, save one
    byte."""

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
NOT_HERE: Final = "SaslAuthenticate request received, but nobody authenticates on this listener"


class SaslEnd(Protocol):
    """Party that answers a connection's requests of SASL in the broker's place."""

    def answer(self, step: Step, correlation: int, frame: bytes, now: float) -> bytes | None:
        """Return the answer, with its size, to this request, given without its size; None: later, or never."""


class NoSasl:
    """End of SASL where clients do not authenticate: requests are answered as on a broker's listener without SASL."""

    def answer(self, step: Step, correlation: int, frame: bytes, now: float) -> bytes:
        if step.key == SASL_HANDSHAKE:
            return answer_to(step.key, step.version, correlation, error_code=ILLEGAL_SASL_STATE)
        code = ILLEGAL_SASL_STATE
        return answer_to(step.key, step.version, correlation, error_code=code, error_message=NOT_HERE)


NO_SASL: Final = NoSasl()


def answer_to(key: int, version: int, correlation: int, **values: Any) -> bytes:
    """Return a response with its size; fields not given have their defaults, those that the version lacks go."""
    struct = layout.body(key, version, "response")
    body = struct.defaults()
    body |= {name: value for name, value in values.items() if name in body}
    frame = encode(Message(schema.load(key), version, {"correlation_id": correlation}, body))
    return len(frame).to_bytes(4, "big") + frame


class LaneLogins:
    """Logins on one session, as its lanes ask for them. `raw`: set while bare tokens may come; `sasl`: who answers the
    client's SASL in the broker's place, None if the broker does."""

    raw: RawTokens | None = None
    sasl: SaslEnd | None = None

    def begin_raw(self, raw: RawTokens) -> None:
        """Look for raw SASL tokens, which may come from both sides now."""
        raise NotImplementedError

    def end_raw(self) -> None:
        """Read all frames as Kafka's again."""
        raise NotImplementedError

    def choose_scan(self) -> None:
        """Choose how the next frame of the client is looked at."""
        raise NotImplementedError

    @property
    def await_broker(self) -> bool:
        """Return True if the client has sent what its principal depends on, and the broker has not answered that
        yet."""
        raise NotImplementedError

    def note_answer(self) -> None:
        """Have the frame tried again that waits for the client's principal: the broker has answered a message of
        SASL."""
        raise NotImplementedError
