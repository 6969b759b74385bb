"""Lines of a tail in one process: a sink that keeps exchanges, and the JSON that is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic, time
from typing import Any

import msgspec
import trio

from kproxy.record.exchange import ObservedExchange
from kproxy.record.fanout import Fanout, TailSink
from kproxy.record.filters import Filter, ViewedEvent

ALIVE = 10.0
"""Seconds between empty lines: less than a client's patience, so that both ends notice when the other is gone."""
AT_ONCE = 100  # Events that are made before others have their turn: some milliseconds
MOST_PARTITIONS = 100  # Partitions of one exchange that are listed; the audit lists as many by default
EVERY_PARTITION = 1 << 31

_encode = msgspec.json.Encoder().encode


class TailLines:
    """Lines of this process for one listener, between `begin` and `end`."""

    def __init__(self, fanout: Fanout, notify: Callable[[trio.Event], None], wanted: Filter) -> None:
        self.fanout, self.notify = fanout, notify
        self.something = trio.Event()
        self.sink = TailSink(wanted, whole, self.wake)

    @property
    def dropped(self) -> int:
        return self.sink.dropped

    def wake(self) -> None:
        self.notify(self.something)

    async def begin(self) -> None:
        """Add the sink: later exchanges are complete."""
        self.fanout.add(self.sink)

    def end(self) -> None:
        self.fanout.remove(self.sink)

    async def next(self) -> bytes:
        """Return lines once there are any; none after ALIVE seconds."""
        if not self.sink.waiting:
            with trio.move_on_after(ALIVE):
                await self.something.wait()
        self.something = trio.Event()
        lines: list[Mapping[str, Any]] = [{"request": told(seen)} for seen in self.sink.drain(AT_ONCE)]
        if missed := self.sink.missed():
            lines += [{"dropped": missed.dropped, "apis": missed.apis}] if missed.dropped else []
            lines += [{"unknown": missed.unknown, "why": missed.why}] if missed.unknown else []
        return b"".join(map(line, lines))


def line(content: Mapping[str, Any]) -> bytes:
    return _encode(content) + b"\n"


def told(seen: ObservedExchange) -> ViewedEvent:
    """Return the event of a completed exchange, as in the audit."""
    return _data(seen, MOST_PARTITIONS)


def whole(seen: ObservedExchange) -> ViewedEvent:
    """Return the event with all partitions, for filters."""
    return _data(seen, EVERY_PARTITION)


def _data(seen: ObservedExchange, most: int) -> ViewedEvent:
    from kproxy.record.audit.request_event import request_event  # imported for the first listener

    offset = time() - monotonic()
    return request_event(seen, lambda when: when + offset, most)
