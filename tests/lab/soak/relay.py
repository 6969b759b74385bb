"""A plain TCP relay before each broker that makes the network bad: stalls, delay, lost packets, silence, ends, resets.

Strategy: the relays stand between kproxy and the brokers and share one event loop in a thread. Lost packets and silence
are real ones, made by the kernel: a socket filter (classic BPF, socket(7)) throws away what arrives at the relay's
sockets, always or by chance, and TCP does what it does on a bad line. It needs no privileges and no module.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # asm-generic/socket.h
LOAD_RANDOM = (0x20, 0, 0, 0xFFFFF000 + 56)  # BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_RANDOM of linux/filter.h
KEEP, DROP = (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0)  # BPF_RET
PIECE = 65536
LINGER_0 = struct.pack("ii", 1, 0)
_TIMEOUT = 30.0  # seconds for the loop to do what it is told, on a busy machine


def losing(share: float) -> list[tuple[int, int, int, int]]:
    """A filter that throws away that share of all packets."""
    if share >= 1:
        return [DROP]
    above = (0x25, 0, 1, int((1 - share) * 0xFFFFFFFF))  # BPF_JMP | BPF_JGT
    return [LOAD_RANDOM, above, DROP, KEEP]


def attach(sock: Any, program: Sequence[tuple[int, int, int, int]]) -> None:
    """Let only what the program keeps reach the socket; an empty one lets everything."""
    if not program:
        with contextlib.suppress(OSError):  # there was none
            sock.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        return
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(program), ctypes.addressof(buffer)))


class Relay:
    """From a port of its own to `target`. Its methods are for the loop; use Relays.do."""

    def __init__(self, target: int) -> None:
        self.target, self.port = target, 0
        self.open = asyncio.Event()
        self.open.set()
        self.delay = 0.0
        self.program: list[tuple[int, int, int, int]] = []
        self.writers: set[asyncio.StreamWriter] = set()
        self.ending = False
        self.server: asyncio.Server | None = None
        self.passed = 0

    async def listen(self) -> None:
        """Take connections, on the same port as before if there was one."""
        if self.server is None:
            self.server = await asyncio.start_server(self._serve, HOST, self.port, limit=PIECE)
            self.port = self.server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """No more connections, as when nobody listens; those that are open stay."""
        if self.server is not None:
            for sock in self.server.sockets:
                asyncio.get_running_loop().remove_reader(sock.fileno())
            for _ in range(2):  # who was accepted just now is let in: a server that is closed before forgets him, open
                await asyncio.sleep(0)
            self.server.close()
            self.server = None

    async def stall(self, still: bool) -> None:
        """Pass nothing, and let the kernel's buffers fill up; or go on."""
        (self.open.clear if still else self.open.set)()

    async def slow(self, seconds: float) -> None:
        """Pass each piece so much later."""
        self.delay = seconds

    async def lose(self, share: float) -> None:
        """Lose that share of all packets that arrive here, on connections that are open and on new ones; 1: silence."""
        self.program = losing(share) if share else []
        for writer in self.writers:
            attach(writer.get_extra_info("socket"), self.program)

    async def end(self, how: str) -> None:
        """End all connections: `cut` in order after what was taken, `reset` at once."""
        for writer in list(self.writers):
            if how == "reset":
                reset(writer)
            else:
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            self.writers.add(writer)
            onward, to = await asyncio.open_connection(HOST, self.target, limit=PIECE)
            ends.append(to)
            self.writers.add(to)
            if self.ending:
                return
            for end in ends:
                attach(end.get_extra_info("socket"), self.program)
            await asyncio.gather(self._pass(reader, to, ends), self._pass(onward, writer, ends))
        except OSError:
            reset(writer)
        finally:
            self.writers.difference_update(ends)
            for end in ends:
                end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                    ends: Sequence[asyncio.StreamWriter]) -> None:  # fmt: skip
        try:
            while data := await reader.read(PIECE):
                await self.open.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
                self.passed += len(data)
            if not writer.is_closing():
                writer.write_eof()
        except OSError:
            for end in ends:
                reset(end)


def reset(writer: asyncio.StreamWriter) -> None:
    """The peer is told that the connection is broken."""
    with contextlib.suppress(OSError):  # it is closed already
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)
    writer.transport.abort()


class Relays:
    """A relay for each of `targets`; a context manager. `ports` are theirs, by target."""

    def __init__(self, targets: Sequence[int]) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.relays = {target: Relay(target) for target in targets}

    @property
    def ports(self) -> dict[int, int]:
        return {target: relay.port for target, relay in self.relays.items()}

    @property
    def passed(self) -> int:
        """Bytes, of all of them."""
        return sum(relay.passed for relay in self.relays.values())

    def do(self, target: int, what: Callable[..., Coroutine[Any, Any, None]], *with_: Any) -> None:
        """`do(port, Relay.stall, True)`: done when this returns."""
        asyncio.run_coroutine_threadsafe(what(self.relays[target], *with_), self.loop).result(_TIMEOUT)

    def __enter__(self) -> Self:
        self.thread.start()
        for target in self.relays:
            self.do(target, Relay.listen)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for target in self.relays:
            self.do(target, Relay.refuse)
        asyncio.run_coroutine_threadsafe(self._finish(), self.loop).result(_TIMEOUT)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def _finish(self) -> None:
        """End all connections, those that have just been accepted, too."""
        for relay in self.relays.values():
            relay.ending, relay.delay = True, 0.0
            relay.open.set()
        await asyncio.sleep(0.05)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for relay in self.relays.values():
                await relay.end("reset")
            await asyncio.wait(others, timeout=0.1)
        await asyncio.sleep(0.05)  # transports close in the next turn
