"""bad_assignment: members of a group are assigned what they should not be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import defer_free, yielding, yielding_sort
from kproxy.base.errors import DecodeError
from kproxy.protocol.codec import structs as codec
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_HEARTBEAT, SYNC_GROUP
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange, FrameDepth
from kproxy.rules.kinds.base.rule import Decisions, Direction, Effect, SelectingRule

BROKER_ASSIGNS = frozenset({CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_HEARTBEAT})


class BadAssignment(SelectingRule):
    """Changes the partitions that the members of a group are assigned.

    `empty`: none. `negative`: negative partition numbers, which no topic has. `swap`: members get each other's
    partitions in the leader's SyncGroup, and the broker stores that. In the newer protocols (KIP-848, KIP-932) the
    broker assigns, so there is nothing to swap. With `empty` and `negative`, a member owns other partitions than the
    broker recorded. Streams groups (KIP-1071) are not changed.
    """

    group = "groups, offsets and transactions"
    example: ClassVar[str] = """\
- name: members of billing are assigned nothing
  kind: bad_assignment
  match: {group: billing}
  defect: empty
"""

    kind: Literal["bad_assignment"] = Field(description="kind of the rule")
    defect: Literal["empty", "swap", "negative"] = Field(description="change of the assignment")

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        if self.defect == "swap":
            return FrameDepth.BODY if direction == "request" and key == SYNC_GROUP else FrameDepth.NOTHING
        about = direction == "response" and (key == SYNC_GROUP or key in BROKER_ASSIGNS)
        return FrameDepth.BODY if about else FrameDepth.NOTHING

    def warnings(self) -> Iterable[str]:
        if self.defect == "swap":
            yield "only groups of the classic protocol: in the newer ones no request has the assignments of all members"

    def start(self) -> Effect:
        return BadAssignments(self.defect)


class BadAssignments(Effect):
    """Effect that changes assignments on their way to the broker, or to the members."""

    def __init__(self, defect: Literal["empty", "swap", "negative"]) -> None:
        self.defect = defect

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        assignments = exchange.request.body["assignments"] or ()
        members = defer_free(list(yielding_sort(assignments, key=lambda one: str(one["member_id"]))))
        given = defer_free([bytes(member["assignment"] or b"") for member in yielding(members)])
        if all(one == given[0] for one in yielding(given)):
            return ()
        for member, assignment in yielding(zip(members, given[1:] + given[:1], strict=True)):
            member["assignment"] = assignment
        return (Edit(),)

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        body, change = exchange.response.body, CHANGES[self.defect]
        if exchange.api.key == SYNC_GROUP:
            before = bytes(body["assignment"] or b"")
            after = rewritten(before, change)
            changed = after is not None and after != before
            if changed:
                body["assignment"] = after
        else:
            changed = body["assignment"] is not None and self.of_broker(body["assignment"])
        return (Edit(),) if changed else ()

    def of_broker(self, assignment: dict[str, Any]) -> bool:
        before = assignment["topic_partitions"]
        if not before:
            return False
        assignment["topic_partitions"] = CHANGES[self.defect](before)
        return True


ASSIGNMENT = "consumer_assignment"
PREFIX = 2  # the version, INT16, in front
PARTITIONS = "assigned_partitions"

AssignedTopics = list[dict[str, Any]]
AssignmentChange = Callable[[AssignedTopics], AssignedTopics]


def rewritten(data: bytes, change: AssignmentChange) -> bytes | None:
    """Return the assignment with changed topics and partitions; None for bytes that are not a consumer's assignment.

    A version above the newest is read as the newest, and bytes after its fields are kept, as in
    `ConsumerProtocol.java`.
    """
    version = int.from_bytes(data[:PREFIX], "big", signed=True)
    if len(data) < PREFIX or version < 0:
        return None
    struct = layout.embedded(ASSIGNMENT, min(version, schema.embedded()[ASSIGNMENT].versions.last))
    try:
        assignment, end = codec.decode(struct, data, PREFIX, api=ASSIGNMENT, version=version)
    except DecodeError:
        return None
    assignment[PARTITIONS] = change(assignment[PARTITIONS] or [])
    return data[:PREFIX] + codec.encode(struct, assignment, api=ASSIGNMENT, version=version) + data[end:]


def empty(topics: AssignedTopics) -> AssignedTopics:
    """Return an assignment without any partition."""
    return []


def negative(topics: AssignedTopics) -> AssignedTopics:
    """Return the same partitions with numbers that no topic has: -1 for 0, -2 for 1."""
    return [
        {**topic, "partitions": [-1 - abs(number) for number in yielding(topic["partitions"] or ())]}
        for topic in yielding(topics)
    ]


CHANGES = {"empty": empty, "negative": negative}
