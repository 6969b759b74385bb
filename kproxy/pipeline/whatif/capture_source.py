"""Captures as a Spark source: a row for each exchange, a task for each file.

    spark.dataSource.register(CaptureSource)
    spark.read.format("kproxy-capture").load('["captures/*.pcapng"]')

The path is a JSON list of files, and globs of them, that the workers can reach as files. Option `ports`: those of
brokers, with commas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kproxy.capture.captured import Captured
from kproxy.capture.reader import KAFKA_PORT, Capture
from kproxy.errors import CaptureError
from kproxy.pipeline.errors import LakeError
from kproxy.watch.seen import Form, Frame, Seen

from .tables import EXCHANGES_SCHEMA

BATCH = 2000
"""Exchanges in one Arrow batch: some MB of small frames."""
MOST_FRAME = 8 << 20
"""Bytes of a frame that can be rehearsed; larger ones are told as unfit."""

ARROW = pa.schema(
    [
        ("capture", pa.string()), ("connection", pa.int64()), ("cluster", pa.string()), ("listener", pa.string()),
        ("client_address", pa.string()), ("node", pa.int32()), ("number", pa.int64()), ("api_key", pa.int32()),
        ("version", pa.int32()), ("correlation_id", pa.int32()), ("client_id", pa.string()),
        ("request_time", pa.float64()), ("request", pa.binary()), ("response_time", pa.float64()),
        ("response", pa.binary()), ("unfit", pa.string()),
    ]
)  # fmt: skip


@dataclass
class File(InputPartition):
    """One capture."""

    path: str


class CaptureSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "kproxy-capture"

    def schema(self) -> StructType:
        return EXCHANGES_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return CaptureReader(dict(self.options))


class CaptureReader(DataSourceReader):
    """Reads the files of one load."""

    def __init__(self, options: dict[str, str]) -> None:
        self.path = options.get("path", "")
        self.ports = [int(port) for port in options.get("ports", str(KAFKA_PORT)).split(",")]

    def partitions(self) -> list[InputPartition]:
        found = sorted({path for one in json.loads(self.path) for path in glob(one)})
        if not found:
            raise LakeError(f"no capture at {self.path!r}")
        return [File(path) for path in found]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, File)
        rows: list[tuple[Any, ...]] = []
        try:
            for seen in Capture(partition.path, ports=self.ports, most=MOST_FRAME):
                rows.append(row(partition.path, seen))
                if len(rows) >= BATCH:
                    yield arrow(rows)
                    rows = []
        except CaptureError as error:
            raise LakeError(f"{partition.path}: {error}") from None
        if rows:
            yield arrow(rows)


def arrow(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)], schema=ARROW
    )


def row(path: str, seen: Seen) -> tuple[Any, ...]:
    """The exchange as a row."""
    who, request, response = seen.who, seen.request, seen.response
    assert isinstance(who, Captured), "the reader made it"
    why = unfit(seen)
    return (
        path, who.number, who.cluster, who.listener, who.client_address, who.node, seen.number, seen.key, seen.version,
        seen.correlation_id, seen.client_id, None if request is None else request.first,
        None if request is None or why else request.data, None if response is None else response.first,
        None if response is None or why else response.data, why,
    )  # fmt: skip


def unfit(seen: Seen) -> str | None:
    """Why it cannot be rehearsed."""
    if seen.request is None:
        return "its request was not recorded"
    for what, frame in (("request", seen.request), ("response", seen.response)):
        if frame is not None and frame.form is not Form.WHOLE:
            return f"{what}: {why_not_whole(frame)}"
    return None


def why_not_whole(frame: Frame) -> str:
    return frame.withheld or f"{len(frame.data)} of {frame.size} bytes were recorded"
