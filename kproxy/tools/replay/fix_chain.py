"""Chain of all fixes: from a recorded request to the target's bytes, and its responses back to the fixes."""

from __future__ import annotations

from collections.abc import Mapping, Set
from uuid import UUID

from kproxy.base.errors import DecodeError, EncodeError
from kproxy.protocol import Message, decode_response, encode
from kproxy.tools.replay.fixes.fetch_sessions import FetchSessionFix
from kproxy.tools.replay.fixes.groups import GroupFix
from kproxy.tools.replay.fixes.producers import ProducerFix
from kproxy.tools.replay.fixes.topics import ConfigFix, LeaderEpochFix, TopicIdFix

from .fixes import Fix, OutgoingRequest
from .recording import RecordedExchange

UNREADABLE = "sent as it was recorded: it cannot be read"
UNWRITTEN = "sent as it was recorded: "


class FixChain:
    """Chain of the fixes of one replay.

    `names`: name of a recorded topic id; `ids`: the target's id of a name; `spread`: lines whose fetches go to several
    brokers. The latter two are kept up to date by their owner.
    """

    def __init__(self, names: Mapping[UUID, str], ids: Mapping[str, UUID], spread: Set[int] = frozenset()) -> None:
        self.producers, self.groups = ProducerFix(), GroupFix()
        self.fixes: tuple[Fix, ...] = (
            TopicIdFix(names, ids),
            LeaderEpochFix(),
            FetchSessionFix(spread),
            self.producers,
            self.groups,
            ConfigFix(),
        )
        self.changed = frozenset().union(*(fix.requests for fix in self.fixes))

    def request(self, exchange: RecordedExchange, link: int) -> tuple[bytes, OutgoingRequest | None]:
        """Return the frame to send, and the request in it.

        The request is None for one that is sent as it is, because no fix is about it or because it cannot be read.
        """
        if exchange.key not in self.changed:
            return exchange.request_frame, None
        message = exchange.decode_request()
        if message is None:
            return exchange.request_frame, None
        outgoing = OutgoingRequest(exchange, message, link)
        for fix in self.fixes:
            if exchange.key in fix.requests:
                fix.request(outgoing)
        try:
            return encode(message), outgoing
        except EncodeError as error:
            outgoing.notes.append(f"{UNWRITTEN}{error}")
            return exchange.request_frame, outgoing

    def answer(self, exchange: RecordedExchange, outgoing: OutgoingRequest | None, frame: bytes) -> Message | None:
        """Return the target's response after the fixes have learnt from it; None if it cannot be read."""
        try:
            now = decode_response(frame, exchange.key, exchange.version, trailing=True)
        except DecodeError:
            return None
        if exchange.request is None or now.version != exchange.version:
            return now
        outgoing = outgoing or OutgoingRequest(exchange, exchange.request, 0)
        for fix in self.fixes:
            if exchange.key in fix.answers:
                fix.answer(outgoing, exchange.response, now)
        return now
