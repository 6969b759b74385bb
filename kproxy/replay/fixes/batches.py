"""Record batches of a Produce request with another producer, without touching what is compressed in them.

Producer id, epoch and base sequence stand in the batch header, which its CRC covers (KIP-98), so the header is written
anew and the rest of the bytes stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kproxy.wire.records import Batch, Cut, Producer, entries
from kproxy.wire.records.entry import BATCH, BATCH_CRC_FROM, Buffer, crc_of

Choose = Callable[[Batch], Producer | None]
"""What a batch gets as producer; None: it stays as it is. Whether it is transactional is not changed."""


def restamped(records: Buffer, choose: Choose) -> bytes:
    """The field with the producers that `choose` gives. Raises RecordsError for entries that are none."""
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
    """One batch with this producer, and the CRC that goes with it."""
    header = replace(
        batch, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=producer.base_sequence
    )
    made = bytearray(batch.raw)
    BATCH.pack_into(made, 0, *(getattr(header, name) for name in Batch.__slots__[:-1]))
    made[BATCH_CRC_FROM - 4 : BATCH_CRC_FROM] = crc_of(made, 2).to_bytes(4, "big")
    return bytes(made)
