"""Logging of a process: structlog lines on standard error, as text on a terminal and as JSON otherwise.

Each event is one line: control characters are escaped, and JSON begins with `timestamp`, `level` and `event`. A
traceback is part of its line in JSON. On a terminal it follows, indented.

A full pipe (64 KiB) would block the process and even its SIGTERM handler. Lines are therefore queued with a byte limit,
and a thread writes them. Dropped lines are counted and reported. The queue is flushed at exit, with a timeout.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from time import sleep
from types import TracebackType
from typing import Any, TextIO, cast

import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import FilteringBoundLogger

from kproxy.base.system import fcntl
from kproxy.base.terminal import in_line

PATIENCE, TICK = 20, 0.001
"""Tries to get the lock while another process writes its line, and seconds between two; a line takes microseconds."""
MOST_BYTES = 4 << 20
"""Characters of all lines that wait to be written, at most; some ten thousand lines."""
AT_ONCE = 1 << 16
"""Characters, about, that are written together."""
FAREWELL = 1.0
"""Seconds at the end to write what still waits: a reader who has read nothing until then will not begin now."""


class WholeLines:
    """Stream of whole lines for several processes.

    Pipes write up to 4096 bytes atomically; tracebacks are longer. Each write therefore holds a record lock on `lock`,
    a file open in all processes; the kernel frees the lock of a dead process. If a stopped process holds the lock, the
    others write without it after a short wait, and lines may be torn. `lock`: None for a single process.
    """

    def __init__(self, stream: TextIO, lock: int | None = None) -> None:
        self.stream, self.lock = stream, lock
        self.descriptor = stream.fileno()
        self.line = ""

    def isatty(self) -> bool:
        return self.stream.isatty()

    def write(self, text: str) -> int:
        """Write whole lines, and keep what has no end yet. Raises OSError."""
        self.line += text
        if text.endswith("\n"):
            data, self.line = self.line.encode(errors="backslashreplace"), ""
            held = self._hold()
            try:
                write_all(self.descriptor, data)
            finally:
                if held:
                    fcntl.lockf(self.lock or 0, fcntl.LOCK_UN)
        return len(text)

    def flush(self) -> None:
        """Do nothing: `write` keeps no whole line back."""

    def _hold(self) -> bool:
        if self.lock is None:
            return False
        for _ in range(PATIENCE):
            try:
                fcntl.lockf(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                sleep(TICK)
            else:
                return True
        return False


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes to a descriptor, which another process may have made non-blocking. Raises OSError."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


class LogQueue:
    """Stream whose `write` never blocks: a thread writes the queued lines to `stream`.

    `lost` counts dropped and unwritable lines. The thread calls `on_lost(number)` when writing works again after
    losses. A line that `on_lost` logs enters the same queue.
    """

    def __init__(self, stream: WholeLines, most_bytes: int = MOST_BYTES) -> None:
        self.stream, self.most_bytes = stream, most_bytes
        self.on_lost: Callable[[int], object] = lambda number: None
        self.lost = self.untold = self.bytes = 0
        self.lines: deque[str] = deque()
        self.changed = threading.Condition()  # reentrant, since a finaliser may log while this thread holds it
        self.closing = False
        self.thread: threading.Thread | None = None

    def isatty(self) -> bool:
        return self.stream.isatty()

    def write(self, text: str) -> int:
        """Put a whole line, or several, into the queue; a text that does not fit is lost."""
        size = len(text)
        with self.changed:
            if self.closing or self.bytes + size > self.most_bytes:
                self.lose(1)
                return size
            self.lines.append(text)
            self.bytes += size
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, name="log", daemon=True)
                self.thread.start()
            self.changed.notify()
        return size

    def flush(self) -> None:
        """Do nothing: the thread writes each line soon."""

    def close(self, timeout: float = FAREWELL) -> bool:
        """Write what is left within `timeout` seconds. Returns True if all of it was written."""
        with self.changed:
            self.closing = True
            self.changed.notify()
        if self.thread is None:
            return True
        self.thread.join(timeout)
        return not self.thread.is_alive()

    # ---- the thread

    def run(self) -> None:
        while True:
            with self.changed:
                while not self.lines and not self.closing:
                    self.changed.wait()
                if not self.lines:
                    return
                batch, size = self.lines.popleft(), 1
                while self.lines and len(batch) < AT_ONCE:
                    batch += self.lines.popleft()
                    size += 1
            try:
                self.stream.write(batch)
                told = 0
            except (OSError, ValueError):  # ValueError: it was closed
                told = size
            with self.changed:
                self.bytes -= len(batch)
                if told:
                    self.lose(told)
                untold, self.untold = (self.untold, 0) if not told else (0, self.untold)
            if untold:
                self.on_lost(untold)

    def lose(self, number: int) -> None:
        self.lost += number
        self.untold += number


class LibraryHandler(logging.Handler):
    """Handler of the root logger that gives records to kproxy's log."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # else logging would print a traceback
            error = record.exc_info[1] if record.exc_info else None
            say = self.log.error if record.levelno >= logging.ERROR else self.log.warning
            say("a library says", library=record.name, message=record.getMessage(), exc_info=error)


def take_over(log: FilteringBoundLogger) -> None:
    """Send to `log` whatever this process would print to standard error otherwise."""

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        log.error("kproxy has failed", exc_info=error.with_traceback(trace))

    def in_thread(args: Any) -> None:
        if args.exc_type is not SystemExit:
            name = None if args.thread is None else args.thread.name
            log.error("a thread has failed", thread=name, exc_info=args.exc_value)

    def unraisable(args: Any) -> None:
        with suppress(Exception):
            where = args.err_msg or "exception ignored in"
            log.error("an exception was ignored", where=f"{where} {args.object!r}"[:300], exc_info=args.exc_value)

    def warned(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        log.warning("python warns", category=category.__name__, message=str(message), where=f"{filename}:{lineno}")

    sys.excepthook = uncaught
    threading.excepthook = in_thread
    sys.unraisablehook = unraisable
    warnings.showwarning = warned
    logging.raiseExceptions = False
    logging.getLogger().handlers[:] = [LibraryHandler(log)]


LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
LONGEST = 4096
"""Characters that a text has in a log line; the rest is left out. Names that clients choose have up to 32 kB."""
FRAMES = 30
"""Stack frames of a traceback that a JSON line holds at most."""

LogFields = MutableMapping[str, Any]


class Threshold:
    """Lowest level that a log writes, which may change while it does."""

    def __init__(self, level: str = "info") -> None:
        self.use(level)

    def use(self, level: str) -> None:
        self.lowest = LEVELS[level]

    def logger_class(self) -> type[FilteringBoundLogger]:
        """Return a class of loggers for `wrap_logger` that asks for this level before anything is done for a line."""
        threshold, all_levels = self, structlog.make_filtering_bound_logger(logging.DEBUG)

        class ThresholdLogger(all_levels):  # type: ignore[valid-type, misc]  # structlog has a class for each level
            def is_enabled_for(self, level: int) -> bool:
                return level >= threshold.lowest

            def get_effective_level(self) -> int:
                return threshold.lowest

            def _proxy_to_logger(self, method_name: str, event: str | None = None, *given: Any, **fields: Any) -> Any:
                if LEVELS.get(method_name, logging.ERROR) < threshold.lowest:
                    return None
                return super()._proxy_to_logger(method_name, event, *given, **fields)

        return ThresholdLogger


THRESHOLD = Threshold()
"""Threshold of the log of this process."""


class Forgiving:
    """Log stream that drops what cannot be written: a full disk or a closed pipe under the log stops no traffic."""

    def __init__(self, stream: TextIO | WholeLines | LogQueue) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self.stream.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError):
            self.stream.flush()


def shortened(text: str) -> str:
    """Return the text, cut at LONGEST characters, with its length if it was cut."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"


def shorten(logger: object, method: str, event: LogFields) -> LogFields:
    """Cut long texts of a log event. Control characters need no care here: the JSON encoder escapes them."""
    for name, value in event.items():
        if type(value) is str:
            event[name] = shortened(value)
    return event


def order(logger: object, method: str, event: LogFields) -> LogFields:
    """Put the fields first that each line has."""
    first = {name: event.pop(name) for name in ("timestamp", "level", "event") if name in event}
    return {**first, **event}


def write_traceback(out: TextIO, info: Any) -> None:
    """Write a traceback below its line, indented, so that no text in it looks like another log line."""
    for text in traceback.format_exception(*info):
        out.writelines(f"\n    | {in_line(line)}" for line in text.splitlines())


def clean(logger: object, method: str, event: LogFields) -> LogFields:
    """Cut the texts of a log event, and escape their line ends and control characters, which terminals would obey."""
    return {name: in_line(shortened(value)) if type(value) is str
            else in_line(value) if isinstance(value, list | tuple | dict) else value
            for name, value in event.items()}  # fmt: skip


def make_log(
    form: str = "auto", level: str | Threshold = "info", stream: TextIO | WholeLines | LogQueue | None = None
) -> FilteringBoundLogger:
    """Return a logger. `form` is human, json, or auto: human when `stream` (standard error) is a terminal."""
    stream = stream or sys.stderr
    human = form == "human" or (form == "auto" and stream.isatty())
    threshold = level if isinstance(level, Threshold) else Threshold(level)
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if human:
        processors += [
            clean, structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=write_traceback)
        ]  # fmt: skip
    else:  # tracebacks have no local variables, since there are passwords among them
        tracebacks = ExceptionDictTransformer(show_locals=False, max_frames=FRAMES)
        processors += [
            structlog.processors.ExceptionRenderer(tracebacks), shorten, order, structlog.processors.JSONRenderer()
        ]  # fmt: skip
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(cast("TextIO", Forgiving(stream))),
        processors=processors,
        wrapper_class=threshold.logger_class(),
        cache_logger_on_first_use=True,
    )
    return log


def log_of_process(
    form: str, level: str, lock: int | None = None, **bound: Any
) -> tuple[FilteringBoundLogger, LogQueue]:
    """Return the log of a kproxy process, and the queue in front of standard error.

    Tracebacks, warnings and libraries' messages become lines of this log. `lock`: that of WholeLines. `bound`: fields
    of every line.
    """
    queue = LogQueue(WholeLines(sys.stderr, lock))
    THRESHOLD.use(level)
    log: FilteringBoundLogger = make_log(form, THRESHOLD, queue).bind(**bound)
    queue.on_lost = lambda number: log.warning("log lines dropped, standard error is not read", count=number)
    QUEUES.append(queue)
    atexit.register(queue.close)
    take_over(log)
    return log, queue


QUEUES: list[LogQueue] = []
"""Log queues of this process: none before it has a log, then one."""


def lost_lines() -> int:
    """Return how many log lines this process has lost so far."""
    return sum(queue.lost for queue in QUEUES)
