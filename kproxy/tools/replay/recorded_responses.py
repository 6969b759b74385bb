"""Recorded responses for a responder: whole responses, elements of responses, and partitions.

    responses.exact(request)     the response to an equal request
    responses.alike(request)     the response about the same group, transaction or member, or of the same API

Responses to equal requests are returned in recorded order, each once; then the last one without an error repeats, since
clients poll. Equality ignores the fields of ignored_fields.yaml except members and producers. Records are compared by
their contents.

A client that repeats its work may split requests differently. For APIs whose responses have an element for each
partition or group (protocol/shapes.yaml), recorded elements are stored by entity. Each is returned once, then the last
one without an error repeats.

Fetch is answered partition by partition, with the recorded batches from its offset on, as a broker does. Fetch sessions
are refused (KIP-227: session id 0), so every request names all its partitions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kproxy.base.errors import RecordsError
from kproxy.protocol import Message
from kproxy.protocol.elements import (
    Partition,
    Roles,
    called,
    elements,
    partitions,
    partitions_of,
    request_elements,
    top_roles,
    topics,
)
from kproxy.protocol.records import Batch, LegacyEntry, decode, decode_control, entries
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import FETCH
from kproxy.protocol.table.layout import ZERO_UUID, Slot, Struct
from kproxy.protocol.table.shapes import Level, Shape, shape
from kproxy.session.respond.error_responses import Failure
from kproxy.session.respond.error_responses import element as made_element
from kproxy.tools.replay.compare import IgnoredFields
from kproxy.tools.replay.recording import RecordedExchange, Recording

from .compare import digest_of, readable
from .recording import codes, layout_of

TOPIC, TOPIC_ID = "topic", "topic_id"
UNKNOWN_TOPIC, UNKNOWN_ID, UNKNOWN = 3, 100, -1


@dataclass(slots=True)
class ElementQueue:
    """Recorded elements of one entity, each with the elements of the levels around it, and the number of elements
    returned so far."""

    chains: list[tuple[dict[str, Any], ...]] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    given: int = 0

    def next(self) -> tuple[dict[str, Any], ...]:
        if self.given < len(self.chains):
            self.given += 1
            return self.chains[self.given - 1]
        good = [chain for chain, code in zip(self.chains, self.codes, strict=True) if not code]
        return good[-1] if good else self.chains[-1]


class RecordedElements:
    """Elements of a recording's responses, by entity."""

    def __init__(self, recording: Recording) -> None:
        self.names: Mapping[UUID, str] = recording.names
        self.elements: dict[Hashable, ElementQueue] = {}
        self.last: dict[int, Message] = {}
        """API key → the last response, for the fields outside the elements."""
        for exchange in recording.exchanges:
            if (
                exchange.response is not None
                and exchange.request is not None
                and exchange.response.version == exchange.version
            ):
                self.learn(exchange.request, exchange.response)

    def learn(self, request: Message, response: Message) -> None:
        form = shape(response.api.key, response.version)
        self.last[response.api.key] = response
        if form.positional or not form.response:
            return
        code = form.response[-1].code
        for roles, where, chain in elements(form.response, response.body, top_roles(form, request.body)):
            if len(where) == len(form.response):
                queue = self.elements.setdefault(self.key(form, roles), ElementQueue())
                queue.chains.append(chain)
                queue.codes.append(chain[-1].get(code, 0) if code else 0)

    def key(self, form: Shape, roles: Roles) -> Hashable:
        """Return the key of the entity that an element is about; topics by name."""
        wanted = {role for level in form.response for role, _ in level.keys} | {"group", "transactional_id"}
        told_apart_by = {
            role: value for role, value in roles.items() if role in wanted and role not in (TOPIC, TOPIC_ID)
        }
        topic = roles.get(TOPIC) or self.names.get(roles.get(TOPIC_ID, ZERO_UUID)) or roles.get(TOPIC_ID)
        return form.api.key, topic, frozenset((role, plain(value)) for role, value in told_apart_by.items())

    def answer(self, request: Message) -> tuple[Message, list[str]] | None:
        """Return a response made of elements, and the entities of the request without a recorded element.

        Returns None if the API's responses have no elements, or were never recorded.
        """
        form = shape(request.api.key, request.version)
        last = self.last.get(request.api.key)
        if last is None or form.positional or not form.response:
            return None
        struct = layout.body(request.api.key, request.version, "response")
        body = fit(struct, last.body)
        body[form.response[0].array] = []
        missing: list[str] = []
        for roles in self.entities_of(form, request):
            queue = self.elements.get(self.key(form, roles))
            if queue is None:
                missing.append(" ".join(str(value) for value in roles.values() if value is not None))
            self.put(form, body, roles, queue.next() if queue is not None else None)
        header = {"correlation_id": request.header["correlation_id"]}
        return Message(request.api, request.version, header, body), missing

    def entities_of(self, form: Shape, request: Message) -> Iterator[Roles]:
        """Yield the entities of a request; all recorded entities for a request without a filter."""
        if form.request and form.asks_all(request.body.get(form.request[0].array)):
            top = top_roles(form, request.body)
            for key, queue in list(self.elements.items()):
                assert isinstance(key, tuple)
                if key[0] == form.api.key:
                    chain = queue.chains[-1]
                    roles: dict[str, Any] = dict(top)
                    for level, entry in zip(form.response, chain, strict=True):
                        roles |= {role: entry[name] for role, name in level.keys if name in entry}
                    yield roles
            return
        for element in request_elements(request):
            yield element.roles

    def put(self, form: Shape, body: dict[str, Any], roles: Roles, chain: tuple[dict[str, Any], ...] | None) -> None:
        """Put one element into the response, with those around it."""
        parent = body
        for depth, level in enumerate(form.response):
            if level.struct is None:
                return
            innermost = depth + 1 == len(form.response)
            entry = None if innermost else same(level, parent, roles)
            if entry is None:
                entry = self.make_element(form, level, roles, chain[depth] if chain is not None else None, innermost)
                if not innermost:
                    entry[form.response[depth + 1].array] = []
                parent[level.array].append(entry)
            parent = entry

    def make_element(
        self, form: Shape, level: Level, roles: Roles, recorded: dict[str, Any] | None, innermost: bool
    ) -> dict[str, Any]:
        assert level.struct is not None
        if recorded is None:
            code = UNKNOWN_TOPIC if roles.get(TOPIC) else UNKNOWN_ID if roles.get(TOPIC_ID) else UNKNOWN
            return made_element(form, level, roles, Failure(code) if innermost else None)
        fitted = fit(level.struct, recorded)
        for role, name in level.keys:
            if name in fitted and roles.get(role) not in (None, ZERO_UUID):
                fitted[name] = roles[role]
        return fitted


def same(level: Level, parent: dict[str, Any], roles: Roles) -> dict[str, Any] | None:
    """Return the existing equal element of this level."""
    for known in parent[level.array]:
        if all(known.get(name) == roles[role] for role, name in level.keys if role in roles):
            return known  # type: ignore[no-any-return]
    return None


def fit(struct: Struct, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a struct of another version with this version's fields; missing fields get their defaults."""
    fields = {}
    for slot in struct.all_slots:
        inner = value.get(slot.name, slot.default())
        if slot.struct is not None and inner is not None:
            inner = [fit(slot.struct, one) for one in inner] if slot.array else fit(slot.struct, inner)
        fields[slot.name] = slot.default() if inner is None and not slot.nullable else inner
    return fields


def plain(value: Any) -> Hashable:
    return str(value) if isinstance(value, list | dict | UUID) else value


READ_COMMITTED = 1
ABORT = 0
"""The type of control record that ends an aborted transaction (KIP-98)."""


@dataclass(slots=True)
class RecordedPartition:
    """Partition of a recording: its batches by their last offsets, and its offsets as brokers answered them last."""

    batches: dict[int, bytes] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    high: int = 0
    start: int = 0
    errors: dict[int, list[int]] = field(default_factory=dict)
    """Fetch offset → error codes that it was answered with, in order; each is given once."""
    aborted: dict[tuple[int, int], int] = field(default_factory=dict)
    """(producer id, first offset) of an aborted transaction → the offset of its end."""
    aborts: dict[int, list[int]] = field(default_factory=dict)
    """Producer id → offsets of its abort markers."""

    def add(self, records: Any) -> None:
        """Add the batches of a records field; unreadable batches are left out."""
        try:
            for entry in entries(records):
                if isinstance(entry, Batch):
                    self.batches.setdefault(entry.last_offset, bytes(entry.raw))
                    if entry.is_control and any(decode_control(one).type == ABORT for one in decode(entry)):
                        self.aborts.setdefault(entry.producer_id, []).append(entry.base_offset)
                elif isinstance(entry, LegacyEntry):
                    self.batches.setdefault(entry.offset, bytes(entry.raw))
        except RecordsError:
            return

    def close(self) -> None:
        """Sort the batches and find the ends of aborted transactions, once all is added."""
        self.ends = sorted(self.batches)
        self.high = max(self.high, self.ends[-1] + 1 if self.ends else 0)
        for producer, first in self.aborted:
            ends = [at for at in self.aborts.get(producer, ()) if at >= first]
            self.aborted[producer, first] = min(ends, default=self.high)

    def read(self, offset: int, most: int) -> tuple[bytes, int]:
        """Return batches from this offset on, at least one and at most `most` bytes, and the last offset in them."""
        records, last = b"", offset - 1
        for end in self.ends[bisect_left(self.ends, offset) :]:
            batch = self.batches[end]
            if records and len(records) + len(batch) > most:
                break
            records, last = records + batch, end
        return records, last


class PartitionLog:
    """Partitions of a recording. `names`: of topic ids."""

    def __init__(self, recording: Recording) -> None:
        self.names = recording.names
        self.partitions: dict[tuple[str, int], RecordedPartition] = {}
        for exchange in recording.exchanges:
            if exchange.key == FETCH and exchange.request is not None and exchange.response is not None:
                self.learn(exchange.request, exchange.response)
        for partition in self.partitions.values():
            partition.close()

    def learn(self, request: Message, response: Message) -> None:
        offsets = {self.key(requested): requested.fields["fetch_offset"] for requested in partitions(request)}
        for answered in partitions(response):
            where, fields = self.key(answered), answered.fields
            partition = self.partitions.setdefault(where, RecordedPartition())
            if answered.error_code:
                partition.errors.setdefault(offsets.get(where, -1), []).append(answered.error_code)
                continue
            partition.high = max(partition.high, fields["high_watermark"])
            partition.start = max(fields.get("log_start_offset", 0), 0)
            for aborted in fields.get("aborted_transactions") or ():
                partition.aborted.setdefault((aborted["producer_id"], aborted["first_offset"]), 0)
            if answered.records:
                partition.add(answered.records)

    def key(self, partition: Partition) -> tuple[str, int]:
        """Return topic and number of a partition in a message; the topic's id as text if its name is not known."""
        return called(partition, self.names.get), partition.number

    def answer(self, request: Message) -> tuple[Message, bool]:
        """Return the response to a Fetch, and True if there is anything in it."""
        body = {slot.name: slot.default() for slot in layout.body(FETCH, request.version, "response").slots}
        some, answered = False, []
        committed = request.body.get("isolation_level") == READ_COMMITTED
        for topic in topics(request):
            parts = [self.part(partition, committed) for partition in partitions_of(request, topic)]
            some |= any(part["records"] or part["error_code"] for part in parts)
            key = "topic" if topic.topic_id is None else "topic_id"
            answered.append({key: topic.fields[key], "partitions": [fitted(part, request.version) for part in parts]})
        body["responses"] = answered
        header = {"correlation_id": request.header["correlation_id"]}
        return Message(request.api, request.version, header, body), some

    def part(self, requested: Partition, committed: bool) -> dict[str, Any]:
        number, offset = requested.number, requested.fields["fetch_offset"]
        partition = self.partitions.get(self.key(requested))
        response: dict[str, Any] = {"partition_index": number, "error_code": 0, "high_watermark": -1, "records": b""}
        if partition is None:
            return response | {"high_watermark": 0, "last_stable_offset": 0, "log_start_offset": 0}
        if errors := partition.errors.get(offset):
            return response | {"error_code": errors.pop(0)}
        records, last = partition.read(offset, requested.fields["partition_max_bytes"])
        aborted = [
            {"producer_id": producer, "first_offset": first}
            for (producer, first), end in partition.aborted.items() if end >= offset and first <= last
        ] if committed else None  # fmt: skip
        marks = {"high_watermark": partition.high, "last_stable_offset": partition.high}
        return response | marks | {
            "log_start_offset": partition.start, "records": records, "aborted_transactions": aborted,
        }  # fmt: skip


def fitted(part: dict[str, Any], version: int) -> dict[str, Any]:
    (topics,) = (slot.struct for slot in layout.body(FETCH, version, "response").slots if slot.name == "responses")
    assert topics is not None
    (inner,) = (slot.struct for slot in topics.slots if slot.name == "partitions")
    assert inner is not None
    return {slot.name: part.get(slot.name, slot.default()) for slot in inner.slots}


SAME = IgnoredFields(compare=("members", "producers"))


@dataclass(slots=True)
class ResponseQueue:
    """Recorded exchanges that answer one question, and how many of them have been given."""

    exchanges: list[RecordedExchange] = field(default_factory=list)
    given: int = 0

    def next(self) -> Message | None:
        """Return the next response; the last good one again when all have been given."""
        if self.given < len(self.exchanges):
            self.given += 1
            return self.exchanges[self.given - 1].response
        good = (one for one in reversed(self.exchanges) if one.response is not None and not codes(one.response))
        last = next(good, self.exchanges[-1])
        return last.response


class RecordedResponses:
    """Responses of a recording, by question."""

    def __init__(self, recording: Recording) -> None:
        self.names = recording.names
        self.by_body: dict[Hashable, ResponseQueue] = {}
        self.by_keys: dict[Hashable, ResponseQueue] = {}
        for exchange in recording.exchanges:
            if exchange.request is None or exchange.response is None:
                continue
            self.by_body.setdefault(self.body_key(exchange.request), ResponseQueue()).exchanges.append(exchange)
            for key in self.keys(exchange.request):
                self.by_keys.setdefault(key, ResponseQueue()).exchanges.append(exchange)

    def exact(self, request: Message) -> Message | None:
        """Return the response to an equal request of this version; None if none was recorded."""
        queue = self.by_body.get(self.body_key(request))
        return queue.next() if queue is not None else None

    def alike(self, request: Message) -> Message | None:
        """Return the response to a request, of any version, about the same subject; None if the API is not in the
        recording."""
        queues = (self.by_keys.get(key) for key in self.keys(request))
        queue = next((one for one in queues if one is not None), None)
        return queue.next() if queue is not None else None

    def body_key(self, request: Message) -> Hashable:
        """Return the request's body as a key, without fields that do not count."""
        return request.api.key, request.version, self.frozen(request.api.name, layout_of(request), request.body)

    def keys(self, request: Message) -> list[Hashable]:
        """Return keys of the request's subject, most specific first: with the member, without it, the API alone."""
        form = shape(request.api.key, request.version)
        roles = next((one.roles for one in request_elements(request)), top_roles(form, request.body))
        top = {role: roles[role] for role, _ in form.top if role in roles}
        key, group = request.api.key, {role: value for role, value in top.items() if role != "member"}
        keys: list[Hashable] = [(key, frozenset(top.items()))]
        if group != top:
            keys.append((key, frozenset(group.items())))
        if top:
            keys.append((key, frozenset()))
        return keys

    def frozen(self, api: str, struct: Struct, value: dict[str, Any]) -> Hashable:
        return tuple(
            (slot.name, self.frozen_slot(api, slot, value.get(slot.name)))
            for slot in struct.all_slots
            if not SAME.leaves_out(api, slot)
        )

    def frozen_slot(self, api: str, slot: Slot, value: Any) -> Hashable:
        if value is None:
            return None
        if slot.array:
            return tuple(self.frozen_one(api, slot, one) for one in value)
        return self.frozen_one(api, slot, value)

    def frozen_one(self, api: str, slot: Slot, value: Any) -> Hashable:
        if slot.struct is not None:
            return self.frozen(api, slot.struct, value)
        if slot.type == "records":
            return contents(value)
        if isinstance(value, UUID):
            return self.names.get(value, str(value))
        return bytes(value) if isinstance(value, memoryview | bytearray) else value


def contents(records: Any) -> Hashable:
    """Return the contents of a records field: keys, values and headers."""
    try:
        return tuple(digest_of(record, offsets=False) for record in readable(records))
    except RecordsError:
        return bytes(records)
