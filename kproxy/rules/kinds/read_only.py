"""read_only: denied changes, allowed reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.protocol.table.api_keys import METADATA
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange, Fail, FrameDepth
from kproxy.rules.kinds.base.access import TOPIC_AUTHORIZATION_FAILED, AccessRule, refusal_of_all, refusals
from kproxy.rules.kinds.base.rule import Decisions, Direction, Effect
from kproxy.rules.permissions import permissions
from kproxy.rules.select.frame_match import asks_all, can_ask_all, listed_roles
from kproxy.rules.select.mentions import made
from kproxy.rules.select.selected import chosen
from kproxy.rules.values.model import Wrong

CREATES = "allow_auto_topic_creation"
"""True if brokers may create the topics of a Metadata request, from version 4. Older versions always create them
(KIP-204)."""
SAYS_SINCE = 4


class ReadOnlyRule(AccessRule):
    """Denies all changes of selected entities: records, topics, configs, ACLs, transactions.

    Groups work as before: members join, and commit offsets unless offsets are protected. A Metadata request does not
    create a missing topic, and neither does a member of a streams group.
    """

    group = "access"
    example: ClassVar[str] = """\
- name: nobody changes production from here
  kind: read_only
  match: {topic: "prod.*"}
"""

    kind: Literal["read_only"] = Field(description="kind of the rule")
    offsets: bool = Field(default=False, description="also reject commits, resets and deletions of offsets")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        offsets = raw.get("offsets") is True
        for choice in chosen(raw):
            line = permissions()[choice.api.key]
            if choice.by_name and not line.makes_topics and not protected(choice.api.key, offsets):
                changes = line.changes
                hint = ', except with "offsets: true"' if changes == "offsets" else ", to forbid it use kind: deny"
                yield choice.where, f"{choice.api.name} changes nothing that this rule protects{hint}"
        yield from super().cross_check(raw)

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        if direction == "response":
            return FrameDepth.NOTHING
        return (
            FrameDepth.BODY if protected(key, self.offsets) or permissions()[key].makes_topics else FrameDepth.NOTHING
        )

    def unnamed(self, exchange: Exchange) -> bool:
        """Return True for requests that change all there is, or make topics that are selected."""
        key = exchange.api.key
        if any(map(self.forbids, made(exchange.request))):
            return True
        if self.of_brokers(key) and protected(key, self.offsets):
            return True
        return self.changes_all(key, exchange.version) and asks_all(exchange.request)

    def may_be_unnamed(self, key: int, version: int) -> bool:
        if not self.selected:
            return False
        makes = key != METADATA and permissions()[key].makes_topics
        return makes or (self.of_brokers(key) and protected(key, self.offsets)) or self.changes_all(key, version)

    def changes_all(self, key: int, version: int) -> bool:
        """Return True if requests of this API can be about all there is, and change it."""
        if not self.selected or not protected(key, self.offsets) or not can_ask_all(key, version):
            return False
        return self.selected <= listed_roles(key, version)

    def start(self) -> Effect:
        return ReadOnlyEffect(self)


class ReadOnlyEffect(Effect):
    """Effect that answers with errors before the broker sees the request."""

    def __init__(self, rule: ReadOnlyRule) -> None:
        self.rule = rule

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        key = exchange.api.key
        if key == METADATA:
            return self.on_metadata(exchange, entities)
        if permissions()[key].makes_topics and not protected(key, self.rule.offsets):
            if any(map(self.rule.forbids, made(exchange.request))):
                return (Fail(self.rule.error or TOPIC_AUTHORIZATION_FAILED, whole=True),)
            return ()
        if not entities:
            return (refusal_of_all(key, self.rule.error),)
        return refusals(exchange, entities, self.rule.selected, self.rule.error)

    def on_metadata(self, exchange: Exchange, entities: Sequence[Entity]) -> Decisions:
        """Pass Metadata without topic creation. Versions without that flag are denied."""
        if exchange.version >= SAYS_SINCE:
            body = exchange.request.body
            if not body.get(CREATES):
                return ()
            body[CREATES] = False
            return (Edit(),)
        if asks_all(exchange.request):
            return ()
        named = [one for one in entities if one.topic is not None]
        return refusals(exchange, named, self.rule.selected, self.rule.error) if named else ()


def protected(key: int, offsets: bool) -> bool:
    """Return True if requests of this API are refused."""
    changes = permissions()[key].changes
    return changes == "data" or (offsets and changes == "offsets")
