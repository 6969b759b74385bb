"""SASL mechanisms as generators: the client's end for brokers, and the server's end against a file of users.

    tokens = plain("user", "password")
    token = next(tokens)            # send it, then pass the response, until StopIteration: then the server
    token = tokens.send(response)   # has proved itself, if the mechanism has a proof

    steps = checker.begin("SCRAM-SHA-256")
    answer = steps.send(token)          # until StopIteration with an `Accepted`
    answer = steps.send(answer.work())  # if it is `LoginWork`, which takes milliseconds: here, or in a thread

LoginFailed errors contain no secrets. Responses and their timing do not show whether a user exists: an unknown user
gets a constant challenge, and a password is hashed for it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Generator, Mapping
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.errors import LoginFailed, LoginRefused

from . import scram as notation
from .scram import SALT, Credential, Users

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
    """SCRAM client for repeated logins; it caches the keys of each salt."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: Callable[[], str]) -> None:
        self.algorithm, self.user, self.password, self.nonce = notation.HASHES[mechanism], user, password, nonce
        self.known: BoundedMap[tuple[bytes, int], notation.ScramKeys] = BoundedMap(KNOWN_KEYS)

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
            keys = self.known[salt, iterations] = notation.keys(self.algorithm, self.password, salt, iterations)
        return keys


def oauthbearer(token: str, extensions: Mapping[str, str]) -> Tokens:
    """Yield the tokens of RFC 7628, with the extensions of KIP-342. Raises LoginFailed for a token with separators."""
    if not _BEARER.fullmatch(token):
        raise LoginFailed("the token for OAUTHBEARER is empty, or has characters that no token has")
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    answer = yield f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()
    if answer:  # the reason; the refusal follows
        yield OAUTH_FAILED
        raise LoginFailed("the broker finds the token for OAUTHBEARER invalid")


def is_extension(name: str, value: str) -> bool:
    """Return True if name and value can be an extension: KIP-342 and RFC 7628 section 3.1."""
    return bool(_EXTENSION.fullmatch(name)) and name != "auth" and "\x01" not in value and value.isprintable()


PLAIN: Final = "PLAIN"
BAD_PLAIN: Final = "Authentication failed: Invalid username or password"
BAD_SCRAM: Final = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
"""Messages of a refused login, in the words of Kafka."""
UNKNOWN: Final = "an unknown user"
PROVED: Final = 10_000
"""Cached users: their last password needs no other hash. Some hundred bytes each."""


class Denied(LoginRefused):
    """Refusal of a login. `str` is the client's message, `why` the reason for the log; it names only existing users."""

    def __init__(self, told: str, why: str) -> None:
        super().__init__(told)
        self.why = why


class Accepted(NamedTuple):
    """Successful login: the client is `name`; `answer` is the server's last token."""

    name: str
    answer: bytes


class LoginWork(NamedTuple):
    """Work that has to be done before the login goes on. It may be called by another thread."""

    work: Callable[[], notation.ScramKeys | Users]


LoginSteps = Generator[bytes | LoginWork, Any, Accepted]
"""Yields answers and wants the client's next token, or yields Work and wants what it returns."""


class Checker:
    """Checker of the logins of one listener. `users` gives them as they are now, or what has to be done to know them;
    `key` is this process' own, `nonce` makes one."""

    def __init__(self, users: Callable[[], Users | LoginWork], key: bytes, nonce: Callable[[], str]) -> None:
        self.users, self.key, self.nonce = users, key, nonce
        self.proved: BoundedMap[str, tuple[Credential, bytes]] = BoundedMap(PROVED)

    def begin(self, mechanism: str) -> LoginSteps:
        """Begin a login, which then waits for the client's first token. Its `send` raises Denied."""
        exchange = self.plain() if mechanism == PLAIN else self.scram(mechanism)
        next(exchange)
        return exchange

    def current(self) -> Generator[LoginWork, Users, Users]:
        users = self.users()
        return (yield users) if isinstance(users, LoginWork) else users

    # ---- PLAIN

    def plain(self) -> LoginSteps:
        token = yield b""
        parts = token.split(b"\0")
        try:
            authorization, name, password = (part.decode() for part in parts)
        except ValueError:
            raise Denied(BAD_PLAIN, "expected a PLAIN token") from None
        users = yield from self.current()
        credential = users.any_of(name)
        right = yield from self.matches(name, password, credential, users)
        if not right or credential is None:
            raise Denied(BAD_PLAIN, wrong(name, credential))
        if authorization not in ("", name):
            raise Denied(BAD_PLAIN, f'user "{name}" wants to act as another one')
        return Accepted(name, b"")

    def matches(
        self, name: str, password: str, credential: Credential | None, users: Users
    ) -> Generator[LoginWork, notation.ScramKeys, bool]:
        """Return True if it is the password. One that was right is known again by a digest that only this process can
        make."""
        tag = hmac.digest(self.key, b"proved\0" + password.encode(), "sha256")
        known = self.proved.get(name)
        if known is not None and known[0] == credential and hmac.compare_digest(known[1], tag):
            return True
        checked = credential or self.pretended(name, "SCRAM-SHA-256", users)
        algorithm = notation.HASHES[checked.mechanism]
        keys = yield LoginWork(partial(notation.keys, algorithm, password, checked.salt, checked.iterations))
        right = hmac.compare_digest(keys.stored, checked.stored) and credential is not None
        if right and credential is not None:
            self.proved[name] = credential, tag
        return right

    # ---- SCRAM

    def scram(self, mechanism: str) -> LoginSteps:
        denied = BAD_SCRAM + mechanism
        algorithm = notation.HASHES[mechanism]
        try:
            first = notation.read_client_first((yield b""))
        except LoginFailed as error:
            raise Denied(denied, str(error)) from None
        users = yield from self.current()
        credential = users.find(first.name, mechanism)
        if "tokenauth=true" in first.extensions.lower().split(","):
            raise Denied(denied, "a delegation token, which kproxy cannot check")
        checked = credential or self.pretended(first.name, mechanism, users)
        nonce = first.nonce + self.nonce()
        challenge = f"r={nonce},s={notation.encoded(checked.salt)},i={checked.iterations}"
        try:
            final = notation.read_client_final((yield challenge.encode()))
        except LoginFailed as error:
            raise Denied(denied, str(error)) from None
        message = f"{first.bare},{challenge},{final.bare}"
        proved = notation.proves(algorithm, checked.stored, message, final.proof)
        if final.nonce != nonce or final.binding != first.binding.encode():
            raise Denied(denied, "a second token that does not belong to the first")
        if not proved or credential is None:
            raise Denied(denied, wrong(first.name, credential))
        if first.authorization not in ("", first.name):
            raise Denied(denied, f'user "{first.name}" wants to act as another one')
        signature = notation.mac(algorithm, checked.server, message.encode())
        return Accepted(first.name, f"v={notation.encoded(signature)}".encode())

    def pretended(self, name: str, mechanism: str, users: Users) -> Credential:
        """Return a credential for an unknown user: the same salt in every process, and keys that no password has."""
        seed = hmac.digest(users.digest, f"pretended\0{mechanism}\0{name}".encode(), "sha256")
        size = 32 if mechanism == "SCRAM-SHA-256" else 64
        stored = (sha256(seed + b"stored").digest() * 2)[:size]
        return Credential(mechanism, users.iterations(mechanism), seed[:SALT], stored, stored)


def wrong(name: str, credential: Credential | None) -> str:
    """Return the reason for the log. Unknown names are not logged: some people type their password there."""
    return UNKNOWN if credential is None else f'wrong password of user "{name}"'
