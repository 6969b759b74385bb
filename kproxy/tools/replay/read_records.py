"""Records that consumers were given, in the recording and now, by topic and partition.

How the records of a partition are cut into responses depends on the moment, and so does how often they are read again.
So records are not compared response by response: each side's are collected, as offset and contents (key, value,
headers), each once, and what one side has and the other has not is a difference. Timestamps, producers and codecs may
differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from kproxy.base.errors import RecordsError
from kproxy.protocol import Message
from kproxy.protocol.elements import NameOfId, called, partitions
from kproxy.protocol.records import Record, decode, entries

MOST = 2_000_000
"""Records of both sides that are remembered, some 300 MB; what comes beyond is counted and not compared."""

TopicPartition = tuple[str, int]


class ReadRecords:
    """Records read on both sides.

    `offsets`: records at different offsets are different records. `beyond`: records not compared.
    """

    def __init__(self, *, offsets: bool = True) -> None:
        self.offsets = offsets
        self.seen: tuple[dict[TopicPartition, set[bytes]], dict[TopicPartition, set[bytes]]] = ({}, {})
        self.size = self.beyond = 0

    def add(self, side: int, response: Message, name: NameOfId) -> None:
        """Add the records of a Fetch or ShareFetch response; side 0: recorded, 1: now."""
        for partition in partitions(response):
            if partition.records:
                self.records(side, (called(partition, name), partition.number), partition.records)

    def records(self, side: int, where: TopicPartition, field: Any) -> None:
        digests = self.seen[side].setdefault(where, set())
        try:
            for record in readable(field):
                digest = digest_of(record, self.offsets)
                if digest in digests:
                    continue
                if self.size >= MOST:
                    self.beyond += 1
                    continue
                self.size += 1
                digests.add(digest)
        except RecordsError:
            digests.add(b"unreadable")

    def differences(self) -> Iterator[tuple[TopicPartition, int, int, int, int]]:
        """Yield (partition, records then, records now, records of then missing now, records now that are new)."""
        recorded, now = self.seen
        for where in sorted({**recorded, **now}):
            was, is_ = recorded.get(where, set()), now.get(where, set())
            if was != is_:
                yield where, len(was), len(is_), len(was - is_), len(is_ - was)

    def totals(self) -> tuple[int, int]:
        """Return the number of records that were recorded, and that came now."""
        return sum(map(len, self.seen[0].values())), sum(map(len, self.seen[1].values()))


def readable(field: Any) -> Iterator[Record]:
    """Yield the records that a consumer would see: not those of control batches."""
    for entry in entries(field):
        if not getattr(entry, "is_control", False):
            yield from decode(entry)


def digest_of(record: Record, offsets: bool) -> bytes:
    """Return a digest of the key, value and headers, and of the offset if it counts."""
    parts: list[bytes | None] = [bytes(part) if part is not None else None for part in (record.key, record.value)]
    for key, value in record.headers:
        parts += [key.encode("utf-8", "surrogateescape"), None if value is None else bytes(value)]
    digest = blake2b(str(record.offset).encode() if offsets else b"", digest_size=8)
    for part in parts:
        digest.update(b"-" if part is None else f"{len(part)}:".encode() + part)
    return digest.digest()
