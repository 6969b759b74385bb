"""What is recorded of clusters."""

from __future__ import annotations

import pytest

from kproxy.record.audit.event_sink import EventGate
from kproxy.record.audit.state_events import MOST_LEADERS, TopologyEvents, topology_events
from kproxy.record.fanout import ClusterMetadata, KnownNode, KnownTopic
from tests.record.audit.exchanges import TimedEvents
from tests.support.stretches import IN_BOTH_UNITS, Unit, Watch


def picture() -> ClusterMetadata:
    found = ClusterMetadata("main", version=1)
    found.topics["orders"] = KnownTopic("id", False, (1, 2))
    found.nodes[1] = KnownNode("b1", 9092, None)
    return found


def test_told_on_change_and_hourly() -> None:
    """Once at first, again when it has changed, and again an hour after the last time."""
    cluster, kept = picture(), TimedEvents("kproxy.topology.v1")
    events = TopologyEvents(EventGate(kept, lambda: None), {"main": cluster})

    events.tick(1000.0)
    events.tick(1100.0)
    cluster.version += 1
    events.tick(1200.0)
    events.tick(4799.0)
    events.tick(4800.0)

    assert [time for time, _ in kept.events] == [1000.0, 1200.0, 4800.0]


def test_leaders_that_move_one_by_one_are_told_in_batches() -> None:
    """Ten changes within seconds are not ten tellings."""
    cluster, kept = picture(), TimedEvents("kproxy.topology.v1")
    events = TopologyEvents(EventGate(kept, lambda: None), {"main": cluster})

    for second in range(21):
        cluster.version += 1
        events.tick(1000.0 + second)

    assert [time for time, _ in kept.events] == [1000.0, 1010.0, 1020.0]


def test_another_cluster_under_the_name_is_told_for_itself() -> None:
    """Though its picture has changed as often as that of the one before."""
    pictures, kept = {"main": picture()}, TimedEvents("kproxy.topology.v1")
    events = TopologyEvents(EventGate(kept, lambda: None), pictures)

    events.tick(1000.0)
    pictures["main"] = picture()
    events.tick(1100.0)
    events.tick(1200.0)

    assert [time for time, _ in kept.events] == [1000.0, 1100.0]


def test_a_cluster_that_nobody_has_seen_is_not_told() -> None:
    """An empty picture would say that there are no topics."""
    kept = TimedEvents("kproxy.topology.v1")

    TopologyEvents(EventGate(kept, lambda: None), {"main": ClusterMetadata("main")}).tick(1000.0)

    assert kept.events == []


def test_a_large_cluster_is_told_in_parts() -> None:
    """Each part has the nodes; all topics are in exactly one."""
    cluster = picture()
    for number in range(30):
        cluster.topics[f"t{number}"] = KnownTopic(None, False, (1,) * 1000)

    parts = topology_events(cluster)

    assert [part["part"] for part in parts] == list(range(len(parts)))
    assert {part["parts"] for part in parts} == {len(parts)}
    assert all(sum(one["partitions"] for one in part["topics"]) <= MOST_LEADERS for part in parts)
    assert sorted(one["topic"] for part in parts for one in part["topics"]) == sorted(cluster.topics)
    assert all(part["nodes"] == [{"node": 1, "host": "b1", "port": 9092}] for part in parts)


SIZES = {"lines": ((20_000, 1), (20, 1_000)), "seconds": ((200_000, 1), (20, 10_000))}
"""Topics and partitions of each."""
LONGEST = {"lines": 5_000, "seconds": 0.05}


@IN_BOTH_UNITS
@pytest.mark.parametrize("size", [0, 1])
def test_topology_of_a_large_cluster_yields(size: int, unit: Unit) -> None:
    topics, partitions = SIZES[unit.name][size]

    def work(watch: Watch) -> None:
        cluster, kept = picture(), TimedEvents("kproxy.topology.v1")
        for number in range(topics):
            cluster.topics[f"topic-{number:06}"] = KnownTopic(f"id-{number}", False, (1,) * partitions)
        with watch:
            TopologyEvents(EventGate(kept, lambda: None), {"main": cluster}).tick(1000.0)
        told = [one["topic"] for _, event in kept.events for one in event["topics"]]
        assert told == sorted(cluster.topics)

    unit.check(work, LONGEST[unit.name])
