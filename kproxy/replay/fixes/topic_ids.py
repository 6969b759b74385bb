"""Fix of topic ids: by name, as this cluster calls them.

Every cluster draws its own ids (KIP-516), also for topics of the same name. The recording's own responses that show
name and id together (Metadata, CreateTopics and others) tell which name an id stands for, and the target is asked for
its id of that name. An id whose name or new id is not known stays, and the target answers that there is no such topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from kproxy.wire import Message
from kproxy.wire.table.layout import ZERO_UUID

from ..structs import carriers, layout_of, of_kind, structs
from ..topic_names import KIND
from . import OutgoingRequest


def ids_in(message: Message) -> Iterator[UUID]:
    """Yield the topic ids that a request names."""
    if message.api.key in TopicIdFix.requests:
        for struct, value in structs(layout_of(message), message.body):
            for slot in of_kind(struct, KIND):
                ids = value[slot.name]
                yield from (one for one in (ids or () if slot.array else (ids,)) if one != ZERO_UUID)


class TopicIdFix:
    """Fix of topic ids.

    `names`: recorded id → name. `now`: name → id of the target, which its owner keeps up to date.
    """

    requests = carriers(KIND, "request")
    answers: frozenset[int] = frozenset()

    def __init__(self, names: Mapping[UUID, str], now: Mapping[str, UUID]) -> None:
        self.names, self.now = names, now

    def request(self, request: OutgoingRequest) -> None:
        for struct, value in structs(layout_of(request.message), request.message.body):
            for slot in of_kind(struct, KIND):
                recorded = value[slot.name]
                value[slot.name] = [self.of(one) for one in recorded or ()] if slot.array else self.of(recorded)

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        """Do nothing: the target's ids are learnt by their owner."""

    def of(self, topic_id: Any) -> Any:
        """Return the target's id for a recorded one."""
        name = self.names.get(topic_id)
        return topic_id if name is None else self.now.get(name, topic_id)
