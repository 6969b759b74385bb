"""A recording played to a target: events in, commands out. No socket, no clock.

    player = Player(recording, target, pace, told)
    player.begin(now)                               then do what `player.commands` says, and tell it what comes of that:
    player.opened(link, now) · failed(link, reason, now) · received(link, frame, now) · closed(link, now) · tick(now)

Strategy. Requests stand in lanes: one for all, or one for each connection when these run apart. The first of a lane is
sent when its time has come, when the gates let it pass (gates.py), when the target has been asked what has to be known
for it (scout.py), and when the link to its place is open (places.py); then comes the next. A target that is not ready
yet (a coordinator that loads, a transaction that ends) says so by errors that change nothing: it is asked again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from kproxy.wire import encode

from .commands import Command, Finish, WakeAt
from .fixes import Asked
from .fixes.topic_ids import ids_in
from .fixing import UNREADABLE, Fixing
from .gates import Gates
from .gather import Gather
from .links import SCOUT, Links, Then
from .outcome import Outcome
from .patience import MOVED, REFUSED, not_ready, was_refused
from .places import Places, Wish
from .recording import Exchange, Recording
from .scout import AGAIN_AFTER, Scout, show
from .structs import codes
from .target import Address, Coordinator, Target

PATIENCE = 10.0
"""Seconds that anything is waited for; longer than a broker takes to make an internal topic, shorter than a user's."""


@dataclass(frozen=True, slots=True)
class Pace:
    """`speed`: 1 as recorded, 10 ten times as fast, None as fast as answers come. `order`: what a request waits for,
    the answers before it on all connections or on its own. `patience`: seconds that one answer is waited for."""

    speed: float | None = 1.0
    order: Literal["all", "connection"] = "all"
    patience: float = PATIENCE


class Lane:
    """Requests that go one after the other. `since`: when the first began to wait for what should come soon."""

    __slots__ = ("exchanges", "since", "wish")

    def __init__(self, exchanges: list[Exchange]) -> None:
        self.exchanges = deque(exchanges)
        self.since: float | None = None
        self.wish: Wish | None = None

    def next(self) -> None:
        self.exchanges.popleft()
        self.since = self.wish = None


class Player:
    """Attributes: commands (to be taken away by the caller), forced (requests that did not wait any longer), over."""

    def __init__(self, recording: Recording, target: Target, pace: Pace, told: Callable[[Outcome], None]) -> None:
        self.recording, self.target, self.pace, self.told = recording, target, pace, told
        self.commands: list[Command] = []
        self.names = recording.names
        self.places = Places(target, self.names)
        self.fixing = Fixing(self.names, target.ids, self.places.spread)
        self.links = Links(self.commands)
        self.scout = Scout(target, self.links, pace.patience)
        self.gates = Gates(recording, apart=pace.order == "connection")
        lines = [line.exchanges for line in recording.lines] if pace.order == "connection" else [recording.exchanges]
        self.lanes = [Lane(exchanges) for exchanges in lines]
        self.left = {line.number: len(line.exchanges) for line in recording.lines}
        self.flying: dict[int, float] = {}
        """Place of an exchange → when it was sent first: those whose answers are awaited."""
        self.again: list[tuple[float, Callable[[float], None]]] = []
        self.began = 0.0
        self.forced = 0
        self.over = False

    # ---- events

    def begin(self, now: float) -> None:
        self.began = now
        self.scout.begin()

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

    # ---- what goes on

    def advance(self, now: float) -> None:
        """Send what can be sent, and say when to look again."""
        if self.over:
            return
        if self.scout.failed and not self.scout.ready:
            self.finish(self.scout.failed)
            return
        wakes = [self.scout.tick(now), min((when for when, _ in self.again), default=None)]
        if self.scout.ready:
            wakes += [self.run(lane, now) for lane in self.lanes]
            self.lanes = [lane for lane in self.lanes if lane.exchanges]
            if not self.lanes:
                wakes.append(self.last_answers(now))
        if times := [when for when in wakes if when is not None]:
            self.commands.append(WakeAt(min(times)))

    def run(self, lane: Lane, now: float) -> float | None:
        """Go as far as possible in this lane; when to look again if nothing else happens. None: it waits for others."""
        while lane.exchanges:
            exchange = lane.exchanges[0]
            if reason := self.why_not(exchange):
                lane.next()
                self.settle(Outcome(exchange, "not sent", reason=reason))
                continue
            if (due := self.due(exchange)) > now:
                return due
            if not self.gates.open_for(exchange):
                lane.since = now if lane.since is None else lane.since
                if now - lane.since < self.pace.patience:
                    return lane.since + self.pace.patience
                self.gates.force(exchange)
                self.forced += 1
            if not self.send(lane, exchange, now):
                return None
        return None

    def why_not(self, exchange: Exchange) -> str:
        """Why it is not sent; empty if it is."""
        if exchange.unfit:
            return exchange.unfit
        return self.target.lacks(exchange.key, exchange.version) or (REFUSED if was_refused(exchange) else "")

    def due(self, exchange: Exchange) -> float:
        """When it may be sent at the earliest."""
        if self.pace.speed is None:
            return self.began
        return self.began + (exchange.sent - self.recording.start) / self.pace.speed

    def send(self, lane: Lane, exchange: Exchange, now: float) -> bool:
        """Send it if all is known and its link is open; whether the lane goes on."""
        if lane.wish is None:
            lane.wish = self.places.of(exchange)
        if missing := self.unknown(exchange, lane.wish):
            self.scout.want(missing, now)
            return False
        addresses = self.places.addresses(exchange, lane.wish)
        if gone := [one for one in addresses if one in self.links.unreachable]:
            lane.next()
            reason = f"{show(gone[0])} cannot be reached: {self.links.unreachable[gone[0]]}"
            self.settle(Outcome(exchange, "not sent", reason=reason))
            return True
        links = [self.links.to(exchange.line.number, one) for one in addresses]
        if not all(link.opened for link in links):
            return False
        wanted = lane.wish
        lane.next()
        frame, asked = self.fixing.request(exchange, links[0].number)
        notes = asked.notes if asked is not None else [] if exchange.request is not None else [UNREADABLE]
        sent = Try(exchange, wanted, asked, frame, now, notes)
        if not exchange.silent:
            self.flying[exchange.place] = now
        self.dispatch(sent, addresses)
        if exchange.silent:
            self.settle(Outcome(exchange, "silent", notes=sent.notes))
        return True

    def dispatch(self, sent: Try, addresses: list[Address]) -> None:
        """Send it, in parts if these are several places."""
        line, parts = sent.exchange.line.number, [(addresses[0], sent.frame)]
        message = sent.asked.message if sent.asked is not None else sent.exchange.decode_request()
        if len(addresses) > 1 and message is not None:
            parts = [(address, encode(part)) for address, part in self.places.parts(message, addresses)]
        then: Then | None = None if sent.exchange.silent else partial(self.answered, sent)
        if then is not None and len(parts) > 1 and message is not None:
            then = Gather(message, len(parts), then).part
        for address, frame in parts:
            self.links.send(self.links.to(line, address), frame, then)

    def unknown(self, exchange: Exchange, wanted: Wish) -> set[str | Coordinator]:
        missing = self.places.unknown(wanted)
        if exchange.request is not None:
            names = {self.names[one] for one in ids_in(exchange.request) if one in self.names}
            missing |= {name for name in names if name not in self.target.ids and name not in self.target.asked}
        return missing

    def answered(self, sent: Try, frame: bytes | None, now: float) -> None:
        """A response, or the end of its connection."""
        exchange = sent.exchange
        if exchange.place not in self.flying:
            return  # it has been given up
        if frame is None:
            self.settle(Outcome(exchange, "unanswered", reason="the target closed the connection", notes=sent.notes))
            return
        message = self.fixing.answer(exchange, sent.asked, frame)
        if message is not None and exchange.request is not None:
            if not_ready(exchange, message, self.target):
                if now - self.flying[exchange.place] < self.pace.patience:
                    if codes(message) & MOVED:
                        self.places.forget(sent.wish)
                    self.again.append((now + AGAIN_AFTER, partial(self.resend, sent)))
                    return
                self.target.give_up(topic for topic, _ in sent.wish.partitions)
            self.target.learn(exchange.request, message)
        self.settle(Outcome(exchange, "answered", frame, message, now - sent.at, "", sent.notes, sent.tries))

    def resend(self, sent: Try, now: float) -> None:
        """The same once more, since nothing had come of it, to where it belongs now."""
        if sent.exchange.place not in self.flying:
            return  # it has been given up
        if missing := self.places.unknown(sent.wish):
            self.scout.want(missing, now)
            self.again.append((now + AGAIN_AFTER, partial(self.resend, sent)))
            return
        sent.tries, sent.at = sent.tries + 1, now
        self.dispatch(sent, self.places.addresses(sent.exchange, sent.wish))

    def settle(self, outcome: Outcome) -> None:
        """This exchange is done with."""
        exchange = outcome.exchange
        self.flying.pop(exchange.place, None)
        self.told(outcome)
        self.gates.finish(exchange)
        exchange.forget()
        self.left[exchange.line.number] -= 1
        if not self.left[exchange.line.number]:
            self.links.close_line(exchange.line.number)

    def last_answers(self, now: float) -> float | None:
        """All is sent: wait for what is still due, then end."""
        late = {place for place, at in self.flying.items() if now - at >= self.pace.patience}
        for place in sorted(late):
            reason = f"no answer in {self.pace.patience:g} s"
            self.settle(Outcome(self.recording.exchanges[place], "unanswered", reason=reason))
        if self.flying:
            return min(self.flying.values()) + self.pace.patience
        self.finish()
        return None

    def finish(self, reason: str = "") -> None:
        self.over = True
        self.links.close_line(SCOUT)
        self.commands.append(Finish(reason))


@dataclass(slots=True, eq=False)
class Try:
    """A request on its way. `at`: when it was sent last."""

    exchange: Exchange
    wish: Wish
    asked: Asked | None
    frame: bytes
    at: float
    notes: list[str]
    tries: int = 1
