"""Listener of the config, and what becomes of those who connect to it; the terms on which they authenticate, with the
file of users."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from secrets import token_bytes, token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Protocol

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
from kproxy.runtime.connection import Connection, ConnectionServer
from kproxy.runtime.io.side import Side
from kproxy.runtime.io.socket_io import Route, destination, why_not
from kproxy.runtime.io.tls import ClientSocket, ClientTls, SentHeader, TlsSide, UnmappedCertificate, reason
from kproxy.runtime.protocols import HostPort, host_port, show
from kproxy.runtime.upstreams.own_connection import NONCE
from kproxy.runtime.upstreams.upstream import Upstream
from kproxy.session.sasl_server import Terms

from .listener_ports import ClientAddresses
from .port_service import AddressRequest, LeftPorts

if TYPE_CHECKING:
    from kproxy.rules.kinds.advertise import Advertise
    from kproxy.rules.rule_set import BoundRules, Gate
    from kproxy.runtime.capacity import ConnectionCounts, ConnectionPlaces, HalfOpen
    from kproxy.runtime.config.network import Limits, Transparent
    from kproxy.runtime.protocols import SessionFactory
    from kproxy.runtime.taps import Taps
    from kproxy.runtime.upstreams.upstream import NodeLocator

    from .port_service import PortService

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: a close is a reset."""
UNREAD = 1 << 16
"""Bytes that a client may have sent before it is turned away; closing over unread ones would be a reset."""
SAME = 1024
"""Addresses of clients for which what is known of their connections is kept: few come once only."""


class ListenerNetwork(Protocol):
    """Network of the config in force, by whose name for a listener there is one or none."""

    @property
    def listeners(self) -> Mapping[str, Listener]: ...


class ListenerServer(ConnectionServer, Protocol):
    """Server that a listener belongs to."""

    @property
    def log(self) -> FilteringBoundLogger: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def counts(self) -> ConnectionCounts: ...
    @property
    def half_open(self) -> HalfOpen: ...
    @property
    def places(self) -> ConnectionPlaces: ...
    @property
    def port_service(self) -> PortService: ...
    @property
    def session_factory(self) -> SessionFactory: ...
    @property
    def gate(self) -> Callable[[], Gate]: ...
    @property
    def advertise(self) -> Callable[[Listener, Facts, BoundRules | None], Advertise | Literal[False]]: ...
    @property
    def taps(self) -> Taps: ...
    @property
    def network(self) -> ListenerNetwork: ...
    def own_ports(self) -> set[int]: ...
    def refusal(self, client: HostPort) -> tuple[str, str] | None: ...
    def began(self, connection: Connection) -> None: ...


class Listener:
    """Listener of one cluster. Its ports are elsewhere; `arrived` is called for those who connect to them."""

    connections = 0
    """Number of connections that are open and came in here."""
    gone: tuple[str, str] | None = None
    """(cause, reason) once nobody is let in here any more: it is not in the config, or its cluster is another one."""
    left_ports: LeftPorts | None = None
    """Ports that it had, once it is gone or somewhere else."""

    def __init__(
        self, server: ListenerServer, config: ListenerConfig, upstream: Upstream, locator: NodeLocator | None,
        index: int = 0, before: Listener | None = None,
    ) -> None:  # fmt: skip
        """`index`: its place in the config. `before`: the listener of this name until now, whose files are not read
        anew where its settings are the same."""
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
        self.terms: Terms | None = None
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
        """Return True if its clients get addresses of kproxy's, whatever rules say."""
        return self.config.advertise is not False

    @property
    def ends_sasl(self) -> bool:
        """Return True if no request of SASL goes from here to the brokers."""
        return self.terms is not None or self.upstream.config.sasl is not None

    @property
    def word(self) -> tuple[object, ...]:
        """Return what a connection that opens here is bound to, beside rules."""
        config = self.config.model_copy(update={"max_connection_age": None, "max_connection_age_jitter": None})
        return config, self.upstream.config, self.upstream.mark

    def use_timeout(self, patience: float) -> None:
        """Set the seconds that a client has for its handshake and its login from now on."""
        if self.tls is not None:
            self.tls.timeout = patience
        if self.terms is not None:
            self.terms = replace(self.terms, patience=patience)

    @property
    def port(self) -> int:
        """Return its bootstrap port, known once it is open."""
        return self.server.port_service.port(self.name)

    def ensure(self, nodes: Mapping[int, HostPort], connection: Connection) -> ClientAddresses | None:
        """Return where the clients of this connection reach these nodes; None: `connection.nodes_known` is called
        later."""
        advertise = self.server.advertise(self, connection.facts, connection.session.rules)
        assert advertise, "a session that does not rewrite addresses asks for none"
        request = AddressRequest(
            self.name, nodes, advertise, connection.local_host, self.upstream.topology, self.left_ports
        )
        return self.server.port_service.ensure(request, connection.nodes_known)

    # ---- connections

    def arrived(self, node: int | None, sock: socket.SocketType, address: Any) -> None:
        """Take a client that has connected; `address` is as the socket module gives it."""
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
        """Make the TLS handshake, then begin the connection or refuse it."""
        try:
            with handshake.scope:
                secured = await tls.handshake(sock)
        except (OSError, ValueError) as error:
            cause = "proxy_header" if isinstance(error, SentHeader) else "tls"
            self.refuse(sock, client, cause, f"TLS handshake failed: {reason(error)}")
            return
        finally:
            handshake.leave()
        if handshake.scope.cancelled_caught:
            self.refuse(sock, client, *handshake.ended)
            return
        current = self.server.network.listeners.get(self.name)  # another config may be in force by now
        same = current is not None and current.tls is tls
        (current if current is not None and same else self).admit(tls, secured, client, node)

    def admit(self, tls: ClientTls, secured: ClientSocket, client: HostPort, node: int | None) -> None:
        """Begin the connection of a client that has made its handshake, or refuse it."""
        barred = self.server.gate().look(self.plain(client[0], None, None, node))  # rules may have changed meanwhile
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
        """Return (cause, reason) if a connection from there may not begin here now, else None."""
        return self.gone or self.superseded or self.server.refusal(client)

    @property
    def superseded(self) -> tuple[str, str] | None:
        """Return (cause, reason) if another config is in force, by which nobody is let in here any more, else None.
        Its clients may have begun to say who they are before that."""
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
        """Ask the rules about who may connect; None: this client may."""
        gate = self.server.gate()
        return gate.ask(self.plain(client[0], None, None, node)) if gate else None

    def bar(self, sock: socket.SocketType, client: HostPort, barred: Barred) -> None:
        """Close the socket as the rule says: by a reset, or in order, for which nothing may be left unread."""
        with suppress(OSError):
            if barred.how == "rst":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            else:
                socket.SocketType.shutdown(sock, socket.SHUT_WR)
                socket.SocketType.recv(sock, UNREAD)
        self.refuse(sock, client, "not_allowed", barred.why)

    def begin(
        self, sock: socket.SocketType, client: HostPort, node: int | None, certificate: str | None = None
    ) -> None:
        """Give the connection its session. `certificate` is what the client's certificate calls it."""
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
        """Return (cause, reason) if a diverted connection cannot go where its client wanted to, else None."""
        if self.transparent is None:
            return None
        why = why_not(sock, self.transparent, self.server.own_ports())
        return None if why is None else ("loop", why)

    def route(self, transparent: Transparent, sock: socket.SocketType, client: HostPort) -> Route:
        """Return the destination that the connection goes on to. Raises OSError; the socket is closed then."""
        try:
            return Route(destination(sock, transparent), client[0] if transparent.keep_source else None)
        except BaseException:
            sock.close()
            raise

    def node_by_name(self, sni: str, facts: Facts) -> int | None:
        advertise = self.server.advertise(self, facts, None)
        return advertise.sni_node(sni) if advertise and advertise.needs_tls else None


KEY = 32
"""Bytes of the process' own key."""


def terms_of(listener: ListenerConfig, config: ListenerSasl, log: FilteringBoundLogger, patience: float = 0.0) -> Terms:
    """Make the terms of authentication. `patience`: seconds that a client has to authenticate in, 0: any. Raises
    InternalError when no users can be read."""
    try:
        users = UsersFile(config.users, log)
    except InternalError as error:
        raise InternalError(f"listener {listener.name}, {listener.bind}: {error}") from error
    checker = Checker(users, token_bytes(KEY), lambda: token_hex(NONCE))
    return Terms(tuple(config.mechanisms), checker, config.max_session, config.failure_delay, patience)


class Handshake:
    """Place of a TLS handshake under way. `end` takes it away; the handshake is cancelled then."""

    idle = True

    def __init__(self, server: ListenerServer, host: str) -> None:
        self.server, self.host = server, host
        self.address, self.active = network_of(host), monotonic()
        self.scope = trio.CancelScope()
        self.ended = ("", "")
        self.left = False
        server.half_open.begin(host)
        server.places.add(self)

    def end(self, cause: str, message: str) -> None:
        self.ended = cause, message
        self.leave()
        self.scope.cancel()

    def leave(self) -> None:
        if not self.left:
            self.left = True
            self.server.half_open.end(self.host)
            self.server.places.remove(self)


class UsersFile:
    """Users of a listener, called for each authentication: a look at the file's time is cheap beside it. Raises
    InternalError when made."""

    def __init__(self, path: str, log: FilteringBoundLogger) -> None:
        self.path, self.log = Path(path), log
        self.stamp = self.look()
        try:
            self.users = users_in(self.path)
        except ValueError as error:
            raise InternalError(str(error)) from None

    def look(self) -> tuple[int, int, int] | None:
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def __call__(self) -> Users | LoginWork:
        """Return the users, or, where the file has changed, how they are read: a large file takes a second."""
        return self.users if self.look() == self.stamp else LoginWork(self.read)

    def read(self) -> Users:
        """Read the file again unless somebody else has just done that. To be called in a thread, one call at a time."""
        stamp = self.look()
        if stamp != self.stamp:
            try:
                self.users = users_in(self.path)
                self.log.info("users read again", file=str(self.path), users=len(self.users.names))
            except ValueError as error:
                self.log.error("users changed and cannot be used, the old ones stay", error=str(error))
            self.stamp = stamp
        return self.users


HERE = "127.0.0.1"
HANDSHAKE = 10.0
"""Seconds for the handshake of TLS."""
BEGINS, ENDS = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


# Connection that kproxy opens to one of its own listeners, as a client of it would be.
#
# Strategy. It is a pair of sockets of this machine: one end goes to the listener as any client that has come in, so
# that who may connect, limits, TLS and rules are as for others; the other end is for whoever wants to ask something.
# What stands before a listener (its port, a PROXY header, the choice among listeners that share a port) is not gone
# through.
class NotLetIn(InputError):
    """Error for a connection of kproxy's own that a listener does not take."""


class OwnClient:
    """Connection of kproxy's own to a listener, not begun yet. `sock`: the client's end, which blocks; `address`: its
    address, as the listener will see it."""

    def __init__(self) -> None:
        with ExitStack() as stack:
            door = stack.enter_context(socket.create_server((HERE, 0), backlog=1))
            self.sock = stack.enter_context(socket.create_connection(door.getsockname(), timeout=1.0))
            self.address: HostPort = self.sock.getsockname()
            self.far, came = door.accept()
            stack.callback(self.far.close)
            if came != self.address:
                raise NotLetIn("somebody else has taken the port of kproxy's own connection")
            for one in (self.sock, self.far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            door.close()
            stack.pop_all()

    def begin(self, listener: Listener, node: int | None) -> None:
        """Have the listener take the connection, as one to this node. Raises NotLetIn where it would not; both ends
        are closed then."""
        try:
            why = refusal(listener, self.address, node)
            if why:
                raise NotLetIn(f"listener {listener.name} does not let it in: {why}")
            self.far.setblocking(False)
            listener.arrived(node, socket.SocketType(fileno=self.far.detach()), self.address)
        except BaseException:
            self.sock.close()
            self.far.close()
            raise


def refusal(listener: Listener, client: HostPort, node: int | None) -> str:
    """Return why a listener would not take this client now; empty if it would."""
    if listener.transparent is not None:
        return "it is transparent, and this connection was not meant for anybody else"
    barred = listener.barred(client, node)
    if barred is not None:
        return barred.why
    refused = listener.server.refusal(client)
    if refused is None and listener.tls is not None:
        refused = listener.server.half_open.refusal(client[0])
    return "" if refused is None else refused[1]


def secured(sock: socket.socket, config: ListenerTls, name: str | None) -> ssl.SSLSocket:
    """Make the client's end of the handshake, and believe the listener's own certificate and no other. Raises OSError.
    Takes its time: not for the loop."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is compared, byte by byte
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
    """Return the certificate that a PEM file begins with. Raises OSError."""
    text = text_named(path, MOST_FILE)
    begin = text.find(BEGINS)
    end = text.find(ENDS, begin)
    if begin < 0 or end < 0:
        raise OSError(f"there is no certificate in {path}")
    return ssl.PEM_cert_to_DER_cert(text[begin : end + len(ENDS)])
