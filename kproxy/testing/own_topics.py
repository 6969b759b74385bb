"""Topics of a test that had names of its own: deleted through the same proxy, which shows no others."""

from __future__ import annotations

PATIENCE = 10.0
"""Seconds for each of the two questions."""


def delete_topics(bootstrap: str) -> list[str]:
    """Delete all topics that are there; says why some are not. Raises what the client raises when nobody answers."""
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
