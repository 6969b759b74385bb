"""Partitions of a recording, put together from all that was fetched: what a consumer may be given again.

How records were cut into responses depended on the moment. So a Fetch is answered partition by partition, with the
recorded batches from its offset on, as a broker would. Fetch sessions are not given (KIP-227: session id 0), so every
request names all its partitions.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

from kproxy.base.errors import RecordsError
from kproxy.protocol import Message
from kproxy.protocol.elements import Partition, called, partitions, partitions_of, topics
from kproxy.protocol.records import Batch, LegacyEntry, decode, decode_control, entries
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import FETCH

from .recording import Recording

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
        """Add the batches of a records field; what cannot be read of it is left out."""
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
    """Return a partition's response with the fields that this version has."""
    (topics,) = (slot.struct for slot in layout.body(FETCH, version, "response").slots if slot.name == "responses")
    assert topics is not None
    (inner,) = (slot.struct for slot in topics.slots if slot.name == "partitions")
    assert inner is not None
    return {slot.name: part.get(slot.name, slot.default()) for slot in inner.slots}
