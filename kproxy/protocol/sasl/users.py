"""Users of a listener, in a file: one line for each mechanism of a user, with what SCRAM keeps of a password.

    # name:mechanism$iterations:salt$stored key:server key
    alice:SCRAM-SHA-256$8192:c2FsdA==$…:…

The notation behind the name is PostgreSQL's. From a line nobody can log in as the user, but whoever has it can try
passwords, and pretend to be kproxy to that user: the file is not for others to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from .scram import HASHES, LEAST_ITERATIONS, MOST_ITERATIONS, decoded, encoded, keys

ITERATIONS: Final = 8192
"""Iterations of new lines; twice what RFC 7677 asks for at least, and what Kafka's own tools take."""
SALT: Final = 16
"""Bytes of the salt of new lines."""
LONGEST_NAME: Final = 249
"""Characters; enough for a distinguished name."""

_LINE = re.compile(r"([^:]+):(SCRAM-SHA-(?:256|512))\$([1-9][0-9]{0,5}):([^$:]+)\$([^$:]+):([^$:]+)")
_NAME = re.compile(r"[^:#\s][^:\r\n]*")


class Credential(NamedTuple):
    """Credential: what is kept of one password for one mechanism."""

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
    """Return the name. Raises ValueError for what cannot be a user's name in this file."""
    if not _NAME.fullmatch(name) or not name.isprintable() or name != name.strip() or len(name) > LONGEST_NAME:
        raise ValueError(f"no name of a user: no colons, at most {LONGEST_NAME} characters, no blank or # in front")
    return name


def make_line(name: str, mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS) -> str:
    """Return a line without its end. Raises ValueError for names that cannot stand in one."""
    derived = keys(HASHES[mechanism], password, salt, iterations)
    shown = f"{iterations}:{encoded(salt)}${encoded(derived.stored)}:{encoded(derived.server)}"
    return f"{check_name(name)}:{mechanism}${shown}"


def read_users(text: str) -> Users:
    """Read the users of a file. Raises ValueError with the numbers of the lines that are wrong, never with what stands
    in them."""
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
