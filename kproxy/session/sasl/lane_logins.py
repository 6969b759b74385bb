"""Logins as the lanes of a session know them, and SASL that ends at kproxy: where it logs in to the brokers itself,
clients have nothing to say to them about it."""

from __future__ import annotations

from typing import Any, Final, Protocol

from kproxy.protocol import Message, encode
from kproxy.protocol.framing import framed
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import SASL_HANDSHAKE
from kproxy.session.step import Step

from .raw_tokens import RawTokens

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
    return framed(encode(Message(schema.load(key), version, {"correlation_id": correlation}, body)))


class LaneLogins:
    """Logins on one session, as its lanes ask for them. `raw`: set while bare tokens may come; `sasl`: who answers the
    client's SASL in the broker's place, None if the broker does."""

    raw: RawTokens | None = None
    sasl: SaslEnd | None = None

    def begin_raw(self, raw: RawTokens) -> None:
        """Look for raw SASL tokens, which may come from both sides now."""
        raise NotImplementedError

    def end_raw(self) -> None:
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
