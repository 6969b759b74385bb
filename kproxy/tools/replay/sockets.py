"""Sockets of replays: the client of a player, the server of a responder, and the play over one open connection.

The client has two tasks for each link: one connects, authenticates and reads, the other writes. One task wakes the
player. All tasks run in one thread, so each may call the player. All are cancelled at the end of the replay. The server
has a task for each connection, which answers one request after the other, as brokers do.

A single play runs in its own thread, with one socket and time limits. It keeps only the first bytes of a long response.
They contain the correlation id, and the player needs only that.
"""

from __future__ import annotations

import math
import os
import socket
import ssl
from collections.abc import Callable, Generator
from time import monotonic

import trio

from kproxy.base.errors import DecodeError, InputError, KproxyError
from kproxy.protocol.framing import REQUEST_HEADER, FrameCutter, framed
from kproxy.tools.replay.player import ReplayPlayer
from kproxy.tools.replay.responder import RecordingResponder
from kproxy.tools.replay.target import NodeAddress

from .target import CloseLink, FinishReplay, OpenLink, SendRequest, TickAt

CONNECT = 10.0
"""Seconds that a connection, with TLS and authentication, may take."""
READ = 1 << 16
Authenticate = Callable[[], Generator[bytes, bytes, None]]


class NoTarget(InputError):
    """Error for a target that cannot be reached, or does not answer."""


class LinkOutput:
    """Output of one link: bytes that wait to be written, and the scope of the link's task."""

    def __init__(self) -> None:
        self.waiting = bytearray()
        self.more = trio.Event()
        self.scope = trio.CancelScope()


class ReplayClient:
    """Client that plays until the player has finished. `tls`: how to speak it, None for plain text."""

    def __init__(
        self, player: ReplayPlayer, *, tls: ssl.SSLContext | None = None, authenticate: Authenticate | None = None
    ) -> None:
        self.player, self.tls, self.authenticate = player, tls, authenticate
        self.wires: dict[int, LinkOutput] = {}
        self.wake = math.inf
        self.sleeping = trio.CancelScope()
        self.nursery: trio.Nursery
        self.reason = ""

    async def run(self) -> None:
        """Play to the end. Raises NoTarget."""
        async with trio.open_nursery() as self.nursery:
            self.nursery.start_soon(self.clock)
            self.player.begin(trio.current_time())
            self.player.advance(trio.current_time())
            self.obey()
        if self.reason:
            raise NoTarget(self.reason)

    def obey(self) -> None:
        """Carry out the player's commands, oldest first."""
        self.wake = math.inf
        while self.player.commands:
            command = self.player.commands.pop(0)
            match command:
                case OpenLink(number, address):
                    wire = self.wires[number] = LinkOutput()
                    self.nursery.start_soon(self.link, number, address, wire)
                case SendRequest(number, data):
                    if number in self.wires:
                        self.wires[number].waiting += data
                        self.wires[number].more.set()
                case CloseLink(number):
                    if number in self.wires:
                        self.wires.pop(number).scope.cancel()
                case TickAt(when):
                    self.wake = when
                case FinishReplay(reason):
                    self.reason = reason
                    self.nursery.cancel_scope.cancel()
        self.sleeping.deadline = self.wake

    async def clock(self) -> None:
        """Call the player's `tick` at the times that it asks for."""
        while True:
            with trio.CancelScope(deadline=self.wake) as self.sleeping:
                await trio.sleep_forever()
            self.player.tick(trio.current_time())
            self.obey()

    async def link(self, number: int, address: NodeAddress, wire: LinkOutput) -> None:
        """Connect one link and read from it until it ends."""
        with wire.scope:
            try:
                with trio.fail_after(CONNECT):
                    stream = await self.connect(address)
            except (OSError, trio.TooSlowError, trio.BrokenResourceError, KproxyError, ssl.SSLError) as error:
                self.wires.pop(number, None)
                self.player.failed(number, str(error) or f"no answer in {CONNECT:g} s", trio.current_time())
                self.obey()
                return
            async with stream:
                self.player.opened(number, trio.current_time())
                self.obey()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(write, stream, wire)
                    await self.read(number, stream)
                    nursery.cancel_scope.cancel()
            self.wires.pop(number, None)
            self.player.closed(number, trio.current_time())
            self.obey()

    async def connect(self, address: NodeAddress) -> trio.abc.Stream:
        """Return a stream for requests. Raises OSError, KproxyError; nothing is left open then."""
        host, port = address
        try:
            stream: trio.abc.Stream = await trio.open_tcp_stream(host, port)
        except OSError as error:
            raise OSError(first_reason(error)) from error
        try:
            if self.tls is not None:
                stream = trio.SSLStream(stream, self.tls, server_hostname=host, https_compatible=True)
                await stream.do_handshake()
            await self.prove(stream)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return stream

    async def prove(self, stream: trio.abc.Stream) -> None:
        """Authenticate on a new stream, if there are credentials. Raises OSError, KproxyError."""
        if self.authenticate is None:
            return
        steps, cutter = self.authenticate(), FrameCutter()
        request = next(steps)
        try:
            while True:
                await stream.send_all(framed(request))
                responses: list[bytes] = []
                while not responses:
                    data = await stream.receive_some(READ)
                    if not data:
                        raise OSError("the connection was closed during authentication")
                    responses += cutter.frames(bytes(data))
                if len(responses) > 1 or cutter.pending:  # each request is sent after the response before it
                    raise OSError(f"expected 1 response to an authentication request, got bytes after it "
                                  f"(at byte {cutter.offset})")  # fmt: skip
                request = steps.send(responses[0])
        except StopIteration:
            return

    async def read(self, number: int, stream: trio.abc.Stream) -> None:
        """Pass response frames to the player until the connection ends or sends an invalid length."""
        cutter = FrameCutter()
        try:
            while data := await stream.receive_some(READ):
                for frame in cutter.frames(bytes(data)):
                    self.player.received(number, frame, trio.current_time())
                    self.obey()
        except (OSError, trio.BrokenResourceError, KproxyError):
            return


def first_reason(error: BaseException) -> str:
    """Return why a connection failed: trio tries all addresses of a name, and has an error for each."""
    inner = error.__cause__
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    cause = error if inner is None else inner
    return (os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else str(cause)).lower()


async def write(stream: trio.abc.Stream, wire: LinkOutput) -> None:
    """Send queued bytes until the connection breaks; the reader then notices."""
    try:
        while True:
            await wire.more.wait()
            wire.more = trio.Event()
            data = bytes(wire.waiting)
            wire.waiting.clear()
            if data:
                await stream.send_all(data)
    except (OSError, trio.BrokenResourceError):
        return


class ResponderServer:
    """Server that listens on `address` (port 0: any) until cancelled."""

    def __init__(self, stage: RecordingResponder, address: NodeAddress) -> None:
        self.stage, self.address = stage, address

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and serve; report the port once clients can connect. Raises OSError if it cannot listen."""
        host, port = self.address
        listeners = await trio.open_tcp_listeners(port, host=host)
        task_status.started(listeners[0].socket.getsockname()[1])
        await trio.serve_listeners(self.connection, listeners)

    async def connection(self, stream: trio.SocketStream) -> None:
        """Answer requests until the client disconnects or sends a request that cannot be answered."""
        here = stream.socket.getsockname()
        cutter = FrameCutter(REQUEST_HEADER)
        try:
            while data := await stream.receive_some(READ):
                for frame in cutter.frames(bytes(data)):
                    reply = self.stage.reply(frame, (here[0], here[1]))
                    if reply.close:
                        return
                    if reply.frame is not None:
                        await trio.sleep(reply.wait)
                        await stream.send_all(framed(reply.frame))
        except (OSError, trio.BrokenResourceError, KproxyError):
            return


MOST_KEPT = 1 << 16
"""Maximum bytes of a response that are kept; further bytes are counted and discarded."""
LOOK = 0.25
"""Seconds between checks if the replay should continue."""
SEND = 10.0
"""Timeout in seconds for writing a request."""


class SinglePlay:
    """Play of one player. `stop` may be called from any thread: `run` ends a moment later."""

    def __init__(self, player: ReplayPlayer) -> None:
        self.player = player
        self.cutter = FrameCutter(keep=MOST_KEPT)
        self.links: set[int] = set()
        """Numbers of the links that use the socket."""
        self.wake = 0.0
        self.stopped = False

    def stop(self) -> None:
        """End the play, whatever is awaited."""
        self.stopped = True

    def run(self, sock: socket.socket) -> None:
        """Play to the end. The player reports the end of the connection."""
        player = self.player
        player.begin(monotonic())
        player.advance(monotonic())
        while self.obey(sock) and not self.stopped:
            now = monotonic()
            sock.settimeout(min(max(self.wake - now, 0.001), LOOK))
            try:
                data = sock.recv(READ)
            except TimeoutError:
                if monotonic() >= self.wake:
                    player.tick(monotonic())
                continue
            except (OSError, ssl.SSLError):
                data = b""
            self.take(data)

    def take(self, data: bytes) -> None:
        """Pass received bytes to the player. Empty bytes and an invalid length end the connection."""
        try:
            for head in self.cutter.frames(data):
                for number in list(self.links):
                    self.player.received(number, head, monotonic())
        except DecodeError:
            data = b""
        if not data:
            self.lose()

    def lose(self) -> None:
        """Report the end of the connection to the player."""
        lost = list(self.links)
        self.links.clear()
        for number in lost:
            self.player.closed(number, monotonic())

    def obey(self, sock: socket.socket) -> bool:
        """Execute the player's commands, oldest first; return False after the last one."""
        commands = self.player.commands
        self.wake = monotonic() + SEND
        while commands:
            match commands.pop(0):
                case OpenLink(number):
                    self.links.add(number)
                    self.player.opened(number, monotonic())
                case SendRequest(number, data) if number in self.links:
                    try:
                        sock.settimeout(SEND)
                        sock.sendall(data)
                    except OSError:
                        self.lose()
                case CloseLink(number):
                    self.links.discard(number)
                case TickAt(when):
                    self.wake = when
                case FinishReplay():
                    return False
                case _:
                    pass
        return True
