"""Sinks, which take exchanges, and the fan-out to all that there are now, which decides how deep observers look.

Metadata answers are learnt from here, whichever sinks there are: topic ids mean nothing without the names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from kproxy.observe.exchange import Depth, ObservedExchange, Who
from kproxy.wire.breath import to_the_end
from kproxy.wire.table.api_keys import METADATA

from .cluster_metadata import ClusterMetadata


class Sink(Protocol):
    """Receiver of exchanges. Called in the loop's thread: what takes long belongs on a thread of its own. Must not
    raise.

    `broker_side`: it wants `take_behind`, too; does not change while it is attached.
    """

    @property
    def broker_side(self) -> bool: ...

    def depth(self, key: int, version: int) -> Depth:
        """Return how much of these frames it wants; asked once for each (api, version) while it is attached."""
        ...

    def take(self, seen: ObservedExchange) -> None:
        """Take an exchange that is over: answered, or known to remain without an answer."""
        ...

    def take_behind(self, seen: ObservedExchange) -> None:
        """Take an exchange as the broker saw it: with kproxy's own requests, without what kproxy answered itself.

        It may come before or after the client's of the same correlation id.
        """
        ...

    def opened(self, who: Who, now: float) -> None:
        """Take note that a client has connected."""
        ...

    def closed(self, who: Who, now: float) -> None:
        """Take note that a connection is over; all its exchanges have been taken."""
        ...


class Fanout:
    """Fan-out of one process's exchanges to its sinks.

    `changed` is called when sinks come or go, after which observers have to be told of `depth` anew.
    """

    def __init__(self, log: FilteringBoundLogger, changed: Callable[[], None] = lambda: None) -> None:
        self.log, self.changed = log, changed
        self.sinks: tuple[Sink, ...] = ()
        self.pictures: dict[str, ClusterMetadata] = {}
        self.failures = 0
        """Number of times that a sink raised, which none should."""

    def picture(self, cluster: str) -> ClusterMetadata:
        """Return the metadata of a cluster, made when it is first asked for."""
        return self.pictures.setdefault(cluster, ClusterMetadata(cluster))

    def add(self, sink: Sink) -> None:
        """Attach a sink; it gets what begins from now on."""
        self.sinks = (*self.sinks, sink)
        self.changed()

    def remove(self, sink: Sink) -> None:
        self.sinks = tuple(one for one in self.sinks if one is not sink)
        self.changed()

    def depth(self, key: int, version: int) -> Depth:
        """Return the greatest depth that any sink wants for this API and version."""
        least = Depth.SKETCH if key == METADATA else Depth.COUNT
        return max(least, *(sink.depth(key, version) for sink in self.sinks)) if self.sinks else Depth.COUNT

    @property
    def broker_side(self) -> bool:
        """Return True if any sink wants to see what passes between kproxy and the broker."""
        return any(sink.broker_side for sink in self.sinks)

    # ---- calls of the observers' owners

    def take(self, seen: ObservedExchange) -> None:
        with to_the_end():
            if seen.key == METADATA and seen.outcome == "answered":
                self._call(self._learn, seen)
            for sink in self.sinks:
                self._call(sink.take, seen)

    def take_behind(self, seen: ObservedExchange) -> None:
        """Give an exchange as the broker saw it to the sinks that want it."""
        with to_the_end():
            for sink in self.sinks:
                if sink.broker_side:
                    self._call(sink.take_behind, seen)

    def opened(self, who: Who, now: float) -> None:
        for sink in self.sinks:
            self._call(sink.opened, who, now)

    def closed(self, who: Who, now: float) -> None:
        for sink in self.sinks:
            self._call(sink.closed, who, now)

    def _learn(self, seen: ObservedExchange) -> None:
        body = seen.response_body
        if body is not None and seen.who.cluster is not None:
            self.picture(seen.who.cluster).learn(body, seen.who.broker_topic)

    def _call(self, method: Callable[..., None], *arguments: object) -> None:
        """Call a sink, and count and log what it raises: traffic goes on, whatever a sink does."""
        try:
            method(*arguments)
        except Exception as error:
            self.failures += 1
            if self.failures == 1:
                self.log.error("a sink raised, which is a mistake in kproxy", exc_info=error)
