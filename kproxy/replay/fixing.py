"""All fixes together: a recorded request to the bytes that the target gets, and its answer to what the fixes learn."""

from __future__ import annotations

from collections.abc import Mapping, Set
from uuid import UUID

from kproxy.errors import DecodeError, EncodeError
from kproxy.wire import Message, decode_response, encode

from .fixes import Asked, Fix
from .fixes.configs import Configs
from .fixes.fetch_sessions import FetchSessions
from .fixes.groups import Groups
from .fixes.leader_epochs import LeaderEpochs
from .fixes.producers import Producers
from .fixes.topic_ids import TopicIds
from .recording import Exchange

UNREADABLE = "sent as it was recorded: it cannot be read"
UNWRITTEN = "sent as it was recorded: "


class Fixing:
    """`names`: name of a recorded topic id; `ids`: the target's id of a name, `spread`: lines whose fetches go to
    several brokers; these two are kept up to date by their owner."""

    def __init__(self, names: Mapping[UUID, str], ids: Mapping[str, UUID], spread: Set[int] = frozenset()) -> None:
        self.producers, self.groups = Producers(), Groups()
        self.fixes: tuple[Fix, ...] = (
            TopicIds(names, ids),
            LeaderEpochs(),
            FetchSessions(spread),
            self.producers,
            self.groups,
            Configs(),
        )
        self.changed = frozenset().union(*(fix.requests for fix in self.fixes))

    def request(self, exchange: Exchange, link: int) -> tuple[bytes, Asked | None]:
        """The frame to send, and the request in it: None for one that is sent as it is, because no fix is about it or
        because it cannot be read."""
        if exchange.key not in self.changed:
            return exchange.request_frame, None
        message = exchange.decode_request()
        if message is None:
            return exchange.request_frame, None
        asked = Asked(exchange, message, link)
        for fix in self.fixes:
            if exchange.key in fix.requests:
                fix.request(asked)
        try:
            return encode(message), asked
        except EncodeError as error:
            asked.notes.append(f"{UNWRITTEN}{error}")
            return exchange.request_frame, asked

    def answer(self, exchange: Exchange, asked: Asked | None, frame: bytes) -> Message | None:
        """The target's answer, read and learned from; None if it cannot be read."""
        try:
            now = decode_response(frame, exchange.key, exchange.version, trailing=True)
        except DecodeError:
            return None
        if exchange.request is None or now.version != exchange.version:
            return now
        asked = asked or Asked(exchange, exchange.request, 0)
        for fix in self.fixes:
            if exchange.key in fix.answers:
                fix.answer(asked, exchange.response, now)
        return now
