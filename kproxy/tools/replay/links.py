"""Links of a replay to its target, the requests in flight on them, and the commands that a player gives its driver.

Commands name links by number; the result of each is passed to the player as an event.

Every link counts correlation ids by itself: it carries requests of the replay itself beside recorded ones, may carry
those of a request that is sent again, and recorded connections may have used an id twice. A response is tied to its
request by this number alone, so each link numbers from 1 on, and the report goes by exchanges, which have both ids. The
number stands at the same place in every header (bytes 4 to 8 of a request, 0 to 4 of a response), so nothing is decoded
for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kproxy.protocol.framing import framed

from .target import NodeAddress


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Command to connect, authenticate if need be, and call `opened` or `failed`."""

    link: int
    address: NodeAddress


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Command to send these bytes, with their length in front, over this link."""

    link: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Command to close a link that is not needed any more. No event follows."""

    link: int


@dataclass(frozen=True, slots=True)
class TickAt:
    """Command to call `tick` at this time, or soon after it."""

    when: float


@dataclass(frozen=True, slots=True)
class FinishReplay:
    """Command to end the replay. `reason`: why it could not even begin; empty if it did."""

    reason: str = ""


PlayerCommand = OpenLink | SendRequest | CloseLink | TickAt | FinishReplay


REQUEST_AT, RESPONSE_AT = 4, 0
"""Positions of the correlation id in frames without their length."""
LAST = 2**31 - 1


def renumbered(frame: bytes, number: int) -> bytes:
    """Return a request frame, without its length, with this correlation id."""
    return frame[:REQUEST_AT] + number.to_bytes(4, "big") + frame[REQUEST_AT + 4 :]


def answered(frame: bytes, number: int) -> bytes:
    """Return a response frame, without its length, with this correlation id."""
    return number.to_bytes(4, "big", signed=True) + frame[RESPONSE_AT + 4 :]


def number_of(response: bytes) -> int:
    """Return the correlation id of a response frame. Raises ValueError if it is too short to have one."""
    if len(response) < RESPONSE_AT + 4:
        raise ValueError(f"a response of {len(response)} bytes, expected at least {RESPONSE_AT + 4}")
    return int.from_bytes(response[:4], "big", signed=True)


def following(number: int) -> int:
    """Return the next correlation id; they stay above 0."""
    return 1 if number == LAST else number + 1


OnResponse = Callable[[bytes | None, float], None]
"""Called with the response's frame, without its length, or None when the connection ended before, and the time."""

SCOUT = 0
"""The line of the replay's own requests."""


@dataclass(slots=True)
class ReplayLink:
    """Connection of a replay to the target. `line` is the recorded connection that it stands in for."""

    number: int
    line: int
    address: NodeAddress
    opened: bool = False
    last: int = 0
    pending: dict[int, OnResponse] = field(default_factory=dict)
    """Correlation id → what to do with the answer; oldest first."""
    queue: list[tuple[bytes, OnResponse]] = field(default_factory=list)
    """Requests to be sent once the link is open."""


class ReplayLinks:
    """Links of one replay.

    `unreachable`: addresses that could not be connected to, and why; they are not tried again.
    """

    def __init__(self, commands: list[PlayerCommand]) -> None:
        self.commands = commands
        self.by_number: dict[int, ReplayLink] = {}
        self.by_place: dict[tuple[int, NodeAddress], ReplayLink] = {}
        self.unreachable: dict[NodeAddress, str] = {}
        self.opened = 0
        """Number of links that have been asked for."""

    def to(self, line: int, address: NodeAddress) -> ReplayLink:
        """Return the link of this line to this address, opening one if there is none."""
        link = self.by_place.get((line, address))
        if link is None:
            self.opened += 1
            link = self.by_number[self.opened] = self.by_place[line, address] = ReplayLink(self.opened, line, address)
            self.commands.append(OpenLink(link.number, address))
        return link

    def send(self, link: ReplayLink, frame: bytes, then: OnResponse | None) -> None:
        """Send this request, with a correlation id of the link's. `then` None: no response is due."""
        if not link.opened:
            assert then is not None
            link.queue.append((frame, then))
            return
        link.last = following(link.last)
        if then is not None:
            link.pending[link.last] = then
        self.commands.append(SendRequest(link.number, framed(renumbered(frame, link.last))))

    def established(self, number: int) -> None:
        """Send what waited for a link that is open now."""
        link = self.by_number.get(number)
        if link is not None:
            link.opened = True
            queue, link.queue = link.queue, []
            for frame, then in queue:
                self.send(link, frame, then)

    def received(self, number: int, frame: bytes, now: float) -> str:
        """Take a response; returns what is wrong with it, or an empty text.

        One to which no request belongs is passed over: some brokers answer Produce with acks=0.
        """
        link = self.by_number.get(number)
        if link is None:
            return ""
        try:
            then = link.pending.pop(number_of(frame), None)
        except ValueError as error:
            return str(error)
        if then is not None:
            then(frame, now)
        return ""

    def lost(self, number: int, now: float, reason: str = "") -> None:
        """Drop a link that has ended, or could not be opened for this reason, and tell all that waits on it."""
        link = self.by_number.pop(number, None)
        if link is None:
            return
        del self.by_place[link.line, link.address]
        if reason:
            self.unreachable[link.address] = reason
        waiting = [*link.pending.values(), *(then for _, then in link.queue)]
        for then in waiting:
            then(None, now)

    def close(self, link: ReplayLink) -> None:
        """Close a link that is not needed any more."""
        self.by_number.pop(link.number, None)
        self.by_place.pop((link.line, link.address), None)
        self.commands.append(CloseLink(link.number))

    def close_line(self, line: int) -> None:
        """Close all links of a line that needs them no more."""
        for link in [link for link in self.by_number.values() if link.line == line]:
            self.close(link)
