"""Lines: CloudEvents of one source."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from kproxy.record.audit.lines import LONGEST, EventEncoder, id_of, milliseconds, plain, stamp


def test_a_line_is_a_cloud_event() -> None:
    """The envelope's columns in this order, the data as they are, one newline at the end and no other."""
    lines = EventEncoder("host/5b0c/0")
    line = lines.line(
        "kproxy.request.v1", 1_795_255_872.123456, {"topic": "a\nb\0", "at": datetime(2026, 1, 2, tzinfo=UTC)}
    )

    assert line == (
        b'{"specversion":"1.0","id":"1","source":"host/5b0c/0","type":"kproxy.request.v1",'
        b'"time":"2026-11-21T10:11:12.123456Z","datacontenttype":"application/json",'
        b'"data":{"topic":"a\\nb\\u0000","at":"2026-01-02T00:00:00Z"}}\n'
    )
    assert (lines.day, lines.last_id, id_of(line)) == ("2026-11-21", 1, 1)


def test_the_time_is_that_of_each_event() -> None:
    """Also when events of different types, seconds and days come mixed, and when a fraction rounds up to a second."""
    lines = EventEncoder('a "quoted" host/5b0c/0')
    moments = (0.0, 0.9999999, 86_399.5, 86_400.000001, 5.25, 5.5)
    made = [msgspec.json.decode(lines.line(f"kproxy.t{n % 2}.v1", moment, {})) for n, moment in enumerate(moments)]

    assert [event["time"] for event in made] == [
        "1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:01.000000Z", "1970-01-01T23:59:59.500000Z",
        "1970-01-02T00:00:00.000001Z", "1970-01-01T00:00:05.250000Z", "1970-01-01T00:00:05.500000Z",
    ]  # fmt: skip
    assert [event["type"][7:9] for event in made] == ["t0", "t1"] * 3
    assert {event["source"] for event in made} == {'a "quoted" host/5b0c/0'}
    assert [event["id"] for event in made] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize(
    ("time", "data"), [(0.0, {"x": object()}), (float("nan"), {}), (1e18, {}), (0.0, {"x": "\ud800"})]
)
def test_what_cannot_be_written_uses_its_number_up(time: float, data: dict[str, object]) -> None:
    """The line is refused, and the next one shows a gap."""
    lines = EventEncoder("s/b/0")
    with pytest.raises((TypeError, ValueError, OverflowError, OSError)):
        lines.line("kproxy.test.v1", time, data)

    assert id_of(lines.line("kproxy.test.v1", 0.0, {})) == 2


def test_the_number_of_a_foreign_line() -> None:
    """It has none, and the error shows both beginnings."""
    with pytest.raises(ValueError, match=r"begins with .*hello.* expected .*specversion"):
        id_of(b'{"hello": 1}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("", None),
        ("orders", "orders"),
        ("größe", "größe"),
        ("a\udcffb", "a?b"),
        ("x" * LONGEST, "x" * LONGEST),
        ("x" * (LONGEST + 1), "x" * (LONGEST - 1) + "…"),
    ],
)
def test_texts(text: str | None, expected: str | None) -> None:
    """JSON can hold what comes out, and it is no longer than the limit."""
    assert plain(text) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "1970-01-01T00:00:00.000000Z"),
        (1795255200.0000004, "2026-11-21T10:00:00.000000Z"),
        (1795255200.9999996, "2026-11-21T10:00:01.000000Z"),
        (1795255200.123456, "2026-11-21T10:00:00.123456Z"),
        (-0.5, "1969-12-31T23:59:59.500000Z"),
        (1e13, "9999-12-31T23:59:59.000000Z"),
        (-1e13, "1000-01-01T00:00:00.000000Z"),
    ],
)
def test_times(seconds: float, expected: str) -> None:
    """Rounded to a microsecond, also across the end of a second; of damaged captures the nearest that can be."""
    assert stamp(seconds) == expected


def test_durations() -> None:
    """To the microsecond, and never below zero."""
    assert milliseconds(0.0123456) == 12.346
    assert milliseconds(-0.001) == 0.0
