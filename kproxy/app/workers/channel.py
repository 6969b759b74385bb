"""Messages between the supervisor and one worker: notices, and questions with their answers, both ways.

Strategy. Both ends have a `Channel` on one end of a stream socketpair, served by the reactor, so that a message costs
one system call at each end and needs no task. Handlers are called in the order of sending. Messages that the other end
does not read wait in memory, up to `MOST_WAITING` bytes; then the channel is closed as lost, which bounds the cost of a
process that hangs.

    frame     4 bytes, big endian: the length of the MessagePack that follows: [serial, kind, body]
    notice    serial 0
    question  serial from 1 on, counted by each end for itself
    answer    the serial of its question, below zero; kind "", or FAILED with a text if it failed

A kind of message is a class: `class Ask(Question[Told])` with `answer = Told`, or `class Tell(Notice)`. Its name goes
over the wire; both ends are of one program, started together, so the classes are the same.
"""

from __future__ import annotations

import inspect
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import InternalError, KproxyError
from kproxy.runtime.io.reactor import IN, OUT, Reactor

LONGEST = 256 << 20
"""Maximum bytes of one message: an exposition of metrics or a page of connections has some MB, all rules of a process
less."""
MOST_WAITING = 2 * LONGEST
"""Maximum bytes queued for the other end: one message of the maximum length, and the messages sent while it is read."""
READ = 1 << 18
"""Bytes read at once: more than a socketpair holds by default."""
PATIENCE = 10.0
"""Default timeout of an answer in seconds: answers take a millisecond unless the other process hangs."""
FAILED = "!"
ENDED = "the other process has ended"

A = TypeVar("A")
N = TypeVar("N", bound="Notice")
Q = TypeVar("Q", bound="Question[Any]")
OnAnswer = Callable[[Any, "Unanswered | None"], object]


class Unanswered(InternalError):
    """Question without an answer: the other process has ended, hangs or failed; the message has the reason."""


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """Message without an answer."""


class Question(msgspec.Struct, Generic[A], frozen=True, array_like=True):
    """Message with an answer of the type `answer`."""

    answer: ClassVar[Any] = None


class Channel:
    """End of a channel. `lost(reason)` is called once, when no more messages can come: closed by either end, or given
    up.

    `before_answers` may send pending notices before an answer, so that the asking end has received them when the answer
    arrives.
    """

    def __init__(
        self, sock: socket.socket, reactor: Reactor, log: FilteringBoundLogger, lost: Callable[[str], object]
    ) -> None:
        sock.setblocking(False)
        self.sock, self.reactor, self.log, self.on_lost = sock, reactor, log, lost
        self.fd = sock.fileno()
        self.before_answers: Callable[[], object] = lambda: None
        self.closed = False
        self.serial = 0
        self.waiting: dict[int, tuple[Any, OnAnswer]] = {}  # serial: (type of the answer, callback)
        self.handlers: dict[str, tuple[msgspec.msgpack.Decoder[Any], Callable[[Any], object]]] = {}
        self.arrived = bytearray()
        self.unsent = bytearray()
        reactor.add(self.fd, self.ready, IN)

    # ---- for both ends

    def on_notice(self, kind: type[N], handler: Callable[[N], object]) -> None:
        """Call `handler` for each notice of this kind. An exception is logged."""
        self.handlers[kind.__name__] = msgspec.msgpack.Decoder(kind), handler

    def on_question(self, kind: type[Q], handler: Callable[[Q], object]) -> None:
        """Answer questions of this kind with the result of `handler`, at once or, if it is a coroutine function, later.

        Its KproxyError is sent to the asking end; any other exception is also logged.
        """
        self.handlers[kind.__name__] = msgspec.msgpack.Decoder(kind), handler

    def tell(self, notice: Notice) -> None:
        """Send a notice, now or as soon as the other end reads. Does nothing if the channel is lost."""
        self._send(0, type(notice).__name__, notice)

    def ask_then(self, question: Question[A], then: Callable[[A | None, Unanswered | None], object]) -> int:
        """Call `then(answer, None)` or `then(None, reason)` once, from the reactor; at once if the channel is already
        lost. Returns the question's serial."""
        self.serial += 1
        if self.closed:
            then(None, Unanswered(ENDED))
        else:
            self.waiting[self.serial] = question.answer, then
            self._send(self.serial, type(question).__name__, question)
        return self.serial

    async def ask(self, question: Question[A], patience: float = PATIENCE) -> A:
        """Ask and wait for the answer. Raises Unanswered."""
        done = trio.Event()
        outcomes: list[tuple[Any, Unanswered | None]] = []

        def then(answer: A | None, failure: Unanswered | None) -> None:
            outcomes.append((answer, failure))
            self.reactor.notify(done)

        serial = self.ask_then(question, then)
        try:
            with trio.move_on_after(patience):
                await done.wait()
        finally:
            self.waiting.pop(serial, None)
        if not outcomes:
            raise Unanswered(f"no answer to {type(question).__name__} within {patience:g} s")
        answer, failure = outcomes[0]
        if failure is not None:
            raise failure
        return answer  # type: ignore[no-any-return]

    def close(self, reason: str = "closed") -> None:
        """Stop sending and receiving. Pending questions fail."""
        if self.closed:
            return
        self.closed = True
        self.reactor.remove(self.fd)
        self.sock.close()
        waiting, self.waiting = self.waiting, {}
        self.unsent.clear()
        for _, then in waiting.values():
            then(None, Unanswered(ENDED))
        self.on_lost(reason)

    def last_word(self, notice: Notice, timeout: float) -> None:
        """Send a notice and the queue, for at most `timeout` seconds, blocking everything: the process ends."""
        self.sock.settimeout(timeout)
        with suppress(OSError):
            self.sock.sendall(self.unsent)
            say(self.sock, notice, timeout)
        self.unsent.clear()

    # ---- inside: out

    def _send(self, serial: int, kind: str, body: object) -> None:
        if self.closed:
            return
        frame = framed(serial, kind, body)
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
        serial, kind, body = _decode(frame)
        if serial < 0:
            self._answered(-serial, kind, body)
            return
        decoder, handler = self.handlers.get(kind, (None, None))
        try:
            if decoder is None or handler is None:
                raise InternalError(f"nobody here knows what {kind} is")
            answer = handler(decoder.decode(body))
        except Exception as error:  # noqa: BLE001  # it is that message that failed, others must not
            self._failed(serial, kind, error)
            return
        if inspect.isawaitable(answer):
            self.reactor.spawn(self._later, serial, kind, answer)
        else:
            self._answer(serial, kind, answer)

    async def _later(self, serial: int, kind: str, pending: Awaitable[object]) -> None:
        try:
            answer = await pending
        except Exception as error:  # noqa: BLE001  # as above
            self._failed(serial, kind, error)
            return
        self._answer(serial, kind, answer)

    def _answer(self, serial: int, kind: str, answer: object) -> None:
        if not serial:
            return
        self.before_answers()
        try:
            self._send(-serial, "", answer)
        except (InternalError, TypeError) as error:  # too long, or not encodable
            self._failed(serial, kind, error)

    def _failed(self, serial: int, kind: str, error: Exception) -> None:
        if not serial or not isinstance(error, KproxyError):
            self.log.error("a message could not be handled", message=kind, exc_info=error)
        if serial:
            self._send(-serial, FAILED, str(error) or type(error).__name__)

    def _answered(self, serial: int, kind: str, body: msgspec.Raw) -> None:
        expected, then = self.waiting.pop(serial, (None, None))
        if then is None:
            return
        if kind == FAILED:
            then(None, Unanswered(msgspec.msgpack.decode(body, type=str)))
            return
        then(msgspec.msgpack.decode(body, type=expected), None)


_decode = msgspec.msgpack.Decoder(tuple[int, str, msgspec.Raw]).decode


def framed(serial: int, kind: str, body: object) -> bytes:
    """Encode a message with its size. Raises InternalError when it is too long."""
    packed = msgspec.msgpack.encode((serial, kind, body))
    if len(packed) > LONGEST:
        raise InternalError(f"{kind or 'an answer'} has {len(packed)} bytes, at most {LONGEST} may be sent")
    return len(packed).to_bytes(4, "big") + packed


def hear(sock: socket.socket, kind: type[N]) -> N:
    """Read the first message, before a channel exists. Blocks. Raises EOFError if the other end has closed."""
    size = int.from_bytes(_exactly(sock, 4), "big")
    _, name, body = _decode(_exactly(sock, size))
    assert name == kind.__name__, name
    return msgspec.msgpack.decode(body, type=kind)


def say(sock: socket.socket, notice: Notice, timeout: float) -> None:
    """Send a notice after the channel was closed. Blocks for at most `timeout` seconds; the notice is lost if the other
    end does not read."""
    sock.settimeout(timeout)
    with suppress(OSError):
        sock.sendall(framed(0, type(notice).__name__, notice))


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = sock.recv(min(size - len(data), READ))
        if not more:
            raise EOFError
        data += more
    return bytes(data)
