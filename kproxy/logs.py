"""Logging: structlog to standard error, for people on a terminal and JSON lines for everything else."""

from __future__ import annotations

import fcntl
import logging
import os
import sys
from contextlib import suppress
from time import sleep
from typing import Any, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

PATIENCE, TICK = 20, 0.001
"""Looks at whether another process still writes its line, and seconds between two; a line takes microseconds."""


class Forgiving:
    """A stream that loses what cannot be written: a full disk or a closed pipe under the log stops no traffic."""

    def __init__(self, stream: TextIO | WholeLines) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self.stream.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError):
            self.stream.flush()


class WholeLines:
    """A stream to which several processes write: its lines stay whole.

    A pipe keeps 4096 bytes together, and tracebacks are longer. So whoever writes holds a record lock on `lock`, a file
    that all of them have; the kernel frees it when a process dies. A process that stands still with the lock must not
    stop the others: they wait a little, and then a torn line is the smaller evil.
    """

    def __init__(self, stream: TextIO, lock: int) -> None:
        self.stream, self.lock = stream, lock
        self.descriptor = stream.fileno()
        self.line = ""

    def isatty(self) -> bool:
        return self.stream.isatty()

    def write(self, text: str) -> int:
        self.line += text
        if text.endswith("\n"):
            data, self.line = self.line.encode(errors="backslashreplace"), ""
            held = self._hold()
            try:
                while data:
                    data = data[os.write(self.descriptor, data) :]
            finally:
                if held:
                    fcntl.lockf(self.lock, fcntl.LOCK_UN)
        return len(text)

    def flush(self) -> None:
        """Whole lines are written at once."""

    def _hold(self) -> bool:
        for _ in range(PATIENCE):
            try:
                fcntl.lockf(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                sleep(TICK)
            else:
                return True
        return False


def make_log(
    form: str = "auto", level: str = "info", stream: TextIO | WholeLines | None = None
) -> FilteringBoundLogger:
    """A logger. `form` is human, json, or auto: human when `stream` (standard error) is a terminal."""
    stream = stream or sys.stderr
    human = form == "human" or (form == "auto" and stream.isatty())
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if human:
        processors.append(structlog.dev.ConsoleRenderer(colors=stream.isatty()))
    else:
        processors += [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(cast("TextIO", Forgiving(stream))),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        cache_logger_on_first_use=True,
    )
    return log
