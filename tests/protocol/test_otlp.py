"""OTLP metrics of clients are read as they are meant, and hostile ones in bounded time and memory."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.base.errors import DecodeError
from kproxy.protocol import otlp
from kproxy.protocol.otlp import MetricPoint, read_metrics
from tests.support.line_count import LineCount
from tests.support.otlp_metrics import counted, flag, gauge, metrics_data, part, point, varint

TOPIC = frozenset(("topic",))


def every(name: str) -> bool:
    return True


def test_a_payload_is_read() -> None:
    """Sums that say what is new, gauges, integers and doubles, several points, the attributes that are asked for."""
    data = metrics_data(
        counted("a.total", point(3), point(4)),
        gauge("b.avg", point(1.5, {"topic": "orders", "node.id": "1"})),
        gauge("unwanted", point(9)),
    )

    found = read_metrics(data, lambda name: name != "unwanted", TOPIC)

    assert found.points == [
        MetricPoint("a.total", True, 3.0, {}),
        MetricPoint("a.total", True, 4.0, {}),
        MetricPoint("b.avg", False, 1.5, {"topic": "orders"}),
    ]
    assert found.left_out == 0


def test_a_name_may_come_last() -> None:
    """Protobuf's fields have no order."""
    metric = part(5, part(1, point(1))) + part(1, b"late")
    assert read_metrics(metrics_data(metric), every).points == [MetricPoint("late", False, 1.0, {})]


@pytest.mark.parametrize(
    "metric",
    [
        counted("in.all", point(1), temporality=2),
        counted("up.and.down", point(1), monotonic=0),
        counted("less", point(-1)),
        counted("huge", point(2.0**70)),
        gauge("none", b""),
        gauge("nan", point(math.nan)),
        gauge("endless", point(math.inf)),
        gauge("two words", point(1)),
        gauge("x" * (otlp.LONGEST_NAME + 1), point(1)),
        gauge("", point(1)),
        gauge('a"} 1\nb', point(1)),
        part(1, b"histogram") + part(9, part(1, b"")),
        part(1, b"empty"),
    ],
)
def test_what_cannot_be_added_up_is_left_out_and_counted(metric: bytes) -> None:
    """The other metrics of the payload are read."""
    found = read_metrics(metrics_data(metric, gauge("good", point(1))), every)

    assert [one.name for one in found.points] == ["good"]
    assert found.left_out == 1


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05\x12",
        b"\x0a",
        b"\xff" * 20,
        b"\x0b",
        b"\x00\x01",
        metrics_data(gauge("cut", point(1)))[:-1],
        part(1, part(2, part(2, part(1, b"name") + varint(5 << 3 | 2) + varint(1 << 40)))),
    ],
)
def test_bytes_that_are_no_metrics_are_refused(data: bytes) -> None:
    """The message says where."""
    with pytest.raises(DecodeError, match="MetricsData v1 at byte"):
        read_metrics(data, every)


def test_unknown_fields_are_skipped() -> None:
    """Of every wire type, also in the middle."""
    odd = flag(100, 7) + varint(101 << 3 | 1) + bytes(8) + varint(102 << 3 | 5) + bytes(4) + part(103, b"?")
    data = odd + metrics_data(odd + gauge("good", odd + point(1) + odd) + odd) + odd
    assert [one.name for one in read_metrics(data, every).points] == ["good"]


@pytest.mark.parametrize(
    "data",
    [
        flag(100, 0) * 8_000_000,
        part(1, b"") * 8_000_000,
        metrics_data(gauge("many", *[point(1)] * 12_000)),
        part(1, part(2, part(2, part(1, b"")) * 500_000)),
        part(1, part(2, part(2, part(1, b"name") + part(5, part(1, part(7, b"") * 2_000_000))))),
    ],
    ids=["fields", "resources", "points", "metrics", "attributes"],
)
def test_otlp_of_millions_of_fields_is_read_to_the_limit(data: bytes) -> None:
    with LineCount() as count, pytest.raises(DecodeError, match="more than"):
        read_metrics(data, every, TOPIC)
    assert count.total < 5_000_000


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    """Whatever they are, also where a payload is expected to go on."""
    for whole in (data, part(1, data), part(1, part(2, part(2, data))), metrics_data(gauge("a", data))):
        with suppress(DecodeError):
            read_metrics(whole, every, TOPIC)
