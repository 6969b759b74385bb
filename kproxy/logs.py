"""Logging: structlog to standard error, for people on a terminal and JSON lines for everything else."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Forgiving:
    """A stream that loses what cannot be written: a full disk or a closed pipe under the log stops no traffic."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self.stream.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError):
            self.stream.flush()


def make_log(form: str = "auto", level: str = "info", stream: TextIO | None = None) -> FilteringBoundLogger:
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
