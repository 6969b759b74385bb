"""Writes exchanges into a pcapng file, as packets of the connections they belong to.

Strategy: an exchange is written when it is over, its request and its response one behind the other, so nothing has to
be remembered of what is in flight. A connection begins in the file with its first exchange. Bytes of both sides run on
over what is written: what a filter left out never was, as far as the file knows. What the bytes do not say (rules that
fired, waits, what was withheld, who the client is) stands in notes at the packets (`pcapng.note`).

The file may end at any moment: every block is whole by itself, and the last one says how it went.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from kproxy.watch.error_places import errors_of
from kproxy.watch.seen import Errors, Frame, Seen, Who

from . import pcapng
from .exchanges import SASL_HANDSHAKE, acks
from .packets import LONGEST_SEGMENT, Conversation, packed, pool_address
from .policy import Policy

CLIENT, BROKER = 0, 1
INTERFACES = ("client", "broker")
"""What the client sent and got; and what the broker got and sent where that is something else."""
APPLICATION = "kproxy"
MOST_KNOWN = 100_000
"""Connections whose sequence numbers are remembered; the one that began first is forgotten beyond, some 100 MB."""
PACKET = 128
"""Bytes of a packet without its payload: its block, and headers of IPv6 and TCP."""
AROUND = 4096
"""Bytes around an exchange: a handshake, names of rules, ends of connections, and the last block."""

APART = 100_003
"""Between the first sequence numbers of two connections, so that they differ where ports are used again."""
NOTHING: Mapping[str, Any] = {}

Endpoint = tuple[str, int]
ToWallTime = Callable[[float], float]
"""Converter from the clock of exchanges, such as monotonic seconds, to seconds since 1970."""


@dataclass(slots=True)
class Known:
    """A connection that is in the file already."""

    talk: Conversation
    about: dict[str, Any]


@dataclass(slots=True)
class Written:
    """What is in a file so far."""

    size: int = 0
    exchanges: int = 0
    connections: int = 0
    broker_exchanges: int = 0
    dropped: int = 0
    """Exchanges that there was no time to write."""
    began: float | None = None
    ended: float | None = None
    names: dict[str, bytes] = field(default_factory=dict)


class CaptureWriter:
    """Into `file`, which stays the caller's. `wall`: what makes seconds since 1970 of the exchanges' times.

    `begun`: somebody else has begun the file, and will end it. `names_from`: see `sinks.shared_file.Part`.
    """

    def __init__(
        self, file: IO[bytes], policy: Policy, *, wall: ToWallTime = float, about: dict[str, Any] | None = None,
        begun: bool = False, names_from: int = 0,
    ) -> None:  # fmt: skip
        self.file, self.policy, self.wall, self.names_from = file, policy, wall, names_from
        self.written = Written()
        self.open: dict[tuple[int, int], Known] = {}
        if begun:
            return
        said = pcapng.note(
            payload=policy.payload, head=policy.head if policy.payload == "head" else None, **about or {}
        )
        self._put([pcapng.section(APPLICATION, [said]), *(pcapng.interface(name) for name in INTERFACES)])

    def write(self, seen: Seen, server: Endpoint, *, opened: float | None = None) -> None:
        """What passed between the client and kproxy at `server`. `opened`: when the client connected, if that is
        known."""
        self._exchange(CLIENT, seen, server, opened)
        self.written.exchanges += 1

    def write_broker(self, seen: Seen, broker: Endpoint, *, opened: float | None = None) -> None:
        """The same exchange as it passed between kproxy and the broker; the client's port stands for kproxy's own."""
        self._exchange(BROKER, seen, broker, opened)
        self.written.broker_exchanges += 1

    def most(self, seen: Seen) -> int:
        """Bytes that the file grows by at most when this is written, with what stands at its end."""
        return AROUND + sum(
            self.policy.most(frame) + (3 + frame.size // LONGEST_SEGMENT) * PACKET
            for frame in (seen.request, seen.response)
            if frame is not None
        )

    def closed(self, who: Who, now: float) -> None:
        """The connection is over."""
        for side in (CLIENT, BROKER):
            known = self.open.pop((side, who.number), None)
            if known is not None:
                self._put(known.talk.close(self.wall(now)))

    def finish(self, now: float, stopped: str, dropped: int = 0) -> None:
        """The last block: why it ended, and how many exchanges are missing because there was no time to write them."""
        written = self.written
        written.dropped = dropped
        said = pcapng.note(stopped=stopped, exchanges=written.exchanges, broker_exchanges=written.broker_exchanges,
                           connections=written.connections, dropped=dropped)  # fmt: skip
        self._put([pcapng.statistics(CLIENT, self.wall(now), dropped, said)])
        self.file.flush()

    def _exchange(self, side: int, seen: Seen, server: Endpoint, opened: float | None) -> None:
        request, response = seen.request, seen.response
        first = request or response
        if first is None:
            return
        known, news = self._known(side, seen.who, server, first.first if opened is None else opened)
        said = about_exchange(seen) | ({"who": news} if news else {})
        if request is not None:
            self._frame(known.talk, 0, seen, request, {} if response else said)
        if response is not None:
            self._frame(known.talk, 1, seen, response, said)

    def _frame(self, talk: Conversation, side: int, seen: Seen, frame: Frame, said: dict[str, Any]) -> None:
        kept = self.policy.kept(seen, frame, response=side == 1)
        if seen.acks is not None and side == 0 and (len(kept) < frame.size - 4 and acks(kept, seen.version) is None):
            said = {**said, "acks": seen.acks}
        if side == 1 and len(kept) < frame.size - 4:
            said = said | about_errors(errors_of(seen))
        if frame.withheld:
            said = {**said, "withheld": frame.withheld}
        first, last = self.wall(frame.first), self.wall(frame.last)
        data = (frame.size - 4).to_bytes(4, "big") + kept
        self._put(talk.send(side, data, frame.size, first, last, pcapng.note(**said) if said else ""))
        written = self.written
        written.began = first if written.began is None else min(first, written.began)
        written.ended = last if written.ended is None else max(last, written.ended)

    def _known(self, side: int, who: Who, server: Endpoint, opened: float) -> tuple[Known, dict[str, Any]]:
        """The connection, begun in the file if need be, and what has become known of it since it was last written."""
        about = about_client(who)
        known = self.open.get((side, who.number))
        if known is not None:
            if known.about == about:
                return known, {}
            known.about = about
            return known, about
        while len(self.open) >= MOST_KNOWN:
            del self.open[next(iter(self.open))]
        client = (self._address(who.client_address), who.client_port)
        known = Known(Conversation(side, client, (self._address(server[0]), server[1]), who.number * APART), about)
        self.open[side, who.number] = known
        self.written.connections += side == CLIENT
        self._put(known.talk.open(self.wall(opened), pcapng.note(connection=who.number, **about)))
        return known, {}

    def _address(self, host: str) -> bytes:
        """Packed. A name gets an address of its own, and the file says whose it is."""
        address = packed(host) or self.written.names.get(host)
        if address is None:
            address = self.written.names[host] = pool_address(self.names_from + len(self.written.names))
            self._put([pcapng.host_name(address, host)])
        return address

    def _put(self, blocks: Iterable[bytes]) -> None:
        data = b"".join(blocks)
        self.file.write(data)
        self.written.size += len(data)


def about_client(who: Who) -> dict[str, Any]:
    """What the packets do not say of a connection, as far as it is known."""
    said = {
        "cluster": who.cluster, "listener": who.listener, "node": who.node, "broker": who.broker,
        "principal": who.principal, "software_name": who.software_name, "software_version": who.software_version,
    }  # fmt: skip
    return {name: value for name, value in said.items() if value is not None}


def about_errors(errors: Errors) -> dict[str, Any]:
    """The errors in a response, which the bytes that are kept of it need not tell; none: nothing."""
    return {"errors": list(errors.codes), "error_at_top": errors.top} if errors.codes else {}


def about_exchange(seen: Seen) -> dict[str, Any]:
    """What the bytes do not say of an exchange; empty for most."""
    said: dict[str, Any] = {}
    if seen.rules:
        said["rules"] = list(seen.rules)
    if seen.answered_by_rule:
        said["answered_by"] = "kproxy"
    if seen.own_errors:
        said["failed"] = sorted(seen.own_errors)
    if seen.rule_wait != (0.0, 0.0):
        said["rule_wait"] = list(seen.rule_wait)
    if seen.other_wait != (0.0, 0.0):
        said["other_wait"] = list(seen.other_wait)
    if seen.outcome == "closed":
        said["outcome"] = "closed"
    if (seen.key, seen.version) == (SASL_HANDSHAKE, 0) and seen.response is not None:
        said["behind"] = "raw SASL tokens are not recorded"  # KIP-43: they follow without headers
    return said
