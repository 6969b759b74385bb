"""TLS port whose clients say by the name of a host which listener they want: several clusters behind one port.

The name is read before the handshake, so that certificates, who may come in, and all else are those of the listener.
A client that asks for a name which no listener has gets TLS's own alert for that (RFC 6066 §3). Of a ClientHello only
the path to the name is parsed; whether the rest is right is for the handshake that follows. Sources: RFC 8446 §4.1.2
and §5.1, RFC 6066 §3.
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
"""Bytes of a ClientHello, its records' heads included. With the keys of post-quantum key exchange it has some 2 kB."""
MOST_RECORDS = 64
"""Records that a ClientHello may be spread over. All are gone through each time more bytes come; clients send one, or
one for each 512 bytes where they limit their records (RFC 6066 §4)."""
RECORD_HEAD = 5
CLIENT_HELLO = 1
BEFORE_SESSION = 2 + 32  # version and random
SERVER_NAME, HOST_NAME = 0, 0
HELLO = PrereadKind("tls", "TLS ClientHello")
MAX_SHOWN = 255  # bytes of a wrong server name in the log; names have at most as many (RFC 1035)
UNRECOGNIZED_NAME = bytes.fromhex("1503030002 02 70")
"""RFC 8446 §5.1 and §6: a record of type alert with a fatal one, 112."""

OnClient = Callable[[int | None, socket.SocketType, Any], object]
"""(node or None for the bootstrap port, the client's socket, its address as the socket module gives it)"""


class BadHello(InputError):
    """First bytes that are no ClientHello."""


class ClientHello(NamedTuple):
    """Host `name` of a ClientHello as the client wrote it; None: it names no host."""

    name: str | None


def parse(data: bytes) -> ClientHello | None:
    """Parse the ClientHello at the beginning of `data`; return None while it is not whole. Raises BadHello."""
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
    """Return None: more bytes may come. Raises BadHello when there are as many as a ClientHello may have."""
    if len(data) >= LONGEST:
        raise BadHello(f"a ClientHello is not whole after {len(data)} bytes")
    return None


def _handshake(data: bytes) -> bytes:
    """Return the contents of the records so far, joined: a message may be spread over several."""
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
    """Reader of TLS vectors, one after another."""

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
    """Listener behind the port. `ways`: how brokers may appear to its clients."""

    config: ListenerConfig
    ways: Callable[[], list[Advertise]]
    arrived: OnClient

    def closeness(self, name: str) -> int:
        """Return how closely the listener's names describe `name`; 0: not at all. A broker's own name is before any
        wildcard."""
        if any(way.sni_node(name) is not None for way in self.ways()):
            return 2
        return max((closeness(pattern, name) for pattern in self.config.hosts), default=0)


class NamedPort:
    """Port of several listeners, its `tenants`."""

    def __init__(self, preread: Preread) -> None:
        self.preread = preread
        self.tenants: list[Tenant] = []

    def arrived(self, listener: str, sock: socket.SocketType, address: Any) -> None:
        """Take a client of the port; `listener` is the one that has bound it."""
        client = host_port(address)
        self.preread.begin(listener, HELLO, sock, client, first_words, partial(self.heard, listener, sock, client))

    def heard(self, listener: str, sock: socket.SocketType, client: HostPort, hello: ClientHello) -> None:
        """Give the client to the listener whose host its ClientHello names, or refuse it."""
        tenant = None if hello.name is None else self.serving(plain_name(hello.name))
        if tenant is not None:
            tenant.arrived(None, sock, client)
            return
        with suppress(OSError):
            sock.recv(LONGEST)  # closing over unread bytes would be a reset, and the alert would be lost
            sock.send(UNRECOGNIZED_NAME)
        demand = "names no host" if hello.name is None else f"asks for {hello.name!r}, which nobody serves here,"
        self.preread.refuse(listener, sock, client, "sni", f"client {demand} in its TLS handshake")

    def serving(self, name: str) -> Tenant | None:
        """Return the listener that describes the name most closely; None: none does."""
        closest = max(self.tenants, key=lambda tenant: tenant.closeness(name))
        return closest if closest.closeness(name) else None


def first_words(data: bytes) -> ClientHello | None:
    """Parse a ClientHello. Raises BadHello, and Refusal for first bytes that are no TLS."""
    if data[0] != HANDSHAKE:
        error = stranger(data[:4])
        raise Refusal(str(error), "proxy_header" if isinstance(error, SentHeader) else "tls")
    return parse(data)
