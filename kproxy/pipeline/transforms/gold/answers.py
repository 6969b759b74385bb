"""Table of the answers' transforms, and the last step that all of them have."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.answer import GoldAnswer
from kproxy.pipeline.schema import spark_type
from kproxy.pipeline.transforms.gold.clients import EMPTY_FETCHES, KAFKA4_READINESS, PRODUCER_HYGIENE
from kproxy.pipeline.transforms.gold.groups import GROUP_HEALTH, GROUP_LAG
from kproxy.pipeline.transforms.gold.health import ERRORS_AND_DENIALS, LATENCY, RULES_EFFECT, STORMS
from kproxy.pipeline.transforms.gold.topics import PARTITION_SKEW, UNUSED_TOPICS
from kproxy.pipeline.transforms.gold.use import DORMANT_CLIENTS, TRAFFIC, WHO_READS, WHO_WRITES

ANSWER_TRANSFORMS = {
    "traffic": TRAFFIC,
    "who_writes": WHO_WRITES,
    "who_reads": WHO_READS,
    "kafka4_readiness": KAFKA4_READINESS,
    "unused_topics": UNUSED_TOPICS,
    "dormant_clients": DORMANT_CLIENTS,
    "latency": LATENCY,
    "errors_and_denials": ERRORS_AND_DENIALS,
    "group_health": GROUP_HEALTH,
    "group_lag": GROUP_LAG,
    "producer_hygiene": PRODUCER_HYGIENE,
    "partition_skew": PARTITION_SKEW,
    "empty_fetches": EMPTY_FETCHES,
    "rules_effect": RULES_EFFECT,
    "storms": STORMS,
}
"""In the order in which the report tells them."""


def conform(rows: DataFrame, answer: GoldAnswer) -> DataFrame:
    """Return rows with exactly the columns that the answer declares; Spark's error names a column that is missing."""
    return rows.select(*[F.col(column.name).cast(spark_type(column)).alias(column.name) for column in answer.columns])
