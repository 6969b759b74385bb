"""A client that tries to get around a rule, and a broker that answers as brokers do and names everybody's things.

- of a tenant nothing leaves but names, ids, patterns and bytes that are its own or that no broker finds anything by,
  in whatever order, pieces and spelling they are sent, and nothing that answers tell names what is others'
- what a `deny` refuses no request that leaves names
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from kproxy.core.names.ids import ANSWERS_BY_ID, learn
from kproxy.core.plan import Plan
from kproxy.core.session import Shared
from kproxy.core.step import STOP
from kproxy.errors import DecodeError
from kproxy.rules.entity import ACL_TYPES, CONFIG_TYPES
from kproxy.testing.random_peers import mangled
from kproxy.testing.values import random_struct
from kproxy.wire import Message, layout, schema
from kproxy.wire.layout import Slot

from ...isolation.hostile import OTHER, RULES, TOPICS, filled, may_leave, places, request
from ...isolation.recording_broker import RecordingBroker
from ...isolation.telling import FOREIGN, SECRET, telling
from ..feed import FedRandom, Feed

DENY = "rules:\n- {name: d, kind: deny, match: {topic: 'secret*'}}\n"
ALL = TOPICS | {SECRET: FOREIGN}
CUTS = (0, 1, 7, 60)
LITERAL = 3
APIS = {
    rules: [
        (api.key, version) for api in schema.apis() for version in api.versions
        if plan[api.key << 16 | version].request != STOP and api.header_version("request", version)
    ]
    for rules, plan in ((one, Plan(RecordingBroker(one, ALL).talk.session.plan.bound)) for one in (RULES, DENY))
}  # fmt: skip


class Attack:
    """One connection of such a client."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.rules = feed.pick((RULES, DENY))
        shared = Shared()
        for name, one in ALL.items():  # else an answer that gives an own topic the id of another would be believed
            learn(shared.cluster_memory, one.bytes, name.encode())
        self.broker = RecordingBroker(self.rules, ALL, self.reply, shared)
        self.rng: Random = FedRandom(b"")
        self.looked = 0

    def step(self) -> None:
        """One request, good or nearly so."""
        feed = self.feed
        key, version = APIS[self.rules][feed.below(1 << 16) % len(APIS[self.rules])]
        self.rng = rng = FedRandom(feed.piece())
        struct = layout.body(key, version, "request")
        body = filled(struct, random_struct(struct, rng), rng)
        frame = request(key, version, feed.pick((7, 7, 8)), body)
        if not feed.below(4):
            frame = mangled(frame, rng, 12)
        self.broker.send(frame * feed.pick((1, 1, 2)), feed.pick(CUTS))

    def reply(self, asked: Message) -> dict[str, Any]:
        """What everybody has, in every place of the answer; those of high traffic name what was asked for only."""
        key, version = asked.api.key, asked.version
        struct = layout.body(key, version, "response")
        other = asked.body.get("protocol_type", "consumer") != "consumer"  # whose bytes are its own business
        other |= asked.body.get("key_type", 0) > 2  # no broker knows a coordinator for these
        if self.rules is DENY or other or (key in ANSWERS_BY_ID and version >= ANSWERS_BY_ID[key]):
            return {"session_id": 9} if key == 1 and version >= 7 else {}
        body: dict[str, Any] = telling(struct, random_struct(struct, self.rng), self.rng)
        if (key, version) == (74, 0):  # names of client metrics, which are the cluster's
            body["config_resources"] = []
        return body

    def look(self) -> None:
        """At all that has left since the last time."""
        for asked in self.broker.reached[self.looked :]:
            for slot, value, around in places(layout.body(asked.api.key, asked.version, "request"), asked.body):
                fine = may_leave if self.rules is RULES else is_open
                assert fine(asked, slot, value, around), f"{asked.api.name} {asked.version}: {slot.path} {value!r}"
        self.looked = len(self.broker.reached)
        told = self.broker.talk.to_client
        if self.rules is RULES:
            assert b"b.SECRET" not in told, "an answer names what is others'"
            assert FOREIGN.bytes not in told, "an answer has the id of what is others'"


def is_open(asked: Message, slot: Slot, value: Any, around: dict[str, Any]) -> bool:
    """Whether a broker that reads this value does nothing with a topic of the rule."""
    match slot.kind:
        case "topic_name" | "topic_id" if slot.path.startswith("forgotten_topics_data"):
            return True  # brokers send nothing of these
        case "topic_name":
            return not value.startswith("secret")
        case "topic_id":
            return bool(value != OTHER)
        case "config_resource_name":
            return CONFIG_TYPES.get(around["resource_type"]) != "topic" or not value.startswith("secret")
        case "acl_resource_name" if asked.api.name == "CreateAcls":
            topic = ACL_TYPES.get(around["resource_type"]) == "topic"
            return not topic or around.get("resource_pattern_type") != LITERAL or not value.startswith("secret")
    return True


def check(data: bytes) -> None:
    """One input."""
    feed = Feed(data)
    one = Attack(feed)
    steps = 0
    while feed and not one.broker.closed and steps < 12:
        try:
            one.step()
        except DecodeError:  # what has left is no request to a broker, which ends the connection
            return
        one.look()
        steps += 1


def seeds() -> Iterator[bytes]:
    """Inputs to begin with: every API, in either place."""
    for rules, apis in enumerate(APIS.values()):
        for number in range(0, len(apis), 5):
            more = b"".join((number + add).to_bytes(2, "big") + b"\x08seedling\0\1\0\0" for add in range(3))
            yield bytes((rules,)) + more


WORDS = [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x08seedling"]
