"""TLS port shared by several listeners (clusters). Clients select one by host name (SNI).

The name is read before the handshake, so certificates, access rules and all other settings are the listener's. A client
that requests an unknown name receives the TLS alert unrecognized_name (RFC 6066 §3). Only the path to the name is
parsed in a ClientHello. The handshake verifies the rest. Sources: RFC 8446 §4.1.2 and §5.1, RFC 6066 §3.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from kproxy.base.errors import InputError
from kproxy.rules.kinds.advertise import Advertise
from kproxy.runtime.config.network import ListenerConfig, closeness, plain_name
from kproxy.runtime.io.sniff import Preread, PrereadKind, Refusal
from kproxy.runtime.io.tls import HANDSHAKE, SentHeader, stranger
from kproxy.runtime.protocols import HostPort, host_port

LONGEST = 16384
"""Maximum bytes of a ClientHello with its record headers. With post-quantum key shares it has about 2 kB."""
MOST_RECORDS = 64
"""Maximum records of a ClientHello. All are parsed again each time more bytes arrive. Clients send one, or one per 512
bytes if they limit their records (RFC 6066 §4)."""
RECORD_HEAD = 5
CLIENT_HELLO = 1
BEFORE_SESSION = 2 + 32  # version and random
SERVER_NAME, HOST_NAME = 0, 0
HELLO = PrereadKind("tls", "TLS ClientHello")
MAX_SHOWN = 255  # bytes of an invalid server name in the log; the maximum of valid ones (RFC 1035)
UNRECOGNIZED_NAME = bytes.fromhex("1503030002 02 70")
"""Record of type alert with the fatal alert 112 (RFC 8446 §5.1 and §6)."""

OnClient = Callable[[int | None, socket.SocketType, Any], object]
"""(node, None for the bootstrap port; the client's socket; its address in the format of the socket module)"""


class BadHello(InputError):
    """First bytes that are not a ClientHello."""


class ClientHello(NamedTuple):
    """Host `name` of a ClientHello as the client sent it; None: without a host name."""

    name: str | None


def parse(data: bytes) -> ClientHello | None:
    """Parse the ClientHello at the beginning of `data`; return None if it is incomplete. Raises BadHello."""
    message = _handshake(data)
    if len(message) < 4:
        return _wait(data)
    if message[0] != CLIENT_HELLO:
        raise BadHello(f"TLS begins with the handshake message {message[0]}, expected ClientHello (1)")
    end = 4 + int.from_bytes(message[1:4], "big")
    if end > LONGEST:
        raise BadHello(f"a ClientHello of {end} bytes, expected at most {LONGEST}")
    return ClientHello(_name(message[4:end])) if len(message) >= end else _wait(data)


def _wait(data: bytes) -> ClientHello | None:
    """Return None: more bytes may arrive. Raises BadHello at the maximum size of a ClientHello."""
    if len(data) >= LONGEST:
        raise BadHello(f"a ClientHello is not whole after {len(data)} bytes")
    return None


def _handshake(data: bytes) -> bytes:
    """Return the joined contents of the records so far: a message may span several."""
    message, at, records = b"", 0, 0
    while at < len(data):
        records += 1
        if records > MOST_RECORDS:
            raise BadHello(f"a ClientHello is not whole after {MOST_RECORDS} TLS records")
        if data[at] != HANDSHAKE:
            raise BadHello(f"TLS begins with a record of type {data[at]}, expected handshake (22)")
        if at + RECORD_HEAD > len(data):
            break
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        if not 0 < size <= LONGEST:
            raise BadHello(f"a TLS record of {size} bytes, expected 1 to {LONGEST}")
        message += data[at + RECORD_HEAD : at + RECORD_HEAD + size]
        at += RECORD_HEAD + size
        if len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4], "big"):
            break
    return message


class _Bytes:
    """Reader of consecutive TLS vectors."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise BadHello(f"a ClientHello ends at byte {len(self.data)}, expected {end} or more")
        chunk, self.at = self.data[self.at : end], end
        return chunk

    @property
    def more(self) -> bool:
        return self.at < len(self.data)


def _name(body: bytes) -> str | None:
    hello = _Bytes(body, BEFORE_SESSION)
    hello.take(hello.number(1))  # session id
    hello.take(hello.number(2))  # cipher suites
    hello.take(hello.number(1))  # compression methods
    if not hello.more:
        return None
    extensions = _Bytes(hello.take(hello.number(2)))
    while extensions.more:
        kind, content = extensions.number(2), extensions.take(extensions.number(2))
        if kind == SERVER_NAME:
            names = _Bytes(content)
            names.number(2)
            kind, name = names.number(1), names.take(names.number(2))
            if kind != HOST_NAME or not name.isascii():
                raise BadHello(
                    f"a ClientHello with the server name {name[:MAX_SHOWN]!r} of type {kind}, expected a host name"
                )
            return name.decode("ascii")
    return None


@dataclass(frozen=True)
class Tenant:
    """Listener on the port. `ways`: its advertise settings."""

    config: ListenerConfig
    ways: Callable[[], list[Advertise]]
    arrived: OnClient

    def closeness(self, name: str) -> int:
        """Return how specifically the listener's names match `name`; 0: no match. A broker's own name precedes any
        wildcard."""
        if any(way.sni_node(name) is not None for way in self.ways()):
            return 2
        return max((closeness(pattern, name) for pattern in self.config.hosts), default=0)


class NamedPort:
    """Port shared by several listeners, its `tenants`."""

    def __init__(self, preread: Preread) -> None:
        self.preread = preread
        self.tenants: list[Tenant] = []

    def arrived(self, listener: str, sock: socket.SocketType, address: Any) -> None:
        """Accept a client of the port. `listener`: the one that has bound it."""
        client = host_port(address)
        self.preread.begin(listener, HELLO, sock, client, first_words, partial(self.heard, listener, sock, client))

    def heard(self, listener: str, sock: socket.SocketType, client: HostPort, hello: ClientHello) -> None:
        """Pass the client to the listener selected by its ClientHello, or refuse it."""
        tenant = None if hello.name is None else self.serving(plain_name(hello.name))
        if tenant is not None:
            tenant.arrived(None, sock, client)
            return
        with suppress(OSError):
            sock.recv(LONGEST)  # a close with unread bytes would be a reset, and lose the alert
            sock.send(UNRECOGNIZED_NAME)
        demand = "names no host" if hello.name is None else f"asks for {hello.name!r}, which nobody serves here,"
        self.preread.refuse(listener, sock, client, "sni", f"client {demand} in its TLS handshake")

    def serving(self, name: str) -> Tenant | None:
        """Return the listener with the most specific match for the name, or None."""
        closest = max(self.tenants, key=lambda tenant: tenant.closeness(name))
        return closest if closest.closeness(name) else None


def first_words(data: bytes) -> ClientHello | None:
    """Parse a ClientHello. Raises BadHello, or Refusal for first bytes that are not TLS."""
    if data[0] != HANDSHAKE:
        error = stranger(data[:4])
        raise Refusal(str(error), "proxy_header" if isinstance(error, SentHeader) else "tls")
    return parse(data)
