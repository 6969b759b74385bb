"""Which lines are events, and why others are not."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kproxy.lake.transforms.bronze import corrupt, events, reread, with_envelope

GOOD = (
    '{"specversion":"1.0","id":"7","source":"s","type":"kproxy.request.v1","time":"2026-11-20T23:59:59.123456Z",'
    '"datacontenttype":"application/json","data":{"api":"Fetch","client_id":"}{ [","topics":[{"topic":"t"}]}}'
)
LINES = {
    "an event": (GOOD, None),
    "a number for an id": (GOOD.replace('"7"', "7"), None),
    "another zone": (GOOD.replace("59.123456Z", "59.123456-01:00"), None),
    "a type nobody knows": (GOOD.replace("request.v1", "future.v9"), None),
    "columns nobody knows": (GOOD.replace('"api"', '"new":{"a":[1]},"api"'), None),
    "a column of another type": (GOOD.replace('"Fetch"', "5"), None),
    "no data": (GOOD[: GOOD.index(',"datacontenttype')] + "}", None),
    "torn at the end": (GOOD[:-1], "not_json"),
    "torn in the envelope": (GOOD[:60], "not_json"),
    "two without a line end": (GOOD + GOOD, "not_json"),
    "two with a comma": (f"{GOOD},{GOOD}", "not_json"),
    "something behind it": (f"{GOOD}x", "not_json"),
    "a bracket behind it": (f"{GOOD}]", "not_json"),
    "nothing": ("", "not_json"),
    "an array": (f"[{GOOD}]", "not_json"),
    "a number": ("17", "not_json"),
    "null": ("null", "not_json"),
    "an empty object": ("{}", "no_id"),
    "an id that is no number": (GOOD.replace('"7"', '"seven"'), "no_id"),
    "an id beyond 64 bits": (GOOD.replace('"7"', '"99999999999999999999"'), "no_id"),
    "no source": (GOOD.replace('"s"', "null"), "no_source"),
    "no type": (GOOD.replace('"type"', '"kind"'), "no_type"),
    "no such time": (GOOD.replace("T23", "T25"), "no_time"),
}


def lines_of(spark: SparkSession, *lines: str) -> Any:
    schema = "line string, file string, offset long, ingested timestamp"
    return spark.createDataFrame([(line, "f", None, datetime(2026, 11, 22)) for line in lines], schema)  # noqa: DTZ001


def test_each_line_is_judged(spark: SparkSession) -> None:
    """One JSON object with an id, a source, a type and a time is an event; everything else has a reason."""
    found = with_envelope(lines_of(spark, *(line for line, _ in LINES.values()))).select("line", "reason").collect()

    assert {name: reason for name, (_, reason) in LINES.items()} == dict(
        zip(LINES, (row.reason for row in found), strict=True)
    )


def test_an_event_keeps_its_line_and_goes_to_its_day(spark: SparkSession) -> None:
    """The line stays as written; dt is the UTC date of the event's time, here not that of its own zone."""
    line = GOOD.replace("59.123456Z", "59.123456-01:00")
    [row] = events(with_envelope(lines_of(spark, line))).collect()

    assert (row.line, row.file, row.corrupt) == (line, "f", False)
    assert (row.source, row.event_id, row.type) == ("s", 7, "kproxy.request.v1")
    assert (row.kind, row.dt) == ("request_read", date(2026, 11, 21))


def test_a_corrupt_line_goes_to_the_day_on_which_it_was_read(spark: SparkSession) -> None:
    """It may have no time of its own."""
    [row] = corrupt(with_envelope(lines_of(spark, GOOD, GOOD[:-1]))).collect()

    assert (row.line, row.reason, row.corrupt, row.dt) == (GOOD[:-1], "not_json", True, date(2026, 11, 22))


KINDS = {
    "request_read": GOOD,
    "request_write": GOOD.replace("Fetch", "Produce"),
    "request_commit": GOOD.replace("Fetch", "TxnOffsetCommit"),
    "request_group": GOOD.replace("Fetch", "ShareGroupHeartbeat"),
    "request": GOOD.replace("Fetch", "Metadata"),
    "summary": GOOD.replace("request.v1", "summary.v1"),
    "summary_read": GOOD.replace("request.v1", "summary.v1").replace('"api"', '"topic":"t","api"'),
    "summary_write": GOOD.replace("request.v1", "summary.v1").replace(
        '"api":"Fetch"', '"topic_id":"x","api":"Produce"'
    ),
    "topology": GOOD.replace("request.v1", "topology.v1"),
    "telemetry": GOOD.replace("request.v1", "telemetry.v1"),
    "other": GOOD.replace("request.v1", "request.v2"),
}


def test_lines_are_sorted_by_what_silver_makes_of_them(spark: SparkSession) -> None:
    """A summary about a topic's id, where the name is not known, is about a topic. Lines that were sorted otherwise,
    or not at all, are sorted anew."""
    given = lines_of(spark, *KINDS.values())
    sorted_otherwise = events(with_envelope(given)).withColumn("kind", F.lit(None).cast("string"))

    assert [row.kind for row in events(with_envelope(given)).collect()] == list(KINDS)
    assert [row.kind for row in reread(sorted_otherwise).collect()] == list(KINDS)


def test_the_json_is_read_once(spark: SparkSession) -> None:
    """Reading it is most of the cost; with something between judging and filtering it stands in the plan once."""
    from pyspark.sql import Observation

    observed = with_envelope(lines_of(spark, GOOD)).observe(Observation(), F.count("reason").alias("corrupt"))
    plan = events(observed)._jdf.queryExecution().executedPlan().toString()

    assert plan.count("from_json") == 1
