"""Loops over arrays of a message: each lets other connections run every few dozen elements
(kproxy/base/cooperative.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol import Message, decode_request
from kproxy.protocol.scan.walk import Hits, walk
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import FIND_COORDINATOR, METADATA, OFFSET_FETCH
from kproxy.protocol.table.shapes import shape
from kproxy.record.audit.resource_columns import all_configs, new_topic, quotas, shown_configs, some_configs
from kproxy.record.fanout import ClusterMetadata
from kproxy.record.observer.number_template import holders
from kproxy.rules.bodies import EntityIndex
from kproxy.rules.entity import Entity
from kproxy.rules.kinds.bad_assignment import BadAssignments, negative
from kproxy.rules.kinds.base.access import fail_outermost
from kproxy.rules.kinds.change_partitions import ChangePartitions
from kproxy.rules.kinds.hide_node import HideNode
from kproxy.rules.kinds.omit_offset import OmitOffset
from kproxy.rules.kinds.set import SetRule
from kproxy.rules.kinds.stale_metadata import frozen, metadata_shape
from kproxy.rules.kinds.wrong_address import WrongAddress
from kproxy.runtime.upstreams.upstream import NodeLocator
from kproxy.session.live.evaluation import without_records
from tests.support.frames import produce
from tests.support.line_count import LineCount
from tests.support.stretches import body, large

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


def bodies(key: int, version: int, direction: str) -> Any:
    """A message of which each outermost array has COUNT elements, or the inner array of its first element."""
    return Message(schema.load(key), version, {}, body(key, version, direction, COUNT))


def answered(key: int, version: int) -> Any:
    """An exchange with a long request and a long response."""
    asked, told = bodies(key, version, "request"), bodies(key, version, "response")
    return SimpleNamespace(request=asked, response=told, api=asked.api, client_id="c")


def partitions_changed() -> Callable[[], object]:
    rule = ChangePartitions(name="r", kind="change_partitions", set_to=COUNT // 2)
    parts = [{"partition_index": number} for number in range(COUNT)]
    exchange = answered(METADATA, 9)
    return lambda: rule.change_topic({"partitions": parts}, exchange)


def swapped() -> Callable[[], object]:
    assignments = [{"member_id": f"m{number}", "assignment": b"%d" % number} for number in range(COUNT)]
    exchange: Any = SimpleNamespace(request=SimpleNamespace(body={"assignments": assignments}))
    return lambda: BadAssignments("swap").on_request(exchange, (), 0.0)


def hidden(key: int, version: int) -> Callable[[], object]:
    rule = HideNode(name="r", kind="hide_node", node=1)
    exchange = answered(key, version)
    return lambda: rule.change(exchange, ())


def moved_elsewhere() -> Callable[[], object]:
    rule = WrongAddress(name="r", kind="wrong_address", host="h")
    exchange = answered(FIND_COORDINATOR, 4)
    return lambda: rule.change(exchange, ())


def values_set() -> Callable[[], object]:
    rule = SetRule(name="r", kind="set", match={"api": "Metadata"}, at="response", fields={"topics[].error_code": 3})
    message = bodies(METADATA, 9, "response")
    effect: Any = rule.start()
    return lambda: effect.change(message, ())


def offsets_changed() -> Callable[[], object]:
    rule = OmitOffset(name="r", kind="omit_offset")
    parts = [{"partition_index": number, "committed_offset": 1} for number in range(COUNT)]
    topic = type("T", (tuple,), {"partitions": parts, "topic_id": None, "fields": {"partitions": parts}})(("t",))
    exchange = answered(OFFSET_FETCH, 7)
    return lambda: rule.change_topic(exchange, Entity(group="g"), topic)


def failed_groups() -> Callable[[], object]:
    message = bodies(OFFSET_FETCH, 8, "response")
    return lambda: fail_outermost(shape(OFFSET_FETCH, 8), message.body, (), 16)


def walked_badly() -> Callable[[], object]:
    data = large(METADATA, 9, "response", COUNT)[8:-2]
    found = walk(METADATA, 9, "response", frozenset({"topics[].name"}))

    def run() -> None:
        hits: Hits = []
        with pytest.raises(DecodeError):
            found.run(data, 1, len(data), hits)
        assert not hits  # freed with yield points

    return run


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
    "ChangePartitions": partitions_changed,
    "BadAssignments": swapped,
    "HideNode listed": lambda: hidden(METADATA, 9),
    "HideNode coordinators": lambda: hidden(FIND_COORDINATOR, 4),
    "WrongAddress": moved_elsewhere,
    "SetRule": values_set,
    "OffsetsRule": offsets_changed,
    "fail_outermost": failed_groups,
    "frozen": lambda: partial(frozen, {"topics": [{"name": "t"}] * COUNT}),
    "metadata_shape": lambda: partial(metadata_shape, answered(METADATA, 9)),
    "holders": lambda: partial(lambda body: list(holders(body, "topics[].name")), bodies(METADATA, 9, "response").body),
    "walk with error": walked_badly,
    "quotas": lambda: partial(quotas, {"ops": [{"remove": False, "key": "n"}] * COUNT}, {}),
}


@pytest.mark.parametrize("name", LOOPS)
def test_long_array_is_walked_in_steps(name: str) -> None:
    loop = LOOPS[name]()
    loop()
    with LineCount() as count:
        loop()
    assert count.longest <= LONGEST < COUNT <= count.total
