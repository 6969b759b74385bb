"""kproxy's own requests and logins at brokers, on connections that are dialled like those of clients.

Both are trio tasks on non-blocking sockets, like a TLS handshake. A login runs right after the connect, before the
connection is handed over. Its outcome is passed to the caller of the dialler.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import trio

from kproxy.base.errors import LoginFailed, LoginRefused
from kproxy.base.named_file import read_named, reason
from kproxy.protocol.sasl.mechanisms import ScramClient, Tokens, oauthbearer, plain
from kproxy.runtime.config.network import OAUTH, UpstreamSasl
from kproxy.runtime.io.socket_io import Route, exactly, send
from kproxy.runtime.protocols import AddressPair, HostPort, show
from kproxy.session.sasl.login import MAX_RESPONSE, LoggedIn, Steps, log_in

if TYPE_CHECKING:
    from .dialler import Caller, PendingDial
    from .upstream import Upstream

CORRELATION_AT = slice(8, 12)
"""Slice of the correlation id in a request that includes its size prefix."""
TLS_WORDS = (0x1503, 0x1603)
"""First two bytes of a TLS alert or handshake."""
MAX_METADATA = 32 << 20  # bytes of a Metadata response about all topics: some 800,000 partitions
LONGEST_TOKEN = 65536
"""Maximum bytes of a token file; a larger file is not a token."""
NONCE = 24
"""Random bytes of a nonce, which must be unpredictable (RFC 5802)."""
WITHHELD = "…"
SHORTEST = 4
"""Minimum characters of a secret to redact from broker messages: shorter ones occur in text by chance."""


class OwnConnection:
    """kproxy's own connection as a caller of the dialler. `settled` is set with a socket or a failure reason."""

    race: PendingDial | None = None
    origin: AddressPair | None = None  # for connections of clients
    sock: socket.SocketType | None = None
    reason = ""

    def __init__(
        self, upstream: Upstream, node: int | None = None, route: Route | None = None, anonymous: bool = False
    ) -> None:
        self.upstream, self.node, self.route, self.anonymous = upstream, node, route, anonymous
        self.settled = trio.Event()

    def connected(self, sock: socket.SocketType, server: HostPort, login: LoggedIn | None = None) -> None:
        self.sock = sock
        self.upstream.reactor.notify(self.settled)

    def unreachable(self, reason: str, refused: bool = False) -> None:
        self.reason = reason
        self.upstream.reactor.notify(self.settled)

    def end(self) -> None:
        """Close the socket, or stop dialling."""
        if self.race is not None:
            self.race.cancel()
        if self.sock is not None:
            self.sock.close()


@asynccontextmanager
async def own_connection(
    upstream: Upstream, *, node: int | None = None, route: Route | None = None, anonymous: bool = False
) -> AsyncIterator[socket.SocketType]:
    """Open a non-blocking socket to this broker or to any, and close it at the end. kproxy logs in if the cluster has
    `sasl`, unless `anonymous`.

    Raises OSError if no broker is reachable.
    """
    own = OwnConnection(upstream, node, route, anonymous)
    try:
        async with upstream.reactor.step:  # thousands of clusters may be dialled at the same time
            upstream.dial(own)
        await own.settled.wait()
        if own.sock is None:
            raise OSError(own.reason)
        yield own.sock
    finally:
        own.end()


async def send_request(sock: socket.SocketType, request: bytes, longest: int) -> bytes:
    """Send a request; return the frame of its response, without its size, of at most `longest` bytes.

    Raises ConnectionError for a closed connection, a longer response, or a wrong correlation id. A longer response is
    not read. Raises OSError for other failures of the connection.
    """
    try:
        await send(sock, request)
        size = int.from_bytes(await exactly(sock, 4), "big")
        if not 4 <= size <= longest:
            raise ConnectionError(f"expected a response of 4 to {longest} bytes, got one of {size}")
        frame = await exactly(sock, size)
    except EOFError as error:
        raise ConnectionResetError(f"closed before it answered: {error}") from None
    if frame[:4] != request[CORRELATION_AT]:
        raise ConnectionError(f"expected correlation id {request[CORRELATION_AT].hex()}, got {frame[:4].hex()}")
    return frame


class OwnCredentials:
    """Credentials from a cluster's `sasl` config."""

    def __init__(self, config: UpstreamSasl) -> None:
        self.config, self.mechanism = config, str(config.mechanism)
        self.user = config.username or ""
        self.password = config.password.get_secret_value() if config.password is not None else ""
        self.token = ""
        scram = self.mechanism.startswith("SCRAM-")
        self.scram = ScramClient(self.mechanism, self.user, self.password, lambda: token_hex(NONCE)) if scram else None

    def tokens(self) -> Tokens:
        """Return the tokens of one login. Raises LoginFailed if the token file cannot be read."""
        if self.scram is not None:
            return self.scram.tokens()
        if self.mechanism == OAUTH:
            assert self.config.token_file is not None
            self.token = read_token(Path(self.config.token_file))
            return oauthbearer(self.token, self.config.extensions)
        return plain(self.user, self.password)

    def clean(self, text: str) -> str:
        """Return a broker message as one line with secrets redacted."""
        for secret in (self.password, self.token):
            if len(secret) >= SHORTEST:
                text = text.replace(secret, WITHHELD)
        return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def read_token(path: Path) -> str:
    """Read a token from a file. Raises LoginFailed."""
    try:
        return read_named(path, LONGEST_TOKEN).decode("ascii").strip()
    except OSError as error:
        raise LoginFailed(f'the token\'s file "{path}" cannot be read: {reason(error)}') from None
    except UnicodeDecodeError:
        raise LoginFailed(f'the token\'s file "{path}" has characters that no token has') from None


class Login:
    """Login on one connection. It replaces the race as the caller's `race` until it ends."""

    def __init__(self, upstream: Upstream, caller: Caller, sock: socket.SocketType, server: HostPort) -> None:
        self.upstream, self.caller, self.sock, self.server = upstream, caller, sock, server
        self.scope = trio.CancelScope()
        self.done = False

    def cancel(self) -> None:
        """Cancel the login. The task closes the socket."""
        self.done = True
        self.scope.cancel()

    async def run(self, credentials: OwnCredentials) -> None:
        """Log in, then pass the connection or the failure reason to the caller."""
        upstream, caller = self.upstream, self.caller
        failed: LoginFailed | OSError = LoginFailed(f"no login in {upstream.handshake_timeout:g} s")
        login = None
        try:
            with self.scope, trio.move_on_after(upstream.handshake_timeout):
                login = await send_steps(self.sock, log_in(credentials))
        except (LoginFailed, OSError) as error:
            failed = error
        finally:
            trio.lowlevel.notify_closing(self.sock)
            if login is None or self.done:
                self.sock.close()
        if self.done:
            return
        if login is not None:
            upstream.counts.logins[upstream.name] += 1
            caller.connected(self.sock, self.server, login)
            return
        refused = isinstance(failed, LoginRefused)
        upstream.counts.logins_refused[upstream.name] += 1
        reason = credentials.clean(getattr(failed, "strerror", None) or str(failed))
        event = "broker refuses kproxy's login" if refused else "kproxy's login at a broker failed"
        upstream.log.warning(
            event, key=(show(self.server), reason), broker=show(self.server), mechanism=credentials.mechanism,
            reason=reason,
        )  # fmt: skip
        caller.unreachable(f"{show(self.server)}: {event}: {reason}", refused=refused)


async def send_steps(sock: socket.SocketType, steps: Steps) -> LoggedIn:
    """Send the requests of `steps` and feed the responses back. Raises LoginFailed and OSError."""
    try:
        request = next(steps)
        while True:
            await send(sock, request)
            size = int.from_bytes(await exactly(sock, 4), "big", signed=True)
            if size >> 16 in TLS_WORDS:
                raise LoginFailed("the broker requires TLS, and its cluster has no tls in the config")
            if not 4 <= size <= MAX_RESPONSE:
                raise LoginFailed(f"an answer of {size} bytes, expected 4 to {MAX_RESPONSE}")
            request = steps.send(await exactly(sock, size))
    except StopIteration as end:
        logged_in: LoggedIn = end.value
        return logged_in
    except EOFError:
        raise LoginFailed("the broker closed the connection during the login") from None
