"""Interface of a sink, which takes the exchanges that watchers have seen."""

from __future__ import annotations

from typing import Protocol

from kproxy.observe.exchange import Depth, ObservedExchange, Who


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
