"""Reader of metrics that clients push (KIP-714): OpenTelemetry's protobuf MetricsData, with bounds.

Strategy. A protobuf library makes an object of each message: fifty times the bytes of the payload. Only seven messages
matter, so they are read here, and other fields are skipped by their size. The depth is that of the grammar, and the
number of fields is limited. Work is linear in the bytes; memory is that of the returned points.

    MetricsData 1 ▸ ResourceMetrics 2 ▸ ScopeMetrics 2 ▸ Metric: 1 name, 5 Gauge, 7 Sum
    Gauge 1 ▸ NumberDataPoint; Sum: 1 ▸ NumberDataPoint, 2 temporality, 3 monotonic
    NumberDataPoint: 4 double, 6 integer, 7 ▸ KeyValue: 1 key, 2 ▸ AnyValue: 1 text, 3 integer
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from struct import Struct
from typing import Final, NamedTuple

from kproxy.base.errors import DecodeError

MOST_FIELDS: Final = 100_000
"""Fields of one payload that are looked at: some 200 ms. Java's client sends 3,000 when it is asked for everything."""
MOST_POINTS: Final = 10_000
"""Points of one payload that are kept."""
LONGEST_NAME: Final = 200
"""Bytes of a metric's name; Kafka's longest has 85."""
LONGEST_VALUE: Final = 300
"""Bytes of an attribute's value that are kept; a topic has 249 at most."""
LARGEST: Final = float(1 << 63)
"""Largest absolute value of a point; larger ones are dropped."""
DELTA: Final = 1
"""Temporality of a sum since the previous push."""
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

_NAME = re.compile(rb"[A-Za-z][A-Za-z0-9._-]*")
_DOUBLE, _INTEGER = Struct("<d").unpack_from, Struct("<q").unpack_from
_MOST_SHIFT = 63


class MetricPoint(NamedTuple):
    """Value of one metric. `grows`: increase since the last push; otherwise a gauge. `attributes`: the selected
    ones."""

    name: str
    grows: bool
    value: float
    attributes: dict[str, str]


@dataclass(slots=True)
class MetricsRead:
    """Contents of one payload: its points, and how many points or metrics of a form that is not read were left out."""

    points: list[MetricPoint] = field(default_factory=list)
    left_out: int = 0


class ProtobufField(NamedTuple):
    """Field of a message: its number and wire type; of a length-delimited one where it starts and ends, of a varint its
    value in `start`."""

    number: int
    kind: int
    start: int
    end: int


def read_metrics(data: bytes, wanted: Callable[[str], bool], attributes: frozenset[str] = frozenset()) -> MetricsRead:
    """Return the points of metrics whose names are `wanted`, with the selected attributes.

    Raises DecodeError for malformed MetricsData and above MOST_FIELDS or MOST_POINTS.
    """
    return _MetricsReader(data, wanted, attributes).read()


class _MetricsReader:
    """Reader of one payload."""

    def __init__(self, data: bytes, wanted: Callable[[str], bool], attributes: frozenset[str]) -> None:
        self.data, self.wanted, self.attributes = data, wanted, attributes
        self.left = MOST_FIELDS
        self.found = MetricsRead()

    def read(self) -> MetricsRead:
        for resource in self.messages(0, len(self.data), 1):
            for scope in self.messages(resource.start, resource.end, 2):
                for metric in self.messages(scope.start, scope.end, 2):
                    self.read_metric(metric)
        return self.found

    def read_metric(self, metric: ProtobufField) -> None:
        """Read one metric; its name need not come first."""
        name, series = "", None
        for one in self.fields(metric.start, metric.end):
            if one.kind == LENGTH and one.number == 1:
                name = self.name(one)
            elif one.kind == LENGTH and one.number in (5, 7, 9, 10, 11):
                series = one
        if series is None or not name:
            self.found.left_out += 1
        elif self.wanted(name):
            if series.number == 5:
                for point in self.messages(series.start, series.end, 1):
                    self.read_point(name, False, point)
            elif series.number == 7:
                self.read_sum(name, series)
            else:
                self.found.left_out += 1

    def read_sum(self, name: str, series: ProtobufField) -> None:
        """Read a delta sum. Cumulative sums are left out: they would need state for each client."""
        temporality = monotonic = 0
        points = []
        for one in self.fields(series.start, series.end):
            if one.kind == VARINT and one.number == 2:
                temporality = one.start
            elif one.kind == VARINT and one.number == 3:
                monotonic = one.start
            elif one.kind == LENGTH and one.number == 1:
                points.append(one)
        if temporality == DELTA and monotonic:
            for point in points:
                self.read_point(name, True, point)
        else:
            self.found.left_out += 1

    def read_point(self, name: str, grows: bool, point: ProtobufField) -> None:
        """Read one point; one without a number that can be added to others is left out."""
        value: float | None = None
        attributes: dict[str, str] = {}
        for one in self.fields(point.start, point.end):
            if one.kind == FIXED64 and one.number == 4:
                (value,) = _DOUBLE(self.data, one.start)
            elif one.kind == FIXED64 and one.number == 6:
                (value,) = _INTEGER(self.data, one.start)
            elif one.kind == LENGTH and one.number == 7 and self.attributes:
                self.read_attribute(one, attributes)
        if value is None or not isfinite(value) or not (0 if grows else -LARGEST) <= value <= LARGEST:
            self.found.left_out += 1
            return
        if len(self.found.points) >= MOST_POINTS:
            raise self.wrong(point.start, f"more than {MOST_POINTS} data points")
        self.found.points.append(MetricPoint(name, grows, float(value), attributes))

    def read_attribute(self, attribute: ProtobufField, into: dict[str, str]) -> None:
        key, value = "", None
        for one in self.fields(attribute.start, attribute.end):
            if one.kind == LENGTH and one.number == 1:
                key = self.data[one.start : min(one.end, one.start + LONGEST_NAME)].decode("utf-8", "replace")
            elif one.kind == LENGTH and one.number == 2:
                value = one
        if key in self.attributes and value is not None:
            for one in self.fields(value.start, value.end):
                if one.kind == LENGTH and one.number == 1:
                    text = self.data[one.start : min(one.end, one.start + LONGEST_VALUE)]
                    into[key] = text.decode("utf-8", "replace")
                elif one.kind == VARINT and one.number == 3:
                    into[key] = str(one.start)

    def name(self, name: ProtobufField) -> str:
        """Return a metric's name; empty if no metric can be called so."""
        text = self.data[name.start : name.end] if name.end - name.start <= LONGEST_NAME else b""
        return text.decode() if _NAME.fullmatch(text) else ""

    # ---- protobuf

    def messages(self, start: int, end: int, number: int) -> Iterator[ProtobufField]:
        return (one for one in self.fields(start, end) if one.number == number and one.kind == LENGTH)

    def fields(self, start: int, end: int) -> Iterator[ProtobufField]:
        """Yield the fields of a message. Raises DecodeError if they do not fill it exactly."""
        at = start
        while at < end:
            self.left -= 1
            if self.left < 0:
                raise self.wrong(at, f"more than {MOST_FIELDS} fields")
            tag, after = self.varint(at, end)
            number, kind, stop = tag >> 3, tag & 7, 0
            if kind == LENGTH:
                length, after = self.varint(after, end)
                stop = after + length
            elif kind == VARINT:
                value, stop = self.varint(after, end)
                after = value
            elif kind in (FIXED64, FIXED32):
                stop = after + (8 if kind == FIXED64 else 4)
            else:
                raise self.wrong(at, f"wire type {kind}")
            if stop > end or not number:
                raise self.wrong(at, f"field {number} ends at byte {stop} of a message that ends at {end}")
            yield ProtobufField(number, kind, after, stop)
            at = stop

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """Return the varint at this place, and where it ends."""
        data, value, shift = self.data, 0, 0
        while at < end and shift <= _MOST_SHIFT:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        raise self.wrong(at, "a varint that does not end")

    def wrong(self, at: int, problem: str) -> DecodeError:
        return DecodeError(problem, api="MetricsData", version=1, offset=at, expected="OTLP metrics")
