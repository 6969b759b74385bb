"""The base class of kinds that forbid something: which entities they are about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from pydantic import Field

from kproxy.rules.entity import Entity
from kproxy.rules.select.match import is_expression, is_pattern
from kproxy.rules.select.selected import Error
from kproxy.rules.values.model import Wrong

from .permissions import permissions
from .rule import Family, LiveRule


class AccessRule(LiveRule):
    """Rule that forbids something. A topic that is given by an id which nobody can name is forbidden, too, if the rule
    selects topics by name: it could be one of them. Override `depth` and `start`."""

    family: ClassVar[Family] = "access"

    error: Error | None = Field(
        default=None, description="another error than the authorization error of the API, by name or number"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Refuse an error that is none, and the selector of errors, which are known too late."""
        match = raw.get("match")
        if isinstance(match, dict) and match.get("error") is not None:
            yield ("match", "error"), "this is decided before the broker answers; use kind: error to change answers"
        if raw.get("error") in (0, "NONE"):
            yield ("error",), "0 is no error (NONE)"

    @property
    def selected(self) -> frozenset[str]:
        """Return the names of the selectors about entities that the rule has."""
        return frozenset() if self.match is None else self.match.of_entities

    @property
    def stops_unread(self) -> bool:
        """True: nobody can tell what an unread request asks for."""
        return True

    @property
    def reads_topics(self) -> bool:
        return self.selects_topics

    def warnings(self) -> Iterable[str]:
        """Yield a warning for a topic id, which is one of two ways to name a topic."""
        yield from super().warnings()
        if self.match is not None and self.match.topic_id is not None:
            yield "topic_id holds for requests that give the id; by its name the topic is reached, so select that, too"

    def about(self, key: int, version: int) -> bool:
        """Return True also for what only brokers say to each other, if something is selected: it reaches all of it."""
        if super().about(key, version):
            return True
        return self.match is not None and self.match.about_frame(key, version) and self.of_brokers(key)

    def of_brokers(self, key: int) -> bool:
        """Return True if clients have no business with this API, and it could do something to what is selected."""
        return bool(self.selected) and permissions()[key].brokers_only

    def forbids(self, entity: Entity) -> bool:
        """Return True if the selectors about entities hold, `not` included."""
        no = self.not_
        return self.holds_for(entity) and (no is None or not no.of_entities or not no.holds_entity(entity))

    def holds_for(self, entity: Entity) -> bool:
        """Return True if the entity is selected, or cannot be told apart from one that is."""
        if self.match is None or self.match.holds_entity(entity):
            return True
        if self.is_doubtful(entity) and self.match.holds_but_for("topic", entity):
            return True
        return any(
            self.may_cover(role, begins) and self.match.holds_but_for(role, entity) for role, begins in entity.covers
        )

    def may_cover(self, role: str, begins: str) -> bool:
        """Return True if an ACL on names that begin so may hold for something that is selected."""
        return any(may_begin(text, begins) for text in getattr(self.match, role) or ())

    def is_doubtful(self, entity: Entity) -> bool:
        """Return True if the topic's name would have to be known and is not."""
        return self.match is not None and self.match.topic is not None and is_nameless(entity)


def may_begin(pattern: str, begins: str) -> bool:
    """Return True if a text that the pattern holds for may begin so; of an expression nobody can tell."""
    if not is_pattern(pattern):
        return pattern.startswith(begins)
    head = "" if is_expression(pattern) else pattern.partition("*")[0]
    return head.startswith(begins) or begins.startswith(head)


def is_nameless(entity: Entity) -> bool:
    """Return True if a topic is given by an id that no answer of the brokers has named."""
    return entity.topic is None and entity.topic_id is not None and entity.topic_id.int != 0
