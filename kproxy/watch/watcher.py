"""Watches one client connection: cuts what passes into frames, pairs them, and hands out exchanges.

    watcher = Watcher(who, interest, take)
    watcher.from_client(buf, n, now)     every byte that the client sent, in order
    watcher.to_client(buf, n, now)       every byte that was sent to it, in order
    watcher.end(now)                     the connection is over: what is still open is handed out
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kproxy.wire.primitives import Buffer

from .seen import Depth, Seen, Who

Take = Callable[[Seen], None]
Interest = Callable[[int, int], Depth]
"""(api key, version) → how much of its frames is wanted; asked once for each pair, then remembered."""


class Watcher:
    """Of one connection. Attributes: requests, responses, unanswered, unread (frames), request_bytes, response_bytes."""

    def __init__(self, who: Who, interest: Interest, take: Take, *, most: int = 1 << 20) -> None:
        """`most`: bytes of a frame that are kept at FULL depth."""
        raise NotImplementedError

    def from_client(self, buf: Buffer, n: int, now: float) -> None:
        """buf[:n] came from the client."""

    def to_client(self, buf: Buffer, n: int, now: float) -> None:
        """buf[:n] has been handed to the client's socket."""

    def awaiting(self, requests: Iterable[tuple[int, int, int]]) -> None:
        """(correlation id, key, version) of requests in flight whose bytes were not seen: for one that begins late."""

    def waited(self, correlation_id: int, seconds: float, *, response: bool, by_rule: bool) -> None:
        """A frame of this exchange was held for so long."""

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False) -> None:
        """These rules fired for this exchange. `answered`: kproxy answers in the broker's place."""

    def refocus(self, interest: Interest) -> None:
        """Other things are wanted from the next frame on."""

    def end(self, now: float) -> None:
        """The connection is over."""
