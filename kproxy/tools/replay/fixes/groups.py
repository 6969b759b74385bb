"""Fix of members of groups, and of the generations or epochs that they are in.

A coordinator gives each member its id when it joins (KIP-394) and counts how often the group has changed; every later
request of the member has to name both. So the target's id and generation take the place of those that the recording was
given: in JoinGroup responses for classic groups, in the responses to heartbeats for those of KIP-848, share groups
(KIP-932) and streams groups (KIP-1071). A generation that no response gave stays as it is, unless the member has one.
"""

from __future__ import annotations

from typing import Any

from kproxy.protocol import Message
from kproxy.protocol.table.api_keys import JOIN_GROUP
from kproxy.tools.replay.structs import carriers, layout_of, of_kind, structs

from . import OutgoingRequest

HEARTBEATS = (68, 76, 88)
"""ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat."""
KIND = "member_id"
EPOCHS = ("generation_id", "generation_id_or_member_epoch", "member_epoch")


class GroupFix:
    """Fix of member ids and generations; see the module."""

    requests = carriers(KIND, "request")
    answers = frozenset((JOIN_GROUP, *HEARTBEATS))

    def __init__(self) -> None:
        self.members: dict[str, str] = {}
        """Recorded member id → the target's."""
        self.epochs: dict[tuple[str, int], int] = {}
        """(Recorded member id, recorded generation or epoch) → the target's."""
        self.latest: dict[str, int] = {}
        """Recorded member id → the last one that the target gave."""

    def request(self, request: OutgoingRequest) -> None:
        for struct, value in structs(layout_of(request.message), request.message.body):
            for slot in of_kind(struct, KIND):
                was = value[slot.name]
                for name in EPOCHS:
                    if value.get(name, 0) > 0:  # 0 joins, below 0 leaves or is no member
                        value[name] = self.epochs.get((was, value[name]), self.latest.get(was, value[name]))
                value[slot.name] = self.members.get(was, was)

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        if recorded is None:
            return
        was, given = member(request, recorded.body), now.body.get(KIND)
        if was and given:
            self.members[was] = given
        name = next(one for one in EPOCHS if one in now.body)
        if now.body["error_code"] or recorded.body["error_code"] or not was:
            return
        self.latest[was] = now.body[name]
        self.epochs[was, recorded.body[name]] = now.body[name]


def member(request: OutgoingRequest, body: dict[str, Any]) -> str:
    """Return the member id that a response gives; one that the client chose itself stands in the request alone."""
    given: str = body.get(KIND) or ""
    return given or (request.exchange.request.body.get(KIND) or "" if request.exchange.request is not None else "")
