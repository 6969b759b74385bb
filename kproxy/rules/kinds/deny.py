"""deny: the broker's own authorization errors, and nothing of it in lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, Fail, FrameDepth, LeaveOut
from kproxy.rules.kinds.base.access import TOPIC_AUTHORIZATION_FAILED, AccessRule, refusal_of_all, refusals
from kproxy.rules.kinds.base.rule import Decisions, Direction, Effect
from kproxy.rules.permissions import permissions
from kproxy.rules.select.frame_match import asks_all, can_ask_all, listed_roles
from kproxy.rules.select.match import needed_bytes
from kproxy.rules.select.mentions import mentioned, refused, said
from kproxy.rules.select.selected import chosen
from kproxy.rules.values.model import Wrong

ANYBODY = "nobody"
OF_NAMES = frozenset(("topic", "topic_id", "group", "transactional_id"))


class DenyRule(AccessRule):
    """Denies what it selects, with the error of a broker with such ACLs.

    Denied names are redacted from responses, except names in the request itself. ApiVersions and the SASL handshake are
    never denied, since they reveal nothing.
    """

    group = "access"
    example: ClassVar[str] = """\
- name: nobody deletes topics through here
  kind: deny
  match: {api: DeleteTopics}
"""

    kind: Literal["deny"] = Field(description="kind of the rule")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        for choice in chosen(raw):
            if choice.by_name and permissions()[choice.api.key].checks == (ANYBODY,):
                yield (
                    choice.where,
                    f"{choice.api.name} is never forbidden, it comes before all else; use kind: error",
                )
        yield from super().cross_check(raw)

    def about(self, key: int, version: int) -> bool:
        """Return True also for APIs that mention selected entities in the request or response."""
        if super().about(key, version):
            return True
        if self.match is None or not self.match.about_frame(key, version):
            return False
        return self.lists(key, version) or self.shows(key, version)

    def lists(self, key: int, version: int) -> bool:
        """Return True if an answer may show what is forbidden without having been asked for it."""
        return bool(self.selected) and can_ask_all(key, version) and self.selected <= listed_roles(key, version)

    def shows(self, key: int, version: int) -> bool:
        of_names = self.selected <= OF_NAMES
        return of_names and bool(self.selected & mentioned(key, version, "response"))

    def required_literals(self, key: int, version: int) -> tuple[bytes, ...] | None:
        topics = None if self.match is None else self.match.topic
        if topics is None or self.of_brokers(key):
            return None
        needles = [needed_bytes(one) for one in topics]
        return None if None in needles else tuple(one for one in needles if one is not None)

    def mentions(self, key: int, version: int) -> bool:
        """Return True if a request may mention what is forbidden, and is refused for that."""
        return bool(refused(key, version)) and bool(self.selected & mentioned(key, version, "request"))

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        if permissions()[key].checks == (ANYBODY,):
            return FrameDepth.NOTHING
        if direction == "request":
            return FrameDepth.BODY
        return FrameDepth.BODY if self.lists(key, version) or self.shows(key, version) else FrameDepth.NOTHING

    def unnamed(self, exchange: Exchange) -> bool:
        """Return True for requests for all entities, requests that mention denied entities, and requests between
        brokers."""
        key, version = exchange.api.key, exchange.version
        if self.of_brokers(key):
            return True
        if self.mentions(key, version) and any(map(self.forbids, said(exchange.request))):
            return True
        return self.lists(key, version) and asks_all(exchange.request)

    def may_be_unnamed(self, key: int, version: int) -> bool:
        return self.of_brokers(key) or self.mentions(key, version) or self.lists(key, version)

    def start(self) -> Effect:
        return DenyEffect(self)


class DenyEffect(Effect):
    """Effect that answers with errors in the broker's place, and takes what is forbidden out of lists."""

    def __init__(self, rule: DenyRule) -> None:
        self.rule = rule

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        if not entities:
            return self.on_unnamed(exchange)
        return refusals(exchange, entities, self.rule.selected, self.rule.error)

    def on_unnamed(self, exchange: Exchange) -> Decisions:
        """Handle a request for all entities: a change fails, a list is redacted in the response. A request that
        mentions a denied entity fails as a whole."""
        key = exchange.api.key
        if self.rule.of_brokers(key):
            return (refusal_of_all(key, self.rule.error),)
        if self.rule.mentions(key, exchange.version) and any(map(self.rule.forbids, said(exchange.request))):
            return (Fail(self.rule.error or TOPIC_AUTHORIZATION_FAILED, whole=True),)
        if permissions()[key].changes != "nothing":
            return (refusal_of_all(key, self.rule.error),)
        return ()

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        if not self.rule.lists(exchange.api.key, exchange.version):
            return ()
        return (LeaveOut(lambda entity: not self.rule.forbids(named(exchange, entity))),)


def named(exchange: Exchange, entity: Entity) -> Entity:
    """Return the entity with its topic's name if an answer has only the id."""
    if entity.topic is not None or entity.topic_id is None:
        return entity
    topic = exchange.connection.cluster.topic_of(entity.topic_id)
    return Entity(topic, entity.topic_id, entity.partition, entity.group, entity.transactional_id)
