"""A watcher driven by hand: bytes go in on both sides, what it hands out is gathered.

The buffer that is fed is used again and scribbled over after each call, as a driver's would be.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from kproxy.record.exchange import Depth, ObservedExchange
from kproxy.record.observer.observer import ConnectionObserver
from kproxy.record.observer.summary import Summary
from kproxy.record.observer.summary_rows import SummaryRow
from tests.support.exchange_factory import Somebody
from tests.support.random_peers import Broker, Manners, random_traffic

CLIENT, BROKER = 0, 1
Talk = list[tuple[int, bytes]]
"""(who speaks, what) in order."""


TOPICS = {str(UUID(int=7)): "found"}


class Watching:
    """Attributes: watcher, seen (what was handed out), now (seconds, set by the test)."""

    def __init__(
        self,
        depth: Depth | Callable[[int, int], Depth] = Depth.FULL,
        *,
        most: int = 1 << 20,
        summary: Summary | None = None,
        kind: type = bytearray,
    ) -> None:
        self.seen: list[ObservedExchange] = []
        interest = depth if callable(depth) else lambda key, version: depth
        self.observer = ConnectionObserver(
            Somebody(topics=TOPICS), interest, self.seen.append, most=most, summary=summary
        )
        self.kind, self.now = kind, 100.0
        self.buffer = bytearray(1 << 18)

    def client(self, data: bytes, chunk: int = 0) -> Watching:
        return self.feed(self.observer.from_client, data, chunk or len(data))

    def broker(self, data: bytes, chunk: int = 0) -> Watching:
        return self.feed(self.observer.to_client, data, chunk or len(data))

    def feed(self, call: Callable[..., None], data: bytes, chunk: int) -> Watching:
        for at in range(0, len(data), min(chunk or 1, 1 << 18)):
            part = data[at : at + min(chunk, 1 << 18)]
            self.buffer[: len(part)] = part
            call(self.buffer if self.kind is bytearray else self.kind(part), len(part), self.now)
            self.buffer[: len(part) + 100] = b"\xa5" * (len(part) + 100)
            del self.buffer[1 << 18 :]
        return self

    def end(self) -> Watching:
        self.observer.end(self.now)
        return self

    def counts(self) -> tuple[int, int, int, int, int, int]:
        one = self.observer
        return one.requests, one.responses, one.unanswered, one.unread, one.request_bytes, one.response_bytes


def play(talk: Talk, watching: Watching, cuts: Random | None = None, chunk: int = 0) -> Watching:
    """Show a conversation: as it is, in chunks of one size, or cut anywhere."""
    for side, data in talk:
        say = watching.broker if side == BROKER else watching.client
        if cuts is None:
            say(data, chunk)
            continue
        while data:
            size = min(len(data), cuts.choice((1, 2, 3, 5, 13, 40, 200, 5000)))
            say(data[:size])
            data = data[size:]
    return watching


def random_talk(random: Random, apis: list[str], count: int, manners: Manners, mangle: float = 0.0) -> Talk:
    """What a random client and a random broker say to each other, several frames at a time."""
    broker, talk, together = Broker(random, manners), [], random.choice((1, 1, 3))
    traffic = random_traffic(random, apis, count, mangle)
    for at in range(0, count, together):
        asked = b"".join(one.frame for one in traffic[at : at + together])
        talk.append((CLIENT, asked))
        broker.take(asked)
        said = b"".join(broker.answers)
        broker.answers.clear()
        if said:
            talk.append((BROKER, said))
    return talk


def told(seen: ObservedExchange) -> dict[str, Any]:
    """All that is to be the same however the bytes were cut."""
    found: dict[str, Any] = {
        name: getattr(seen, name)
        for name in ("number", "key", "version", "correlation_id", "client_id", "outcome", "acks", "request_body")
    }
    found["response_body"] = seen.response_body
    for name, frame in (("request", seen.request), ("response", seen.response)):
        found[name] = None if frame is None else (frame.size, frame.first, frame.last, frame.withheld)
    return found


def counted(lines: list[SummaryRow]) -> list[tuple[Any, ...]]:
    """Lines in an order of their own, with sums of times rounded."""
    rows = [
        tuple(
            round(value, 6) if isinstance(value, float) else tuple(value) if isinstance(value, list) else value
            for value in (getattr(line, name) for name in SummaryRow.__slots__)
        )
        for line in lines
    ]
    return sorted(rows, key=repr)


def whole_summary(most: int = 2000) -> Summary:
    """One that wants everything."""
    return Summary(lambda key, version: True, who=Somebody(topics=TOPICS), most=most)
