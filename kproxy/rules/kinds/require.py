"""require: required producer settings and client names, with checks of Produce records.

Codec and producer are in an entry's header. The size of a record is its uncompressed key, value and headers. Only a
compressed entry that can hold a larger record is decompressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PrivateAttr

from kproxy.base.cooperative import yielding_range
from kproxy.base.errors import DecodeError, RecordsError, plural
from kproxy.protocol.codec.message import Message
from kproxy.protocol.elements import element_at
from kproxy.protocol.primitives import read_varint
from kproxy.protocol.records import Batch, Cut, Entry, LegacyEntry, Record, decode, entries
from kproxy.protocol.records.compression import CODECS, DECOMPRESSED_LIMIT, decompress, too_long
from kproxy.protocol.records.record import least_size, read_record, size_of
from kproxy.protocol.table.api_keys import (
    API_VERSIONS,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Drop, Exchange, Fail, FrameDepth
from kproxy.rules.kinds.base.rule import Decisions, Direction, Effect, Family, LiveRule
from kproxy.rules.select.match import Texts, text_test
from kproxy.rules.select.selected import AcksValues, chosen
from kproxy.rules.values.address import Test
from kproxy.rules.values.model import Wrong
from kproxy.rules.values.quantities import ByteCount


def codec_name(entry: Batch | LegacyEntry) -> str:
    """Return none, gzip, snappy, lz4 or zstd; the number for a codec that is unknown."""
    return CODECS.get(entry.codec, str(entry.codec))


def is_idempotent(entry: Batch | LegacyEntry) -> bool:
    """Return True if the producer has an id, so that a batch that is sent twice is stored once (KIP-98)."""
    return isinstance(entry, Batch) and entry.producer_id >= 0


DAMAGED = DECOMPRESSED_LIMIT // 8
"""Bytes that an entry counts for that cannot be decompressed: how many had come out of it by then is not known."""


class RecordSizes:
    """Search for records of more than `most` bytes. All that it decompresses, together, is at most `left` bytes."""

    def __init__(self, most: int, left: int = DECOMPRESSED_LIMIT) -> None:
        self.most, self.left = most, left

    def too_large(self, entry: Entry) -> int:
        """Return the size of the first such record in an entry, or 0.

        An entry that exceeds the decompression limit counts as one record of that size. Raises RecordsError for an
        entry that cannot be read. Brokers may read more than kproxy (Kafka ignores lz4 content checksums).
        """
        if isinstance(entry, Cut):
            return 0
        limit = self.left
        try:
            return next((size for size in map(size_of, self.records(entry)) if size > self.most), 0)
        except RecordsError as problem:
            if str(problem) == str(too_long(limit)):
                return max(limit, self.most + 1)
            raise

    def records(self, entry: Batch | LegacyEntry) -> Iterator[Record]:
        """Yield the records of an entry that could be too large. Raises RecordsError."""
        if isinstance(entry, LegacyEntry):
            if entry.codec or len(entry.body) > self.most:
                yield from self.legacy(entry)
            return
        data = entry.payload
        if entry.codec and entry.count > 0:
            limit = self.left
            self.left = max(limit - DAMAGED, 0)
            data = memoryview(decompress(entry.codec, entry.payload, limit))
            self.left = limit - len(data)
        if len(data) > self.most:
            yield from long_records(data, entry.count, self.most)

    def legacy(self, entry: LegacyEntry) -> Iterator[Record]:
        limit, size = self.left, 0
        self.left = max(limit - DAMAGED, 0) if entry.codec else limit
        for record in decode(entry, limit):
            size += least_size(record) if entry.codec else 0
            yield record
        self.left = limit - size


def long_records(data: memoryview, count: int, most: int) -> Iterator[Record]:
    """Yield the encoded records with more than `most` bytes of the `count` records in `data`. Raises RecordsError.

    Other records are skipped by their lengths, since a kilobyte can encode millions of records.
    """
    position = 0
    for number in yielding_range(count):
        try:
            length, body = read_varint(data, position)
            if 0 < length <= most and body + length <= len(data):
                position = body + length
                continue
            record, position = read_record(data, position, 0, 0)
        except (DecodeError, IndexError) as problem:
            raise RecordsError(f"record {number} of {count} at byte {position}: {problem}") from problem
        yield record
    if position != len(data):
        raise RecordsError(f"{plural(len(data) - position, 'byte')} left after {plural(count, 'record')}")


BEFORE_WORK = frozenset((METADATA, FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE))
"""APIs before the first request with a visible error. Clients retry after an error in them without reporting it."""

MESSAGE_TOO_LARGE, INVALID_REQUIRED_ACKS, POLICY_VIOLATION, UNSUPPORTED_COMPRESSION_TYPE = 10, 21, 44, 76
INVALID_RECORD = 87

OF_RECORDS = ("compression", "max_record", "idempotence")
REQUIREMENTS = ("acks", *OF_RECORDS, "client_id")

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Codecs = Annotated[list[Codec], BeforeValidator(_as_list, json_schema_input_type=str | list[str]), Field(min_length=1)]

Breach = tuple[int, str]
"""An error code, and the reason in words."""


class RequireRule(LiveRule):
    """Refuses what does not keep to these requirements.

    Requirements on records are checked for each partition. Wrong acks and a wrong client id fail all selected entities
    of the request; other topics are forwarded. A request with acks 0 that breaks a requirement is dropped completely,
    and its connection closes.
    """

    group = "access"
    family: ClassVar[Family] = "access"
    example: ClassVar[str] = """\
- name: house rules for producers
  kind: require
  match: {topic: "orders*"}
  acks: all
  compression: [zstd, lz4]
  max_record: 1MB
  idempotence: true
"""

    kind: Literal["require"] = Field(description="kind of the rule")
    acks: AcksValues | None = Field(default=None, description="acks of Produce requests: 0, 1, all, or a list of these")
    compression: Codecs | None = Field(
        default=None, description="codecs of produced batches: none, gzip, snappy, lz4, zstd"
    )
    max_record: ByteCount | None = Field(
        default=None,
        description="size that a record may have: key, value and headers, uncompressed. To see that, batches are "
        "decompressed, to 100 MiB for a request at most; one that would be larger is refused",
    )
    idempotence: Literal[True] | None = Field(
        default=None, description="require a producer id, so brokers detect duplicate batches"
    )
    client_id: Texts | None = Field(
        default=None, description="client id in all requests except those that discover brokers"
    )

    _client_ids: list[Test] = PrivateAttr(default_factory=list)

    def model_post_init(self, context: Any, /) -> None:
        """Compile the patterns of client ids once."""
        super().model_post_init(context)
        self._client_ids.extend(text_test(text) for text in self.client_id or ())

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        given = [name for name in REQUIREMENTS if raw.get(name) is not None]
        if not given:
            yield (), f"nothing is required, at least one of {', '.join(REQUIREMENTS)} is needed"
        of_produce = [name for name in given if name != "client_id"]
        selected = chosen(raw)
        if of_produce and selected and all(one.api.key != PRODUCE for one in selected):
            yield selected[0].where, f"{', '.join(of_produce)} can be required of Produce only"
        elif given == ["client_id"] and selected and all(one.api.key in BEFORE_WORK for one in selected):
            yield selected[0].where, f"{selected[0].api.name} is let pass whatever a client calls itself"
        match = raw.get("match")
        if isinstance(match, dict) and match.get("error") is not None:
            yield ("match", "error"), "this is decided before the broker answers"

    @property
    def stops_unread(self) -> bool:
        """Return True if a client id is required, which is of all APIs."""
        return self.client_id is not None

    @property
    def reads_topics(self) -> bool:
        return self.selects_topics

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        # An error response contains names from the request, so its body is decoded.
        of_produce = key == PRODUCE and any(getattr(self, name) is not None for name in REQUIREMENTS)
        of_clients = self.client_id is not None and key not in BEFORE_WORK
        return FrameDepth.BODY if direction == "request" and (of_produce or of_clients) else FrameDepth.NOTHING

    def start(self) -> Effect:
        return RequireEffect(self)

    def of_request(self, exchange: Exchange) -> Breach | None:
        """Return the error of all selected entities of the request, or None."""
        if self._client_ids:
            name = exchange.client_id or ""
            if not any(test(name) for test in self._client_ids):
                return POLICY_VIOLATION, f'client id "{name}" is not one of {", ".join(self.client_id or ())}'
        if self.acks is not None and exchange.api.key == PRODUCE:
            acks = exchange.acks
            if acks not in self.acks:
                wanted = ", ".join("all" if one == -1 else str(one) for one in self.acks)
                return INVALID_REQUIRED_ACKS, f"acks {acks} not allowed, expected {wanted}"
        return None


class RequireEffect(Effect):
    """Effect that fails what is not as required."""

    def __init__(self, rule: RequireRule) -> None:
        self.rule = rule
        self.of_records = any(getattr(rule, name) is not None for name in OF_RECORDS)

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        wrong = self.rule.of_request(exchange)
        decisions = (Fail(*wrong),) if wrong is not None else tuple(self.failures(exchange, entities))
        if decisions and exchange.api.key == PRODUCE and exchange.acks == 0:
            return (Drop(then="close"),)
        return decisions

    def failures(self, exchange: Exchange, entities: Sequence[Entity]) -> Iterator[Fail]:
        """Yield a decision for each kind of error, with its partitions."""
        if not self.of_records or exchange.api.key != PRODUCE:
            return
        sizes = RecordSizes(self.rule.max_record) if self.rule.max_record is not None else None
        breaches: dict[Breach, list[Entity]] = {}
        for entity in entities:
            data = records_of(exchange.request, entity)
            wrong = None if data is None else self.of_partition(data, sizes)
            if wrong is not None:
                breaches.setdefault(wrong, []).append(entity)
        for (code, message), partitions in breaches.items():
            yield Fail(code, message, entities=tuple(partitions))

    def of_partition(self, data: bytes, sizes: RecordSizes | None) -> Breach | None:
        """Return the first error in the records of one partition. Unreadable records are an error."""
        try:
            return next((wrong for entry in entries(data) if (wrong := self.of_entry(entry, sizes))), None)
        except RecordsError:
            return INVALID_RECORD, "unreadable records cannot be checked"

    def of_entry(self, entry: Batch | LegacyEntry | Cut, sizes: RecordSizes | None) -> Breach | None:
        """Return the error of one batch, or None."""
        rule = self.rule
        if isinstance(entry, Cut):
            return None
        if rule.compression is not None and (codec := codec_name(entry)) not in rule.compression:
            wanted = ", ".join(rule.compression)
            return UNSUPPORTED_COMPRESSION_TYPE, f"compression {codec} not allowed, expected {wanted}"
        if rule.idempotence and not is_idempotent(entry):
            return POLICY_VIOLATION, "only idempotent producers may write here: enable.idempotence=true"
        if sizes is not None and (size := sizes.too_large(entry)):
            return MESSAGE_TOO_LARGE, f"a record of {size} bytes, at most {rule.max_record} are allowed here"
        return None


def records_of(request: Message, entity: Entity) -> bytes | None:
    """Return the records of a partition in a Produce request, or None for an unknown partition."""
    if len(entity.where) != len(("topic", "partition")):
        return None
    records: bytes | None = element_at(request, entity.where)["records"]
    return records
