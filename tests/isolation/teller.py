"""Answers of a broker that names everybody's things, wherever one has a place for what nobody asked for by name."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from itertools import cycle
from random import Random
from typing import Any
from uuid import UUID

from kproxy.protocol import Message
from kproxy.protocol.table import layout
from kproxy.protocol.table.shapes import shape
from kproxy.rules.select.frame_match import asks_all
from kproxy.rules.select.mentions import loose, texts
from kproxy.session.rewrite.context import TOPIC_IDS, session_lru
from kproxy.session.rewrite.names.topic_ids import ANSWERS_BY_ID
from tests.support.random_requests import answered
from tests.support.random_values import random_struct

from .access import Access
from .lifelike_cluster import CONSUMER, JOIN_GROUP, SYNC_GROUP, LifelikeCluster
from .telling import FOREIGN, MINE, Words, telling

OFFSET_FETCH, LIST_CONFIG_RESOURCES, SHARE_OFFSETS = 9, 74, 90
ROLES = ("group", "transactional_id")
TOPIC_FIELDS = {"name", "topic_name", "topic_id", "partitions"}
BY_ID_ALONE = {9, 68, 76}
"""What a member is given, and what its group has read, has ids alone: of topics that it has named before."""


@dataclass
class Teller:
    """`access`: the rule that forbids `foreign`; None: it is another tenant's. `memory`: what kproxy knows of ids."""

    cluster: LifelikeCluster
    access: Access | None
    mine: str
    foreign: str
    memory: MutableMapping[str, Any]

    def answer(self, asked: Message, rng: Random) -> dict[str, Any]:
        """The body, with random values in all that is no name."""
        key, version = asked.api.key, asked.version
        own = key in (JOIN_GROUP, SYNC_GROUP) and self.cluster.kind_of(asked) != CONSUMER  # its members' own business
        if self.access is not None and not lists_all(asked):
            paths = frozenset[str]() if own else loose(key, version, "response")
            words = Words(self.topics(), True, paths, texts(key, version), self.names())
            body = telling(layout.body(key, version, "response"), answered(asked, rng).body, rng, words)
        elif self.access is None and key in ANSWERS_BY_ID and version >= ANSWERS_BY_ID[key]:
            body = answered(asked, rng).body  # those of high traffic name what was asked for
        else:
            unknown = FOREIGN.bytes not in session_lru(self.memory, TOPIC_IDS)
            own |= self.access is None and unknown and key in BY_ID_ALONE
            words = Words(self.topics()[own:], True, others=self.names())
            struct = layout.body(key, version, "response")
            body = telling(struct, random_struct(struct, rng), rng, words)
        if (key, version) == (LIST_CONFIG_RESOURCES, 0):  # names of client metrics, which are the cluster's
            body["config_resources"] = []
        if key in (OFFSET_FETCH, SHARE_OFFSETS) and asked.body.get("groups") is not None:
            body["groups"] = self.offsets(asked, body.get("groups") or [])
        if key == JOIN_GROUP:
            body |= {"error_code": 0}
            body |= {"protocol_type": asked.body["protocol_type"]} if "protocol_type" in body else {}
        return dict(body)

    def offsets(self, asked: Message, said: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """An entry for each group: of those that are asked for topics, these, of others all that there are."""
        found = []
        for group, one in zip(asked.body["groups"], cycle(said), strict=False):
            named = group["topics"] is not None
            topics = [topic | {"partitions": []} for topic in group["topics"]] if named else one["topics"]
            kept = [{name: value for name, value in topic.items() if name in TOPIC_FIELDS} for topic in topics or ()]
            found.append(one | {"group_id": group["group_id"], "topics": kept})
        return found

    def topics(self) -> tuple[tuple[str, UUID], ...]:
        """Somebody else's, if rules are about topics, and the client's own."""
        told = self.access is None or "topic" in self.access.roles
        return (((self.foreign, FOREIGN),) if told else ()) + ((self.mine, MINE),)

    def names(self) -> dict[str, tuple[str, ...]]:
        """The same of groups and transactional ids, where they are not the topics'."""
        if self.access is None:
            return {}
        return {role: (self.mine, *((self.foreign,) if role in self.access.roles else ())) for role in ROLES}


def lists_all(asked: Message) -> bool:
    """Whether the answer has what the request does not name, of its topics or of a group's."""
    form = shape(asked.api.key, asked.version)
    if "groups" in asked.body and form.lists:
        return asks_all(asked)
    arrays = form.request[0].arrays if form.request else ()
    return asks_all(asked) and (not arrays or any(form.asks_all(asked.body[one]) for one in arrays))
