"""librdkafka's mock cluster does what its methods say."""

from __future__ import annotations

import pytest

from kproxy.base.errors import InternalError
from kproxy.protocol.table.api_keys import METADATA
from kproxy.testing import one_request
from kproxy.testing.cluster import MockCluster


def test_topics_leaders_and_brokers_are_as_ordered() -> None:
    """Three brokers know of each other; a created topic has its partitions, and the leader it was given."""
    with MockCluster(3) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.set_leader("orders", 1, 3)
        addresses = cluster.bootstrap.split(",")
        first = one_request.ask(addresses[0], METADATA, 4, {"topics": None, "allow_auto_topic_creation": False})

        assert sorted(one_request.brokers(addresses[0]).values()) == sorted(addresses)
        assert one_request.topics(addresses[1]) == {"orders": 2}
        leaders = {p["partition_index"]: p["leader_id"] for p in first["topics"][0]["partitions"]}
        assert leaders[1] == 3
        with pytest.raises(InternalError, match="already exists"):
            cluster.create_topic("orders")


def test_a_broker_goes_down_and_up() -> None:
    """A broker that is down refuses connections until it is up again."""
    with MockCluster(1) as cluster:
        cluster.set_down(1)
        with pytest.raises(OSError, match=r"refused|reset|ends after"):
            one_request.brokers(cluster.bootstrap)
        cluster.set_up(1)

        assert list(one_request.brokers(cluster.bootstrap)) == [1]


def test_an_api_is_offered_in_the_versions_said() -> None:
    with MockCluster(1) as cluster:
        cluster.limit_api(METADATA, 1, 5)
        offered = one_request.ask(cluster.bootstrap, 18, 0, {})["api_keys"]

        assert [(a["min_version"], a["max_version"]) for a in offered if a["api_key"] == METADATA] == [(1, 5)]
