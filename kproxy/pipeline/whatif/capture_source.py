"""Spark source of captures: exchanges packed by connection, a task for each file (see `packing.py`).

    spark.dataSource.register(CaptureSource)
    spark.read.format("kproxy-capture").option("rules", "[]").load('["captures/*.pcapng"]')

The path is a JSON list of files, and globs of them, that the workers can reach as files. Options: `ports`, those of
brokers, with commas; `rules`, names and contents of rule files as JSON, of which comes what need not be rehearsed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from kproxy.capture.reader import KAFKA_PORT, Capture
from kproxy.errors import CaptureError
from kproxy.events.column import Column
from kproxy.pipeline.errors import LakeError
from kproxy.pipeline.schema import struct
from kproxy.pipeline.whatif.candidate import Candidate
from kproxy.pipeline.whatif.packing import CapturePacking, ChunkRow

CHUNKS = (
    Column("what", "string", "chunk (exchanges of one connection), or capture (its summary)"),
    Column("capture", "string", "file that it was recorded in"),
    Column("connection", "long", "number of the connection in the capture"),
    Column("place", "long", "tells connections apart that have the same number"),
    Column("part", "long", "position of the chunk on its connection, from 0 on"),
    Column("packed", "string", "`ExchangeChunk` or `CaptureSummary` of `exchange.py`, in MessagePack"),
)
"""`packed` is binary in Spark."""
CHUNKS_SCHEMA = StructType(
    [StructField(field.name, BinaryType()) if field.name == "packed" else field for field in struct(CHUNKS).fields]
)

BATCH_BYTES = 4 << 20
"""Bytes of packed exchanges in one Arrow batch."""
MOST_FRAME = 8 << 20
"""Bytes of a frame that can be rehearsed; larger ones are told as unfit."""

ARROW = pa.schema(
    [
        ("what", pa.string()), ("capture", pa.string()), ("connection", pa.int64()), ("place", pa.int64()),
        ("part", pa.int64()), ("packed", pa.binary()),
    ]
)  # fmt: skip


@dataclass
class File(InputPartition):
    """Partition of the source: one capture."""

    path: str


class CaptureSource(DataSource):
    """Spark source of captures; see the module."""

    @classmethod
    def name(cls) -> str:
        return "kproxy-capture"

    def schema(self) -> StructType:
        return CHUNKS_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return CaptureReader(dict(self.options))


class CaptureReader(DataSourceReader):
    """Reader of the captures of one load."""

    def __init__(self, options: dict[str, str]) -> None:
        self.path = options.get("path", "")
        self.ports = [int(port) for port in options.get("ports", str(KAFKA_PORT)).split(",")]
        self.rules = options.get("rules", "[]")

    def partitions(self) -> list[InputPartition]:
        paths = sorted({path for one in json.loads(self.path) for path in glob(one)})
        if not paths:
            raise LakeError(f"no capture at {self.path!r}")
        return [File(path) for path in paths]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, File)
        waiting: list[ChunkRow] = []
        size = 0
        for row in self.rows(partition.path):
            waiting.append(row)
            size += len(row.packed)
            if size >= BATCH_BYTES:
                yield arrow(waiting)
                waiting, size = [], 0
        yield arrow(waiting)

    def rows(self, path: str) -> Iterator[ChunkRow]:
        """Yield the packed rows of one capture; last, its summary."""
        packing = CapturePacking(path, Candidate([(name, text) for name, text in json.loads(self.rules)], 0.0))
        capture = Capture(path, ports=self.ports, most=MOST_FRAME, closed=packing.ended.append)
        try:
            for seen in capture:
                packing.add(seen)
                if packing.rows:
                    yield from packing.take()
        except CaptureError as error:
            raise LakeError(f"{path}: {error}") from None
        packing.finish(capture.names.by_id)
        yield from packing.take()


def arrow(rows: list[ChunkRow]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)], schema=ARROW
    )
