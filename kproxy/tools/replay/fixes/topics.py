"""Fixes of what requests say about topics: ids, configs that were withheld, leader epochs.

Every cluster draws its own topic ids (KIP-516), also for topics of the same name. The recording's own responses that
show name and id together (Metadata, CreateTopics and others) tell which name an id stands for, and the target is asked
for its id of that name. An id whose name or new id is not known stays, and the target answers that there is no such
topic.

Captures hold no config values, which may be passwords: each letter is a `*` there (record/observer/credentials.py). A
topic that the recording makes is made with the target's own values for them, which is better than not at all; requests
that do nothing but set configs are not sent.

A client says which leader epoch it believes in, and a broker refuses it if that is not its own (KIP-320). The epochs of
two clusters have nothing to do with each other; -1 asks the broker not to compare. What OffsetForLeaderEpoch asks for,
and what commits carry along, is data and stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from kproxy.protocol import Message
from kproxy.protocol.elements import topics
from kproxy.protocol.table.api_keys import CREATE_TOPICS, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.tools.replay.structs import TOPIC_ID, carriers, layout_of, of_kind, structs

from . import OutgoingRequest


def ids_in(message: Message) -> Iterator[UUID]:
    """Yield the topic ids that a request names."""
    if message.api.key in TopicIdFix.requests:
        for struct, value in structs(layout_of(message), message.body):
            for slot in of_kind(struct, TOPIC_ID):
                ids = value[slot.name]
                yield from (one for one in (ids or () if slot.array else (ids,)) if one != ZERO_UUID)


class TopicIdFix:
    """Fix of topic ids.

    `names`: recorded id → name. `now`: name → id of the target, which its owner keeps up to date.
    """

    requests = carriers(TOPIC_ID, "request")
    answers: frozenset[int] = frozenset()

    def __init__(self, names: Mapping[UUID, str], now: Mapping[str, UUID]) -> None:
        self.names, self.now = names, now

    def request(self, request: OutgoingRequest) -> None:
        for struct, value in structs(layout_of(request.message), request.message.body):
            for slot in of_kind(struct, TOPIC_ID):
                recorded = value[slot.name]
                value[slot.name] = [self.of(one) for one in recorded or ()] if slot.array else self.of(recorded)

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        """Do nothing: the target's ids are learnt by their owner."""

    def of(self, topic_id: Any) -> Any:
        """Return the target's id for a recorded one."""
        name = self.names.get(topic_id)
        return topic_id if name is None else self.now.get(name, topic_id)


FILLER = "*"
LEFT_OUT = "made without the configs of the topic, whose values are withheld"


class ConfigFix:
    """Fix of the withheld configs of new topics, which are made without them."""

    requests = frozenset((CREATE_TOPICS,))
    answers: frozenset[int] = frozenset()

    def request(self, request: OutgoingRequest) -> None:
        frame = request.exchange.seen.request
        if frame is None or not frame.withheld:
            return
        for topic in topics(request.message):
            configs = topic.fields["configs"] or ()
            kept = [one for one in configs if not one["value"] or one["value"].strip(FILLER)]
            if len(kept) != len(configs):
                topic.fields["configs"] = kept
                request.notes.append(LEFT_OUT)

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        """Do nothing: responses tell nothing about withheld values."""


EPOCHS = ("current_leader_epoch", "last_fetched_epoch")
UNKNOWN_EPOCH = -1


class LeaderEpochFix:
    """Fix of the leader epochs in requests: they name none."""

    requests = frozenset((FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH))
    answers: frozenset[int] = frozenset()

    def request(self, request: OutgoingRequest) -> None:
        for _, value in structs(layout_of(request.message), request.message.body):
            for name in EPOCHS:
                if name in value:
                    value[name] = UNKNOWN_EPOCH

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        """Do nothing: requests take no epoch from responses."""
