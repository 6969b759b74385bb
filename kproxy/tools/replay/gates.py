"""Gates that a recorded request has to pass before it is sent again.

A client may have sent a request because of any response that had come before it. A gate counts, for each request, the
responses that had come before it in the recording; the request may pass once as many of them are done again. Waiting
for all connections (`all`) repeats the recording's order as a whole; waiting for a request's own connection only
(`connection`) lets connections run apart, except for responses of which others need what is in them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from kproxy.protocol.table.api_keys import NEW_HEARTBEATS
from kproxy.protocol.table.schema import keys_of

from .recording import RecordedExchange, Recording

GIVERS = NEW_HEARTBEATS | keys_of("""
    Metadata FindCoordinator JoinGroup SyncGroup CreateTopics DeleteTopics CreatePartitions InitProducerId
    AddPartitionsToTxn AddOffsetsToTxn EndTxn
""")
"""APIs of which requests on other connections use what they give, or what they make."""


class ResponseGate:
    """Gate of some exchanges, `awaited`, whose responses count."""

    __slots__ = ("done", "places", "reached", "times")

    def __init__(self, awaited: Iterable[RecordedExchange]) -> None:
        answered = sorted((one.seen.response.last, one.place) for one in awaited if one.seen.response is not None)
        self.times = [time for time, _ in answered]
        self.places = {place: number for number, (_, place) in enumerate(answered)}
        self.done = bytearray(len(answered))
        self.reached = 0
        """Number of responses, from the first on, that are done."""

    def needs(self, exchange: RecordedExchange) -> int:
        """Return how many responses had come before this request."""
        return bisect_left(self.times, exchange.sent)

    def open_for(self, exchange: RecordedExchange) -> bool:
        """Return True if the request may pass."""
        return self.reached >= self.needs(exchange)

    def finish(self, exchange: RecordedExchange) -> None:
        """Count an exchange as done: its response has come, or will not come."""
        number = self.places.get(exchange.place)
        if number is None:
            return
        self.done[number] = 1
        self.advance()

    def force(self, exchange: RecordedExchange) -> None:
        """Count all that this request waits for as done, since it has taken too long."""
        needed = self.needs(exchange)
        self.done[self.reached : needed] = b"\x01" * max(needed - self.reached, 0)
        self.advance()

    def advance(self) -> None:
        first_open = self.done.find(0, self.reached)
        self.reached = len(self.done) if first_open < 0 else first_open


class RecordingGates:
    """Gates of a recording. `apart`: requests wait for their own connection only."""

    def __init__(self, recording: Recording, *, apart: bool) -> None:
        self.apart = apart
        self.common = ResponseGate(one for one in recording.exchanges if not apart or one.key in GIVERS)
        self.own = {line.number: ResponseGate(line.exchanges) for line in recording.lines} if apart else {}

    def of(self, exchange: RecordedExchange) -> tuple[ResponseGate, ...]:
        """Return the gates that the request has to pass."""
        return (self.common, self.own[exchange.line.number]) if self.apart else (self.common,)

    def open_for(self, exchange: RecordedExchange) -> bool:
        return all(gate.open_for(exchange) for gate in self.of(exchange))

    def finish(self, exchange: RecordedExchange) -> None:
        for gate in self.of(exchange):
            gate.finish(exchange)

    def force(self, exchange: RecordedExchange) -> None:
        for gate in self.of(exchange):
            gate.force(exchange)
