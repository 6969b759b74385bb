"""Fix of producer ids, epochs and sequences: the target's values replace the recorded ones.

InitProducerId gives a producer its id and epoch (KIP-98). EndTxn from version 5 on may raise the epoch (KIP-890). The
target's values are written to batch headers and to every request that names a producer. An epoch without a response was
raised by the client (KIP-360), so it keeps its distance to the target's epoch. Batches of a producer that began before
the recording are sent without idempotence, because the broker does not know its id.

A broker accepts a batch only if its sequence follows the producer's last one on that partition (KIP-98). Recordings may
have gaps, so sequences are counted again. A batch that the client sent twice keeps its number, so that the broker finds
the duplicate. As brokers do, the fix remembers five batches.

Producer id, epoch and base sequence are in the batch header, which the CRC covers. The header is rewritten; the other
bytes, which may be compressed, stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.errors import RecordsError
from kproxy.protocol import Message
from kproxy.protocol.elements import Partition, partitions
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.records import Batch, Cut, Producer, entries
from kproxy.protocol.records.entry import BATCH, BATCH_CRC_FROM, crc_of
from kproxy.protocol.table.api_keys import END_TXN, INIT_PRODUCER_ID, PRODUCE

from .recording import carriers, layout_of, of_kind, structs

if TYPE_CHECKING:
    from kproxy.tools.replay.request_fixes import OutgoingRequest

KIND = "producer_id"
NO_PRODUCER = Producer()
LAST_EPOCH = 32767

REMEMBERED = 5
"""Batches of a producer and partition that a broker recognizes as duplicates: Kafka's ProducerStateEntry has the same
limit."""
MOST_SEQUENCES = 2**31
"""Sequences begin at 0 again after 2³¹ - 1."""

ProducerEpoch = tuple[int, int]
"""A producer id and an epoch."""
ProducerPartition = tuple[int, int, str, int]
"""Recorded producer id and epoch, topic (name or id as text) and partition."""
ChooseProducer = Callable[[Batch], Producer | None]
"""Chooser of a batch's producer; None: it stays unchanged. Being transactional is not changed."""


class ProducerFix:
    """Fix of producer ids, epochs and sequences; see the module."""

    requests = carriers(KIND, "request") | {PRODUCE}
    answers = frozenset((INIT_PRODUCER_ID, END_TXN))

    def __init__(self) -> None:
        self.now: dict[int, dict[int, ProducerEpoch]] = {}
        """Recorded id → recorded epoch → the target's producer."""
        self.sequences = SequenceNumbers()

    def request(self, request: OutgoingRequest) -> None:
        if request.message.api.key == PRODUCE:
            self.produce(request)
            return
        for struct, value in structs(layout_of(request.message), request.message.body):
            for slot in of_kind(struct, KIND):
                epoch = slot.name.replace("_id", "_epoch")
                producer = self.of(value[slot.name], value.get(epoch, -1))
                if producer is not None and epoch in value:
                    value[slot.name], value[epoch] = producer

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        if recorded is None or recorded.body["error_code"] or now.body["error_code"]:
            return
        was, given = known(recorded.body), known(now.body)
        if was is not None and given is not None:
            self.now.setdefault(was[0], {})[was[1]] = given

    def of(self, number: int, epoch: int) -> ProducerEpoch | None:
        """Return the target's id and epoch of this producer; None if it has not met it."""
        epochs = self.now.get(number)
        if not epochs:
            return None
        if epoch in epochs:
            return epochs[epoch]
        below = max((one for one in epochs if one < epoch), default=None)
        if below is None:
            return epochs[min(epochs)]
        given, at = epochs[below]
        return given, min(at + epoch - below, LAST_EPOCH)

    def produce(self, request: OutgoingRequest) -> None:
        for partition in partitions(request.message):
            if partition.records is not None:
                partition.fields["records"] = self.stamped(request, partition)

    def stamped(self, request: OutgoingRequest, partition: Partition) -> Any:
        def choose(batch: Batch) -> Producer | None:
            producer = self.of(batch.producer_id, batch.producer_epoch)
            if producer is not None:
                where = batch.producer_id, batch.producer_epoch, str(partition.name_or_id), partition.number
                return Producer(*producer, self.sequences.number(where, batch))
            if batch.is_transactional:
                request.notes.append(UNKNOWN_TRANSACTION)
                return None
            request.notes.append(UNKNOWN)
            return NO_PRODUCER

        try:
            return restamped(partition.records, choose)
        except RecordsError as error:
            request.notes.append(f"its records are sent as they are: {error}")
            return partition.records


UNKNOWN = "sent without idempotence: its producer began before the recording"
UNKNOWN_TRANSACTION = "sent with the recorded producer id: its transactional producer began before the recording"


def known(body: dict[str, Any]) -> ProducerEpoch | None:
    """Return the producer that a response names; None if it names none."""
    number: int = body.get("producer_id", -1)
    return (number, body["producer_epoch"]) if number >= 0 else None


class SequenceNumbers:
    """Sequence numbers of all producers of a replay, counted from 0 for each partition."""

    def __init__(self) -> None:
        self.next: dict[ProducerPartition, int] = {}
        self.recent: dict[ProducerPartition, BoundedMap[int, int]] = {}

    def number(self, where: ProducerPartition, batch: Batch) -> int:
        """Return the base sequence that this batch is sent with; -1 for one that has none."""
        if batch.base_sequence < 0:
            return batch.base_sequence
        recent = self.recent.setdefault(where, BoundedMap(REMEMBERED))
        if batch.base_sequence not in recent:
            number = self.next.get(where, 0)
            self.next[where] = (number + batch.last_offset_delta + 1) % MOST_SEQUENCES
            recent[batch.base_sequence] = number
        return recent[batch.base_sequence]


def restamped(records: Buffer, choose: ChooseProducer) -> bytes:
    """Return the records field with the producers that `choose` gives.

    Raises RecordsError for invalid entries.
    """
    pieces: list[Buffer] = []
    for entry in entries(records):
        chosen = choose(entry) if isinstance(entry, Batch) and entry.producer_id >= 0 else None
        if chosen is None or isinstance(entry, Cut):
            pieces.append(entry.raw)
        else:
            assert isinstance(entry, Batch)
            pieces.append(stamped(entry, chosen))
    return b"".join(pieces)


def stamped(batch: Batch, producer: Producer) -> bytes:
    """Return a batch with this producer, and the CRC that goes with it."""
    header = replace(
        batch, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=producer.base_sequence
    )
    data = bytearray(batch.raw)
    BATCH.pack_into(data, 0, *(getattr(header, name) for name in Batch.__slots__[:-1]))
    data[BATCH_CRC_FROM - 4 : BATCH_CRC_FROM] = crc_of(data, 2).to_bytes(4, "big")
    return bytes(data)
