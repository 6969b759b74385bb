"""Facts about topics: their ids and configs, and that they were deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from kproxy.observe.credentials import FILLER
from kproxy.wire.table.api_keys import ALTER_CONFIGS

from .facts import ConfigsAlteredFact, Fact, ForgottenFact, LeaderEpochFact, TopicToldFact
from .log_facts import id_text
from .read_exchange import ReadExchange, codes

TOPIC_RESOURCE = 2
POLICY = "cleanup.policy"
COMPACT = "compact"
OVERWRITTEN = FILLER.decode()
GONE = codes("NONE", "REQUEST_TIMED_OUT", "UNKNOWN_SERVER_ERROR")


def told_topics(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield what a Metadata response tells of topics and their leaders."""
    for topic, parts in exchange.answered_topics():
        name, topic_id = exchange.topic(topic.name), id_text(topic.topic_id)
        if not name or topic.fields["error_code"]:
            continue
        if topic_id:
            yield TopicToldFact(exchange.witness, name, topic_id)
        for part in parts:
            place, epoch = exchange.place(part), part.fields.get("leader_epoch", -1)
            if place is not None and epoch >= 0:
                yield LeaderEpochFact(exchange.witness, place, topic_id, epoch)


def created_topics(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield what CreateTopics tells: the topic is a new one, and has these configs."""
    if exchange.request.get("validate_only"):
        return
    asked = {one["name"]: one for one in exchange.request["topics"] or ()}
    for topic in (exchange.response or {}).get("topics") or ():
        name = exchange.topic(topic["name"])
        if not name or topic["error_code"]:
            continue
        wanted = compacted_by((asked.get(topic["name"]) or {}).get("configs"))
        told = compacted_by(topic.get("configs"))
        yield TopicToldFact(
            exchange.witness, name, id_text(topic.get("topic_id")), wanted if told is None else told, made=True
        )


def deleted_topics(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the topics that DeleteTopics has deleted, or may have."""
    request, response = exchange.request, exchange.response
    asked = [(one["name"], one["topic_id"]) for one in request.get("topics") or ()]
    asked += [(name, None) for name in request.get("topic_names") or ()]
    failed = {
        named(exchange, one["name"], one.get("topic_id"))
        for one in (response or {}).get("responses") or ()
        if one["error_code"] not in GONE
    }
    for name in [named(exchange, *one) for one in asked]:
        if name and name not in failed:
            yield ForgottenFact(exchange.witness, name, None)


def named(exchange: ReadExchange, name: str | None, topic_id: UUID | None) -> str | None:
    """Return the name of a topic that a message names, or gives the id of; None if nobody knows."""
    if name:
        return exchange.topic(name)
    return None if topic_id is None else exchange.name_of(topic_id)


def told_configs(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield what DescribeConfigs tells of topics."""
    for resource in (exchange.response or {}).get("results") or ():
        name = exchange.topic(resource["resource_name"])
        compacted = compacted_by(resource["configs"])
        if resource["resource_type"] == TOPIC_RESOURCE and name and compacted is not None:
            yield TopicToldFact(exchange.witness, name, "", compacted)


def altered_configs(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the topics that AlterConfigs or IncrementalAlterConfigs compact: they may lack records afterwards.

    A policy that is deleted or overwritten may be any. AlterConfigs deletes the configs that it does not list.
    """
    for resource in exchange.request["resources"] or ():
        name = exchange.topic(resource["resource_name"])
        if resource["resource_type"] != TOPIC_RESOURCE or not name:
            continue
        configs = resource["configs"] or ()
        listed = any(config["name"] == POLICY for config in configs)
        if compacted_by(configs):
            yield TopicToldFact(exchange.witness, name, "", compacted=True)
        elif compacted_by(configs) is None and (listed or exchange.key == ALTER_CONFIGS):
            yield ConfigsAlteredFact(exchange.witness)


def compacted_by(configs: Any) -> bool | None:
    """Return whether these configs compact a topic; None if they have no policy, or its value is overwritten."""
    for config in configs or ():
        value = config.get("value")
        if config["name"] == POLICY and isinstance(value, str) and value.strip(OVERWRITTEN):
            return COMPACT in value
    return None
