"""Gold tables, all of them; Spark's schemas, the documentation and the report are made of these declarations."""

from __future__ import annotations

from kproxy.pipeline.answer import GoldAnswer
from kproxy.pipeline.answers_health import ERRORS_AND_DENIALS, GROUP_HEALTH, GROUP_LAG, LATENCY, RULES_EFFECT, STORMS
from kproxy.pipeline.answers_quality import EMPTY_FETCHES, PARTITION_SKEW, PRODUCER_HYGIENE
from kproxy.pipeline.answers_use import DORMANT_CLIENTS, KAFKA4_READINESS, TRAFFIC, UNUSED_TOPICS, WHO_READS, WHO_WRITES
from kproxy.pipeline.errors import UnknownTable

ANSWERS = (
    TRAFFIC,
    WHO_WRITES,
    WHO_READS,
    KAFKA4_READINESS,
    UNUSED_TOPICS,
    DORMANT_CLIENTS,
    LATENCY,
    ERRORS_AND_DENIALS,
    GROUP_HEALTH,
    GROUP_LAG,
    PRODUCER_HYGIENE,
    PARTITION_SKEW,
    EMPTY_FETCHES,
    RULES_EFFECT,
    STORMS,
)
"""Gold tables in the order of the report."""


def answer_named(name: str) -> GoldAnswer:
    """Return the gold table of this name; UnknownTable says which there are."""
    for answer in ANSWERS:
        if answer.name == name:
            return answer
    raise UnknownTable(f"there is no gold table {name!r}, there are {', '.join(answer.name for answer in ANSWERS)}")
