"""Headlines: of each answer, what everybody should know, as counts that Spark makes in one pass."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def _clients(condition: Column) -> Column:
    return F.count_distinct(F.when(condition, F.struct("cluster", "client_id")))


def _rows(condition: Column) -> Column:
    return F.count_if(condition)


def _found(word: str) -> Column:
    return F.count_if(F.array_contains("findings", word))


def _sum(name: str, condition: Column) -> Column:
    return F.coalesce(F.sum(F.when(condition, F.col(name))), F.lit(0))


HeadlineCount = tuple[str, Column, bool]
"""Headline before it is counted: its text; the aggregate; True if it calls for a look."""


def headlines(name: str) -> tuple[HeadlineCount, ...]:
    """Return the headlines of an answer by its name. Made at each call: Spark's columns need a running session."""
    verdict, kind, own = F.col("verdict"), F.col("kind"), F.col("answered_by") == "kproxy"
    entries: dict[str, tuple[HeadlineCount, ...]] = {
        "who_writes": (
            ("clients write", _clients((F.col("records") > 0) | (F.col("unconfirmed_records") > 0)), False),
        ),
        "who_reads": (("clients read", _clients(F.col("bytes") > 0), False),),
        "kafka4_readiness": (
            ("clients would break on Kafka 4", _clients(verdict == "breaks"), True),
            ("clients with an old library", _clients(verdict == "old software"), True),
            ("clients do not say what they are", _clients(verdict == "unknown software"), False),
        ),
        "unused_topics": (
            ("topics that nobody uses", _rows(verdict == "unused"), True),
            ("topics that are written and never read", _rows(verdict == "never read"), True),
        ),
        "dormant_clients": (
            ("clients", F.count(F.lit(1)), False),
            ("of them dormant", _rows(F.col("dormant")), True),
        ),
        "errors_and_denials": (
            ("failed authentications", _sum("count", (kind == "authentication")), True),
            ("refused requests", _sum("count", (kind == "authorization") & (F.col("what") == "request")), True),
            ("requests without an answer", _sum("count", kind == "cut off"), True),
            ("requests with another error", _sum("count", (kind == "other") & (F.col("what") == "request")), False),
            ("errors of requests that rules of kproxy made", _sum("count", own & (F.col("what") == "request")), False),
        ),
        "group_health": (
            ("groups", F.count(F.lit(1)), False),
            ("groups rebalance often", _found("rebalances often"), True),
            ("groups with flapping members", _found("flapping members"), True),
            ("groups with zombies", _found("zombies"), True),
            ("groups commit often", _found("commits often"), True),
        ),
        "group_lag": (
            ("records behind, all groups together", F.coalesce(F.sum("lag"), F.lit(0)), False),
            ("commits that went back", F.coalesce(F.sum("commits_back"), F.lit(0)), True),
        ),
        "storms": (("storms, by address and kind", _rows(F.col("storm")), True),),
        "rules_effect": (("rules", F.count_distinct("rule"), False), ("changes applied", F.sum("applied"), False)),
        "producer_hygiene": tuple(
            (f"producers, by topic: {word}", _found(word), True)
            for word in ("acks=0", "acks=1", "not idempotent", "uncompressed", "tiny batches", "huge batches")
        ),
        "partition_skew": (
            ("topics have a partition with more than twice its share", _rows(F.col("records_max_to_mean") > 2), True),
        ),
        "empty_fetches": (("clients poll in vain", _found("polls in vain"), True),),
    }
    return entries.get(name, ())
