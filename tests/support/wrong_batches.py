"""Batches of records that are wrong in one place."""

from __future__ import annotations

import cramjam

from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.records.entry import BATCH, OVERHEAD, crc_of

LZ4 = 3


def wrong_checksum(value: bytes) -> bytes:
    """A batch with one record, as an lz4 frame whose content checksum is wrong, at which Kafka does not look."""
    plain = encode_batch([Record(0, 5, None, value)])
    packer = cramjam.lz4.Compressor(None, True, False)  # level, content checksum, linked blocks
    packer.compress(plain[BATCH.size :])
    made = bytearray(plain[: BATCH.size] + bytes(packer.finish())[:-4] + bytes(4))
    made[8:12] = (len(made) - OVERHEAD).to_bytes(4, "big")
    made[21:23] = LZ4.to_bytes(2, "big")
    made[17:21] = crc_of(made, 2).to_bytes(4, "big")
    return bytes(made)
