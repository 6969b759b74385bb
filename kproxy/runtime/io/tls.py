"""TLS handshakes in both directions, as trio tasks on non-blocking sockets. Then the reactor serves the socket.

A step of a handshake takes up to a millisecond. Each step holds the lock `step`, which all handshakes of a process
share. So traffic runs between two steps even if many clients connect at once. Certificates are read again when their
files change. Checking the files' times costs little compared with a handshake.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from errno import ECONNRESET
from functools import partial
from pathlib import Path
from typing import Any, cast

import trio
from structlog.typing import FilteringBoundLogger
from trio.abc import HalfCloseableStream

from kproxy.base.errors import InternalError
from kproxy.base.named_file import read_named
from kproxy.rules.exchange import subject_name
from kproxy.rules.values.tls import MOST_FILE, ListenerTls, PrincipalRules, UpstreamTls

from .reactor import IN, OUT
from .scheduler import BUFFER
from .side import TLS_WRITE, VIEW, Side
from .socket_io import MOST_AT_ONCE, attempt, send

HANDSHAKE = 0x16  # RFC 8446 §5.1: content type of a ClientHello
VERIFY = {"optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"CONN")
PROXY_HEADERS = (b"PROX", b"\r\n\r\n")


class UnmappedCertificate(OSError):
    """Valid client certificate without a matching rule in `principals`."""


class NotTls(OSError):
    """First bytes that are not TLS."""


class SentHeader(NotTls):
    """First bytes that are a PROXY header from an untrusted address."""


class ClientSocket(ssl.SSLSocket):
    """Socket of a client. `sni`: requested server name."""

    sni: str | None = None


class Reloading:
    """TLS context from files; loaded again when one of them changes. If the new files cannot be read, the old context
    stays. OpenSSL would block on a named pipe, so kproxy reads each file first."""

    def __init__(self, files: Iterable[object], make: Callable[[], ssl.SSLContext], log: FilteringBoundLogger) -> None:
        self.files = [Path(str(file)) for file in files if file is not None]
        self.make, self.log = make, log
        self.stamp = self.reload_if_changed()
        try:
            self.context = self.read()
        except (OSError, ValueError) as error:
            raise InternalError(f"TLS files {', '.join(map(str, self.files))} cannot be used: {error}") from error

    def reload_if_changed(self) -> list[tuple[int, int, int]]:
        found = []
        for file in self.files:
            with suppress(OSError):  # may be missing for a moment
                stat = file.stat()
                found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return found

    def read(self) -> ssl.SSLContext:
        """Create the context from the current files. Raises OSError and ValueError."""
        for file in self.files:
            read_named(file, MOST_FILE)
        return self.make()

    def get(self) -> ssl.SSLContext:
        stamp = self.reload_if_changed()
        if stamp != self.stamp:
            self.stamp = stamp
            try:
                self.context = self.read()
                self.log.info("TLS files read again", files=[str(file) for file in self.files])
            except (OSError, ValueError) as error:
                self.log.error("TLS files changed and cannot be used, the old ones stay", error=str(error))
        return self.context


class ClientTls:
    """TLS server of a listener."""

    def __init__(self, config: ListenerTls, timeout: float, step: trio.Lock, log: FilteringBoundLogger) -> None:
        self.config, self.timeout, self.step = config, timeout, step
        self.principals = PrincipalRules(config.principals) if config.principals else None
        self.files = Reloading((config.cert, config.key, config.client_ca), self.make, log)

    def make(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        prepare(context, self.config)
        context.sslsocket_class = ClientSocket
        context.sni_callback = note_name
        if self.config.verify_clients != "none":
            context.load_verify_locations(self.config.client_ca)
            context.verify_mode = VERIFY[self.config.verify_clients]
        return context

    def name(self, sock: ClientSocket) -> str | None:
        """Return the name in the client's certificate; None: no certificate. Raises UnmappedCertificate if no rule
        matches."""
        subject = subject_name(sock.getpeercert())
        if subject is None or self.principals is None:
            return subject
        name = self.principals.name(subject)
        if name is None:
            raise UnmappedCertificate(f"none of the rules of principals matches {subject}")
        return name

    async def handshake(self, sock: socket.SocketType) -> ClientSocket:
        """Perform the handshake. Raises OSError (`NotTls` for clients of other protocols) and closes `sock` then."""
        with trio.move_on_after(self.timeout) as scope:
            try:
                await trio.lowlevel.wait_readable(sock)
                first = sock.recv(4, socket.MSG_PEEK)
                if first and first[0] != HANDSHAKE:
                    raise stranger(first)
            except BaseException:
                release(sock)
                raise
            return cast("ClientSocket", await shake(self.files, self.step, sock, server_side=True))
        assert scope.cancelled_caught
        raise TimeoutError(f"no handshake in {self.timeout:g} s")


class BrokerTls:
    """TLS client of broker connections."""

    def __init__(self, config: UpstreamTls, timeout: float, step: trio.Lock, log: FilteringBoundLogger) -> None:
        self.config, self.timeout, self.step = config, timeout, step
        self.files = upstream_files(config, log)

    async def handshake(self, sock: socket.SocketType, host: str) -> ssl.SSLSocket:
        """Perform the handshake. Raises OSError (also for a certificate that does not verify) and closes `sock`
        then."""
        with trio.move_on_after(self.timeout) as scope:
            name = self.config.server_name or host
            return await shake(self.files, self.step, sock, server_hostname=name)
        assert scope.cancelled_caught
        raise TimeoutError(f"no handshake in {self.timeout:g} s")


def upstream_files(config: UpstreamTls, log: FilteringBoundLogger) -> Reloading:
    """Return the context for connections to servers. Raises InternalError if its files cannot be used."""

    def make() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=config.ca)
        prepare(context, config)
        if not config.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    return Reloading((config.ca, config.cert, config.key), make, log)


def prepare(context: ssl.SSLContext, config: ListenerTls | UpstreamTls) -> None:
    """Set options of both ends. Without renegotiation, a write never has to wait for a read."""
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if config.min_version == "1.3" else ssl.TLSVersion.TLSv1_2
    if config.ciphers is not None:
        context.set_ciphers(config.ciphers)
    if config.cert is not None:
        password = config.key_password
        context.load_cert_chain(config.cert, config.key, None if password is None else password.get_secret_value)


async def shake(files: Reloading, step: trio.Lock, sock: socket.SocketType, **options: Any) -> ssl.SSLSocket:
    """Perform the handshake in steps. Afterwards trio has forgotten the descriptor. If the handshake fails, the socket
    is closed."""
    here = full(sock)
    try:
        while True:
            try:
                async with step:
                    if not isinstance(here, ssl.SSLSocket):
                        here.getpeername()  # raises if the other end has disconnected: CPython would leak a socket
                        here = files.get().wrap_socket(here, do_handshake_on_connect=False, **options)
                    here.do_handshake()
                break
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(here)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(here)
    except BaseException:
        release(here)
        raise
    trio.lowlevel.notify_closing(here)
    return here


def stranger(first: bytes) -> NotTls:
    """Return the error for a client with first four bytes that are not TLS."""
    if first in PROXY_HEADERS:
        return SentHeader("client sends a PROXY header, and is not among those who may")
    return NotTls(f"client speaks {'HTTP' if first in HTTP else 'plain text'} to a TLS listener")


def full(sock: socket.SocketType) -> socket.socket:
    """Return the same socket, with the class that the ssl module requires."""
    plain = socket.socket(fileno=sock.detach())
    plain.setblocking(False)
    return plain


def release(sock: socket.SocketType) -> None:
    trio.lowlevel.notify_closing(sock)
    sock.close()


def note_name(sock: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
    """Store the server name; OpenSSL calls this during the handshake. RFC 6066 §3: names have no trailing dot."""
    assert isinstance(sock, ClientSocket)
    sock.sni = name


def reason(error: Exception) -> str:
    """Return the useful part of an error of kproxy or OpenSSL: `certificate verify failed: self-signed certificate`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


RECORD = 16384  # RFC 8446 §5.1: maximum plain text of a record
ROOM = len(BUFFER) - RECORD
MOST_RECORDS = 64
"""Records per read. A short record costs as much as a long one, and a peer may send one byte in each."""
MOST_SKIPPED = 15
"""Maximum checks that are skipped after several without further records."""


# Side with a TLS socket. It differs from `Side` in three ways:
#
# Blocking is reported as SSLWantReadError and SSLWantWriteError, which are OSErrors but not BlockingIOErrors.
#
# OpenSSL may hold bytes that epoll does not report. They must be read before the side waits again.
#
# Reads return records of at most 16 KiB. Several are joined, so that session and peer receive one piece.
class TlsSide(Side):
    """Side on an `ssl.SSLSocket` after its handshake."""

    plain = False

    skipped = to_skip = 0
    """Checks for more after a short record: number skipped in the last series, and number left to skip."""

    def open(self, sock: socket.SocketType) -> None:
        tls = cast("ssl.SSLSocket", sock)
        self.tls_recv: Any = tls.recv_into
        self.tls_send: Any = tls.send
        self.recv, self.send = self.read_records, self.send_tls
        if tls.pending():
            self.conn.reactor.soon(self.again)

    def read_records(self, buffer: bytearray | memoryview) -> int:
        """Read as many records as have arrived and fit. Then epoll reports the rest, or `again` is scheduled.

        Only another read shows whether more records follow a short one. Without this check, pending records would be
        forwarded one by one, and the next proxy or client would receive as many short records. A client that sends one
        request at a time never has more. So the checks are skipped for longer and longer series as long as they find
        nothing.
        """
        n: int = 0
        records = 0
        try:
            while True:
                got = self.tls_recv(VIEW[n:])
                if not got:
                    break
                n += got
                records += 1
                if n > ROOM or records == MOST_RECORDS:
                    return n
                if got < RECORD and self.to_skip and not self.held():
                    self.to_skip -= 1
                    return n
        except ssl.SSLWantReadError:
            if not n:
                raise BlockingIOError from None
            self.to_skip = self.skipped = 0 if records > 1 else min(2 * self.skipped + 1, MOST_SKIPPED)
            return n
        except ssl.SSLWantWriteError:  # a key update must be answered first (RFC 8446 §4.6.3)
            self.mute(TLS_WRITE)
            self.want((self.mask | OUT) & ~IN)
            if not n:
                raise BlockingIOError from None
            return n
        except (OSError, ValueError) as error:
            if not n:
                raise clear(error) from None
        if n:  # the end or an error follows the data; epoll may not report it
            self.conn.reactor.soon(self.again)
        return n

    def send_tls(self, data: bytes | memoryview) -> int:
        try:
            return cast("int", self.tls_send(data))
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None
        except (OSError, ValueError) as error:
            raise self.alert() or clear(error) from None

    def alert(self) -> OSError | None:
        """Return the TLS alert of the other end, if one is unread when a write fails; otherwise None."""
        try:
            self.tls_recv(bytearray(1))
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return None
        except ssl.SSLError as error:
            return clear(error)
        except (OSError, ValueError):
            return None
        return None

    def held(self) -> int:
        """Return the number of decrypted bytes that OpenSSL holds."""
        return cast("ssl.SSLSocket", self.sock).pending() if self.sock is not None else 0

    def handle_event(self, mask: int) -> None:
        if mask & OUT and self.muted & TLS_WRITE:
            self.muted &= ~TLS_WRITE
            self.want(self.mask | IN)
            mask |= IN
        super().handle_event(mask)

    def unmute(self, reason: int) -> None:
        super().unmute(reason)
        if not self.muted and self.held():
            self.conn.reactor.soon(self.again)

    def yield_to_others(self) -> None:
        if self.held():
            self.conn.reactor.soon(self.again)

    def again(self) -> None:
        """Read the bytes that OpenSSL holds, in a separate call."""
        if self.sock is not None and not self.muted and not self.conn.frozen:
            self.ready(IN)

    def over(self) -> None:
        super().over()
        if self.held():
            self.conn.reactor.soon(self.again)

    def shut(self) -> None:
        """Do nothing: after its own close_notify, OpenSSL would lose received data. `drop` sends close_notify.

        If no more data is read either, `half_close` is used.
        """

    def half_close(self) -> None:
        """Send close_notify and FIN. Further data is read without decryption."""
        sock = self.sock
        if sock is None:
            return
        self.say_goodbye()
        with suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_WR)  # SSLSocket.shutdown would discard the TLS state
        self.recv = partial(socket.socket.recv_into, sock)

    def drain_unread(self) -> None:
        """Do nothing: `drop` sends close_notify."""

    def drop(self, reset: bool = False) -> None:
        if not reset:
            self.say_goodbye()
        super().drop(reset)
        self.tls_recv = self.tls_send = None

    def say_goodbye(self) -> None:
        with suppress(OSError, ValueError):
            if self.sock is not None:
                cast("ssl.SSLSocket", self.sock).unwrap()  # sends close_notify without waiting for the answer


def clear(error: Exception) -> OSError:
    """Return the error as OSError, for OpenSSL with only its reason: `tlsv13 alert certificate required`."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return error
    return ConnectionResetError(ECONNRESET, reason(error))


class TlsStream(HalfCloseableStream):
    """Stream of a client's non-blocking socket. Socket errors become those of trio's streams."""

    def __init__(self, sock: ClientSocket) -> None:
        self.socket = sock

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return at most `max_bytes` bytes; empty at the end of TLS or TCP. Raises BrokenResourceError."""
        most = MOST_AT_ONCE if max_bytes is None else max_bytes
        try:
            data: bytes = await attempt(self.socket, lambda: self.socket.recv(most))
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return b""
        except (OSError, ValueError) as error:  # ValueError: it was closed
            raise trio.BrokenResourceError(str(error)) from error
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all bytes of `data`. Raises BrokenResourceError."""
        try:
            await send(self.socket, bytes(data))
        except (OSError, ValueError) as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def wait_send_all_might_not_block(self) -> None:
        """Do nothing: `send_all` waits itself."""
        await trio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        """Do nothing: TLS cannot close one direction."""

    async def aclose(self) -> None:
        """Close the socket, and wake the tasks that wait for it."""
        release(self.socket)
        await trio.lowlevel.checkpoint()
