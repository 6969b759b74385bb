"""Sources of the view's exchanges: what they say, and how they say it from threads of their own.

Strategy: a source's thread puts events into a bounded queue, which the app empties some times a second for some
milliseconds; a source that is faster waits. The events are those of the view's stream (`hello`, `rows`, `left`, `gap`,
`tick`, `held`, `rules`, `captures`), so that files and proxies look the same from here on, and two more: `state`, where
it stands, in words, and `refused`, why there is nothing.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from kproxy.base.errors import KproxyError

MOST_WAITING = 64
"""Events that wait to be taken."""
LOOK = 0.2
"""Seconds after which a thread that waits for room looks whether it is still wanted."""


class SourceEvent(NamedTuple):
    """Event of a source, by its name in the stream; `data` is its JSON, decoded."""

    name: str
    data: Mapping[str, Any]


class Stopped(Exception):
    """Signal inside a source's thread that nobody wants it any more."""


class SourceThread(threading.Thread):
    """Thread that reads exchanges and hands out events, until `stop` is called."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)  # the end of the program waits for no proxy
        self.events: queue.Queue[SourceEvent] = queue.Queue(MOST_WAITING)
        self.wanted = True

    def run(self) -> None:
        try:
            self.read()
        except Stopped:
            pass
        except (KproxyError, OSError) as error:
            self.end("refused", {"message": str(error), "over": True})

    def read(self) -> None:
        """Read, and put what is found, until there is nothing more. Raises KproxyError or OSError if it cannot."""
        raise NotImplementedError

    def put(self, name: str, data: Mapping[str, Any]) -> None:
        """Hand out an event, as soon as there is room. Raises Stopped."""
        while self.wanted:
            try:
                self.events.put(SourceEvent(name, data), timeout=LOOK)
            except queue.Full:
                continue
            return
        raise Stopped

    def end(self, name: str, data: Mapping[str, Any]) -> None:
        """Hand out the last event, if it is still wanted."""
        with suppress(Stopped):
            self.put(name, data)

    def stop(self) -> None:
        """Have the thread end at the next event, or at the next look for one."""
        self.wanted = False


class ExchangeSource(Protocol):
    """Source of exchanges: a running proxy, or files."""

    name: str
    """Name in the head of the screen."""

    def open(self, text: str) -> SourceThread:
        """Return a thread, not started yet, that reads what this filter holds for. Raises FilterError for a bad one."""
        ...

    def detail(self, ident: str) -> Mapping[str, Any]:
        """Return an exchange with its frames, as `GET /api/exchanges/{id}` does. Takes its time: not for the loop.

        Raises KproxyError where it is not kept.
        """
        ...
