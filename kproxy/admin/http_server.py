"""Admin server: runs the application on Hypercorn's trio worker until it is cancelled.

This module opens the sockets and accepts connections itself, because Hypercorn has no connection limit: the admin
address must not use up the descriptors of Kafka clients.

The reactor's callbacks run only while no trio task can. A client with pipelined requests or hundreds of connections
would keep a task runnable. So all connections pass one `Turnstile`, one at a time, with a poll of the reactor before
each, and input is read in small pieces.

A slow reader is allowed; it may be a person reading `kproxy tail`. Hypercorn shields its sends from cancellation. At
shutdown, or when the connection is evicted, `abort` closes the socket instead.

Handshakes have a limit of their own, since their clients are not authenticated. `limits.py` selects the entry to evict
for both.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.events import Event, Updated
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import repr_socket_addr, wrap_app
from starlette.types import ASGIApp
from structlog.typing import FilteringBoundLogger

from kproxy.rules.values.address import network_of
from kproxy.runtime.capacity import LogThrottle
from kproxy.runtime.io.socket_io import is_lost
from kproxy.runtime.io.tls import ClientTls, TlsStream, reason
from kproxy.runtime.listeners.port_pool import BACKLOG, EXHAUSTED
from kproxy.runtime.protocols import host_port

from .limits import LimitedEntry, admit
from .problem import Problem, answer

PAUSE = 0.0005  # Seconds; as soon as no other task can run, the reactor polls its sockets
MOST_PAUSES = 40
"""Pauses after which a connection continues without a poll of the reactor: its own work may take that long."""
PIECE = 4096  # Bytes that are read at once: some forty requests, or a few hundred frames of HTTP/2
SENDS = 4  # Pieces of answers that are sent between two passes: an answer is three, and many may be asked for at once


class Turnstile:
    """Gate that admits one connection at a time, first come, first served. `polls`: returns the number of the reactor's
    polls."""

    def __init__(self, polls: Callable[[], int]) -> None:
        self.polls = polls
        self.lock = trio.Lock()

    async def wait(self) -> None:
        """Return at this connection's turn, after a poll of the reactor."""
        async with self.lock:
            before = self.polls()
            for _ in range(MOST_PAUSES):
                await trio.sleep(PAUSE)
                if self.polls() != before:
                    return


ByteStream = trio.SocketStream | TlsStream  # Stream of a connection, without TLS or with it


class Handshake(LimitedEntry):
    """TLS handshake in progress."""

    def __init__(self, network: str) -> None:
        super().__init__(network)
        self.scope = trio.CancelScope()

    def abort(self) -> None:
        self.scope.cancel()


class PacedStream(LimitedEntry):
    """Stream of one connection, as far as Hypercorn uses it."""

    def __init__(self, stream: ByteStream, turnstile: Turnstile, network: str = "") -> None:
        super().__init__(network)
        self.stream, self.turnstile = stream, turnstile
        self.socket = stream.socket
        self.sends = 0
        self.stuck: float | None = None  # monotonic time since which a send waits for the client to read
        self.lost = False

    async def receive_some(self, most: int) -> bytes:
        data = await self.stream.receive_some(min(most, PIECE))
        self.quiet_since = monotonic()
        if data:
            await self.turnstile.wait()
        return bytes(data)

    async def send_all(self, data: bytes) -> None:
        """Send all bytes, in turns. Raises BrokenResourceError if the connection is lost or aborted."""
        self.sends += 1
        if self.lost or self.sends % SENDS == 0:
            await self.turnstile.wait()
        self.stuck = monotonic()
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.lost = True
            raise
        finally:
            self.stuck = None
        self.quiet_since = monotonic()

    async def send_eof(self) -> None:
        await self.stream.send_eof()

    async def aclose(self) -> None:
        await self.stream.aclose()

    def abort(self) -> None:
        """Close the socket, with unsent bytes."""
        self.lost = True
        trio.lowlevel.notify_closing(self.socket)
        self.socket.close()


class AdminConnection(TCPServer):
    """One connection that Hypercorn serves."""

    left = False

    async def _read_data(self) -> None:
        await super()._read_data()
        # Hypercorn waits for its idle timeout (5 s) if the client closes before the application has returned.
        self.left = True
        await self.idle_task.stop()

    async def protocol_send(self, event: Event) -> None:
        if not (self.left and isinstance(event, Updated)):
            await super().protocol_send(event)


CERTIFIED = "certified"  # Name in the state of a request: true if its client has shown a certificate that is good
MOST_CONNECTIONS = 256  # open connections, one descriptor each: scrapers, users, pages, tails and waits
MOST_REFUSED = 64  # Connections above the limit that receive a 503 concurrently; further ones are closed at once
PATIENCE = 1.0  # Seconds for a request that is refused to come, so that its answer is not lost with it
LOST_CHECK = 5.0  # seconds between checks for vanished clients
LONGEST_STUCK = 10.0  # seconds without a byte read by the client before eviction
LATE_HANDSHAKE = 1.0  # seconds before a handshake may be evicted
LAST_WORDS, LOOKS = 1.0, 20  # Seconds for pending sends at shutdown, and the number of checks in this time
MOST_READ = 65536
SPARES = 4  # Descriptors reserved for this address: it reports liveness of a process without free descriptors
REST = 0.1  # Seconds without accepting when the spares are used up


LIVEZ = (b"GET /livez ", b"HEAD /livez ")
ALIVE = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nok\n"


class Spares:
    """Reserved file descriptors."""

    def __init__(self, count: int = SPARES) -> None:
        self.count = count
        self.kept: list[int] = []
        self.keep()

    def keep(self) -> None:
        """Open missing spares, as far as descriptors are free."""
        while len(self.kept) < self.count:
            try:
                self.kept.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                return

    def give(self) -> bool:
        """Free one spare descriptor; return False if none is left."""
        if not self.kept:
            return False
        os.close(self.kept.pop())
        return True

    def close(self) -> None:
        self.count = 0
        while self.give():
            pass


class AdminListener:
    """Accepts connections of the admin address up to the limit."""

    def __init__(
        self, app: ASGIApp, config: Config, log: FilteringBoundLogger, polls: Callable[[], int],
        tls: ClientTls | None = None,
    ) -> None:  # fmt: skip
        self.config, self.context, self.log = config, WorkerContext(None), LogThrottle(log)
        self.tls, self.handshakes = tls, set[Handshake]()
        framework: Any = app  # Hypercorn's types of ASGI are narrower than Starlette's
        self.app = wrap_app(framework, config.wsgi_max_body_size, None)
        self.streams: set[PacedStream] = set()
        self.turnstile = Turnstile(polls)
        self.refused = 0
        self.spares = Spares()

    async def serve(self, sock: socket.socket) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.abort_stuck)
                nursery.start_soon(self.abort_lost)
                while True:
                    await trio.lowlevel.wait_readable(sock)
                    client = await self.accept(sock)
                    if client is not None:
                        nursery.start_soon(self.guard, *client)
        finally:
            self.spares.close()

    async def accept(self, sock: socket.socket) -> tuple[socket.socket, str] | None:
        """Accept the next connection, with a spare descriptor if necessary; return it with its network."""
        try:
            client, address = sock.accept()
            return client, network_of(host_port(address)[0])
        except OSError as error:
            if error.errno not in EXHAUSTED:  # mostly a client that has disconnected
                return None
            if not self.spares.give():
                self.log.warning("admin connections cannot be accepted for now", error=error.strerror)
                await trio.sleep(REST)
                return None
        return await self.accept(sock)

    async def guard(self, client: socket.socket, network: str) -> None:
        """Serve one connection; log its errors instead of raising them."""
        stream = await self.secure(client, network)
        if stream is None:
            self.spares.keep()
            return
        try:
            await self.handle(stream, network)
        except Exception as error:
            self.log.warning("an admin connection has failed", exc_info=error)
        finally:
            await trio.aclose_forcefully(stream)
            self.spares.keep()

    async def secure(self, client: socket.socket, network: str) -> ByteStream | None:
        """Return the stream of a connection, after the handshake if TLS is configured. None: the handshake failed, was
        evicted, or was refused by the limit."""
        if self.tls is None:
            return trio.SocketStream(trio.socket.from_stdlib_socket(client))
        handshake = Handshake(network)
        if not admit(self.handshakes, handshake, MOST_CONNECTIONS, monotonic() - LATE_HANDSHAKE):
            client.close()
            return None
        try:
            with handshake.scope:
                return TlsStream(await self.tls.handshake(client))
        except OSError as error:  # the socket is closed
            self.log.warning("a TLS handshake has failed", error=reason(error))
        finally:
            self.handshakes.discard(handshake)
        return None

    async def abort_stuck(self) -> None:
        """At shutdown abort connections of clients that do not read, which Hypercorn does not."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                for _ in range(LOOKS):
                    if all(stream.stuck is None for stream in self.streams):
                        break
                    await trio.sleep(LAST_WORDS / LOOKS)
            for stream in self.streams:
                stream.abort()

    async def abort_lost(self) -> None:
        """Close connections of clients that vanished without a FIN, so that leases of their pages end."""
        while True:
            await trio.sleep(LOST_CHECK)
            for stream in list(self.streams):
                if is_lost(stream.socket):
                    stream.abort()

    async def handle(self, stream: ByteStream, network: str) -> None:
        paced = PacedStream(stream, self.turnstile, network)
        if len(self.streams) >= MOST_CONNECTIONS:
            self.abort_longest_stuck()
        if not admit(self.streams, paced, MOST_CONNECTIONS):
            await self.refuse(stream)
            return
        try:
            state = ConnectionState({CERTIFIED: isinstance(stream, TlsStream) and bool(stream.socket.getpeercert())})
            await AdminConnection(self.app, self.config, self.context, state, paced)  # type: ignore[arg-type]
        finally:
            self.streams.discard(paced)

    def abort_longest_stuck(self) -> None:
        """Evict the connection whose client has read nothing for the longest time, if longer than LONGEST_STUCK."""
        late = monotonic() - LONGEST_STUCK
        stuck = [(one.stuck, one) for one in self.streams if one.stuck is not None and one.stuck <= late]
        if stuck:
            found = min(stuck, key=lambda each: each[0])[1]
            found.abort()
            self.streams.discard(found)

    async def refuse(self, stream: ByteStream) -> None:
        """Respond with 503 as JSON; to /livez with 200, since the process is alive."""
        self.refused += 1
        try:
            if self.refused <= MOST_REFUSED:
                with trio.move_on_after(PATIENCE):
                    request = bytes(await stream.receive_some(MOST_READ))
                    await stream.send_all(ALIVE if request.startswith(LIVEZ) else too_many())
        except trio.BrokenResourceError:
            pass  # it has not waited for that
        finally:
            self.refused -= 1
            await trio.aclose_forcefully(stream)


def too_many() -> bytes:
    message = f"expected at most {MOST_CONNECTIONS} connections to the address, got one more"
    response = answer(Problem(503, "too_many_connections", message))
    head = [b"HTTP/1.1 503 Service Unavailable", b"connection: close", b"retry-after: 1"]
    head += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*head, b"", bytes(response.body)])


async def serve_admin(
    app: ASGIApp, host: str, port: int, log: FilteringBoundLogger, polls: Callable[[], int],
    tls: ClientTls | None = None, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:  # fmt: skip
    """Serve until cancelled. Reports the URL when it listens. Raises OSError if the address cannot be bound.

    `polls`: number of the reactor's polls; at least one comes between two requests. `tls`: for an address that is
    reached over a network.
    """
    config = Config()
    config.bind = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    config.accesslog = config.errorlog = None
    config.include_server_header = False
    (sock,) = config.create_sockets().insecure_sockets
    with sock:
        sock.setblocking(False)
        # With Hypercorn's 100, a flood of connections makes the kernel drop the SYN of another client. The client
        # repeats it after a second.
        sock.listen(BACKLOG)
        scheme = "http" if tls is None else "https"
        task_status.started(f"{scheme}://{repr_socket_addr(sock.family, sock.getsockname())}")
        await AdminListener(app, config, log, polls, tls).serve(sock)
