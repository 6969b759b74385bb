"""Events of requests, single or summed: the contents of request and response without users' data and secrets.

Keys and values of records, values of configs, tokens and passwords have no column, so they cannot get into an event.
The names of configs and the numbers of batches have. An event is of bounded size, for any length of the request.

Error columns contain all error codes of a response and the broker's messages. The fields of codes and texts are found
once in the layout, by their kinds. A response is then read in wire order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from time import monotonic, time
from typing import TYPE_CHECKING, Any, NamedTuple

from kproxy.base.cooperative import yielding
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import (
    ALTER_CONFIGS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_TOPICS,
    DESCRIBE_GROUPS,
    INCREMENTAL_ALTER_CONFIGS,
    JOIN_GROUP,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    STREAMS_GROUP_DESCRIBE,
)
from kproxy.protocol.table.errors import error_name
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.protocol.table.shapes import Level, Shape, shape
from kproxy.record.audit.resource_columns import ApiResources
from kproxy.record.audit.topic_columns import REQUEST, RESPONSE, TopicElement, TopicTable, present, put, topic_reader
from kproxy.record.exchange import Errors, Form, ObservedExchange, Who
from kproxy.record.observer.response_errors import LISTS, LONGEST_LIST, in_order
from kproxy.record.observer.summary_rows import SummaryRow
from kproxy.rules.entity import coordinator

from .lines import milliseconds, plain, stamp
from .state_events import connection_columns

if TYPE_CHECKING:
    from kproxy.record.captures.writer import ToWallTime

WORDS = ("error_message", "acknowledge_error_message")
"""Fields with a broker's message about a request or a partition, except those about single records."""

SILENT = frozenset((CREATE_TOPICS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS))
"""APIs that set configs: brokers quote the value that they do not like, and that may be a password."""


BodyFields = Mapping[str, Any]

NAMES = ("group", "transactional_id", "member")
"""Roles that are columns: of the body, or of the first group or transaction in it."""

MEMBERS_IN = frozenset((DESCRIBE_GROUPS, CONSUMER_GROUP_DESCRIBE, SHARE_GROUP_DESCRIBE, STREAMS_GROUP_DESCRIBE))
"""APIs that describe groups with their members."""
HEARTBEATS = frozenset((CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_HEARTBEAT))
"""ConsumerGroupHeartbeat and ShareGroupHeartbeat (KIP-848, KIP-932): a member's subscription, and its partitions."""


class ErrorField(NamedTuple):
    """Response field on the way to error codes: itself a code, a text, or a struct with such fields in it."""

    name: str
    array: bool
    text: bool
    inside: tuple[ErrorField, ...]


class ErrorCodes:
    """Error codes of one response in wire order, each once, and the first text of a broker that is not empty."""

    __slots__ = ("codes", "text")

    def __init__(self) -> None:
        self.codes: dict[int, None] = {}
        self.text: str | None = None

    def collect(self, fields: tuple[ErrorField, ...], body: Mapping[str, Any]) -> None:
        """Collect the codes and the text of a struct and of those in it."""
        for name, array, text, inside in fields:
            value = body.get(name)
            if not value:
                continue
            if array:
                for element in value:
                    self.collect(inside, element)
            elif inside:
                self.collect(inside, value)
            elif text:
                self.text = self.text or value
            else:
                self.codes[value] = None


def error_columns(errors: Errors, seen: ObservedExchange) -> dict[str, Any]:
    """Return the columns about errors in a response; empty without errors."""
    if not errors.codes:
        return {}
    data: dict[str, Any] = {"error": error_name(errors.codes[0])}
    data["errors"] = [error_name(code) for code in errors.codes]
    data["error_level"] = "request" if errors.top else "part"
    own = [error_name(code) for code in errors.codes if seen.kproxy_made(code)]
    if own:
        data["kproxy_errors"] = own
    return data


@cache
def error_fields(key: int, version: int) -> tuple[ErrorField, ...]:
    """Return the fields of an API's response that contain codes and messages."""
    return fields_inside(layout.body(key, version, "response"), key not in SILENT)


def fields_inside(struct: Struct, texts: bool) -> tuple[ErrorField, ...]:
    fields = []
    for slot in (*struct.slots, *struct.tagged):
        inner = fields_inside(slot.struct, texts) if slot.struct is not None else ()
        if inner or slot.kind == "error_code" or (texts and is_text(slot)):
            fields.append(ErrorField(slot.name, slot.array, is_text(slot), inner))
    return tuple(fields)


def is_text(slot: Slot) -> bool:
    return slot.kind == "error_text" and slot.name in WORDS


class ColumnExtractor:
    """Extractor of the columns of one API and version. Raises KeyError for an API that the table lacks."""

    def __init__(self, key: int, version: int) -> None:
        self.form: Shape = shape(key, version)
        self.key = key
        self.requested = topic_reader(key, version, answered=False)
        self.answered = topic_reader(key, version, answered=True)
        self.resources = ApiResources(self.form)
        self.error_fields = error_fields(key, version)
        self.request_columns = present(REQUEST, layout.body(key, version, "request"), key)
        self.response_columns = present(RESPONSE, layout.body(key, version, "response"), key)
        self.of_failed = tuple(one for one in self.response_columns if one[0] == "throttle_ms")
        self.first = self.first_level()
        self.first_columns = present(REQUEST, self.first.struct) if self.first is not None else ()

    def first_level(self) -> Level | None:
        """Return the request's first level if it is one of groups, transactions or members."""
        for level in self.form.request[:1]:
            if {role for role, _ in level.keys} & {*NAMES, "coordinator_key"}:
                return level
        return None

    def columns(
        self, request: BodyFields | None, response: BodyFields | None, seen: ObservedExchange, most: int
    ) -> dict[str, Any]:
        """Return the columns of an exchange; those of a body that is None are missing."""
        who = seen.who
        top_code = None if response is None else response.get(self.form.code, 0) if self.form.code else 0
        data: dict[str, Any] = {}
        if response is not None:
            self.put_errors(data, response, top_code or 0, seen)
        if request is not None:
            self.put_requested(data, request)
        if response is not None:
            self.put_answered(data, response, top_code or 0)
        if "group" in data:
            broker_group = plain(who.broker_group(data["group"]))
            if broker_group is not None:
                data["broker_group"] = broker_group
        self.put_topics(data, request, response, top_code, seen, most)
        if request is not None:
            data |= self.resources.columns(request, response, top_code, most)
        return data

    def put_errors(self, data: dict[str, Any], response: BodyFields, top_code: int, seen: ObservedExchange) -> None:
        errors = ErrorCodes()
        errors.collect(self.error_fields, response)
        data |= error_columns(in_order(top_code, errors.codes), seen)
        text = plain(errors.text)
        if text is not None:
            data["error_message"] = text

    def put_requested(self, data: dict[str, Any], request: BodyFields) -> None:
        roles = {role: request[field] for role, field in self.form.top}
        put(data, self.request_columns, request)
        if self.first is not None:
            for element in self.first.elements(request)[:1]:
                roles = {**self.first.roles(element), **roles}
                if isinstance(element, dict):
                    put(data, self.first_columns, element)
        if "coordinator_key" in roles:
            roles |= coordinator(roles["coordinator_key"], roles.get("key_type", 0))
        for name in NAMES:
            text = plain(roles.get(name))
            if text is not None:
                data[name] = text

    def put_answered(self, data: dict[str, Any], response: BodyFields, top_code: int) -> None:
        """Set the columns of a response. A failed response sets only its errors and its throttle time."""
        put(data, self.of_failed if top_code else self.response_columns, response)
        members = None
        if self.key == JOIN_GROUP:
            members = response["members"]  # the leader of the group gets them
        elif self.key in MEMBERS_IN and len(response["groups"] or ()) == 1:
            members = response["groups"][0]["members"]
        if members:
            data["members"] = len(members)

    def put_topics(
        self,
        data: dict[str, Any],
        requested: BodyFields | None,
        answered: BodyFields | None,
        top_code: int | None,
        seen: ObservedExchange,
        most: int,
    ) -> None:
        who = seen.who
        table = TopicTable(self.requested, self.answered)
        if requested is not None:
            table.add(0, requested)
            if self.key in HEARTBEATS:
                add_subscription(table, requested, who)
        if answered is not None:
            table.add(1, answered)
            if self.key in HEARTBEATS:
                add_assignment(table, answered, who)
        several = self.first is not None and requested is not None and len(self.first.elements(requested)) > 1
        if table.topics:
            data |= table.columns(seen, most, None if self.key in HEARTBEATS else top_code, several=several)
        data |= table.totals()


@cache
def column_extractor(key: int, version: int) -> ColumnExtractor:
    """Return the column extractor of an API and version, the same object each time.

    A version that the table lacks is read only if the broker also lacks it and sends a response of version 0 (KIP-511).
    """
    return ColumnExtractor(key, version if version in schema.load(key).versions else 0)


def add_subscription(table: TopicTable, request: Mapping[str, Any], who: Who) -> None:
    """Add the topics and the owned partitions that a member reports to the table."""
    for name in yielding(request["subscribed_topic_names"] or ()):
        table.put(0, TopicElement(None, 0, name, None, 0, []), None)
    add_partitions(table, request.get("topic_partitions"), 0, who)


def add_assignment(table: TopicTable, response: Mapping[str, Any], who: Who) -> None:
    assignment = response["assignment"]
    if assignment is not None:
        add_partitions(table, assignment["topic_partitions"], 1, who)


def add_partitions(table: TopicTable, topics: list[dict[str, Any]] | None, direction: int, who: Who) -> None:
    for topic in topics or ():
        name = who.topic_of(str(topic["topic_id"]))
        table.put(direction, TopicElement(None, 0, name, topic["topic_id"], 0, topic["partitions"] or []), None)


MOST = 100
"""Topics, partitions and resources that one event lists."""


SUMMED_TIMES = ("minute", "first", "last")
SUMMED_TEXTS = ("client_id", "topic", "throttle_rule")
SUMMED_DURATIONS = ("latency_ms", "latency_max_ms", "rule_ms", "wait_ms", "mute_ms")
SUMMED_AS_THEY_ARE = (
    "api", "version", "topic_id", "partition", "outcome", "responder", "error", "errors", "kproxy_errors",
    "error_level", "error_by", "acks", "codec", "idempotent", "count", "records", "bytes",
    "batches", "last_offset", "high_watermark", "empty", "request_bytes", "response_bytes", "latency_buckets",
    "throttled", "throttle_ms",
)  # fmt: skip


def request_event(
    seen: ObservedExchange, wall: ToWallTime, most: int = MOST, longest: int = LONGEST_LIST
) -> dict[str, Any]:
    """Return the data of a `REQUEST_EVENT`, absent columns left out.

    `most`: topics, partitions and resources, each, in it. `longest`: bytes up to which responses with lists are read.
    """
    data = connection_columns(seen.who)
    if seen.client_id:
        data["client_id"] = plain(seen.client_id)
    data["correlation_id"] = seen.correlation_id
    data["api"], data["api_key"], data["version"] = seen.api, seen.key, seen.version
    if seen.depth:
        data["depth"] = seen.depth
    data["outcome"] = seen.outcome
    if seen.answer is not None:
        data["responder"] = "kproxy" if seen.answered_by_rule else "broker"
    if seen.acks is not None:
        data["acks"] = seen.acks
    put_times(data, seen, wall)
    if seen.throttler:
        data["throttle_rule"], data["mute_ms"] = plain(seen.throttler), milliseconds(seen.mute)
    if seen.rules:
        data["rules"] = [plain(name) or "" for name in seen.rules]
    long = too_long(seen, longest)
    request, response = seen.request_body, None if long or seen.answer is None else seen.response_body
    if request is not None or response is not None:
        data |= column_extractor(seen.key, seen.version).columns(request, response, seen, most)
    if response is None and seen.answer is not None and not long:
        data |= error_columns(seen.known_errors, seen)
    if response is None and seen.answer is not None and seen.known_throttle:
        data["throttle_ms"] = seen.known_throttle
    why = long or unread(seen)
    if why:
        data["decode_error"] = plain(why)
    return data


def put_times(data: dict[str, Any], seen: ObservedExchange, wall: ToWallTime) -> None:
    """Set the sizes and times of an exchange: `latency_ms` is the sum of `wait_ms`, `rule_ms` and `broker_ms`."""
    request, response = seen.request, seen.answer
    sent, received, parts = seen.sent, seen.received, seen.parts
    if request is not None:
        data["request_bytes"] = request.size
        data["request_in"] = stamp(wall(request.first))
    if sent is not None:
        data["request_out"] = stamp(wall(sent))
    if response is not None:
        data["response_bytes"] = response.size
        data["response_out"] = stamp(wall(response.last))
    if received is not None:
        data["response_in"] = stamp(wall(received))
    if parts is not None:
        data["latency_ms"] = milliseconds(parts.latency)
        if not seen.answered_by_rule:
            data["broker_ms"] = milliseconds(parts.broker)
    data["rule_ms"] = milliseconds(sum(seen.rule_wait))
    data["wait_ms"] = milliseconds(seen.kproxy_seconds)


def too_long(seen: ObservedExchange, longest: int) -> str:
    """Return why the response is not read although it is here, "" if it is read."""
    response = seen.answer
    if response is None or response.form is not Form.WHOLE or len(response.data) <= longest or seen.key not in LISTS:
        return ""
    return f"response: {response.size} bytes, more than the {longest} that are read of lists"


def unread(seen: ObservedExchange) -> str | None:
    """Return why some fields are missing, None if all could be read."""
    if seen.unread:
        return seen.unread
    for what, frame in (("request", seen.request), ("response", seen.response)):
        if frame is not None and frame.form is Form.HEAD and not frame.sketch:
            return f"{what}: {frame.withheld or f'only {len(frame.data)} of {frame.size} bytes were kept'}"
    return None


def summary_event(line: SummaryRow, who: Who) -> tuple[float, dict[str, Any]]:
    """Return the minute's start, in seconds since 1970, and the data of a `SUMMARY_EVENT`, absent columns left out."""
    data = connection_columns(who)
    for name in SUMMED_TIMES:
        data[name] = stamp(getattr(line, name))
    for name in SUMMED_TEXTS:
        data[name] = plain(getattr(line, name))
    for name in SUMMED_DURATIONS:
        value = getattr(line, name)
        data[name] = None if value is None else round(value, 3)
    for name in SUMMED_AS_THEY_ARE:
        data[name] = getattr(line, name)
    if line.topic is None and line.topic_id is not None:  # the name may have become known since
        data["topic"] = plain(who.topic_of(line.topic_id))
    if data["topic"] is not None:
        data["broker_topic"] = plain(who.broker_topic(data["topic"]))
    return line.minute, {name: value for name, value in data.items() if value is not None}


EVERY_PARTITION = 1 << 31


def whole_event(seen: ObservedExchange, wall: ToWallTime | None = None) -> dict[str, Any]:
    """Return the data of the event with all topics, partitions and resources, for filters."""
    return request_event(seen, wall or wall_clock(), EVERY_PARTITION)


def wall_clock() -> ToWallTime:
    """Return a function from times of `monotonic()` to the wall clock as it is set now."""
    offset = time() - monotonic()
    return lambda when: when + offset
