"""Numbers of a topic of which only the id is known wait for its name, are bounded, and are lost to nobody."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kproxy.config.metrics import MetricsConfig
from kproxy.sinks.fanout import ClusterMetadata
from kproxy.sinks.labels.totals import LabelTotals
from kproxy.sinks.labels.unnamed import MOST_ASKED, MOST_UNNAMED, PATIENCE, UnnamedTopics

READ = ("kproxy_topic_records_total", "fetch")


class Waiting:
    """Topics without names of one cluster, `main`."""

    def __init__(self) -> None:
        self.totals, self.picture = LabelTotals(MetricsConfig(by=["topic"])), ClusterMetadata("main")
        self.unnamed = UnnamedTopics(self.totals, {"main": self.picture})

    def count(self, number: int, records: int = 1, now: float = 0.0, cluster: str = "main") -> None:
        self.unnamed.add(cluster, UUID(int=number).bytes, [(READ, records)], now)

    def told(self, now: float) -> dict[str, float]:
        """Records by name, after those with a name or without patience were settled."""
        self.unnamed.settle(now)
        return {one.name: one.values[READ] for one in self.totals.tables["topic"].everything() if READ in one.values}


def answer(**topics: int) -> dict[str, Any]:
    """Body of an answer that names topics by their ids."""
    return {
        "topics": [
            {"name": name, "error_code": 0, "topic_id": UUID(int=number), "partitions": []}
            for name, number in topics.items()
        ]
    }


def test_they_are_counted_under_the_name_once_it_is_known() -> None:
    waiting = Waiting()
    waiting.count(7, 2)
    waiting.count(7, 3, 5.0)
    waiting.count(8, 4, 5.0)
    assert waiting.told(6.0) == {}

    waiting.picture.learn(answer(orders=7), lambda name: None)
    assert waiting.told(7.0) == {"orders": 5}
    assert waiting.told(8.0) == {"orders": 5}


def test_without_a_name_in_time_they_are_others() -> None:
    waiting = Waiting()
    waiting.count(7, 2)
    waiting.count(7, 3, PATIENCE - 1)
    waiting.count(7, 1, cluster="gone")
    assert waiting.told(PATIENCE - 0.1) == {}
    assert waiting.told(PATIENCE) == {"other": 6}
    assert not waiting.unnamed.waiting


def test_so_many_wait_and_the_rest_is_others_at_once() -> None:
    waiting = Waiting()
    for number in range(MOST_UNNAMED + 10):
        waiting.count(number + 1, 1)
    assert len(waiting.unnamed.waiting) == MOST_UNNAMED
    assert waiting.told(1.0) == {"other": 10}
    assert waiting.told(PATIENCE) == {"other": MOST_UNNAMED + 10}


def test_each_is_asked_for_once_and_so_many_at_a_time() -> None:
    waiting = Waiting()
    for number in range(MOST_ASKED + 2):
        waiting.count(number + 1)
    waiting.count(1, cluster="second")
    first, then = waiting.unnamed.to_ask(), waiting.unnamed.to_ask()

    assert {name: len(ids) for name, ids in first.items()} == {"main": MOST_ASKED, "second": 1}
    assert {name: len(ids) for name, ids in then.items()} == {"main": 2}
    assert not set(first["main"]) & set(then["main"])
    assert waiting.unnamed.to_ask() == {}
