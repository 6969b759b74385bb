"""Raw SASL tokens: what follows a SaslHandshake v0, and what a 0.9 GSSAPI client opens with.

Strategy. From SaslHandshake v1 on tokens travel in SaslAuthenticate frames, which are frames like any other. After a v0
handshake they come bare: a size and the token, both ways, without headers, and nothing marks the end (KIP-43, KIP-152).
For mechanisms with a fixed number of rounds the tokens are counted. For the others the client's next frame decides: a
Kafka request starts with the zero byte of a small api key, a GSSAPI token never does (RFC 4121: 0x60, 0x05 …).
"""

from __future__ import annotations

from typing import Final

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
