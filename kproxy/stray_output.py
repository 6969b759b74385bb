"""Redirection into the log of what Python and libraries would print to standard error by themselves.

These are tracebacks of uncaught exceptions in any thread, exceptions in finalisers, warnings, and what libraries (trio,
Hypercorn) log with the standard library's `logging`. A reader of JSON lines could not parse them otherwise.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from contextlib import suppress
from types import TracebackType
from typing import Any

from structlog.typing import FilteringBoundLogger


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
