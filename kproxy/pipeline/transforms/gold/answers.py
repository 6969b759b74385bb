"""Table of the answers' transforms: by name, what is kept of a day and the two transforms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from kproxy.pipeline.transforms.gold import (
    dormant_clients,
    empty_fetches,
    errors_and_denials,
    group_health,
    group_lag,
    kafka4_readiness,
    latency,
    partition_skew,
    producer_hygiene,
    rules_effect,
    storms,
    traffic,
    unused_topics,
    who_reads,
    who_writes,
)
from kproxy.pipeline.transforms.gold.bases import Bases
from kproxy.pipeline.transforms.gold.partial import Partial


@dataclass(frozen=True, slots=True)
class AnswerTransforms:
    """Transforms of one answer: `daily` gives rows of `partial`, `combine` makes the answer of any days' rows."""

    partial: Partial
    daily: Callable[[Bases], DataFrame]
    combine: Callable[[DataFrame], DataFrame]


ANSWER_TRANSFORMS = {
    "traffic": AnswerTransforms(traffic.PARTIAL, traffic.daily, traffic.combine),
    "who_writes": AnswerTransforms(who_writes.PARTIAL, who_writes.daily, who_writes.combine),
    "who_reads": AnswerTransforms(who_reads.PARTIAL, who_reads.daily, who_reads.combine),
    "kafka4_readiness": AnswerTransforms(kafka4_readiness.PARTIAL, kafka4_readiness.daily, kafka4_readiness.combine),
    "unused_topics": AnswerTransforms(unused_topics.PARTIAL, unused_topics.daily, unused_topics.combine),
    "dormant_clients": AnswerTransforms(dormant_clients.PARTIAL, dormant_clients.daily, dormant_clients.combine),
    "latency": AnswerTransforms(latency.PARTIAL, latency.daily, latency.combine),
    "errors_and_denials": AnswerTransforms(
        errors_and_denials.PARTIAL, errors_and_denials.daily, errors_and_denials.combine
    ),
    "group_health": AnswerTransforms(group_health.PARTIAL, group_health.daily, group_health.combine),
    "group_lag": AnswerTransforms(group_lag.PARTIAL, group_lag.daily, group_lag.combine),
    "producer_hygiene": AnswerTransforms(producer_hygiene.PARTIAL, producer_hygiene.daily, producer_hygiene.combine),
    "partition_skew": AnswerTransforms(partition_skew.PARTIAL, partition_skew.daily, partition_skew.combine),
    "empty_fetches": AnswerTransforms(empty_fetches.PARTIAL, empty_fetches.daily, empty_fetches.combine),
    "rules_effect": AnswerTransforms(rules_effect.PARTIAL, rules_effect.daily, rules_effect.combine),
    "storms": AnswerTransforms(storms.PARTIAL, storms.daily, storms.combine),
}
"""In the order in which the report tells them."""
