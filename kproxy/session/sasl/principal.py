"""Principal of a client, as the broker has accepted it.

Strategy. SASL passes through kproxy between client and broker; this watches it, without a part in it. The name comes
from the client's first token and counts once the broker has accepted the last one: error code 0 in SaslAuthenticate, or
the raw reply that ends the mechanism after a handshake of version 0. A later authentication on the same connection
replaces it (KIP-368). Without SASL the principal is the subject of the client's certificate.

Names are plain (`alice`); Kafka writes `User:alice` for the same. Mapped names (`ssl.principal.mapping.rules`, a
principal builder) are not visible to kproxy. Only the name is kept of a token.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from kproxy.protocol.table.api_keys import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.counters import Counters

LONGEST: Final = 1000
"""Characters of a name; it becomes text in logs and answers."""
# Parsing is one call without a switch to other connections. The worst 64 KiB take 10 ms, and real tokens have a few kB.
LONGEST_TOKEN: Final = 65536

DELEGATION = "delegation token"
OPAQUE = "token without readable claims"
MALFORMED = "malformed token"

_CLIENT_FIRST = re.compile(rb"(?:n|y|p=[^,]*),(?:a=[^,]*)?,(?:m=[^,]*,)?n=([^,]*),r=[^,]*(?:,(.*))?", re.DOTALL)
_BEARER = re.compile(rb"auth=bearer +([^\x01]+)", re.IGNORECASE)
_BAD_ESCAPE = re.compile(rb"=(?!2C|3D)")


class NoName(Exception):
    """Error of a token without a readable name; the argument is the reason, never a part of the token."""


def plain(token: bytes) -> str:
    """Read `[authorization id] NUL user NUL password`: the id, or the user when it is left out. Raises NoName."""
    parts = token.split(b"\0")
    if len(parts) != 3 or not parts[1]:
        raise NoName(MALFORMED)
    return _text(parts[0] or parts[1])


def scram(token: bytes) -> str:
    """Read `n,,n=user,r=nonce[,extensions]`; in the user `=2C` is a comma, `=3D` an equals sign. Raises NoName."""
    match = _CLIENT_FIRST.fullmatch(token)
    if match is None or _BAD_ESCAPE.search(match[1]):
        raise NoName(MALFORMED)
    extensions = dict(one.split(b"=", 1) for one in (match[2] or b"").split(b",") if b"=" in one)
    if extensions.get(b"tokenauth", b"").lower() == b"true":  # as brokers read them: the last one counts
        raise NoName(DELEGATION)
    return _text(match[1].replace(b"=2C", b",").replace(b"=3D", b"="))


def oauthbearer(token: bytes) -> str:
    """Read `n,[a=id],^A auth=Bearer JWT ^A … ^A`: the claim `sub`, not verified. Raises NoName."""
    pairs = token.split(b"\x01")
    if len(pairs) < 3 or not pairs[0].startswith((b"n,", b"y,", b"p=")):
        raise NoName(MALFORMED)
    bearers = [found[1] for pair in pairs[1:] if (found := _BEARER.fullmatch(pair))]
    if len(bearers) != 1:  # with several, kproxy cannot know which one the broker verifies
        raise NoName(MALFORMED)
    subject = claims(bearers[0]).get("sub")
    if not isinstance(subject, str):
        raise NoName(OPAQUE)
    return _text(subject.encode("utf-8", "surrogatepass"))


def claims(token: bytes) -> Mapping[str, Any]:
    """Return the claims of a JWT. Raises NoName for other tokens: some are meant for the broker alone."""
    parts = token.split(b".")
    try:
        body = json.loads(urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (ValueError, IndexError, RecursionError):
        raise NoName(OPAQUE) from None
    if not isinstance(body, dict):
        raise NoName(OPAQUE)
    return body


def _text(name: bytes) -> str:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise NoName(MALFORMED) from None
    if not text or len(text) > LONGEST:
        raise NoName(MALFORMED)
    return text


NAMES: Final[Mapping[str, Callable[[bytes], str]]] = {
    "PLAIN": plain,
    "SCRAM-SHA-256": scram,
    "SCRAM-SHA-512": scram,
    "OAUTHBEARER": oauthbearer,
}
"""Parsers of the client's first token, by mechanism. Tokens of other mechanisms do not contain a readable name (GSSAPI
tokens are encrypted)."""


NameSource = Literal["PLAIN", "SCRAM", "OAUTHBEARER", "certificate"]

MOST_PENDING: Final = 16
"""Maximum number of pending SASL requests. Clients have one or two."""

NOBODY = "no SASL and no certificate"
NOT_YET = "not authenticated yet"
REFUSED = "refused by the broker"
LOST = "SASL requests and answers out of step"


@dataclass(frozen=True, slots=True)
class Principal:
    """Name of a client and its source. OAUTHBEARER: the claim `sub` of the token, which only the broker verifies."""

    name: str
    source: NameSource


@dataclass(frozen=True, slots=True, eq=False)
class LoginOutcome:
    """End of an authentication: error code 0 if it succeeded. Two with the same values are not equal."""

    mechanism: str
    error: int


class SaslDialogue:
    """One authentication of a client: the mechanism, how far it is, and the name in the client's first token."""

    __slots__ = ("mechanism", "name", "reason", "tokens")

    def __init__(self, mechanism: str) -> None:
        self.mechanism = mechanism
        self.tokens = 0  # number of the client's tokens
        self.name: str | None = None
        self.reason = NOT_YET

    def take_token(self, token: bytes) -> None:
        """Read the name in the first token of the client; one of more than LONGEST_TOKEN bytes counts as malformed."""
        self.tokens += 1
        if self.tokens > 1:
            return
        read = NAMES.get(self.mechanism)
        if read is None:
            named = self.mechanism.isprintable() and 0 < len(self.mechanism) < 50
            self.reason = self.mechanism if named else "mechanism"
            return
        if len(token) > LONGEST_TOKEN:
            self.reason = MALFORMED
            return
        try:
            self.name = read(token)
        except NoName as error:
            self.reason = str(error)

    def ends_with(self, token: bytes) -> bool:
        """Return True if this token of the broker, given without an error, confirms the client's authentication."""
        if self.mechanism.startswith("SCRAM-"):
            return self.tokens == 2 and token.startswith(b"v=")
        if self.mechanism == "OAUTHBEARER":  # a token of the broker contains an error (RFC 7628 section 3.2.2)
            return self.tokens == 1 and not token
        return self.tokens == 1

    @property
    def principal(self) -> Principal | None:
        """Return the principal that the token names; None when it names none."""
        source: NameSource = "SCRAM" if self.mechanism.startswith("SCRAM-") else self.mechanism  # type: ignore[assignment]
        return None if self.name is None else Principal(self.name, source)


class PrincipalWatch:
    """Watcher of the SASL messages of one connection, in order; it extracts the client's principal.

    `request` and `response` want SaslHandshake and SaslAuthenticate and leave others alone; `raw_token` processes the
    frames after a handshake of version 0. None of them raises, whatever the tokens contain; unreadable tokens are
    counted as `principal_unreadable`.

    Attributes: principal (None: unknown); absent (why it is None; empty otherwise); outcome (result of the last
    completed authentication; None before that).
    """

    __slots__ = ("absent", "certificate", "counters", "current", "outcome", "pending", "principal")

    def __init__(self, certificate: str | None, counters: Counters) -> None:
        self.counters = counters
        self.certificate = None if certificate is None else Principal(certificate, "certificate")
        self.principal = self.certificate
        self.absent = NOBODY if certificate is None else ""
        self.current: SaslDialogue | None = None
        self.outcome: LoginOutcome | None = None
        self.pending: deque[tuple[int, SaslDialogue]] = deque()

    def request(self, key: int, version: int, body: Mapping[str, Any]) -> None:
        if self.absent == LOST:
            return
        if key == SASL_HANDSHAKE:
            self.begin(body["mechanism"] or "")
        elif key == SASL_AUTHENTICATE:
            if self.current is None:
                self.begin("no handshake")
            assert self.current is not None
            self.token(self.current, body["auth_bytes"])
        else:
            return
        assert self.current is not None
        self.pending.append((key, self.current))
        if len(self.pending) > MOST_PENDING:
            self.give_up()

    def response(self, key: int, version: int, body: Mapping[str, Any]) -> None:
        """Note a decoded response of the broker, in the order of the requests."""
        if key not in (SASL_HANDSHAKE, SASL_AUTHENTICATE) or not self.pending:
            return
        requested, dialogue = self.pending.popleft()
        if requested != key:
            self.give_up()
        elif body["error_code"]:
            self.refused(dialogue, body["error_code"])
        elif key == SASL_AUTHENTICATE and dialogue.ends_with(bytes(body["auth_bytes"] or b"")):
            self.accepted(dialogue)

    def raw_token(self, side: int, token: bytes) -> None:
        """Note a bare token, of the side that sent it (KIP-43). Without a handshake it is one of GSSAPI."""
        if self.absent == LOST:
            return
        if self.current is None:
            self.begin("GSSAPI")
        assert self.current is not None
        if side == CLIENT:
            self.token(self.current, token)
        elif side == BROKER and self.current.ends_with(token):
            self.accepted(self.current)

    @property
    def is_anyone(self) -> bool:
        """Return True if the client has logged in with a delegation token, which does not name its owner."""
        return self.absent == DELEGATION

    # ---- results

    def begin(self, mechanism: str) -> None:
        """Begin an authentication. Until another name is accepted, a name from SASL stays. A name from a certificate is
        dropped, unless the broker refuses: a broker without SASL responds with an error, and the certificate's
        principal stays."""
        self.current = SaslDialogue(mechanism)
        if self.principal is None or self.principal.source == "certificate":
            self.principal, self.absent = None, NOT_YET

    def token(self, dialogue: SaslDialogue, token: bytes | None) -> None:
        dialogue.take_token(bytes(token or b""))
        if dialogue.tokens == 1 and dialogue.reason == MALFORMED:
            self.counters.count("principal_unreadable")

    def accepted(self, dialogue: SaslDialogue) -> None:
        self.principal = dialogue.principal
        self.outcome = LoginOutcome(dialogue.mechanism, 0)
        self.absent = "" if dialogue.principal is not None else dialogue.reason

    def refused(self, dialogue: SaslDialogue, code: int) -> None:
        self.outcome = LoginOutcome(dialogue.mechanism, code)
        if self.principal is None:
            self.principal, self.absent = self.certificate, "" if self.certificate is not None else REFUSED
        if self.current is dialogue:
            self.current = None

    def give_up(self) -> None:
        """Stop watching, since responses cannot be matched to requests any more: the principal becomes unknown rather
        than wrong."""
        self.pending.clear()
        self.current = None
        self.principal, self.absent = None, LOST
        self.counters.count("principal_unreadable")
