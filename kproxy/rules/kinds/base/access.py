"""Access rules: error codes of denials, and the base class of kinds that deny requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import yielding, yielding_tuple
from kproxy.protocol.table import schema
from kproxy.protocol.table.shapes import Shape, shape
from kproxy.rules.entity import CONFIG_TYPES, Entity
from kproxy.rules.exchange import Exchange, Fail
from kproxy.rules.permissions import Check, permissions
from kproxy.rules.select.match import is_expression, is_pattern
from kproxy.rules.select.selected import Error
from kproxy.rules.values.model import Wrong

from .rule import Family, LiveRule

ErrorPlace = Literal["top", "entity"]


def has_top(form: Shape) -> bool:
    """Return True if an error of the whole request has a place of its own, not only one at each entity."""
    return form.code is not None or form.whole == "first"


@cache
def only_at_top(form: Shape) -> bool:
    """Return True if requests name several entities but only the whole response has an error."""
    return bool(form.request) and not form.carries and has_top(form)


def can_say(key: int, version: int, place: ErrorPlace | None) -> bool:
    """Return True if the response has an error field at this place; None: anywhere.

    If a request is about one entity, its error is at the top. An unknown version has no place.
    """
    if version not in schema.load(key).versions:
        return False
    form = shape(key, version)
    of_entity = form.carries if form.request else form.code is not None
    if place is None:
        return of_entity or has_top(form)
    return of_entity if place == "entity" else has_top(form)


def has_text(key: int, version: int) -> bool:
    """Return True if the response has a text field for some error."""
    form = shape(key, version)
    return form.text is not None or any(level.text is not None for level in form.response)


def fail_outermost(
    form: Shape, body: dict[str, Any], groups: Collection[str | None], code: int, message: str | None = None
) -> bool:
    """Put an error at the elements of the outermost array, in place: the top for each of several groups (KIP-709).

    Only at those of these groups, at all of them if that is empty. Returns True if there was any.
    """
    level, *deeper = form.response
    failed = False
    for element in yielding(level.elements(body)):
        if level.code is None or (groups and level.roles(element).get("group") not in groups):
            continue
        if deeper:
            element[deeper[0].array] = []
        element[level.code] = code
        if level.text is not None:
            element[level.text] = message
        failed = True
    return failed


CODES = {"topic": 29, "group": 30, "cluster": 31, "transactional_id": 53, "token": 65}
"""TOPIC_, GROUP_, CLUSTER_, TRANSACTIONAL_ID_ and DELEGATION_TOKEN_AUTHORIZATION_FAILED."""

TOPIC_AUTHORIZATION_FAILED = CODES["topic"]
UNKNOWN_TOPIC_ID = 100

ASKED = {
    "topic": "topic", "topic_id": "topic", "partition": "topic",
    "group": "group", "member": "group",
    "transactional_id": "transactional_id",
}  # fmt: skip
"""Selector → the check that it is about."""


def denial(key: int, selected: frozenset[str], entity: Entity) -> int:
    """Return the error code of this API for this entity and these selectors.

    The first of the broker's checks that the rule selects on fails; without one, the first check. A topic without a
    known name is unknown.
    """
    if "topic" in selected and entity.topic is None and entity.topic_id is not None and entity.topic_id.int:
        return UNKNOWN_TOPIC_ID
    checks = permissions()[key].checks
    possible = [check for check in checks if concerns(check, entity)] or list(checks)
    wanted = {ASKED[name] for name in selected if name in ASKED}
    return code_of(next((check for check in possible if check in wanted), possible[0]), entity)


def concerns(check: Check, entity: Entity) -> bool:
    """Return True if there is something in the entity that the check could be about."""
    match check:
        case "topic":
            return entity.topic is not None or entity.topic_id is not None
        case "group":
            return entity.group is not None
        case "transactional_id":
            return entity.transactional_id is not None
        case _:
            return True


def code_of(check: Check, entity: Entity) -> int:
    """Return the error code of a check. The entity determines the meaning of `resource` and `coordinator`."""
    if check == "resource":
        return CODES[CONFIG_TYPES.get(entity.resource[0], "cluster") if entity.resource else "cluster"]
    if check == "coordinator":
        of = "group" if entity.group is not None else "transactional_id" if entity.transactional_id else "cluster"
        return CODES[of]
    return CODES.get(check, CODES["cluster"])


def refusals(
    exchange: Exchange, entities: Sequence[Entity], selected: frozenset[str], error: int | None
) -> tuple[Fail, ...]:
    """Return errors in the broker's place, each for the entities that get it; `error` is one for all instead of the
    API's."""
    key = exchange.api.key
    by_code: dict[int, list[Entity]] = defaultdict(list)
    for entity in yielding(entities):
        by_code[denial(key, selected, entity) if error is None else error].append(entity)
    if only_at_top(shape(key, exchange.version)):
        return (Fail(next(iter(by_code)), whole=True),)
    return tuple(Fail(code, entities=yielding_tuple(tuple(some))) for code, some in by_code.items())


def refusal_of_all(key: int, error: int | None) -> Fail:
    """Return the answer to a request that would change all there is, without naming it."""
    return Fail(denial(key, frozenset(), Entity()) if error is None else error, whole=True)


class AccessRule(LiveRule):
    """Rule that denies requests. If it selects topics by name, it also denies topic ids without a known name. Override
    `depth` and `start`."""

    family: ClassVar[Family] = "access"

    error: Error | None = Field(
        default=None, description="error instead of the authorization error of the API, by name or number"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        match = raw.get("match")
        if isinstance(match, dict) and match.get("error") is not None:
            yield ("match", "error"), "this is decided before the broker answers; use kind: error to change answers"
        if raw.get("error") in (0, "NONE"):
            yield ("error",), "expected an error code, got 0 (NONE)"

    @property
    def selected(self) -> frozenset[str]:
        """Return the names of the selectors about entities that the rule has."""
        return frozenset() if self.match is None else self.match.of_entities

    @property
    def stops_unread(self) -> bool:
        return True

    @property
    def reads_topics(self) -> bool:
        return self.selects_topics

    def warnings(self) -> Iterable[str]:
        """Yield a warning for a topic id, which is one of two ways to name a topic."""
        yield from super().warnings()
        if self.match is not None and self.match.topic_id is not None:
            yield "topic_id matches only requests with ids; also select the topic by name"

    def about(self, key: int, version: int) -> bool:
        """Return True also for APIs between brokers if the rule has selectors: these APIs reach all entities."""
        if super().about(key, version):
            return True
        return self.match is not None and self.match.about_frame(key, version) and self.of_brokers(key)

    def of_brokers(self, key: int) -> bool:
        """Return True if only brokers send this API and the rule has selectors."""
        return bool(self.selected) and permissions()[key].brokers_only

    def forbids(self, entity: Entity) -> bool:
        """Return True if the selectors about entities hold, `not` included."""
        no = self.not_
        return self.holds_for(entity) and (no is None or not no.of_entities or not no.holds_entity(entity))

    def holds_for(self, entity: Entity) -> bool:
        """Return True if the entity is selected, or could be."""
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
    """Return True if a text that matches the pattern may start with `begins`. An expression always may."""
    if not is_pattern(pattern):
        return pattern.startswith(begins)
    head = "" if is_expression(pattern) else pattern.partition("*")[0]
    return head.startswith(begins) or begins.startswith(head)


def is_nameless(entity: Entity) -> bool:
    """Return True if a topic is given by an id that no answer of the brokers has named."""
    return entity.topic is None and entity.topic_id is not None and entity.topic_id.int != 0
