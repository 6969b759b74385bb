"""Clients' ends of each mechanism, as generators: they give tokens to send and are sent the server's.

    tokens = plain("user", "password")
    token = next(tokens)            # send it, then hand in the answer, until it stops: the server has proved itself,
    token = tokens.send(answer)     # where the mechanism has a proof

What they raise, LoginFailed, has no secret in its message.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Generator, Mapping
from typing import Final

from kproxy.base.errors import LoginFailed

from . import scram as notation

Tokens = Generator[bytes, bytes, None]

KNOWN_KEYS: Final = 8
"""Sets of keys that are kept: a broker gives the same salt for the same user each time, and others after a change."""
OAUTH_FAILED: Final = b"\x01"  # RFC 7628 section 3.2.3
_EXTENSION = re.compile(r"[A-Za-z]+")
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750 section 2.1


def plain(user: str, password: str) -> Tokens:
    """Yield the token of PLAIN, as in RFC 4616."""
    yield b"\0" + user.encode() + b"\0" + password.encode()


class ScramClient:
    """Client of SCRAM that logs in again and again; the keys of a salt that has been seen are not made anew."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: Callable[[], str]) -> None:
        self.algorithm, self.user, self.password, self.nonce = notation.HASHES[mechanism], user, password, nonce
        self.known: dict[tuple[bytes, int], notation.ScramKeys] = {}

    def tokens(self) -> Tokens:
        nonce = self.nonce()
        bare = f"n={notation.escaped(self.user)},r={nonce}"
        first = yield f"n,,{bare}".encode()
        challenge = notation.read_challenge(first, nonce)
        keys = self.keys(challenge.salt, challenge.iterations)
        final = f"c=biws,r={challenge.nonce}"  # biws: "n,,", no channel binding
        message = f"{bare},{first.decode()},{final}"
        shown = notation.encoded(notation.proof(self.algorithm, keys, message))
        last = notation.text_of((yield f"{final},p={shown}".encode()))
        signature = notation.mac(self.algorithm, keys.server, message.encode())
        shown_signature = notation.decoded(last[2:].partition(",")[0]) if last.startswith("v=") else None
        if shown_signature is None or not hmac.compare_digest(shown_signature, signature):
            raise LoginFailed("the broker does not know the password: its signature is wrong")

    def keys(self, salt: bytes, iterations: int) -> notation.ScramKeys:
        keys = self.known.get((salt, iterations))
        if keys is None:
            if len(self.known) >= KNOWN_KEYS:
                self.known.clear()
            keys = self.known[salt, iterations] = notation.keys(self.algorithm, self.password, salt, iterations)
        return keys


def oauthbearer(token: str, extensions: Mapping[str, str]) -> Tokens:
    """Yield the tokens of RFC 7628, with the extensions of KIP-342. Raises LoginFailed for what could not be told from
    its separators."""
    if not _BEARER.fullmatch(token):
        raise LoginFailed("the token for OAUTHBEARER is empty, or has characters that no token has")
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    answer = yield f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()
    if answer:  # what is wrong; the refusal itself comes after this
        yield OAUTH_FAILED
        raise LoginFailed("the broker finds the token for OAUTHBEARER invalid")


def is_extension(name: str, value: str) -> bool:
    """Return True if name and value can be an extension: KIP-342 and RFC 7628 section 3.1."""
    return bool(_EXTENSION.fullmatch(name)) and name != "auth" and "\x01" not in value and value.isprintable()
