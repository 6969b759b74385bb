"""Preread: reads first bytes that identify a client or select its listener (PROXY header, ClientHello).

The bytes stay in the kernel (MSG_PEEK) until all required ones have arrived, so the next reader finds the connection
unchanged. SO_RCVLOWAT makes the kernel wake the process for further bytes only. All of it is callbacks of the reactor.
A client that sends nothing is refused after a timeout.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import InputError
from kproxy.rules.values.address import address_test, network_of
from kproxy.runtime.capacity import Capacity, ConnectionCounts, ConnectionPlaces, HalfOpen, LogThrottle
from kproxy.runtime.config.network import Limits, ProxyProtocol, ProxyVersion
from kproxy.runtime.protocols import AddressPair, HostPort, host_port, show

from .reactor import IN, Reactor

if TYPE_CHECKING:
    from .pollers import Deadline

MOST = 32768
"""Maximum bytes of a preread; parsers have lower limits of their own."""

T = TypeVar("T")
FirstBytesParser = Callable[[bytes], "T | None"]
"""Parser of a connection's first bytes: returns None if it needs more, raises InputError if they are invalid."""


class PrereadKind(NamedTuple):
    """Kind of first bytes. `cause`: label in counters and log if they do not arrive. `name`: noun for messages.

    `limited`: a client address may hold only a share of the pending prereads. A trusted load balancer has no such
    limit.
    """

    cause: str
    name: str
    limited: bool = True


class Refusal(InputError):
    """First bytes that lead to a refusal with its own cause."""

    def __init__(self, why: str, cause: str) -> None:
        super().__init__(why)
        self.cause = cause


class Preread:
    """Preread of all ports. `counts` and `log` record refused clients. `places`: connection places of the process."""

    def __init__(
        self, reactor: Reactor, limits: Limits, counts: ConnectionCounts, log: FilteringBoundLogger,
        places: ConnectionPlaces | None = None,
    ) -> None:  # fmt: skip
        self.places = ConnectionPlaces() if places is None else places
        self.reactor, self.limits, self.counts, self.log = reactor, limits, counts, log
        self.logs: dict[str, LogThrottle] = {}
        self.pending: set[PendingClient[Any]] = set()
        self.capacity = Capacity(0, limits.max_connections, limits.max_connections)
        self.half_open = HalfOpen(self.capacity)

    def begin(
        self, listener: str, kind: PrereadKind, sock: socket.SocketType, client: HostPort, parse: FirstBytesParser[T],
        then: Callable[[T], object],
    ) -> None:  # fmt: skip
        """Call `then` with the value that `parse` returns for the first bytes, or refuse the client.

        If all places are taken, a client or connection of the network with the most ends to make room for another
        network.
        """
        why = f"{self.capacity.connections} clients have not sent their first bytes, no more are allowed"
        full = len(self.pending) >= self.capacity.connections
        if full and not self.places.make_room(network_of(client[0]), why):
            self.refuse(listener, sock, client, "max_connections", why)
        elif kind.limited and (refusal := self.half_open.refusal(client[0])) is not None:
            self.refuse(listener, sock, client, *refusal)
        else:
            PendingClient(self, listener, kind, sock, client, parse, then)

    def admit(self, capacity: Capacity) -> None:
        self.capacity = self.half_open.capacity = capacity

    def refuse(self, listener: str, sock: socket.SocketType, client: HostPort, cause: str, why: str) -> None:
        """Close the client's socket, count the cause and log it."""
        self.counts.refused[cause] += 1
        log = self.logs.get(listener) or self.logs.setdefault(listener, LogThrottle(self.log.bind(listener=listener)))
        log.warning("connection refused", key=(cause, why), cause=cause, reason=why, client=show(client))
        sock.close()

    def close(self) -> None:
        for client in list(self.pending):
            client.refuse("shutdown", "kproxy is shutting down")


class PendingClient(Generic[T]):
    """Connection that has not sent all of its first bytes."""

    idle = True

    __slots__ = (
        "active",
        "address",
        "client",
        "deadline",
        "fd",
        "kind",
        "listener",
        "parse",
        "preread",
        "seen",
        "sock",
        "then",
    )

    def __init__(
        self, preread: Preread, listener: str, kind: PrereadKind, sock: socket.SocketType, client: HostPort,
        parse: FirstBytesParser[T], then: Callable[[T], object],
    ) -> None:  # fmt: skip
        self.preread, self.listener, self.kind, self.sock, self.client = preread, listener, kind, sock, client
        self.parse, self.then, self.seen, self.fd = parse, then, 0, sock.fileno()
        self.address, self.active = network_of(client[0]), monotonic()
        preread.pending.add(self)
        preread.places.add(self)
        preread.half_open.begin(client[0])
        timeout = preread.limits.handshake_timeout
        self.deadline: Deadline = preread.reactor.call_at(monotonic() + timeout, self.expire)
        preread.reactor.add(self.fd, self.ready, IN)

    def ready(self, mask: int) -> None:
        """Peek at the bytes that have arrived, or handle the end of the stream."""
        try:
            data = self.sock.recv(MOST, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if len(data) <= self.seen:
            self.ended()
            return
        try:
            parsed = self.parse(data)
        except InputError as error:
            self.refuse(error.cause if isinstance(error, Refusal) else self.kind.cause, str(error))
            return
        if parsed is None:
            self.seen = len(data)
            try:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self.seen + 1)
            except OSError:  # not supported by Windows, which would wake us repeatedly
                self.refuse(
                    self.kind.cause, f"the {self.kind.name} came in pieces, which only Linux and macOS wait for"
                )
            return
        if self.seen:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self.stop()
        self.then(parsed)

    def ended(self) -> None:
        """Refuse a client after the end of its stream. A client that sent nothing was only a port check, and is not
        logged."""
        if self.seen:
            self.refuse(self.kind.cause, f"the connection ended in the {self.kind.name}, after {self.seen} bytes")
        else:
            self.stop()
            self.sock.close()

    def expire(self) -> None:
        timeout = self.preread.limits.handshake_timeout
        self.refuse(self.kind.cause, f"no whole {self.kind.name} in {timeout:g} s, {self.seen} bytes have come")

    def stop(self) -> None:
        """End the preread. The socket stays open."""
        self.preread.pending.discard(self)
        self.preread.places.remove(self)
        self.preread.half_open.end(self.client[0])
        self.preread.reactor.cancel(self.deadline)
        self.preread.reactor.remove(self.fd)

    def end(self, cause: str, message: str) -> None:
        self.refuse(cause, message)

    def refuse(self, cause: str, why: str) -> None:
        self.stop()
        self.preread.refuse(self.listener, self.sock, self.client, cause, why)

    def crashed(self, error: Exception) -> None:
        """Close the socket after an exception in a callback, which the reactor has logged."""
        if self in self.preread.pending:
            self.stop()
        self.sock.close()


SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
WORD = b"PROXY "
LONGEST_LINE = 107
"""Maximum characters of a line, with its end (§2.1)."""
LONGEST = 4096
"""Maximum bytes of a version 2 header. Addresses take 36 and additional values of load balancers a few dozen; a client
certificate's subject may be among them."""
LOCAL, PROXY = 0x20, 0x21  # upper half of the byte: version 2; lower half: command
TCP4, TCP6 = 0x11, 0x21
NOT_TCP = {0x12: "UDP over IPv4", 0x22: "UDP over IPv6", 0x31: "a Unix stream", 0x32: "a Unix datagram"}
CRC = 0x03  # §2.2.3
BLOCKS = {TCP4: Struct(">4s4sHH"), TCP6: Struct(">16s16sHH")}
FIXED = Struct(">12sBBH")
HEADER = PrereadKind("proxy_header", "PROXY header", limited=False)
PORT = re.compile(r"0|[1-9][0-9]{0,4}", re.ASCII)
_IP = ipaddress.IPv4Address | ipaddress.IPv6Address
FAMILIES: dict[str, tuple[Callable[[str], _IP], str]] = {
    "TCP4": (ipaddress.IPv4Address, "IPv4"),
    "TCP6": (ipaddress.IPv6Address, "IPv6"),
}


# PROXY protocol: a proxy sends the client's address before any other bytes. This module reads and writes it.
#
# Source: https://github.com/haproxy/haproxy/blob/master/doc/proxy-protocol.txt, §2.1 (version 1, a line of text) and
# §2.2 (version 2, binary). An invalid header closes the connection as soon as it is detected (§2). A connection from an
# untrusted address has the client's own address. If it sends a header anyway, the parser of its first bytes rejects it,
# because it is neither Kafka nor TLS.
class BadHeader(InputError):
    """First bytes without a valid PROXY header."""


class Header(NamedTuple):
    """PROXY header of `size` bytes for a client's connection from `source` to `target`. Both are None for the sender's
    own connection (LOCAL, such as a health check), and for an unknown client (UNKNOWN, UNSPEC)."""

    size: int
    source: HostPort | None = None
    target: HostPort | None = None


def parse(data: bytes) -> Header | None:
    """Parse the header at the beginning of `data`; return None if it is incomplete. Raises BadHeader."""
    if data.startswith(SIGNATURE):
        return _binary(data)
    if data.startswith(WORD):
        return _line(data)
    if SIGNATURE.startswith(data) or WORD.startswith(data):
        return None
    raise BadHeader(f"expected a PROXY header, got {data[:12].hex(' ')}")


# ---- version 1


def _line(data: bytes) -> Header | None:
    head = data[:LONGEST_LINE]
    end = head.find(b"\r\n")
    if end < 0:
        if b"\n" in head or b"\r" in head[:-1]:
            raise BadHeader("a PROXY line that ends without CR LF")
        if len(data) >= LONGEST_LINE:
            raise BadHeader(f"a PROXY line has no end in {LONGEST_LINE} bytes, the most that it may have")
        return None
    text = head[:end].decode("latin-1")
    words = text.split(" ")
    if words[1] == "UNKNOWN":
        return Header(end + 2)
    if words[1] not in FAMILIES or len(words) != 6:
        raise BadHeader(f"a PROXY line that is not understood: {text[:LONGEST_LINE]!r}")
    parse_ip, name = FAMILIES[words[1]]
    try:
        source, target = (_plain(parse_ip(word)) for word in words[2:4])
    except ValueError as error:
        raise BadHeader(f"expected an {name} address in the PROXY line of {words[1]}: {error}") from None
    return Header(end + 2, (source, _port(words[4])), (target, _port(words[5])))


def _plain(address: _IP) -> str:
    """Format an IP address, with IPv4 in IPv6 as plain IPv4. Raises ValueError for a zone."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise ValueError(f"{address} has a zone")
        return str(address.ipv4_mapped or address)
    return str(address)


def _port(word: str) -> int:
    if not PORT.fullmatch(word) or int(word) > 0xFFFF:
        raise BadHeader(f"a PROXY line with the port {word!r}, expected 0 to 65535")
    return int(word)


# ---- version 2


def _binary(data: bytes) -> Header | None:
    if len(data) > 12 and data[12] not in (LOCAL, PROXY):
        raise BadHeader(f"a PROXY header with version and command 0x{data[12]:02x}, expected 0x20 or 0x21")
    if len(data) < FIXED.size:
        return None
    _, command, family, length = FIXED.unpack_from(data)
    size = FIXED.size + length
    if size > LONGEST:
        raise BadHeader(f"a PROXY header of {size} bytes, expected at most {LONGEST}")
    if command == PROXY:
        _check_family(family, length)
    if len(data) < size:
        return None
    if command == LOCAL or family not in BLOCKS:
        return Header(size)
    block = BLOCKS[family]
    _check_more(data[:size], FIXED.size + block.size)
    source, target, source_port, target_port = block.unpack_from(data, FIXED.size)
    ip_class = ipaddress.IPv4Address if family == TCP4 else ipaddress.IPv6Address
    return Header(size, (_plain(ip_class(source)), source_port), (_plain(ip_class(target)), target_port))


def _check_family(family: int, length: int) -> None:
    if family in NOT_TCP:
        raise BadHeader(f"a PROXY header about {NOT_TCP[family]}, and Kafka is spoken over TCP")
    if family >> 4 > 3 or family & 0xF > 2:
        raise BadHeader(f"a PROXY header with family and protocol 0x{family:02x}, which are not known")
    if family in BLOCKS and length < BLOCKS[family].size:
        raise BadHeader(f"a PROXY header with {length} bytes of addresses, expected at least {BLOCKS[family].size}")


def _check_more(header: bytes, at: int) -> None:
    """Check that the values after the addresses (§2.2: type, length, value) fit, and that their checksum is correct."""
    while at < len(header):
        end = at + 3 + int.from_bytes(header[at + 1 : at + 3], "big")
        if at + 3 > len(header) or end > len(header):
            raise BadHeader(f"expected a value from byte {at} within the PROXY header of {len(header)} bytes")
        if header[at] == CRC:
            from crc32c import crc32c  # 8 ms, and few headers have a checksum

            checksum = header[at + 3 : end]
            zeroed = header[: at + 3] + bytes(len(checksum)) + header[end:]
            right = crc32c(zeroed).to_bytes(4, "big")
            if checksum != right:
                raise BadHeader(f"a PROXY header with the checksum {checksum.hex()}, expected {right.hex()}")
        at = end


# ---- writing


def line(source: HostPort, target: HostPort) -> bytes:
    """Build a version 1 header. It is UNKNOWN if an address is not an IP address."""
    ends = _ends(source, target)
    if ends is None:
        return b"PROXY UNKNOWN\r\n"
    texts = " ".join(map(_hexadecimal, ends))
    return f"PROXY TCP{ends[0].version} {texts} {source[1]} {target[1]}\r\n".encode()


def binary(source: HostPort, target: HostPort) -> bytes:
    """Build a version 2 header. It is UNSPEC if an address is not an IP address."""
    ends = _ends(source, target)
    if ends is None:
        return FIXED.pack(SIGNATURE, PROXY, 0, 0)
    source_ip, target_ip = ends
    family = TCP4 if source_ip.version == 4 else TCP6
    block = BLOCKS[family].pack(source_ip.packed, target_ip.packed, source[1], target[1])
    return FIXED.pack(SIGNATURE, PROXY, family, len(block)) + block


def own() -> bytes:
    """Build a version 2 header for the proxy's own connection: LOCAL."""
    return FIXED.pack(SIGNATURE, LOCAL, 0, 0)


def _ends(source: HostPort, target: HostPort) -> tuple[_IP, _IP] | None:
    """Return both addresses in one family: IPv4 becomes IPv4 in IPv6 if the other end is IPv6. None: not IP
    addresses."""
    try:
        source_ip, target_ip = ipaddress.ip_address(source[0]), ipaddress.ip_address(target[0])
    except ValueError:
        return None
    if source_ip.version == target_ip.version:
        return source_ip, target_ip
    return _wide(source_ip), _wide(target_ip)


def _hexadecimal(address: _IP) -> str:
    """Return the text of an address, without the dotted end that Python 3.13 and newer write for IPv4 in IPv6: the
    specification has hexadecimal groups only."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(address) if mapped is None else f"::ffff:{int(mapped) >> 16:x}:{int(mapped) & 0xFFFF:x}"


def _wide(address: _IP) -> ipaddress.IPv6Address:
    return address if isinstance(address, ipaddress.IPv6Address) else ipaddress.IPv6Address(f"::ffff:{address}")


class ProxyHeaders:
    """Reader of PROXY headers before a listener. `arrived` receives each client with the address from its header."""

    def __init__(self, config: ProxyProtocol, listener: str, preread: Preread, arrived: Any) -> None:
        self.listener, self.preread, self.arrived = listener, preread, arrived
        self.trusted = address_test(config.from_)

    def __call__(self, node: int | None, sock: socket.SocketType, address: Any) -> None:
        """Accept a client. If its address is trusted, read its header first."""
        near = host_port(address)
        if not self.trusted(near[0]):
            self.arrived(node, sock, address)
            return

        def heard(header: Header) -> None:
            sock.recv(header.size)
            self.arrived(node, sock, near if header.source is None else header.source)

        self.preread.begin(self.listener, HEADER, sock, near, parse, heard)


def greeting(version: ProxyVersion, origin: AddressPair | None) -> Callable[[socket.SocketType], bytes]:
    """Return a function that builds the first bytes of a connection to a broker. Without `origin` it is kproxy's own
    connection."""
    if origin is not None:
        data = line(*origin) if version == "v1" else binary(*origin)
        return lambda sock: data
    if version == "v2":
        return lambda sock: own()
    return lambda sock: line(
        address(sock.getsockname()), address(sock.getpeername())
    )  # §2.1: the connection's own addresses


def address(sockaddr: Any) -> HostPort:
    """Convert an address of the socket module, including those of Unix sockets."""
    return host_port(sockaddr) if isinstance(sockaddr, tuple) else (str(sockaddr), 0)
