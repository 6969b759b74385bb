"""Player of a recording to a target: events in, commands out. No socket, no clock.

    player = ReplayPlayer(recording, target, pace, on_outcome)
    player.begin(now)                 then carry out `player.commands`, and pass on the resulting events:
    player.opened(link, now) · failed(link, reason, now) · received(link, frame, now) · closed(link, now) · tick(now)

Strategy. Requests wait in queues: one for all, or one for each connection if these are independent. The first of a
queue is sent when its time has come, when the gates let it pass (`RecordingGates`), when its metadata of the target is
known (discovery.py), and when the link to its address is open (routing.py). The next request follows. A target that is
not ready yet (a coordinator that loads, a transaction that ends) returns errors that change nothing: the request is
sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from kproxy.protocol import encode
from kproxy.tools.replay.discovery import AGAIN_AFTER, TargetDiscovery, address_text
from kproxy.tools.replay.recording import RecordedExchange, Recording, ReplayOutcome
from kproxy.tools.replay.request_fixes import UNREADABLE, FixChain, OutgoingRequest, ids_in
from kproxy.tools.replay.routing import (
    MOVED,
    WAS_REFUSED,
    RequestRouter,
    RequestSubject,
    ResponseGatherer,
    not_ready,
    was_refused,
)
from kproxy.tools.replay.target import CoordinatorKey, NodeAddress, TargetCluster

from .recording import codes
from .routing import RecordingGates
from .target import SCOUT, FinishReplay, OnResponse, PlayerCommand, ReplayLinks, TickAt

PATIENCE = 10.0
"""Seconds that anything is waited for; longer than a broker takes to make an internal topic, shorter than a user's."""

CLOSED = "the target closed the connection"


@dataclass(frozen=True, slots=True)
class Pace:
    """Pace of a replay.

    `speed`: 1 as recorded, 10 ten times as fast, None as fast as responses come. `order`: a request waits for the
    responses before it on all connections, or only on its own. `patience`: seconds that one response is waited for.
    """

    speed: float | None = 1.0
    order: Literal["all", "connection"] = "all"
    patience: float = PATIENCE


class RequestQueue:
    """Queue of requests that go one after the other.

    `since`: when the first request began to wait for a condition that should hold soon.
    """

    __slots__ = ("exchanges", "since", "subject")

    def __init__(self, exchanges: list[RecordedExchange]) -> None:
        self.exchanges = deque(exchanges)
        self.since: float | None = None
        self.subject: RequestSubject | None = None

    def next(self) -> None:
        self.exchanges.popleft()
        self.since = self.subject = None


class ReplayPlayer:
    """Player of one recording.

    Attributes: commands (to be taken away by the caller), forced (requests that did not wait any longer), over.
    """

    def __init__(
        self, recording: Recording, target: TargetCluster, pace: Pace, on_outcome: Callable[[ReplayOutcome], None]
    ) -> None:
        self.recording, self.target, self.pace, self.on_outcome = recording, target, pace, on_outcome
        self.commands: list[PlayerCommand] = []
        self.names = recording.names
        self.router = RequestRouter(target, self.names)
        self.fixes = FixChain(self.names, target.ids, self.router.spread)
        self.links = ReplayLinks(self.commands)
        self.discovery = TargetDiscovery(target, self.links, pace.patience)
        self.gates = RecordingGates(recording, apart=pace.order == "connection")
        lines = [line.exchanges for line in recording.lines] if pace.order == "connection" else [recording.exchanges]
        self.queues = [RequestQueue(exchanges) for exchanges in lines]
        self.left = {line.number: len(line.exchanges) for line in recording.lines}
        self.flying: dict[int, float] = {}
        """Place of an exchange → when it was sent first, for requests with a pending response."""
        self.again: list[tuple[float, Callable[[float], None]]] = []
        self.began = 0.0
        self.forced = 0
        self.over = False

    # ---- events

    def begin(self, now: float) -> None:
        self.began = now
        self.discovery.begin()

    def opened(self, link: int, now: float) -> None:
        self.links.established(link)
        self.advance(now)

    def failed(self, link: int, reason: str, now: float) -> None:
        self.links.lost(link, now, reason)
        self.advance(now)

    def received(self, link: int, frame: bytes, now: float) -> None:
        if self.links.received(link, frame, now):
            self.links.lost(link, now)
        self.advance(now)

    def closed(self, link: int, now: float) -> None:
        self.links.lost(link, now)
        self.advance(now)

    def tick(self, now: float) -> None:
        due = [then for when, then in self.again if when <= now]
        self.again = [(when, then) for when, then in self.again if when > now]
        for then in due:
            then(now)
        self.advance(now)

    # ---- progress

    def advance(self, now: float) -> None:
        """Send all ready requests, and schedule the next call."""
        if self.over:
            return
        if self.discovery.failed and not self.discovery.ready:
            self.finish(self.discovery.failed)
            return
        wakes = [self.discovery.tick(now), min((when for when, _ in self.again), default=None)]
        if self.discovery.ready:
            wakes += [self.run(queue, now) for queue in self.queues]
            self.queues = [queue for queue in self.queues if queue.exchanges]
            if not self.queues:
                wakes.append(self.await_last_responses(now))
        if times := [when for when in wakes if when is not None]:
            self.commands.append(TickAt(min(times)))

    def run(self, queue: RequestQueue, now: float) -> float | None:
        """Send as many requests of this queue as possible.

        Returns the time of the next call if nothing else happens; None: it waits for events.
        """
        while queue.exchanges:
            exchange = queue.exchanges[0]
            if reason := self.reason_not_to_send(exchange):
                queue.next()
                self.complete(ReplayOutcome(exchange, "not sent", reason=reason))
                continue
            if (due := self.due(exchange)) > now:
                return due
            if not self.gates.open_for(exchange):
                queue.since = now if queue.since is None else queue.since
                if now - queue.since < self.pace.patience:
                    return queue.since + self.pace.patience
                self.gates.force(exchange)
                self.forced += 1
            if not self.send(queue, exchange, now):
                return None
        return None

    def reason_not_to_send(self, exchange: RecordedExchange) -> str:
        """Return why the exchange is not sent; empty if it is."""
        if exchange.unfit:
            return exchange.unfit
        return self.target.lacks(exchange.key, exchange.version) or (WAS_REFUSED if was_refused(exchange) else "")

    def due(self, exchange: RecordedExchange) -> float:
        """Return the earliest time at which the request may be sent."""
        if self.pace.speed is None:
            return self.began
        return self.began + (exchange.sent - self.recording.start) / self.pace.speed

    def send(self, queue: RequestQueue, exchange: RecordedExchange, now: float) -> bool:
        """Send the request if all metadata is known and its link is open; True if the queue continues."""
        if queue.subject is None:
            queue.subject = self.router.of(exchange)
        if missing := self.unknown(exchange, queue.subject):
            self.discovery.want(missing, now)
            return False
        addresses = self.router.addresses(exchange, queue.subject)
        if gone := [one for one in addresses if one in self.links.unreachable]:
            queue.next()
            reason = f"{address_text(gone[0])} cannot be reached: {self.links.unreachable[gone[0]]}"
            self.complete(ReplayOutcome(exchange, "not sent", reason=reason))
            return True
        links = [self.links.to(exchange.line.number, one) for one in addresses]
        if not all(link.opened for link in links):
            return False
        wanted = queue.subject
        queue.next()
        frame, outgoing = self.fixes.request(exchange, links[0].number)
        notes = outgoing.notes if outgoing is not None else [] if exchange.request is not None else [UNREADABLE]
        sent = RequestInFlight(exchange, wanted, outgoing, frame, now, notes)
        if not exchange.silent:
            self.flying[exchange.place] = now
        self.dispatch(sent, addresses)
        if exchange.silent:
            self.complete(ReplayOutcome(exchange, "silent", notes=sent.notes))
        return True

    def dispatch(self, sent: RequestInFlight, addresses: list[NodeAddress]) -> None:
        """Send a request, in parts if it goes to several addresses."""
        line, parts = sent.exchange.line.number, [(addresses[0], sent.frame)]
        message = sent.outgoing.message if sent.outgoing is not None else sent.exchange.decode_request()
        if len(addresses) > 1 and message is not None:
            parts = [(address, encode(part)) for address, part in self.router.parts(message, addresses)]
        then: OnResponse | None = None if sent.exchange.silent else partial(self.answered, sent)
        if then is not None and len(parts) > 1 and message is not None:
            then = ResponseGatherer(message, len(parts), then).part
        for address, frame in parts:
            self.links.send(self.links.to(line, address), frame, then)

    def unknown(self, exchange: RecordedExchange, wanted: RequestSubject) -> set[str | CoordinatorKey]:
        if self.target.recorded:
            return set()
        missing = self.router.unknown(wanted)
        if exchange.request is not None:
            names = {self.names[one] for one in ids_in(exchange.request) if one in self.names}
            missing |= {name for name in names if name not in self.target.ids and name not in self.target.looked_up}
        return missing

    def answered(self, sent: RequestInFlight, frame: bytes | None, now: float) -> None:
        """Take a response, or the end of its connection."""
        exchange = sent.exchange
        if exchange.place not in self.flying:
            return  # it has been given up
        if frame is None:
            self.complete(ReplayOutcome(exchange, "unanswered", reason=CLOSED, notes=sent.notes))
            return
        message = self.fixes.answer(exchange, sent.outgoing, frame)
        if message is not None and exchange.request is not None:
            if not_ready(exchange, message, self.target):
                if now - self.flying[exchange.place] < self.pace.patience:
                    if codes(message) & MOVED:
                        self.router.forget(sent.subject)
                    self.again.append((now + AGAIN_AFTER, partial(self.resend, sent)))
                    return
                self.target.give_up(topic for topic, _ in sent.subject.partitions)
            self.target.learn(exchange.request, message)
        self.complete(ReplayOutcome(exchange, "answered", frame, message, now - sent.at, "", sent.notes, sent.tries))

    def resend(self, sent: RequestInFlight, now: float) -> None:
        """Send a request again that had no effect, to where it belongs now."""
        if sent.exchange.place not in self.flying:
            return  # it has been given up
        if missing := self.router.unknown(sent.subject):
            self.discovery.want(missing, now)
            self.again.append((now + AGAIN_AFTER, partial(self.resend, sent)))
            return
        sent.tries, sent.at = sent.tries + 1, now
        self.dispatch(sent, self.router.addresses(sent.exchange, sent.subject))

    def complete(self, outcome: ReplayOutcome) -> None:
        """Report an exchange's outcome and remove it."""
        exchange = outcome.exchange
        self.flying.pop(exchange.place, None)
        self.on_outcome(outcome)
        self.gates.finish(exchange)
        exchange.forget()
        self.left[exchange.line.number] -= 1
        if not self.left[exchange.line.number]:
            self.links.close_line(exchange.line.number)

    def await_last_responses(self, now: float) -> float | None:
        """Wait for the responses still due once all is sent, then finish; returns when to look again."""
        late = {place for place, at in self.flying.items() if now - at >= self.pace.patience}
        for place in sorted(late):
            reason = f"no answer in {self.pace.patience:g} s"
            self.complete(ReplayOutcome(self.recording.exchanges[place], "unanswered", reason=reason))
        if self.flying:
            return min(self.flying.values()) + self.pace.patience
        self.finish()
        return None

    def finish(self, reason: str = "") -> None:
        self.over = True
        self.links.close_line(SCOUT)
        self.commands.append(FinishReplay(reason))


@dataclass(slots=True, eq=False)
class RequestInFlight:
    """Request on its way to the target. `at`: when it was sent last."""

    exchange: RecordedExchange
    subject: RequestSubject
    outgoing: OutgoingRequest | None
    frame: bytes
    at: float
    notes: list[str]
    tries: int = 1
