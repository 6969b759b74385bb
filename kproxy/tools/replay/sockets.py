"""Sockets of replays: the client that a player's commands ask for, and the server of a responder.

Strategy: the client has a task for each link, which connects, authenticates and reads, and one beside it that writes;
one task wakes the player. All of them run in one thread, so the player is called from any of them. When it says that
the replay is over, all are cancelled. The server has a task for each connection, which answers one request after the
other, as brokers do.
"""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import Callable, Generator

import trio

from kproxy.base.errors import InputError, KproxyError
from kproxy.protocol.framing import REQUEST_HEADER, Splitter, framed

from .links import CloseLink, FinishReplay, OpenLink, SendRequest, TickAt
from .player import ReplayPlayer
from .responder import RecordingResponder
from .target import NodeAddress

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
    """Client that plays until the player is over. `tls`: how to speak it, None for plain text."""

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
                splitter = Splitter()
                with trio.fail_after(CONNECT):
                    stream = await self.connect(address, splitter)
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
                    await self.read(number, stream, splitter)
                    nursery.cancel_scope.cancel()
            self.wires.pop(number, None)
            self.player.closed(number, trio.current_time())
            self.obey()

    async def connect(self, address: NodeAddress, splitter: Splitter) -> trio.abc.Stream:
        """Return a stream on which requests can be sent. Raises OSError, KproxyError; nothing is left open then."""
        host, port = address
        try:
            stream: trio.abc.Stream = await trio.open_tcp_stream(host, port)
        except OSError as error:
            raise OSError(first_reason(error)) from error
        try:
            if self.tls is not None:
                stream = trio.SSLStream(stream, self.tls, server_hostname=host, https_compatible=True)
                await stream.do_handshake()
            await self.prove(stream, splitter)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return stream

    async def prove(self, stream: trio.abc.Stream, splitter: Splitter) -> None:
        """Authenticate on a new stream, if there are credentials. Raises OSError, KproxyError."""
        if self.authenticate is None:
            return
        steps = self.authenticate()
        frame = next(steps)
        try:
            while True:
                await stream.send_all(framed(frame))
                while (answer := splitter.maybe_frame()) is None:
                    data = await stream.receive_some(READ)
                    if not data:
                        raise OSError("the connection was closed during authentication")
                    splitter.receive(data)
                frame = steps.send(answer)
        except StopIteration:
            return

    async def read(self, number: int, stream: trio.abc.Stream, splitter: Splitter) -> None:
        """Hand frames to the player until the connection ends, in whatever way."""
        try:
            while data := await stream.receive_some(READ):
                splitter.receive(data)
                for frame in splitter.frames():
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
    """Send what waits, until the connection breaks; the reader then notices."""
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
        """Answer requests until the client leaves, or asks for what cannot be answered."""
        here = stream.socket.getsockname()
        splitter = Splitter(REQUEST_HEADER)
        try:
            while data := await stream.receive_some(READ):
                splitter.receive(data)
                for frame in splitter.frames():
                    reply = self.stage.reply(frame, (here[0], here[1]))
                    if reply.close:
                        return
                    if reply.frame is not None:
                        await trio.sleep(reply.wait)
                        await stream.send_all(framed(reply.frame))
        except (OSError, trio.BrokenResourceError, KproxyError):
            return
