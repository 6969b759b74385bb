"""Errors that a broker answers with when something is not allowed, and the places that errors have in a response: at
its top, or at each entity.

Without a wish an error stands where brokers put it; the responses of `session` know that (`outer` in
`protocol/shapes.yaml`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Literal

from kproxy.protocol.breath import each, spread_tuple
from kproxy.protocol.table import schema
from kproxy.protocol.table.shapes import Shape, shape
from kproxy.rules.entity import CONFIG_TYPES, Entity
from kproxy.rules.exchange import Exchange, Fail

from .permissions import Check, permissions

ErrorPlace = Literal["top", "entity"]


def has_top(form: Shape) -> bool:
    """Return True if an error of the whole request has a place of its own, not only one at each entity."""
    return form.code is not None or form.whole == "first"


@cache
def only_at_top(form: Shape) -> bool:
    """Return True if requests are about several things, and an error can be said of all of them together only."""
    return bool(form.request) and not form.carries and has_top(form)


def can_say(key: int, version: int, place: ErrorPlace | None) -> bool:
    """Return True if the response can say an error at this place; None: anywhere.

    What asks about one thing has the error of that at the top. A version that the table lacks says nothing.
    """
    if version not in schema.load(key).versions:
        return False
    form = shape(key, version)
    of_entity = form.carries if form.request else form.code is not None
    if place is None:
        return of_entity or has_top(form)
    return of_entity if place == "entity" else has_top(form)


def has_text(key: int, version: int) -> bool:
    """Return True if the response has a field for a text beside some error."""
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
    for element in each(level.elements(body)):
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
    """Return the error code of this API for this entity, which was chosen by these selectors.

    Of the checks that a broker makes for it, that one fails which the rule selects on; else the first. A topic that
    nobody can name is unknown.
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
    """Return the error code of a check; `resource` and `coordinator` are what the entity says that they are."""
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
    for entity in each(entities):
        by_code[denial(key, selected, entity) if error is None else error].append(entity)
    if only_at_top(shape(key, exchange.version)):
        return (Fail(next(iter(by_code)), whole=True),)
    return tuple(Fail(code, entities=spread_tuple(tuple(some))) for code, some in by_code.items())


def refusal_of_all(key: int, error: int | None) -> Fail:
    """Return the answer to a request that would change all there is, without naming it."""
    return Fail(denial(key, frozenset(), Entity()) if error is None else error, whole=True)
