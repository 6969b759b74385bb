"""Produce requests stream with the names of the other side, whatever of them changes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.core.plan import Bound, Plan
from kproxy.rules.all_names import Names
from kproxy.rules.name_prefix import PrefixLayer
from kproxy.rules.names import NameMap
from kproxy.rules.namespace import NAMESPACES, TRANSACTIONAL_ID

TOPICS = NameMap.of({"orders": "prod.orders"})
IDS = NameMap.of({"worker-*": "blue.worker-*"}, space=TRANSACTIONAL_ID)
PRODUCE = 0


def produce(frames: Any, version: int, topic: str, transactional_id: str | None) -> bytes:
    name: dict[str, Any] = {"name": topic} if version < 13 else {"topic_id": UUID(int=9)}
    data = [name | {"partition_data": [{"index": 0, "records": b"r" * 100_000}]}]
    built: bytes = frames.request(
        PRODUCE, version, 1, acks=1, transactional_id=transactional_id, topic_data=data, client_id="c"
    )
    return built


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize(
    ("names", "topic", "transactional_id"),
    [
        (Names(topics=TOPICS), "prod.orders", "worker-1"),
        (Names(transactional_ids=IDS), "orders", "blue.worker-1"),
        (Names(topics=TOPICS, transactional_ids=IDS), "prod.orders", "blue.worker-1"),
    ],
)
@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("chunk", [30, 7000])
def test_a_long_request_streams(
    dialogue: Any,
    frames: Any,
    version: int,
    names: Names,
    topic: str,
    transactional_id: str,
    transactional: bool,
    chunk: int,
) -> None:
    """Both names stand before the records: the frame is never held, and is byte for byte what it would be there."""
    frame = produce(frames, version, "orders", "worker-1" if transactional else None)
    expected = produce(frames, version, topic, transactional_id if transactional else None)
    talk = dialogue(Bound(names=names)).client(frame[:1200], chunk)
    assert len(talk.to_broker) > 900
    for start in range(1200, len(frame), 7000):
        talk.client(frame[start : start + 7000])
        assert talk.shared.requests.used == 0

    assert talk.to_broker == expected


def test_nothing_passes_that_cannot_be_read_for_a_tenant(dialogue: Any, frames: Any) -> None:
    """Unknown APIs, unknown versions of harmless ones, and requests inside requests close the connection."""
    tenant = Names(*(NameMap([PrefixLayer(space, b"a.")], space) for space in NAMESPACES))
    plan = Plan(Bound(names=tenant, advertise=False, hide_unknown_apis=False))
    other = Plan(Bound(names=Names(topics=TOPICS), advertise=False, hide_unknown_apis=False))
    for key, version in ((9999, 0), (58, 0), (36, 99), (12, 99)):
        assert plan[key << 16 | version].stop
    assert not other[9999 << 16].stop
    assert plan.newest(58) == plan.newest(9999) == -1
    assert not plan[36 << 16 | 2].stop
