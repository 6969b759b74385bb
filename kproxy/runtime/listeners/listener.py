"""Listener of the config, the handling of its clients, their authentication terms, and the file of users."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from secrets import token_bytes, token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import InputError, InternalError, UnusableSetting
from kproxy.base.named_file import text_named
from kproxy.protocol.sasl.mechanisms import Checker, LoginWork
from kproxy.protocol.sasl.scram import Users
from kproxy.rules.exchange import Facts
from kproxy.rules.rule_set import Barred
from kproxy.rules.values.address import network_of
from kproxy.rules.values.tls import MOST_FILE, ListenerTls
from kproxy.runtime.capacity import LogThrottle
from kproxy.runtime.config.network import ListenerConfig, ListenerSasl, users_in
from kproxy.runtime.connection import Connection
from kproxy.runtime.io.side import Side
from kproxy.runtime.io.socket_io import Route, destination, why_not
from kproxy.runtime.io.tls import ClientSocket, ClientTls, SentHeader, TlsSide, UnmappedCertificate, reason
from kproxy.runtime.protocols import HostPort, host_port, show
from kproxy.runtime.upstreams.own_connection import NONCE
from kproxy.runtime.upstreams.upstream import Upstream
from kproxy.session.sasl_server import SaslSettings

from .listener_ports import ClientAddresses
from .port_service import AddressRequest, LeftPorts

if TYPE_CHECKING:
    from kproxy.runtime.config.network import Transparent
    from kproxy.runtime.server import Server
    from kproxy.runtime.upstreams.upstream import NodeLocator


RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST
UNREAD = 1 << 16
"""Bytes read from a client before it is refused; a close with unread bytes would be a reset."""
SAME = 1024
"""Client addresses with cached facts: few clients connect only once."""


class Listener:
    """Listener of one cluster. Its ports are separate objects that call `arrived` for each client."""

    connections = 0
    """Number of open connections of this listener."""
    gone: tuple[str, str] | None = None
    """(cause, reason) once the listener accepts no clients: it was removed from the config, or its cluster has
    changed."""
    left_ports: LeftPorts | None = None
    """Its former ports, once it is removed or has moved to another address."""

    def __init__(
        self, server: Server, config: ListenerConfig, upstream: Upstream, locator: NodeLocator | None,
        index: int = 0, before: Listener | None = None,
    ) -> None:  # fmt: skip
        """`index`: its index in the config. `before`: the previous listener of this name. Files of unchanged settings
        are not read again."""
        self.server, self.config, self.upstream, self.locator = server, config, upstream, locator
        self.name, self.transparent = config.name, config.transparent
        self.log = LogThrottle(server.log.bind(listener=config.name))
        self.tls = None
        log, patience = server.log.bind(listener=config.name), server.limits.handshake_timeout
        if before is not None and before.config.tls == config.tls:
            self.tls = before.tls
        elif config.tls is not None:
            try:
                self.tls = ClientTls(config.tls, patience, server.reactor.step, log)
            except InternalError as error:
                text = f"listener {config.name}, {config.bind}: {error}"
                raise UnusableSetting(("listeners", index, "tls"), text) from error
        self.terms: SaslSettings | None = None
        if before is not None and before.config.sasl == config.sasl:
            self.terms = before.terms
        elif config.sasl is not None:
            try:
                self.terms = terms_of(config, config.sasl, server.log, patience)
            except InternalError as error:
                raise UnusableSetting(("listeners", index, "sasl", "users"), str(error)) from error
        self.side: type[Side] = Side if self.tls is None else TlsSide
        self.plain = lru_cache(SAME)(partial(Facts, self.name, upstream.name))

    @property
    def advertises(self) -> bool:
        """Return True if its clients receive addresses of kproxy, independent of rules."""
        return self.config.advertise is not False

    @property
    def ends_sasl(self) -> bool:
        """Return True if SASL requests are not forwarded from here to the brokers."""
        return self.terms is not None or self.upstream.config.sasl is not None

    @property
    def word(self) -> tuple[object, ...]:
        """Return the settings, besides rules, that bind a connection when it opens."""
        config = self.config.model_copy(update={"max_connection_age": None, "max_connection_age_jitter": None})
        return config, self.upstream.config, self.upstream.mark

    def use_timeout(self, patience: float) -> None:
        """Set the timeout in seconds for handshakes and logins of new connections."""
        if self.tls is not None:
            self.tls.timeout = patience
        if self.terms is not None:
            self.terms = replace(self.terms, patience=patience)

    @property
    def port(self) -> int:
        """Return the bootstrap port, which is known once it is open."""
        return self.server.port_service.port(self.name)

    def ensure(self, nodes: Mapping[int, HostPort], connection: Connection) -> ClientAddresses | None:
        """Return the addresses for the clients of this connection to reach these nodes; None: `connection.nodes_known`
        is called later."""
        advertise = self.server.advertise(self, connection.facts, connection.session.rules)
        assert advertise, "a session that does not rewrite addresses asks for none"
        request = AddressRequest(
            self.name, nodes, advertise, connection.local_host, self.upstream.topology, self.left_ports
        )
        return self.server.port_service.ensure(request, connection.nodes_known)

    # ---- connections

    def arrived(self, node: int | None, sock: socket.SocketType, address: Any) -> None:
        """Accept a client. `address` has the format of the socket module."""
        server = self.server
        client: HostPort = address if len(address) == 2 else host_port(address)
        barred = self.barred(client, node)
        refusal = None if barred is not None else self.refusal(client) or self.astray(sock)
        if barred is not None:
            self.bar(sock, client, barred)
        elif refusal is not None:
            self.refuse(sock, client, *refusal)
        elif self.tls is None:
            self.begin(sock, client, node)
        else:
            refusal = server.half_open.refusal(client[0])
            if refusal is not None:
                self.refuse(sock, client, *refusal)
                return
            server.reactor.spawn(self.shake_hands, self.tls, sock, client, node, Handshake(server, client[0]))

    async def shake_hands(
        self, tls: ClientTls, sock: socket.SocketType, client: HostPort, node: int | None, handshake: Handshake
    ) -> None:
        """Perform the TLS handshake, then begin or refuse the connection."""
        try:
            with handshake.scope:
                secured = await tls.handshake(sock)
        except (OSError, ValueError) as error:
            cause = "proxy_header" if isinstance(error, SentHeader) else "tls"
            self.refuse(sock, client, cause, f"TLS handshake failed: {reason(error)}")
            return
        finally:
            handshake.finish()
        if handshake.scope.cancelled_caught:
            self.refuse(sock, client, *handshake.ended)
            return
        current = self.server.network.listeners.get(self.name)  # the config may have changed
        same = current is not None and current.tls is tls
        (current if current is not None and same else self).admit(tls, secured, client, node)

    def admit(self, tls: ClientTls, secured: ClientSocket, client: HostPort, node: int | None) -> None:
        """Begin or refuse the connection of a client after its handshake."""
        barred = self.server.gate().check_quietly(self.plain(client[0], None, None, node))  # rules may have changed
        if barred is not None:
            self.bar(secured, client, barred)
            return
        refusal = self.refusal(client)
        if refusal is not None:
            self.refuse(secured, client, *refusal)
            return
        try:
            certificate = tls.name(secured)
        except UnmappedCertificate as error:
            self.refuse(secured, client, "tls", str(error))
            return
        self.begin(secured, client, node, certificate)

    def refusal(self, client: HostPort) -> tuple[str, str] | None:
        """Return (cause, reason) if connections from this address are refused now, or None."""
        return self.gone or self.superseded or self.server.refusal(client)

    @property
    def superseded(self) -> tuple[str, str] | None:
        """Return (cause, reason) if the current config has replaced this listener, or None. Its clients may have begun
        a handshake before that."""
        current = self.server.network.listeners.get(self.name)
        if current is self:
            return None
        if current is None:
            return "listener_removed", f"listener {self.name} is no longer there"
        return "listener_changed", f"listener {self.name} has other settings by now"

    def refuse(self, sock: socket.SocketType, client: HostPort, cause: str, why: str) -> None:
        """Close the client's socket, count the cause and log it."""
        self.server.counts.refused[cause] += 1
        self.log.warning("connection refused", key=cause, cause=cause, reason=why, client=show(client))
        sock.close()

    def barred(self, client: HostPort, node: int | None) -> Barred | None:
        """Return the refusal by rules for this client; None: it may connect."""
        gate = self.server.gate()
        return gate.ask(self.plain(client[0], None, None, node)) if gate else None

    def bar(self, sock: socket.SocketType, client: HostPort, barred: Barred) -> None:
        """Close the socket as the rule defines: with a reset, or in order. An orderly close first reads all unread
        bytes."""
        with suppress(OSError):
            if barred.close_with == "rst":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            else:
                socket.SocketType.shutdown(sock, socket.SHUT_WR)
                socket.SocketType.recv(sock, UNREAD)
        self.refuse(sock, client, "not_allowed", barred.why)

    def begin(
        self, sock: socket.SocketType, client: HostPort, node: int | None, certificate: str | None = None
    ) -> None:
        """Begin the connection with its session. `certificate`: name from the client's certificate."""
        server = self.server
        route = None if self.transparent is None else self.route(self.transparent, sock, client)
        if route is not None:
            node = None if self.locator is None else self.locator.nodes.get(route.destination)
        if isinstance(sock, ClientSocket):
            sni = sock.sni
            facts = Facts(self.name, self.upstream.name, client[0], sni, certificate, node)
            if sni is not None and node is None:
                node = self.node_by_name(sni, facts)
                facts = replace(facts, node=node)
        else:
            facts = self.plain(client[0], None, None, node)
        try:
            session = server.session_factory(self, facts, node)
        except BaseException:
            sock.close()
            raise
        connection = Connection(server, self, facts, session, client, node, monotonic())
        server.began(connection)
        try:
            if route is not None:
                connection.route = route
            connection.client.attach(sock)
            if server.taps.needed:
                server.taps.opened(connection)
            connection.begin()
        except BaseException as error:
            connection.end("crashed", str(error))
            raise

    def astray(self, sock: socket.SocketType) -> tuple[str, str] | None:
        """Return (cause, reason) if a diverted connection cannot reach the client's destination, or None."""
        if self.transparent is None:
            return None
        why = why_not(sock, self.transparent, self.server.own_ports())
        return None if why is None else ("loop", why)

    def route(self, transparent: Transparent, sock: socket.SocketType, client: HostPort) -> Route:
        """Return the destination of the connection. Raises OSError and closes the socket then."""
        try:
            return Route(destination(sock, transparent), client[0] if transparent.keep_source else None)
        except BaseException:
            sock.close()
            raise

    def node_by_name(self, sni: str, facts: Facts) -> int | None:
        advertise = self.server.advertise(self, facts, None)
        return advertise.sni_node(sni) if advertise and advertise.needs_tls else None


KEY = 32  # bytes of the process' own key


def terms_of(
    listener: ListenerConfig, config: ListenerSasl, log: FilteringBoundLogger, patience: float = 0.0
) -> SaslSettings:
    """Build the authentication terms. `patience`: login timeout in seconds, 0: unlimited. Raises InternalError if the
    users cannot be read."""
    try:
        users = UsersFile(config.users, log)
    except InternalError as error:
        raise InternalError(f"listener {listener.name}, {listener.bind}: {error}") from error
    checker = Checker(users, token_bytes(KEY), lambda: token_hex(NONCE))
    return SaslSettings(tuple(config.mechanisms), checker, config.max_session, config.failure_delay, patience)


class Handshake:
    """Connection place of a running TLS handshake. `end` revokes it and cancels the handshake."""

    idle = True

    def __init__(self, server: Server, host: str) -> None:
        self.server, self.host = server, host
        self.address, self.active = network_of(host), monotonic()
        self.scope = trio.CancelScope()
        self.ended = ("", "")
        self.left = False
        server.half_open.begin(host)
        server.places.add(self)

    def end(self, cause: str, message: str) -> None:
        self.ended = cause, message
        self.finish()
        self.scope.cancel()

    def finish(self) -> None:
        if not self.left:
            self.left = True
            self.server.half_open.end(self.host)
            self.server.places.remove(self)


class UsersFile:
    """Users of a listener, called for each authentication. Checking the file's time costs little compared with a login.
    The constructor raises InternalError."""

    def __init__(self, path: str, log: FilteringBoundLogger) -> None:
        self.path, self.log = Path(path), log
        self.stamp = self.reload_if_changed()
        try:
            self.users = users_in(self.path)
        except ValueError as error:
            raise InternalError(str(error)) from None

    def reload_if_changed(self) -> tuple[int, int, int] | None:
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def __call__(self) -> Users | LoginWork:
        """Return the users, or, if the file has changed, the job that reads it: a large file takes a second."""
        return self.users if self.reload_if_changed() == self.stamp else LoginWork(self.read)

    def read(self) -> Users:
        """Read the file again unless a previous call has just done so. Call this in a thread, one call at a time."""
        stamp = self.reload_if_changed()
        if stamp != self.stamp:
            try:
                self.users = users_in(self.path)
                self.log.info("users read again", file=str(self.path), users=len(self.users.names))
            except ValueError as error:
                self.log.error("users changed and cannot be used, the old ones stay", error=str(error))
            self.stamp = stamp
        return self.users


HERE = "127.0.0.1"
HANDSHAKE = 10.0  # seconds for the TLS handshake
BEGINS, ENDS = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


# Connection from kproxy to one of its own listeners, as an ordinary client.
#
# It is a pair of local sockets. The listener receives one end like any client, so access rules, limits and TLS apply
# unchanged. The caller uses the other end. The steps before a listener are skipped: its port, a PROXY header, and the
# selection among listeners on a shared port.
class ClientRefused(InputError):
    """Error for kproxy's own connection that a listener refuses."""


class OwnClient:
    """kproxy's own connection to a listener, before it begins. `sock`: the client's end, which is blocking; `address`:
    client address for the listener."""

    def __init__(self) -> None:
        with ExitStack() as stack:
            door = stack.enter_context(socket.create_server((HERE, 0), backlog=1))
            self.sock = stack.enter_context(socket.create_connection(door.getsockname(), timeout=1.0))
            self.address: HostPort = self.sock.getsockname()
            self.far, came = door.accept()
            stack.callback(self.far.close)
            if came != self.address:
                raise ClientRefused("another process has taken the port of kproxy's own connection")
            for one in (self.sock, self.far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            door.close()
            stack.pop_all()

    def begin(self, listener: Listener, node: int | None) -> None:
        """Pass the connection to the listener, as one to this node. Closes both ends and raises ClientRefused if it
        is refused."""
        try:
            why = refusal(listener, self.address, node)
            if why:
                raise ClientRefused(f"listener {listener.name} does not let it in: {why}")
            self.far.setblocking(False)
            listener.arrived(node, socket.SocketType(fileno=self.far.detach()), self.address)
        except BaseException:
            self.sock.close()
            self.far.close()
            raise


def refusal(listener: Listener, client: HostPort, node: int | None) -> str:
    """Return the reason for the listener to refuse this client now; empty if it would accept it."""
    if listener.transparent is not None:
        return "the listener is transparent, and the connection was not diverted"
    barred = listener.barred(client, node)
    if barred is not None:
        return barred.why
    refused = listener.server.refusal(client)
    if refused is None and listener.tls is not None:
        refused = listener.server.half_open.refusal(client[0])
    return "" if refused is None else refused[1]


def secured(sock: socket.socket, config: ListenerTls, name: str | None) -> ssl.SSLSocket:
    """Perform the client's handshake. Trusts only the listener's own certificate. Raises OSError. This blocks: do not
    call it in the event loop."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # compared byte by byte below
    sock.settimeout(HANDSHAKE)
    try:
        wrapped = context.wrap_socket(sock, server_hostname=name)
    except ValueError as error:
        raise OSError(f"the name {name!r} cannot be asked for: {error}") from None
    if wrapped.getpeercert(binary_form=True) != first_certificate(config.cert):
        wrapped.close()
        raise OSError("the listener shows another certificate than that of its file")
    return wrapped


def first_certificate(path: str) -> bytes:
    """Return the first certificate of a PEM file. Raises OSError."""
    text = text_named(path, MOST_FILE)
    begin = text.find(BEGINS)
    end = text.find(ENDS, begin)
    if begin < 0 or end < 0:
        raise OSError(f"expected a certificate in {path}, got none")
    return ssl.PEM_cert_to_DER_cert(text[begin : end + len(ENDS)])
