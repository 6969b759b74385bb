"""Selectors of live rules: fields of a connection, a frame and its entities.

All lines must match; a list is "any of". A selector without a value in the request does not match. `AnswerMatch`
selects entities that only the response may name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PrivateAttr

from kproxy.base.errors import FilterError
from kproxy.protocol.codec.message import Message
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import FETCH, PRODUCE, SHARE_FETCH
from kproxy.protocol.table.shapes import Shape, shape
from kproxy.rules.entity import Entity
from kproxy.rules.filter.evaluate import RecordCondition
from kproxy.rules.filter.parse import All
from kproxy.rules.values.address import Test
from kproxy.rules.values.model import found, unknown
from kproxy.rules.values.quantities import OffsetRanges, Ranges, read_by

from .match import ConnectionMatch, Texts, readable, text_test
from .selected import AcksValues, ApiNames, ErrorNames, Sizes, TopicIds, api_keys, error_numbers

if TYPE_CHECKING:
    from kproxy.rules.exchange import Exchange

WITH_RECORDS = (PRODUCE, FETCH, SHARE_FETCH)
"""APIs whose requests or responses carry records between clients and brokers."""


def parse_condition(text: Any) -> RecordCondition:
    """Return the condition of a `records` line. Raises ValueError."""
    if isinstance(text, RecordCondition):
        return text
    if not isinstance(text, str):
        raise ValueError(f"expected a condition such as value.country == DE, got {found(text)}")
    try:
        condition = RecordCondition(text)
    except FilterError as error:
        raise ValueError(f"{error.problem} (at column {error.at + 1})") from None
    if isinstance(condition.tree, All):
        raise ValueError("expected a condition such as value.country == DE, got empty text")
    return condition


Condition = Annotated[RecordCondition, read_by(parse_condition, {"type": "string", "minLength": 1})]
OF_ENTITY = ("topic", "topic_id", "partition", "group", "transactional_id", "member", "offset")


class FrameMatch(ConnectionMatch):
    """Selectors of frames, by connection and content, with the client's names."""

    node: Ranges | None = Field(
        default=None, description="id of the broker that the connection is for; a bootstrap connection has none"
    )
    api: ApiNames | None = Field(default=None, description="API by name (Produce), glob (*Group*) or number")
    version: Ranges | None = Field(default=None, description="version of the API, such as 3, 0-11 or >=4")
    client_id: Texts | None = Field(default=None, description="the client id in the request's header")
    principal: Texts | None = Field(
        default=None,
        description="principal that the broker or kproxy has authenticated, or name of the client's certificate",
    )
    client_software: Texts | None = Field(
        default=None, description="name/version of the client library, such as apache-kafka-java/3.9.1"
    )
    acks: AcksValues | None = Field(default=None, description="acks of a Produce request: 0, 1 or all")
    size: Sizes | None = Field(default=None, description="length of the request frame, such as >1MB or 1kB-64kB")
    topic: Texts | None = Field(default=None, description="topic, also where the request names it by id")
    topic_id: TopicIds | None = Field(default=None, description="topic id, as Kafka's tools print it")
    partition: Ranges | None = Field(default=None, description="partition number")
    group: Texts | None = Field(default=None, description="consumer, share or streams group")
    transactional_id: Texts | None = Field(default=None, description="transactional id")
    member: Texts | None = Field(default=None, description="member id within a group")
    offset: OffsetRanges | None = Field(
        default=None,
        description="offset that a Fetch asks a partition for, or that OffsetCommit and TxnOffsetCommit commit: 3, "
        "0-99 or >=1000",
    )
    error: ErrorNames | None = Field(
        default=None, description="error in the broker's response, by name or number; any for one that is not 0"
    )
    records: Condition | None = Field(
        default=None,
        description="condition about the content of one record in a Produce request, or in a Fetch or ShareFetch "
        "response, such as value.country == DE",
    )

    # The tests of the selectors in use, by name, of an exchange and of an entity.
    _frame: dict[str, Callable[[Exchange], bool]] = PrivateAttr(default_factory=dict)
    _entity: dict[str, Callable[[Entity], bool]] = PrivateAttr(default_factory=dict)
    _keys: frozenset[int] | None = PrivateAttr(default=None)
    _errors: frozenset[int] | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        if (nodes := self.node) is not None:
            self._tests.append(("node", [lambda node: any(node in one for one in nodes)]))
        self._keys = None if self.api is None else api_keys(self.api)
        self._errors = None if self.error is None else error_numbers(self.error)
        for name in ("client_id", "principal", "client_software"):
            if (texts := getattr(self, name)) is not None:
                self._frame[name] = _text_of(name, [text_test(text) for text in texts])
        if (acks := self.acks) is not None:
            self._frame["acks"] = lambda exchange: exchange.acks in acks
        if (sizes := self.size) is not None:
            self._frame["size"] = lambda exchange: any(exchange.request_size in one for one in sizes)
        for name in ("topic", "group", "transactional_id", "member"):
            if (texts := getattr(self, name)) is not None:
                self._entity[name] = _text_of(name, [text_test(text) for text in texts])
        if (ids := self.topic_id) is not None:
            self._entity["topic_id"] = lambda entity: entity.topic_id in ids
        if (partitions := self.partition) is not None:
            self._entity["partition"] = lambda entity: (
                entity.partition is not None and any(entity.partition in one for one in partitions)
            )

        if (offsets := self.offset) is not None:
            self._entity["offset"] = lambda entity: (
                entity.offset is not None and any(entity.offset in one for one in offsets)
            )

    def suspect_anyone(self) -> None:
        """From now on, match clients with an unknown principal if principals are selected."""
        if (named := self._frame.get("principal")) is not None:
            self._frame["principal"] = lambda exchange: exchange.is_anyone or named(exchange)

    # ---- before any frame

    def about(self, key: int, version: int) -> bool:
        """Return True if a request of this API and version can match at all."""
        return self.about_frame(key, version) and (not self.of_entities or carries(key, version, self.of_entities))

    def about_frame(self, key: int, version: int) -> bool:
        """Return True if a request of this API and version can match."""
        if self._keys is not None and key not in self._keys:
            return False
        if self.version is not None and not any(version in one for one in self.version):
            return False
        if self.records is not None and key not in WITH_RECORDS:
            return False
        return self.acks is None or key == PRODUCE

    @property
    def of_entities(self) -> frozenset[str]:
        """Return the selectors of entities that are in use."""
        return frozenset(name for name in OF_ENTITY if getattr(self, name) is not None)

    @property
    def sees_body(self) -> bool:
        """Return True if a request has to be read beyond its header."""
        return bool(self._entity) or self.acks is not None or self.records is not None

    @property
    def sees_error(self) -> bool:
        """Return True if the broker's response has to be read."""
        return self._errors is not None

    @property
    def of_any_connection(self) -> bool:
        """Return True if nothing of the connection is selected."""
        return not self._tests

    @property
    def of_connection(self) -> bool:
        """Return True if nothing but the connection is selected."""
        return not (self.api or self.version or self._frame or self._entity or self._errors or self.records)

    # ---- with a frame

    @property
    def frame_tests(self) -> tuple[Callable[[Exchange], bool], ...]:
        """Return the tests that `holds_frame` makes, for callers that make them often."""
        return tuple(self._frame.values())

    @cached_property
    def entity_tests(self) -> tuple[Callable[[Entity], bool], ...]:
        """Return the tests that `holds_entity` makes, for callers that make them often."""
        return tuple(self._entity.values())

    def holds_frame(self, exchange: Exchange) -> bool:
        """Return True if the selectors about the frame as a whole hold."""
        return all(test(exchange) for test in self._frame.values())

    def holds_entity(self, entity: Entity) -> bool:
        """Return True if the selectors about this entity hold."""
        return all(test(entity) for test in self.entity_tests)

    def accepts(self, name: str, value: Any) -> bool:
        """Return True if one selector, which must be in use, matches this value: the API's key, a version, the code of
        an error, or the field that the selector is named after."""
        match name:
            case "api":
                return self._keys is not None and value in self._keys
            case "version":
                return any(value in one for one in self.version or ())
            case "error":
                return self.holds_error(value)
        test: Callable[[Any], bool] | None = self._frame.get(name) or self._entity.get(name)
        if test is None:
            return super().accepts(name, value)
        return test(SimpleNamespace(**{name: value}, is_anyone=False, request_size=value))

    def holds_but_for(self, name: str, entity: Entity) -> bool:
        """Return True if the selectors about this entity hold, one of them left aside."""
        return all(test(entity) for one, test in self._entity.items() if one != name)

    def holds_error(self, code: int) -> bool:
        """Return True if the response's error for an entity is selected."""
        return self._errors is None or code in self._errors

    @classmethod
    def unknown_key(cls, name: object) -> str:
        return unknown("selector", name, cls.keys())


def _text_of(name: str, tests: list[Test]) -> Callable[[Any], bool]:
    def test(thing: Any) -> bool:
        value = getattr(thing, name)
        if value is None:
            return False
        value = readable(value)
        return any(one(value) for one in tests)

    return test


FIELD_KINDS = {
    "topic": {"topic_name", "topic_id", "config_resource_name", "acl_resource_name"},
    "topic_id": {"topic_id", "topic_name"},
    "group": {"group_id", "coordinator_key", "config_resource_name", "acl_resource_name"},
    "transactional_id": {"transactional_id", "coordinator_key", "acl_resource_name"},
    "member": {"member_id"},
}
PARTITIONS = ("partition", "partition_index", "partition_indexes", "index", "partitions", "partition_id")


@lru_cache(4096)
def carries(key: int, version: int, selectors: frozenset[str]) -> bool:
    """Return True if requests of this API have a field for each of these selectors."""
    if version not in schema.load(key).versions:
        return False
    slots = list(layout.body(key, version, "request").everywhere())
    kinds = {slot.kind for slot in slots}
    for name in selectors:
        if name == "offset":
            if shape(key, version).offset is None:
                return False
        elif name == "partition":
            if not any(slot.name in PARTITIONS and slot.type == "int32" for slot in slots):
                return False
        elif not FIELD_KINDS[name] & kinds:
            return False
    return True


class AnswerMatch(FrameMatch):
    """Selectors that match a request if it may be about a selected entity; the kind then selects in the response. A
    request for all topics, or for a topic without partitions, matches. Triggers count such requests."""

    @property
    def of_entities(self) -> frozenset[str]:
        """Return the selectors of entities without the partition, which an answer names."""
        return super().of_entities - {"partition"}

    def holds_entity(self, entity: Entity) -> bool:
        """Return True if the entity can still match, given the fields in the request."""
        return all(getattr(entity, name) is None or test(entity) for name, test in self._entity.items())

    def accepts(self, name: str, value: Any) -> bool:
        """Return True also for a field that the request lacks, which its response may have."""
        return (value is None and name in self._entity) or super().accepts(name, value)

    def selects(self, entity: Entity) -> bool:
        """Return True if this entity, found in the answer, is meant."""
        return super().holds_entity(entity)


def selects(yes: AnswerMatch | None, no: FrameMatch | None, exchange: Exchange, entity: Entity) -> bool:
    """Return True if `match` and `not` of a rule that fired for this exchange select an entity of its answer."""
    if yes is not None and not yes.selects(entity):
        return False
    return no is None or not (
        bool(no._entity)
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
    """Return True if this API and version has requests for all entities. True for an unknown version."""
    if version not in schema.load(key).versions:
        return False
    form = shape(key, version)
    return bool(form.lists) and not form.positional and (form.all != "never" or not form.request)


def listed_roles(key: int, version: int) -> frozenset[str]:
    """Return the selectors that can match entities in such a response."""
    form = shape(key, version)
    roles = {role for keys in (form.top, *(level.keys for level in form.lists)) for role, _ in keys}
    if "topic" in roles or "topic_id" in roles:
        roles |= {"topic", "topic_id"}
    if "resource_name" in roles:
        roles |= {"topic", "group", "transactional_id"}
    return frozenset(roles)
