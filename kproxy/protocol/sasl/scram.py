"""Arithmetic and notation of SCRAM (RFC 5802, with SHA-256 as in RFC 7677), for both ends.

    SaltedPassword = PBKDF2(password, salt, iterations)         ClientKey = HMAC(SaltedPassword, "Client Key")
    StoredKey      = H(ClientKey)                               ServerKey = HMAC(SaltedPassword, "Server Key")
    ClientProof    = ClientKey xor HMAC(StoredKey, AuthMessage)  ServerSignature = HMAC(ServerKey, AuthMessage)

As in Kafka, names and passwords are taken as UTF-8, without SASLprep, and without channel binding.

A users file has one line for each mechanism of a user. The notation after the name is PostgreSQL's:

    # name:mechanism$iterations:salt$stored key:server key
    alice:SCRAM-SHA-256$8192:c2FsdA==$…:…

A line does not suffice to log in, but to try passwords, and to pose as kproxy to that user. Keep the file private.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from kproxy.base.errors import LoginFailed

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanism → its hash, by the name that hashlib has for it."""
LEAST_ITERATIONS: Final = 4096
"""RFC 7677 section 4."""
MOST_ITERATIONS: Final = 100_000
"""Kafka allows 16384. A login without a cached password costs as many hashes: 100,000 take 50 ms."""
# Iterations that a broker may ask for. Kafka's brokers allow 16384; SHA-512 takes 18 ms for these, on the event loop.
MAX_ASKED_ITERATIONS: Final = 32768
MAX_MESSAGE: Final = 16384  # bytes of a SCRAM message; Kafka's have some hundred
LONGEST_NONCE: Final = 1024
"""Characters; Kafka's and librdkafka's have some thirty."""

_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_SERVER_FIRST = re.compile(rf"r=({_NONCE}),s=([A-Za-z0-9+/=]+),i=([1-9][0-9]{{0,9}})(?:,.*)?")
_CLIENT_FIRST = re.compile(rf"(n|y|p=[^,]*),(?:a=([^,]*))?,(n=([^,]+),r=({_NONCE})(?:,(.*))?)", re.DOTALL)
_CLIENT_FINAL = re.compile(rf"(c=([A-Za-z0-9+/=]+),r=({_NONCE})(?:,.*)?),p=([A-Za-z0-9+/=]+)", re.DOTALL)
_BAD_ESCAPE = re.compile(r"=(?!2C|3D)")


class ScramKeys(NamedTuple):
    """Keys made of a password, a salt and a number of iterations. The client key is the client's own."""

    client: bytes
    stored: bytes
    server: bytes


class Challenge(NamedTuple):
    """First token of the server. `nonce` begins with the client's."""

    nonce: str
    salt: bytes
    iterations: int


def keys(algorithm: str, password: str, salt: bytes, iterations: int) -> ScramKeys:
    """Make the keys of a password, which is the dear part: `iterations` hashes."""
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    client = mac(algorithm, salted, b"Client Key")
    return ScramKeys(client, hashlib.new(algorithm, client).digest(), mac(algorithm, salted, b"Server Key"))


def mac(algorithm: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, algorithm)


def xor(one: bytes, other: bytes) -> bytes:
    """Return the exclusive or of two texts of the same length."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def proof(algorithm: str, keys: ScramKeys, message: str) -> bytes:
    return xor(keys.client, mac(algorithm, keys.stored, message.encode()))


def proves(algorithm: str, stored: bytes, message: str, shown: bytes) -> bool:
    """Return True if a proof was made with the client key behind this stored key; in constant time."""
    signature = mac(algorithm, stored, message.encode())
    if len(shown) != len(signature):
        return False
    return hmac.compare_digest(hashlib.new(algorithm, xor(shown, signature)).digest(), stored)


# ---- notation


def escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str | None:
    """Return the name without its escapes; None for an invalid escape."""
    return None if _BAD_ESCAPE.search(name) else name.replace("=2C", ",").replace("=3D", "=")


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


def decoded(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None


def text_of(token: bytes) -> str:
    """Return a token as text. Raises LoginFailed if it is not UTF-8 or longer than MAX_MESSAGE."""
    if len(token) > MAX_MESSAGE:
        raise LoginFailed(f"a token of SCRAM of {len(token)} bytes, expected at most {MAX_MESSAGE}")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise LoginFailed("a token of SCRAM is not UTF-8") from None


def read_challenge(token: bytes, nonce: str) -> Challenge:
    """Read the server's first token, for a client with this nonce. Raises LoginFailed."""
    match = _SERVER_FIRST.fullmatch(text_of(token))
    salt = None if match is None else decoded(match[2])
    if match is None or not salt:
        raise LoginFailed("expected a SCRAM challenge in the first token of the broker")
    if not match[1].startswith(nonce) or match[1] == nonce:
        raise LoginFailed("the broker's nonce does not continue ours")
    iterations = int(match[3])
    if not LEAST_ITERATIONS <= iterations <= MAX_ASKED_ITERATIONS:
        expected = f"expected {LEAST_ITERATIONS} to {MAX_ASKED_ITERATIONS}"
        raise LoginFailed(f"the broker requires {iterations} iterations, {expected}")
    return Challenge(match[1], salt, iterations)


class ClientFirst(NamedTuple):
    """First token of the client. `binding` is its head, `bare` the rest as it was written."""

    binding: str
    authorization: str
    bare: str
    name: str
    nonce: str
    extensions: str


def read_client_first(token: bytes) -> ClientFirst:
    """Read the client's first token. Raises LoginFailed for other tokens, and for channel binding."""
    match = _CLIENT_FIRST.fullmatch(text_of(token))
    name = None if match is None else unescaped(match[4])
    authorization = None if match is None else unescaped(match[2] or "")
    if match is None or name is None or authorization is None or len(match[5]) > LONGEST_NONCE:
        raise LoginFailed("expected SCRAM in the first token")
    if match[1].startswith("p"):
        raise LoginFailed("channel binding is not supported")
    head = f"{match[1]},{'' if match[2] is None else 'a=' + match[2]},"
    return ClientFirst(head, authorization, match[3], name, match[5], match[6] or "")


class ClientFinal(NamedTuple):
    """Second token of the client. `bare` is the part before the proof."""

    bare: str
    binding: bytes
    nonce: str
    proof: bytes


def read_client_final(token: bytes) -> ClientFinal:
    """Read the client's second token. Raises LoginFailed for other tokens."""
    match = _CLIENT_FINAL.fullmatch(text_of(token))
    binding, shown = (None, None) if match is None else (decoded(match[2]), decoded(match[4]))
    if match is None or binding is None or shown is None:
        raise LoginFailed("expected SCRAM in the second token")
    return ClientFinal(match[1], binding, match[3], shown)


LARGEST = 16 << 20  # bytes of a file of users
ITERATIONS: Final = 8192
"""Iterations of new lines; twice what RFC 7677 asks for at least, and what Kafka's own tools take."""
SALT: Final = 16
"""Bytes of the salt of new lines."""
LONGEST_NAME: Final = 249
"""Characters; enough for a distinguished name."""

_LINE = re.compile(r"([^:]+):(SCRAM-SHA-(?:256|512))\$([1-9][0-9]{0,5}):([^$:]+)\$([^$:]+):([^$:]+)")
_NAME = re.compile(r"[^:#\s][^:\r\n]*")


class Credential(NamedTuple):
    """Data that a server stores of a password for one mechanism."""

    mechanism: str
    iterations: int
    salt: bytes
    stored: bytes
    server: bytes


class Users:
    """Credentials by name and mechanism. `digest` is the same wherever the same users are, and a secret like them."""

    def __init__(self, lines: dict[tuple[str, str], Credential]) -> None:
        self.lines = lines
        self.digest = sha256(b"".join(sorted(one.stored for one in lines.values()))).digest()
        self.cheapest: dict[str, Credential] = {}
        first: dict[str, int] = {}
        for (name, mechanism), one in lines.items():
            if name not in self.cheapest or one.iterations < self.cheapest[name].iterations:
                self.cheapest[name] = one
            first.setdefault(mechanism, one.iterations)
        self.first_iterations = first
        self.names = frozenset(self.cheapest)

    def find(self, name: str, mechanism: str) -> Credential | None:
        return self.lines.get((name, mechanism))

    def any_of(self, name: str) -> Credential | None:
        """Return one credential of this user, whatever the mechanism: the cheapest."""
        return self.cheapest.get(name)

    def iterations(self, mechanism: str) -> int:
        """Return the iterations of the first line of a mechanism, which a user who is not there is pretended to
        have."""
        return self.first_iterations.get(mechanism, ITERATIONS)


def check_name(name: str) -> str:
    """Return the name. Raises ValueError for a name that the file cannot hold."""
    if not _NAME.fullmatch(name) or not name.isprintable() or name != name.strip() or len(name) > LONGEST_NAME:
        raise ValueError(f"no name of a user: no colons, at most {LONGEST_NAME} characters, no blank or # in front")
    return name


def make_line(name: str, mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS) -> str:
    """Return a line without its end. Raises ValueError for names that the file cannot hold."""
    derived = keys(HASHES[mechanism], password, salt, iterations)
    shown = f"{iterations}:{encoded(salt)}${encoded(derived.stored)}:{encoded(derived.server)}"
    return f"{check_name(name)}:{mechanism}${shown}"


def read_users(text: str) -> Users:
    """Read the users of a file. Raises ValueError with the numbers of bad lines, never with their content."""
    credentials: dict[tuple[str, str], Credential] = {}
    wrong = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        read = read_line(line)
        if isinstance(read, str):
            wrong.append(f"line {number}: {read}")
        elif (read[0], read[1].mechanism) in credentials:
            wrong.append(f"line {number}: the same user and mechanism as in a line before")
        else:
            credentials[read[0], read[1].mechanism] = read[1]
    if wrong:
        raise ValueError("; ".join(wrong))
    return Users(credentials)


def read_line(line: str) -> tuple[str, Credential] | str:
    """Return name and credential, or what is wrong."""
    match = _LINE.fullmatch(line.rstrip())
    if match is None:
        return "expected name:SCRAM-SHA-256$iterations:salt$stored key:server key, or SCRAM-SHA-512"
    name, mechanism, iterations = match[1], match[2], int(match[3])
    try:
        check_name(name)
    except ValueError as error:
        return str(error)
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        return f"expected {LEAST_ITERATIONS} to {MOST_ITERATIONS} iterations"
    salt, stored, server = (decoded(match[one]) for one in (4, 5, 6))
    size = 32 if mechanism == "SCRAM-SHA-256" else 64
    if not salt or stored is None or server is None or {len(stored), len(server)} != {size}:
        return f"salt and keys are base64, the keys of {size} bytes"
    return name, Credential(mechanism, iterations, salt, stored, server)


def names_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and mechanism of every line, in order. Raises ValueError as `read_users`."""
    yield from read_users(text).lines
