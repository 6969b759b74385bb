"""Connection that kproxy opens to one of its own listeners, as a client of it would be.

Strategy. It is a pair of sockets of this machine: one end goes to the listener as any client that has come in, so that
who may connect, limits, TLS and rules are as for others; the other end is for whoever wants to ask something. What
stands before a listener (its port, a PROXY header, the choice among listeners that share a port) is not gone through.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack

from kproxy.base.errors import InputError
from kproxy.base.named_file import text_named
from kproxy.rules.values.tls import MOST_FILE, ListenerTls
from kproxy.runtime.listeners.listener import Listener

from .driven import HostPort

HERE = "127.0.0.1"
HANDSHAKE = 10.0
"""Seconds for the handshake of TLS."""
BEGINS, ENDS = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


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
