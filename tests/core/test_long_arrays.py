"""Loops over arrays of a message: each lets other connections run every few dozen elements (kproxy/wire/breath.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kproxy.core.live.evaluation import without_records
from kproxy.net.dial.metadata_poller import NodeLocator
from kproxy.rules.bodies import EntityIndex
from kproxy.rules.entity import Entity
from kproxy.rules.kinds.bad_assignment import negative
from kproxy.sinks.audit.extract.details import all_configs, new_topic, quotas, shown_configs, some_configs
from kproxy.sinks.fanout import ClusterMetadata
from kproxy.wire import decode_request
from tests.support.frames import produce
from tests.support.line_count import LineCount

COUNT = 20_000
LONGEST = 16_000
"""Lines between two places to stop: 1,024 elements with some lines each. Without such places there are 20,000."""


def produced() -> Callable[[], object]:
    message = decode_request(produce(1, *((f"t{number}", 0, None) for number in range(COUNT)))[4:])
    return lambda: without_records(message)


def indexed() -> Callable[[], object]:
    entities = [Entity(topic=f"t{number}", partition=number) for number in range(COUNT)]
    return lambda: EntityIndex(entities)


def brokers() -> list[dict[str, Any]]:
    return [{"node_id": number, "host": f"h{number}", "port": 9092, "rack": None} for number in range(COUNT)]


def located() -> Callable[[], object]:
    upstream: Any = SimpleNamespace(topology=SimpleNamespace(most=1000))
    locator = NodeLocator.__new__(NodeLocator)
    locator.upstream = upstream
    body = {"brokers": brokers()}
    return lambda: locator.learn(body, None)


CONFIGS = {"configs": [{"name": "n", "config_operation": 0}] * COUNT}
LOOPS: dict[str, Callable[[], Callable[[], object]]] = {
    "without_records": produced,
    "EntityIndex": indexed,
    "negative": lambda: partial(negative, [{"topic": "t", "partitions": list(range(COUNT))}]),
    "NodeLocator": located,
    "ClusterMetadata": lambda: partial(ClusterMetadata("c").learn_nodes, {"brokers": brokers()}),
    "all_configs": lambda: partial(all_configs, CONFIGS, {}),
    "some_configs": lambda: partial(some_configs, CONFIGS, {}),
    "new_topic": lambda: partial(new_topic, CONFIGS, {}),
    "shown_configs": lambda: partial(shown_configs, {"configuration_keys": ["n"] * COUNT}, {}),
    "quotas": lambda: partial(quotas, {"ops": [{"remove": False, "key": "n"}] * COUNT}, {}),
}


@pytest.mark.parametrize("name", LOOPS)
def test_long_array_is_walked_in_steps(name: str) -> None:
    loop = LOOPS[name]()
    loop()
    with LineCount() as count:
        loop()
    assert count.longest <= LONGEST < COUNT <= count.total
