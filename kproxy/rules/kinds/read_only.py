"""read_only: what changes something is forbidden, all else passes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.asks_all import asks_all, can_ask_all, listed_roles
from kproxy.rules.chosen import chosen
from kproxy.rules.decision import Edit
from kproxy.rules.denial import refusal_of_all, refusals
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.explain import Wrong
from kproxy.rules.kinds.access import AccessRule
from kproxy.rules.kinds.base import Direction
from kproxy.rules.kinds.live import Decisions, Effect
from kproxy.rules.permissions import permissions
from kproxy.wire import layout, schema

METADATA = 3
CREATES = "allow_auto_topic_creation"
"""Metadata 4 on says whether brokers may make the topics that it names; older versions always let them (KIP-204)."""


class ReadOnlyRule(AccessRule):
    """Forbids all that would change what it selects: records, topics, configs, ACLs, transactions.

    Groups go on as they do: members join, and commit offsets unless these are protected, too. Asking for the metadata
    of a topic that is not there does not make it.
    """

    example: ClassVar[str] = """\
- name: nobody changes production from here
  kind: read_only
  match: {topic: "prod.*"}
"""

    kind: Literal["read_only"] = Field(description="what the rule does")
    offsets: bool = Field(default=False, description="also what groups have read: commits, resets and deletions of it")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """What is selected can change something."""
        offsets = raw.get("offsets") is True
        for one in chosen(raw):
            if one.by_name and one.api.key != METADATA and not protected(one.api.key, offsets):
                changes = permissions()[one.api.key].changes
                hint = ', except with "offsets: true"' if changes == "offsets" else ", to forbid it use kind: deny"
                yield one.where, f"{one.api.name} changes nothing that this rule protects{hint}"
        match = raw.get("match")
        if isinstance(match, dict) and match.get("error") is not None:
            yield ("match", "error"), "this is decided before the broker answers; use kind: error to change answers"
        if raw.get("error") in (0, "NONE"):
            yield ("error",), "0 is no error (NONE)"

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        """BODY of requests that change something."""
        if direction == "response":
            return Depth.NOTHING
        return Depth.BODY if protected(key, self.offsets) or creates(key, version) else Depth.NOTHING

    def unnamed(self, exchange: Exchange) -> bool:
        """What would change all there is, and with it what is selected."""
        return self.may_be_unnamed(exchange.api.key, exchange.version) and asks_all(exchange.request)

    def may_be_unnamed(self, key: int, version: int) -> bool:
        """Where all can be asked for, and be protected by what is selected."""
        if not self.selected or not protected(key, self.offsets) or not can_ask_all(key, version):
            return False
        return self.selected <= listed_roles(key, version)

    def start(self) -> Effect:
        """Without state."""
        return ReadOnlyEffect(self)


class ReadOnlyEffect(Effect):
    """Errors before the broker sees it."""

    def __init__(self, rule: ReadOnlyRule) -> None:
        self.rule = rule

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        """Refused, or asked without making anything."""
        if exchange.api.key == METADATA:
            body = exchange.request.body
            if not body.get(CREATES):
                return ()
            body[CREATES] = False
            return (Edit(),)
        if not entities:
            return (refusal_of_all(exchange.api.key, self.rule.error),)
        return refusals(exchange, entities, self.rule.selected, self.rule.error)


def protected(key: int, offsets: bool) -> bool:
    """Whether requests of this API are refused."""
    changes = permissions()[key].changes
    return changes == "data" or (offsets and changes == "offsets")


def creates(key: int, version: int) -> bool:
    """Whether requests of this version say that topics may be made."""
    if key != METADATA or version not in schema.load(key).versions:
        return False
    return any(slot.name == CREATES for slot in layout.body(key, version, "request").slots)
