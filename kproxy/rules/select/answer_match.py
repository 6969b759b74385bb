"""Selectors of things that only the answer may name, and requests that name less than they ask for: a Metadata request
for all topics names none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from kproxy.protocol.codec.message import Message
from kproxy.protocol.table import schema
from kproxy.protocol.table.shapes import Shape, shape
from kproxy.rules.entity import Entity

from .frame_match import FrameMatch
from .selected import api_keys

if TYPE_CHECKING:
    from kproxy.rules.exchange import Exchange

ORDER = ("topic", "group", "transactional_id", "member", "topic_id", "partition", "offset")
"""In which `FrameMatch` makes its tests of entities."""


class AnswerMatch(FrameMatch):
    """Selectors that hold for a request as long as it may be about what is selected; the kind then selects in the
    answer.

    So does a request that asks for everything, and one that names a topic but not its partitions. Triggers count such
    requests, too.
    """

    _by_name: list[tuple[str, Callable[[Entity], bool]]] = PrivateAttr(default_factory=list)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        names = [name for name in ORDER if getattr(self, name) is not None]
        self._by_name = list(zip(names, self._entity.values(), strict=True))

    @property
    def of_entities(self) -> frozenset[str]:
        """Return the selectors of entities without the partition, which an answer names."""
        return super().of_entities - {"partition"}

    def holds_entity(self, entity: Entity) -> bool:
        """Return True if what the request says of this entity leaves it possible that it is meant."""
        return all(getattr(entity, name) is None or test(entity) for name, test in self._by_name)

    def selects(self, entity: Entity) -> bool:
        """Return True if this entity, found in the answer, is meant."""
        return super().holds_entity(entity)


def selects(yes: AnswerMatch | None, no: FrameMatch | None, exchange: Exchange, entity: Entity) -> bool:
    """Return True if `match` and `not` of a rule that fired for this exchange select an entity of its answer."""
    if yes is not None and not yes.selects(entity):
        return False
    return no is None or not (
        any(getattr(no, name) is not None for name in ORDER)
        and (no.api is None or exchange.api.key in api_keys(no.api))
        and no.holds(exchange.connection.facts)
        and no.holds_frame(exchange)
        and no.holds_entity(entity)
    )


def asks_all(request: Message) -> bool:
    """Return True if the answer lists things that this request does not name."""
    form = shape(request.api.key, request.version)
    if not form.lists or form.positional:
        return False
    return not form.request or any_all(form, 0, request.body)


def any_all(form: Shape, depth: int, parent: Mapping[str, Any]) -> bool:
    if depth == len(form.request):
        return False
    level = form.request[depth]
    if any(form.asks_all(parent.get(array)) for array in level.arrays if array in parent):
        return True
    if level.struct is None:
        return False
    return any(any_all(form, depth + 1, element) for element in level.elements(parent))


def can_ask_all(key: int, version: int) -> bool:
    """Return True if there are such requests of this API and version; of one that the table lacks nobody can tell."""
    if version not in schema.load(key).versions:
        return False
    form = shape(key, version)
    return bool(form.lists) and not form.positional and (form.all != "never" or not form.request)


def listed_roles(key: int, version: int) -> frozenset[str]:
    """Return the selectors that can hold for what such an answer lists."""
    form = shape(key, version)
    roles = {role for keys in (form.top, *(level.keys for level in form.lists)) for role, _ in keys}
    if "topic" in roles or "topic_id" in roles:
        roles |= {"topic", "topic_id"}
    if "resource_name" in roles:
        roles |= {"topic", "group", "transactional_id"}
    return frozenset(roles)
