"""Partials of days: merging them gives what the days in one go would have given."""

import os
import random
from datetime import date

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

from kproxy.lake.gold_lake import ANSWER_TRANSFORMS, conform
from kproxy.lake.gold_tables import ANSWERS, answer_named
from kproxy.lake.transforms.gold.aggregates import bases

OF_DAYS = ("group_lag", "rules_effect", "violations")
"""Answers that tell days apart on purpose; their own tests say how."""
APIS = ("Produce", "Fetch", "Metadata", "OffsetCommit", "ApiVersions")


def some_rows(chance, count):
    """Rows of all silver tables over four days, with few names, so that they meet."""
    rows = {"requests": [], "produce_partitions": [], "fetch_partitions": [], "groups": [], "connections": []}
    for _ in range(count):
        client = chance.randrange(3)
        base = {
            "time": f"2026-11-{chance.randrange(17, 21)} {chance.randrange(24):02}:{chance.randrange(60):02}:00",
            "client_id": f"c{client}", "client_address": f"10.0.0.{chance.randrange(3)}",
            "node": chance.choice((None, 1)), "principal": chance.choice((None, "u")),
            "count": chance.randrange(1, 9), "detail": "summary",
            "error": chance.choice((None, None, "NOT_LEADER_OR_FOLLOWER")), "version": chance.randrange(3),
        }  # fmt: skip
        part = {
            **base, "topic": f"t{chance.randrange(3)}", "partition": chance.randrange(3), "batches": 2,
            "records": chance.randrange(99), "bytes": chance.randrange(9999), "empty": chance.randrange(3),
        }  # fmt: skip
        rows["requests"].append(
            {**base, "api": chance.choice(APIS), "group": "g", "latency_ms": float(chance.randrange(99)), "empty": 1,
             "latency_max_ms": float(chance.randrange(99)), "latency_buckets": [chance.randrange(9) for _ in range(15)]}
        )  # fmt: skip
        rows["produce_partitions"].append({**part, "api": "Produce", "acks": chance.randrange(-1, 2), "codec": "none"})
        rows["fetch_partitions"].append({**part, "api": "Fetch"})
        member = {"group": "g", "generation": chance.randrange(4), "member": f"m{chance.randrange(4)}", "members": 2}
        plain = {name: value for name, value in base.items() if name not in ("count", "node", "detail")}
        rows["groups"].append({**plain, **member, "api": chance.choice(("JoinGroup", "Heartbeat", "LeaveGroup"))})
        opened = {name: value for name, value in plain.items() if name != "version"}
        rows["connections"].append({**opened, "action": "open", "error": None})
    return rows


def comparable(rows):
    """Rows in any order, with doubles as near as sums in another order come."""
    return sorted(
        str([round(value, 6) if isinstance(value, float) else value for value in row]) for row in rows.collect()
    )


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1])
def test_merging_days_equals_all_in_one_go(silver, seed):
    """Of random rows, each answer from four days' partials is the answer from the same rows as if all were of one day.
    Of the answers every third by default, since Spark plans each twice; with KPROXY_TEST_ALL=1 all."""
    tables = silver(**some_rows(random.Random(seed), 60))
    one_day = {name: rows.withColumn("dt", F.lit(date(2026, 11, 20))) for name, rows in tables.items()}
    by_day, at_once = bases(tables), bases(one_day)

    mergeable = [(name, how) for name, how in ANSWER_TRANSFORMS.items() if name not in OF_DAYS]
    for name, how in mergeable if os.environ.get("KPROXY_TEST_ALL") else mergeable[::3]:
        answer = answer_named(name)
        assert comparable(conform(how.combine(how.daily(at_once)), answer)) == comparable(
            conform(how.combine(how.daily(by_day)), answer)
        ), name


def test_every_answer_is_declared_and_made():
    """The table of declarations and the table of transforms have the same answers, in the same order."""
    assert [answer.name for answer in ANSWERS] == list(ANSWER_TRANSFORMS)


def test_partials_on_disk_have_the_declared_columns(silver):
    """Those that `ddl` says, in that order after dt, for every answer, also of no rows at all."""
    nothing = bases(silver())

    for name, how in ANSWER_TRANSFORMS.items():
        schema = how.daily(nothing).schema
        declared = [part.split("`")[1] for part in how.partial.ddl.split(", ")]
        assert ["dt", *declared[:-1]] == schema.names, name
        assert declared[-1] == "dt"


def test_windows_over_all_that_follows_are_seen(spark):
    """The other way round they cost a step a row."""
    order = Window.partitionBy("a").orderBy("b")
    order.rowsBetween(Window.unboundedPreceding, -1)
    order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    for start in (1, Window.currentRow):
        with pytest.raises(AssertionError, match="turn the order round"):
            order.rowsBetween(start, Window.unboundedFollowing)
