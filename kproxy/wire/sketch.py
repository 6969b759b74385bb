"""Sketches: frames without the inside of their record batches, and the numbers that batch headers tell.

    body = decode_sketch(frame, 0, 12, "request")     # as decode_request, but records are a RecordsDigest
    sketcher = Sketcher(1, 17, "response")            # for a frame that comes in chunks: keeps all but records' insides
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .primitives import Buffer


@dataclass(frozen=True, slots=True)
class RecordsDigest:
    """What stands in a `records` field, from the headers of its batches; nothing is decompressed.

    `size`: bytes of the field. `records`: None where it cannot be told without decompressing (compressed message sets
    of magic 0 and 1). A cut last batch counts in `size` only. The codec, the producer and the sequence are those of
    the first batch; `producer_id` None: none. `last_offset`: of the last whole batch.
    """

    size: int
    batches: int
    records: int | None
    codec: str
    base_offset: int | None
    last_offset: int | None
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    transactional: bool = False
    control: int = 0
    """Batches of control records (their records are not counted: clients never see them)."""


def decode_sketch(
    frame: Buffer, key: int, version: int, direction: str, *, sketched: bool = False
) -> dict[str, Any]:
    """The body of a frame (without its length field). `sketched`: it came from a Sketcher. Raises DecodeError."""
    raise NotImplementedError
