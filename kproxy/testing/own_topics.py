"""Deletion of the topics of a test that had names of its own, through the same proxy, which shows no others."""

from __future__ import annotations

PATIENCE = 10.0
"""Seconds to wait for the list of topics, and for each topic's deletion."""


def delete_topics(bootstrap: str) -> list[str]:
    """Delete all topics that are there. Return the reason for each one that stays. Raises KafkaException when no broker
    answers."""
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError:
        return ["confluent-kafka is not installed, which would delete them"]
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    names = [name for name in client.list_topics(timeout=PATIENCE).topics if not name.startswith("__")]
    left = []
    deleting = client.delete_topics(names, request_timeout=PATIENCE) if names else {}
    for name, done in deleting.items():
        try:
            done.result(PATIENCE)
        except (KafkaException, TimeoutError) as error:
            left.append(f"{name}: {error}")
    return left
