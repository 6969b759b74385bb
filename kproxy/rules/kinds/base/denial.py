"""Errors that a broker answers with when something is not allowed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kproxy.rules.decision import Fail
from kproxy.rules.entity import CONFIG_TYPES, Entity
from kproxy.rules.exchange import Exchange
from kproxy.wire.breath import each, spread_tuple
from kproxy.wire.table.shapes import shape

from .error_place import only_at_top
from .permissions import Check, permissions

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
