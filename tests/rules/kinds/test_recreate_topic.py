"""recreate_topic: topic ids as clients are told."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.table import schema

METADATA = 3
ID = UUID(int=7)


def new_id(dialogue: Any, version: int, seed: int = 0) -> UUID:
    talk = dialogue(f"kind: recreate_topic\nmatch: {{topic: orders}}\nseed: {seed}")
    talk.ask(METADATA, version, topics=None)
    (topic,) = talk.answer(METADATA, version, topics=[{"name": "orders", "topic_id": ID}])["topics"]
    found: UUID = topic["topic_id"]
    return found


@pytest.mark.parametrize("version", [version for version in schema.load(METADATA).versions if version >= 10])
def test_the_id_is_another_one(dialogue: Any, version: int) -> None:
    """It comes from the seed and the true id: the same every time, another with another seed."""
    first = new_id(dialogue, version)

    assert first not in (ID, UUID(int=0))
    assert first == new_id(dialogue, version)
    assert first != new_id(dialogue, version, seed=1)


def test_answers_without_ids_pass(dialogue: Any) -> None:
    """Metadata 9 has none, and a topic that is not there has none either."""
    talk = dialogue("kind: recreate_topic")
    talk.ask(METADATA, 9, topics=None)
    talk.answer(METADATA, 9, topics=[{"name": "orders"}])
    talk.ask(METADATA, 12, topics=[{"name": "gone"}])
    talk.answer(METADATA, 12, topics=[{"name": "gone", "error_code": 3}])

    assert talk.rule.applied == 0
