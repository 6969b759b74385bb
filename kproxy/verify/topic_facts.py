"""Facts about topics: their ids, their configs, and that they were deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from kproxy.observe.credentials import FILLER
from kproxy.wire.table.api_keys import ALTER_CONFIGS

from .facts import ConfigsAlteredFact, Fact, ForgottenFact, LeaderEpochFact, TopicToldFact
from .log_facts import id_text
from .read_exchange import ReadExchange, codes

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
POLICY = "cleanup.policy"
COMPACT = "compact"
UNCLEAN = "unclean.leader.election.enable"
OFF = "false"
BROKER_DEFAULTS = (f"log.{POLICY}", UNCLEAN)
UNCLEAN_ELECTION = 1
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
                yield LeaderEpochFact(exchange.witness, place, topic_id, epoch, part.fields["leader_id"])


def created_topics(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the topics that CreateTopics has made, with their ids and configs."""
    if exchange.request.get("validate_only"):
        return
    asked = {one["name"]: one for one in exchange.request["topics"] or ()}
    for topic in (exchange.response or {}).get("topics") or ():
        name = exchange.topic(topic["name"])
        if not name or topic["error_code"]:
            continue
        wanted, told = (asked.get(topic["name"]) or {}).get("configs"), topic.get("configs")
        compacted, unclean = (by(wanted) if by(told) is None else by(told) for by in (compacted_by, unclean_by))
        yield TopicToldFact(
            exchange.witness, name, id_text(topic.get("topic_id")), compacted, made=True, unclean=unclean
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
    for resource in (exchange.response or {}).get("results") or ():
        name = exchange.topic(resource["resource_name"])
        compacted, unclean = compacted_by(resource["configs"]), unclean_by(resource["configs"])
        if resource["resource_type"] == TOPIC_RESOURCE and name and (compacted, unclean) != (None, None):
            yield TopicToldFact(exchange.witness, name, "", compacted, unclean=unclean)


def altered_configs(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the topics that AlterConfigs or IncrementalAlterConfigs give configs under which records may be lost.

    A value that is deleted or overwritten may be any. AlterConfigs deletes the configs that it does not list.
    """
    for resource in exchange.request["resources"] or ():
        configs = resource["configs"] or ()
        if resource["resource_type"] == BROKER_RESOURCE and any(one["name"] in BROKER_DEFAULTS for one in configs):
            yield ConfigsAlteredFact(exchange.witness)
        name = exchange.topic(resource["resource_name"])
        if resource["resource_type"] != TOPIC_RESOURCE or not name:
            continue
        compacted, unclean = compacted_by(configs), unclean_by(configs)
        if compacted or unclean:
            yield TopicToldFact(exchange.witness, name, "", compacted or None, unclean=unclean or None)
        listed = {one["name"] for one in configs}
        unknown = [("compacted", POLICY)] * (compacted is None) + [("unclean", UNCLEAN)] * (unclean is None)
        altered = tuple(one for one, config in unknown if exchange.key == ALTER_CONFIGS or config in listed)
        if altered:
            yield ConfigsAlteredFact(exchange.witness, altered)


def elected_leaders(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the topics of an unclean leader election that an operator requested, whatever their configs are."""
    if exchange.request.get("election_type") != UNCLEAN_ELECTION:
        return
    topics = exchange.request["topic_partitions"]
    if topics is None:  # all of the cluster
        yield ConfigsAlteredFact(exchange.witness, ("unclean",))
    for name in filter(None, (exchange.topic(one["topic"]) for one in topics or ())):
        yield TopicToldFact(exchange.witness, name, "", unclean=True)


def compacted_by(configs: Any) -> bool | None:
    """Return whether these configs compact a topic; None if they have no policy, or its value is overwritten."""
    value = value_of(configs, POLICY)
    return None if value is None else COMPACT in value


def unclean_by(configs: Any) -> bool | None:
    """Return whether these configs permit unclean leader elections; None as for `compacted_by`."""
    value = value_of(configs, UNCLEAN)
    return None if value is None else value.lower() != OFF


def value_of(configs: Any, name: str) -> str | None:
    """Return the value of the config of this name; None if it is missing or overwritten."""
    values = (one.get("value") for one in configs or () if one["name"] == name)
    return next((one for one in values if isinstance(one, str) and one.strip(OVERWRITTEN)), None)
