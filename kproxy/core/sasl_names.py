"""Names that clients give in the tokens of each SASL mechanism. Nothing but the name comes out of a token.

PLAIN: RFC 4616. SCRAM: RFC 5802; with `tokenauth=true` it is a delegation token (KIP-48), whose owner it does not name.
OAUTHBEARER: RFC 7628; the name is the claim `sub` of a JWT (RFC 7519), whose signature is the broker's to check.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final

LONGEST: Final = 1000
"""Characters of a name; it becomes text in logs and answers."""

DELEGATION = "delegation token"
OPAQUE = "token without readable claims"
MALFORMED = "malformed token"

_CLIENT_FIRST = re.compile(rb"(?:n|y|p=[^,]*),(?:a=[^,]*)?,(?:m=[^,]*,)?n=([^,]*),r=[^,]*(?:,(.*))?", re.DOTALL)
_BEARER = re.compile(rb"auth=bearer +([^\x01]+)", re.IGNORECASE)
_BAD_ESCAPE = re.compile(rb"=(?!2C|3D)")


class NoName(Exception):
    """Error of a token that names nobody; the argument is the reason, never a part of the token."""


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
    """Return the claims of a JWT. Raises NoName when it is none: tokens may be meant for the broker alone."""
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
"""By mechanism, what the first token of the client says. Others name nobody (GSSAPI tokens are encrypted)."""
