"""Server's end of PLAIN and SCRAM, against a file of users.

    steps = checker.begin("SCRAM-SHA-256")
    answer = steps.send(token)          # primed; until it stops: what it returns then is an `Accepted`
    answer = steps.send(answer.work())  # where it is `LoginWork`, which takes milliseconds: here, or in a thread

Whoever is refused learns from the answer, and from how long it took, no more than that: a user who is not there gets a
challenge like any other, the same one each time, and a password is hashed for it, too.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Generator
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

from kproxy.base.errors import LoginFailed, LoginRefused

from . import scram as notation
from .users import SALT, Credential, Users

PLAIN: Final = "PLAIN"
BAD_PLAIN: Final = "Authentication failed: Invalid username or password"
BAD_SCRAM: Final = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
"""Messages of a refused login, in the words of Kafka."""
UNKNOWN: Final = "an unknown user"
PROVED: Final = 10_000
"""Users whose last password is recognized without hashing it anew; each takes some hundred bytes."""


class Denied(LoginRefused):
    """Refusal of a login. `str` is what the client is told, `why` what the log says: it names a user only if there is
    one."""

    def __init__(self, told: str, why: str) -> None:
        super().__init__(told)
        self.why = why


class Accepted(NamedTuple):
    """Acceptance of a login: the client is who it says it is; `answer` is the server's last token."""

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
        self.proved: dict[str, tuple[Credential, bytes]] = {}

    def begin(self, mechanism: str) -> LoginSteps:
        """Begin a login, which then waits for the client's first token. Its `send` raises Denied."""
        exchange = self.plain() if mechanism == PLAIN else self.scram(mechanism)
        next(exchange)
        return exchange

    def current(self) -> Generator[LoginWork, Users, Users]:
        """Find out who the users are now."""
        users = self.users()
        return (yield users) if isinstance(users, LoginWork) else users

    # ---- PLAIN

    def plain(self) -> LoginSteps:
        token = yield b""
        parts = token.split(b"\0")
        try:
            authorization, name, password = (part.decode() for part in parts)
        except ValueError:
            raise Denied(BAD_PLAIN, "a token that is none of PLAIN") from None
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
            if len(self.proved) >= PROVED:
                self.proved.clear()
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
        """Return a credential for a user who is not there: the same salt in every process, and keys that no password
        has."""
        seed = hmac.digest(users.digest, f"pretended\0{mechanism}\0{name}".encode(), "sha256")
        size = 32 if mechanism == "SCRAM-SHA-256" else 64
        stored = (sha256(seed + b"stored").digest() * 2)[:size]
        return Credential(mechanism, users.iterations(mechanism), seed[:SALT], stored, stored)


def wrong(name: str, credential: Credential | None) -> str:
    """Return the reason for the log. What was given as a name is not told if it is nobody's: some type their password
    there."""
    return UNKNOWN if credential is None else f'wrong password of user "{name}"'
