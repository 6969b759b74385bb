"""Config values that were withheld."""

from __future__ import annotations

from typing import Any

from kproxy.record.observer.credentials import CONFIG_VALUES
from kproxy.tools.replay.request_fixes import LEFT_OUT, ConfigFix


def asked(tools: Any, withheld: str) -> Any:
    """A topic with two configs, one without a value."""
    configs = [{"name": "retention.ms", "value": "****"}, {"name": "cleanup.policy", "value": None}]
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
    seen = tools.seen(19, 5, {"topics": [topic]}, {})
    seen.request.withheld = withheld
    return tools.asked(tools.record([seen]).exchanges[0])


def test_a_topic_is_made_without_values_that_were_withheld(tools: Any) -> None:
    """The target's own are taken; the report says so."""
    one = asked(tools, CONFIG_VALUES)
    ConfigFix().request(one)

    assert [config["name"] for config in one.message.body["topics"][0]["configs"]] == ["cleanup.policy"]
    assert one.notes == [LEFT_OUT]
    assert one.exchange.unfit == ""


def test_values_that_are_there_stay(tools: Any) -> None:
    """Stars may be meant."""
    one = asked(tools, "")
    ConfigFix().request(one)

    assert len(one.message.body["topics"][0]["configs"]) == 2
    assert one.notes == []
