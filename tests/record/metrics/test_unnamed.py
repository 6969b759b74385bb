"""Numbers of a topic of which only the id is known wait for its name, are bounded, and are lost to nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest
from structlog import get_logger

from kproxy.app import label_metrics as labelling_module
from kproxy.app.label_metrics import LabelMetrics, names_of
from kproxy.base.errors import DecodeError
from kproxy.record.fanout import ClusterMetadata, Fanout
from kproxy.record.metrics.label_sink import AGAIN, MOST_ASKED, MOST_UNNAMED, PATIENCE, UnnamedTopics
from kproxy.record.metrics.totals import LabelTotals, MetricsConfig
from kproxy.session.cluster import BY_ID_VERSION
from kproxy.tools.rehearse.dialogue import request, response
from tests.record.metrics.test_counts_agree import Labelled
from tests.record.observer.watching import CLIENT

if TYPE_CHECKING:
    from kproxy.app.config.document import Config
    from kproxy.runtime.server import Server
    from kproxy.runtime.upstreams.upstream import Upstream

PRODUCE, METADATA = 0, 3
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
        self.unnamed.resolve(now)
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


def test_a_topic_without_numbers_takes_no_place() -> None:
    """One that was only committed to, by its id, of which lag wants the name."""
    waiting = Waiting()
    waiting.unnamed.add("main", UUID(int=7).bytes, [], 0.0)
    assert waiting.unnamed.to_ask(0.0) == {"main": [UUID(int=7).bytes]}
    waiting.picture.learn_names({str(UUID(int=7)): "orders"})
    assert waiting.told(1.0) == {} and not waiting.totals.tables["topic"].series and not waiting.unnamed.waiting


def test_what_nobody_has_confirmed_does_not_wait() -> None:
    """A client fills no places with ids that it makes up: nobody answers acks=0."""
    labelled = Labelled("none", MetricsConfig(by=["topic"]))
    for number in range(20):
        data = {"topic_id": UUID(int=1000 + number), "partition_data": [{"index": 0, "records": b"r" * 70}]}
        labelled.hear(CLIENT, request(PRODUCE, 13, number, acks=0, topic_data=[data]))
    labelled.now += 70
    labelled.gather()
    assert not labelled.sink.unnamed.waiting


@pytest.mark.parametrize("after", [["client_id"], []])
def test_what_waits_is_others_where_topics_are_told_no_more(after: list[Any]) -> None:
    """Another config takes the label away, or all labels, and a later one gives it back."""
    server = SimpleNamespace(reactor=None, taps=SimpleNamespace(fanout=Fanout(get_logger())))
    label_metrics = LabelMetrics(cast("Server", server), tells=True)

    def follow(by: list[Any]) -> None:
        label_metrics.prepare(cast("Config", SimpleNamespace(
            exports_labels=bool(by), metrics=MetricsConfig(by=by), telemetry=None)))()  # fmt: skip

    follow(["topic"])
    assert label_metrics.sink is not None
    label_metrics.sink.unnamed.add("main", UUID(int=7).bytes, [(READ, 30)], 0.0)
    follow(after)
    follow(["topic"])
    assert {one.name: one.values.get(READ) for one in label_metrics.totals.tables["topic"].everything()} == {
        "other": 30
    }


def test_only_what_was_asked_for_is_learnt() -> None:
    """A broker that answers with all it has is believed no more than one that does not know."""
    asked = [UUID(int=7).bytes, UUID(int=9).bytes]
    said = [
        {"name": f"topic-{number}", "topic_id": UUID(int=number), "partitions": [], "error_code": 100 * (number == 9)}
        for number in range(1, 5000)
    ]
    frame = response(METADATA, BY_ID_VERSION, 1, topics=said)[4:]
    assert names_of(asked, frame) == {str(UUID(int=7)): "topic-7"}
    with pytest.raises(DecodeError):
        names_of(asked, frame[:50])


@pytest.mark.trio
async def test_a_cluster_that_is_another_one_by_now_learns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer was the old one's."""
    monkeypatch.setattr(labelling_module, "own_connection", nothing)
    said = {"name": "old", "topic_id": UUID(int=7), "partitions": [], "error_code": 0}
    frame = response(METADATA, BY_ID_VERSION, 1, topics=[said])[4:]

    async def answered(*arguments: Any) -> bytes:
        return frame

    monkeypatch.setattr(labelling_module, "send_request", answered)
    upstream, fanout = SimpleNamespace(name="main"), Fanout(get_logger())
    for there, names in ((upstream, ["old"]), (SimpleNamespace(name="main"), [])):
        fanout.pictures.clear()
        server = SimpleNamespace(
            reactor=SimpleNamespace(driver=""), taps=SimpleNamespace(fanout=fanout), upstreams={"main": there}
        )
        label_metrics = LabelMetrics(cast("Server", server), tells=True)
        await label_metrics.learn_names(cast("Upstream", upstream), [UUID(int=7).bytes])
        assert [name for picture in fanout.pictures.values() for name in picture.by_id.values()] == names


@asynccontextmanager
async def nothing(*arguments: Any) -> AsyncIterator[None]:
    """No connection."""
    yield


def test_each_is_asked_for_and_later_again_and_so_many_at_a_time() -> None:
    waiting = Waiting()
    for number in range(MOST_ASKED + 2):
        waiting.count(number + 1)
    waiting.count(1, cluster="second")
    first, then = waiting.unnamed.to_ask(0.0), waiting.unnamed.to_ask(0.0)

    assert {name: len(ids) for name, ids in first.items()} == {"main": MOST_ASKED, "second": 1}
    assert {name: len(ids) for name, ids in then.items()} == {"main": 2}
    assert not set(first["main"]) & set(then["main"])
    assert waiting.unnamed.to_ask(AGAIN - 0.1) == {}
    assert {name: len(ids) for name, ids in waiting.unnamed.to_ask(AGAIN).items()} == {"main": MOST_ASKED, "second": 1}
