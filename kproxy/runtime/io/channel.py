"""Remote calls between the supervisor and one worker, both ways.

Both processes run the same program. A method with the marker `@remote` can be called from the other process: one end
registers an object by `Channel.serve`, the other end names the method: `await channel.call(WorkerRules.count)` waits
for the result, `channel.send(WorkerRules.forget, 7)` does not. Arguments and results are converted by the method's
annotations; pydantic models are sent with the name of their class.

A result that is an iterator is sent as a list. The caller gets an iterator that converts one item in each step. A
method that returns an object with `begin`, `next` and `end` is a stream (`RemoteStream`).

Both ends have a `Channel` on one end of a stream socketpair, served by the reactor: a message costs one system call at
each end and needs no task. Calls are executed in the order of sending. Messages that the other end does not read wait
in memory, up to `MOST_WAITING` bytes. Then the channel is closed as lost, which bounds the cost of a process that
hangs.

    frame     4 bytes, big endian: the length of the MessagePack that follows: [serial, method, arguments]
    send      serial 0
    call      serial from 1 on, counted by each end for itself
    result    the negative serial of its call; method "", or FAILED with a `Failure`
"""

from __future__ import annotations

import inspect
import math
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from types import SimpleNamespace
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import trio
from pydantic import BaseModel
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import InternalError, KproxyError

from .reactor import IN, OUT, Reactor
from .scheduler import in_turns

LONGEST = 256 << 20
"""Maximum bytes of one message: an exposition of metrics or a page of connections has some MB, all rules of a process
less."""
MOST_WAITING = 2 * LONGEST
"""Maximum bytes queued for the other end: one message of the maximum length, and the messages sent while it is read."""
READ = 1 << 18
"""Bytes read at once: more than a socketpair holds by default."""
PATIENCE = 10.0
"""Default timeout of a call in seconds: a result takes a millisecond unless the other process hangs."""
LONG = 1 << 16
"""Bytes; longer results are decoded in different turns of the loop."""
DECODING = trio.Lock()
MODELS = trio.CapacityLimiter(1)
"""Models of arguments are made in a thread, one call at a time."""
NOTHING = msgspec.Raw()
FAILED = "!"
ENDED = "the other process has ended"

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=Callable[..., Any])
OnResult = Callable[[msgspec.Raw, "Unanswered | None"], object]
Method = Callable[Concatenate[Any, P], R]
"""Method of the class that the other end serves, not bound to an object."""


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """Exception of a call. `details`: its attributes in `DETAILS`."""

    message: str
    details: dict[str, Any] = {}


DETAILS = ("status", "code", "mistakes", "where")
"""Attributes of exceptions that are sent: of a refusal of the admin API, and of `UnusableSetting`."""


class Unanswered(InternalError):
    """Call without a result: the other process has ended, hangs or raised an exception; the message has the reason.
    `raised`: it raised an exception. `details`: those of the exception."""

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.raised, self.details = details is not None, details or {}


def remote(patience: float = PATIENCE) -> Callable[[M], M]:
    """Mark a method that the other process may call. `patience`: timeout of the caller in seconds."""

    def mark(method: M) -> M:
        method.__dict__["patience"] = patience
        return method

    return mark


def hint(method: Callable[..., Any], *names: str) -> list[Any]:
    """Return the annotations of these parameters; `return` is the result. Other annotations need not be importable."""
    wanted = {name: method.__annotations__.get(name, Any) for name in names}
    found = get_type_hints(SimpleNamespace(__annotations__=wanted), method.__globals__)
    return [found[name] for name in names]


def encode_model(value: object) -> object:
    if isinstance(value, BaseModel):
        return type(value).__name__, value.model_dump(mode="json")
    raise TypeError(f"expected a type of MessagePack, got {type(value).__name__}")


def decode_model(kind: type[Any], value: Any) -> Any:
    """Return a model of this class, or of its subclass with the sent name."""
    name, fields = value
    return next(one for one in (kind, *subclasses(kind)) if one.__name__ == name).model_validate(fields)


def subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


class Parameters(NamedTuple):
    """Parameters of a remote method. `in_thread`: they include models, which a thread makes."""

    decode: Callable[[bytes | msgspec.Raw], tuple[Any, ...]]
    in_thread: bool


@cache
def parameters(method: Callable[..., Any]) -> Parameters:
    kinds = hint(method, *list(inspect.signature(method).parameters)[1:])
    decoder = msgspec.msgpack.Decoder(tuple[tuple(kinds)], dec_hook=decode_model)  # type: ignore[misc]
    return Parameters(decoder.decode, any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds))


@cache
def result_decoder(method: Callable[..., Any]) -> Callable[[msgspec.Raw], Any]:
    (kind,) = hint(method, "return")
    if get_origin(kind) is Awaitable:
        (kind,) = get_args(kind)
    if get_origin(kind) is not Iterator:
        return msgspec.msgpack.Decoder(kind, dec_hook=decode_model).decode
    (item,) = get_args(kind)
    rows = msgspec.msgpack.Decoder(list[Any]).decode
    return lambda body: (decode_model(item, row) for row in rows(body))


class Streams:
    """Streams of a served object: results of its methods that have `begin`, `next` and `end`. The caller gives them
    numbers."""

    def __init__(self, handlers: dict[str, tuple[Callable[..., Any], Callable[..., Any]]]) -> None:
        self.handlers = handlers
        self.open: dict[int, Any] = {}

    @remote()
    async def begin(self, number: int, method: str, arguments: list[Any]) -> None:
        stream = self.open[number] = self.handlers[method][1](*arguments)
        await stream.begin()

    @remote(math.inf)
    async def next(self, number: int) -> Any:
        stream = self.open.get(number)
        if stream is None:
            raise InternalError(f"expected an open stream, got {number}, which has ended")
        return await stream.next()

    @remote()
    def end(self, number: int) -> None:
        stream = self.open.pop(number, None)
        if stream is not None:
            stream.end()


class Channel:
    """End of a channel. `lost(reason)` is called once, when no more messages can come: closed by either end, or given
    up.

    `before_results` may send pending messages before a result, so that the caller has received them when the result
    arrives. `numbers` are those of streams that this end begins.
    """

    def __init__(
        self, sock: socket.socket, reactor: Reactor, log: FilteringBoundLogger, lost: Callable[[str], object]
    ) -> None:
        sock.setblocking(False)
        self.sock, self.reactor, self.log, self.on_lost = sock, reactor, log, lost
        self.fd = sock.fileno()
        self.before_results: Callable[[], object] = lambda: None
        self.closed = False
        self.serial, self.numbers = 0, count()
        self.waiting: dict[int, OnResult] = {}  # by serial
        self.handlers: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}  # method and handler by its name
        self.arrived = bytearray()
        self.unsent = bytearray()
        self.serve(Streams(self.handlers))
        reactor.add(self.fd, self.ready, IN)

    # ---- for both ends

    def serve(self, served: object) -> None:
        """Let the other end call the remote methods of this object."""
        for kind in reversed(type(served).__mro__):
            for name, method in vars(kind).items():
                if hasattr(method, "patience"):
                    self.on(method, getattr(served, name))

    def on(self, method: Method[P, Any], handler: Callable[P, object]) -> None:
        """Call `handler` for calls of this method: at once or, if it is a coroutine function, in a task.

        A KproxyError is sent to the caller; any other exception without `DETAILS` is also logged.
        """
        self.handlers[method.__qualname__] = method, handler

    def send(self, method: Method[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call a method without waiting: now, or as soon as the other end reads. Does nothing if the channel is
        lost."""
        assert not kwargs, "arguments are sent in their order"
        self._send(0, method.__qualname__, args)

    def call_then(
        self, then: Callable[[R | None], object], method: Method[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Call a method; then call `then` from the reactor with the result, or with None after a failure."""
        assert not kwargs, "arguments are sent in their order"

        def called(body: msgspec.Raw, failure: Unanswered | None) -> None:
            then(None if failure is not None else result_decoder(method)(body))

        self._call(called, method.__qualname__, args)

    async def call(self, method: Method[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a method and wait for its result. Raises Unanswered."""
        assert not kwargs, "arguments are sent in their order"
        result: R = await self.result(result_decoder(method), method, args)
        return result

    async def result(
        self, decode: Callable[[msgspec.Raw], Any], method: Callable[..., Any], arguments: Sequence[Any]
    ) -> Any:
        done = trio.Event()
        outcomes: list[tuple[msgspec.Raw, Unanswered | None]] = []

        def then(body: msgspec.Raw, failure: Unanswered | None) -> None:
            outcomes.append((body, failure))
            self.reactor.notify(done)

        serial = self._call(then, method.__qualname__, arguments)
        patience: float = method.__dict__["patience"]
        try:
            with trio.move_on_after(patience):
                await done.wait()
        finally:
            self.waiting.pop(serial, None)
        if not outcomes:
            raise Unanswered(f"no answer to {method.__name__} within {patience:g} s")
        body, failure = outcomes[0]
        if failure is not None:
            raise failure
        return await decoded(decode, body)

    def close(self, reason: str = "closed") -> None:
        """Stop sending and receiving. Pending calls fail."""
        if self.closed:
            return
        self.closed = True
        self.reactor.remove(self.fd)
        self.sock.close()
        waiting, self.waiting = self.waiting, {}
        self.unsent.clear()
        for then in waiting.values():
            then(NOTHING, Unanswered(ENDED))
        self.on_lost(reason)

    def last_word(self, timeout: float, method: Method[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Send the queue and a last call, for at most `timeout` seconds. Blocks: the process ends."""
        self.sock.settimeout(timeout)
        with suppress(OSError):
            self.sock.sendall(self.unsent)
            say(self.sock, timeout, method, *args, **kwargs)
        self.unsent.clear()

    # ---- inside: out

    def _call(self, then: OnResult, method: str, arguments: Sequence[Any]) -> int:
        """Call `then` once, from the reactor; at once if the channel is already lost. Returns the call's serial."""
        self.serial += 1
        if self.closed:
            then(NOTHING, Unanswered(ENDED))
        else:
            self.waiting[self.serial] = then
            self._send(self.serial, method, arguments)
        return self.serial

    def _send(self, serial: int, method: str, body: object) -> None:
        if self.closed:
            return
        frame = framed(serial, method, body)
        if self.unsent:
            self.unsent += frame
            if len(self.unsent) > MOST_WAITING:
                self.close(f"{len(self.unsent)} bytes wait to be read, at most {MOST_WAITING} may")
            return
        try:
            sent = self.sock.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError:  # reading reports the reason, after the rest of the input
            return
        if sent < len(frame):
            self.unsent += memoryview(frame)[sent:]
            self.reactor.modify(self.fd, IN | OUT)

    def _write(self) -> None:
        try:
            sent = self.sock.send(self.unsent)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self.unsent)
        del self.unsent[:sent]
        if not self.unsent:
            self.reactor.modify(self.fd, IN)

    # ---- inside: in

    def ready(self, mask: int) -> None:
        if mask & OUT and self.unsent:
            self._write()
        try:
            data = self.sock.recv(READ)
        except BlockingIOError:
            return
        except OSError as error:
            self.close((error.strerror or str(error)).lower())
            return
        if not data:
            self.close("the other end is closed")
            return
        self.arrived += data
        at = 0
        while not self.closed and (end := self._end(at)) is not None:
            frame = bytes(self.arrived[at + 4 : end])
            at = end
            self._take(frame)
        del self.arrived[:at]

    def _end(self, at: int) -> int | None:
        """Return the end of the frame that begins at `at`; None: it is incomplete."""
        if len(self.arrived) - at < 4:
            return None
        size = int.from_bytes(self.arrived[at : at + 4], "big")
        if size > LONGEST:
            self.close(f"a message of {size} bytes, at most {LONGEST} may come")
            return None
        end = at + 4 + size
        return end if end <= len(self.arrived) else None

    def _take(self, frame: bytes) -> None:
        serial, name, body = _decode(frame)
        if serial < 0:
            self._returned(-serial, name, body)
            return
        try:
            method, handler = self.handlers.get(name, (None, None))
            if method is None or handler is None:
                raise InternalError(f"expected a method that is served here, got {name}")
            found = parameters(method)
            result = self._from_thread(found, handler, body) if found.in_thread else handler(*found.decode(body))
        except Exception as error:  # noqa: BLE001  # this call has failed, others must not
            self._failed(serial, name, error)
            return
        if inspect.isawaitable(result):
            self.reactor.spawn(self._later, serial, name, result)
        else:
            self._return(serial, name, result)

    async def _from_thread(self, found: Parameters, handler: Callable[..., Any], body: msgspec.Raw) -> Any:
        return await handler(*await trio.to_thread.run_sync(found.decode, body, limiter=MODELS))

    async def _later(self, serial: int, name: str, pending: Awaitable[object]) -> None:
        try:
            result = await pending
            if isinstance(result, Iterator):
                rows: list[object] = []
                await in_turns(map(rows.append, map(encode_model, result)))
                result = rows
        except Exception as error:  # noqa: BLE001  # as above
            self._failed(serial, name, error)
            return
        self._return(serial, name, result)

    def _return(self, serial: int, name: str, result: object) -> None:
        if not serial:
            return
        self.before_results()
        try:
            self._send(-serial, "", result)
        except (InternalError, TypeError) as error:  # too long, or not encodable
            self._failed(serial, name, error)

    def _failed(self, serial: int, name: str, error: Exception) -> None:
        details = {each: getattr(error, each) for each in DETAILS if hasattr(error, each)}
        if not serial or not (details or isinstance(error, KproxyError)):
            self.log.error("a message could not be handled", message=name, exc_info=error)
        if serial:
            self._send(-serial, FAILED, Failure(str(error) or type(error).__name__, details))

    def _returned(self, serial: int, name: str, body: msgspec.Raw) -> None:
        then = self.waiting.pop(serial, None)
        if then is None:
            return
        if name == FAILED:
            failure = msgspec.msgpack.decode(body, type=Failure)
            then(NOTHING, Unanswered(failure.message, failure.details))
        else:
            then(body, None)


async def decoded(decode: Callable[[msgspec.Raw], Any], body: msgspec.Raw) -> Any:
    """Decode a result. Several workers return long results together, which are decoded one at a time."""
    if len(memoryview(body)) <= LONG:
        return decode(body)
    async with DECODING:
        await trio.lowlevel.checkpoint()
        return decode(body)


_decode = msgspec.msgpack.Decoder(tuple[int, str, msgspec.Raw]).decode
_encode = msgspec.msgpack.Encoder(enc_hook=encode_model).encode


def framed(serial: int, method: str, body: object) -> bytes:
    """Encode a message with its size. Raises InternalError when it is too long."""
    packed = _encode((serial, method, body))
    if len(packed) > LONGEST:
        raise InternalError(f"{method or 'a result'} has {len(packed)} bytes, at most {LONGEST} may be sent")
    return len(packed).to_bytes(4, "big") + packed


def hear(sock: socket.socket, method: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the arguments of the first call, before a channel exists. Blocks. Raises EOFError if the other end has
    closed."""
    size = int.from_bytes(_exactly(sock, 4), "big")
    _, name, body = _decode(_exactly(sock, size))
    assert name == method.__qualname__, name
    return parameters(method).decode(body)


def say(sock: socket.socket, timeout: float, method: Method[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Send a call after the channel was closed. Blocks for at most `timeout` seconds; the call is lost if the other
    end does not read."""
    assert not kwargs, "arguments are sent in their order"
    sock.settimeout(timeout)
    with suppress(OSError):
        sock.sendall(framed(0, method.__qualname__, args))


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = sock.recv(min(size - len(data), READ))
        if not more:
            raise EOFError
        data += more
    return bytes(data)
