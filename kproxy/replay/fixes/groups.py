"""Members of groups, and the generations or epochs that they are in.

A coordinator gives each member its id when it joins (KIP-394) and counts how often the group has changed; every later
request of the member has to name both. So the target's id and generation take the place of those that the recording
was given: in JoinGroup answers for classic groups, in the answers to heartbeats for those of KIP-848, share groups
(KIP-932) and streams groups (KIP-1071). A generation that no answer gave stays as it is, unless the member has one.
"""

from __future__ import annotations

from typing import Any

from kproxy.wire import Message

from ..structs import carriers, layout_of, of_kind, structs
from . import Asked

JOIN_GROUP = 11
HEARTBEATS = (68, 76, 88)
"""ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat."""
KIND = "member_id"
EPOCHS = ("generation_id", "generation_id_or_member_epoch", "member_epoch")


class Groups:
    """See the module."""

    requests = carriers(KIND, "request")
    answers = frozenset((JOIN_GROUP, *HEARTBEATS))

    def __init__(self) -> None:
        self.members: dict[str, str] = {}
        """Recorded member id → the target's."""
        self.epochs: dict[tuple[str, int], int] = {}
        """(Recorded member id, recorded generation or epoch) → the target's."""
        self.latest: dict[str, int] = {}
        """Recorded member id → the last one that the target gave."""

    def request(self, asked: Asked) -> None:
        for struct, value in structs(layout_of(asked.message), asked.message.body):
            for slot in of_kind(struct, KIND):
                was = value[slot.name]
                for name in EPOCHS:
                    if value.get(name, 0) > 0:  # 0 joins, below 0 leaves or is no member
                        value[name] = self.epochs.get((was, value[name]), self.latest.get(was, value[name]))
                value[slot.name] = self.members.get(was, was)

    def answer(self, asked: Asked, recorded: Message | None, now: Message) -> None:
        if recorded is None:
            return
        was, given = member(asked, recorded.body), now.body.get(KIND)
        if was and given:
            self.members[was] = given
        name = next(one for one in EPOCHS if one in now.body)
        if now.body["error_code"] or recorded.body["error_code"] or not was:
            return
        self.latest[was] = now.body[name]
        self.epochs[was, recorded.body[name]] = now.body[name]


def member(asked: Asked, body: dict[str, Any]) -> str:
    """The id that an answer gives; one that the client chose itself stands in the request alone."""
    found: str = body.get(KIND) or ""
    return found or (asked.exchange.request.body.get(KIND) or "" if asked.exchange.request is not None else "")
