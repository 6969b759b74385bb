"""Nothing that a broker says tells a tenant of others: every place of every answer, in every version."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import pytest

from kproxy.core.names.ids import ANSWERS_BY_ID, learn
from kproxy.core.session import Shared
from kproxy.core.step import STOP
from kproxy.testing.dialogue import Dialogue, request, response
from kproxy.testing.values import random_struct
from kproxy.wire import layout, schema
from kproxy.wire.codec import encode
from kproxy.wire.layout import Struct

RULES = "rules:\n- {name: a, kind: prefix, prefix: a.}\n"
MINE, FOREIGN = (UUID(int=0x4000 << 64 | 0x8 << 60 | number << 96 | number) for number in (1, 2))
SECRET = "b.SECRET"
NAMES = {"topic_name", "group_id", "transactional_id", "acl_resource_name", "config_resource_name", "coordinator_key"}
EMBEDDED = {"group_metadata": "consumer_subscription", "group_assignment": "consumer_assignment"}
CARRIERS = NAMES | set(EMBEDDED) | {"topic_id"}
ACL_TYPES, CONFIG_TYPES = (2, 3, 5), (2, 32)
"""Types of resources whose names are tenants'."""
PLAN = Dialogue(RULES).session.plan
ANSWERING = sorted({
    (api.key, version) for api in schema.apis() for version in api.versions
    if PLAN[api.key << 16 | version].request != STOP and any(
        slot.kind in CARRIERS for slot in layout.body(api.key, version, "response").everywhere()
    )
})  # fmt: skip


def telling(struct: Struct, value: Any, rng: Random) -> Any:
    """The decoded value with names and ids of others, and some of the tenant's own, in every place."""
    if value is None:
        return None
    found = dict(value)
    for slot in (*struct.slots, *struct.tagged):
        item = found[slot.name]
        if slot.struct is not None:
            inner = slot.struct
            if slot.array:
                found[slot.name] = item and [telling(inner, one, rng) for one in item]
            else:
                found[slot.name] = telling(inner, item, rng)
        elif item is None:
            continue
        elif slot.kind in NAMES:
            names = [rng.choice((SECRET, "a.mine")) for _ in (item if slot.array else (1,))]
            found[slot.name] = names if slot.array else names[0]
        elif slot.kind == "topic_id":
            found[slot.name] = rng.choice((FOREIGN, MINE))
        elif slot.kind in EMBEDDED:
            inside = layout.embedded(EMBEDDED[slot.kind], 0)
            found[slot.name] = b"\0\0" + encode(inside, telling(inside, random_struct(inside, rng), rng))
        elif slot.name == "protocol_type":
            found[slot.name] = "consumer"
        elif slot.name == "resource_type":
            acl = any(other.kind == "acl_resource_name" for other in struct.slots)
            found[slot.name] = rng.choice(ACL_TYPES if acl else CONFIG_TYPES)
        elif slot.name == "pattern_type":
            found[slot.name] = rng.choice((3, 4))
    return found


@pytest.mark.parametrize("key", sorted({key for key, _ in ANSWERING}))
def test_no_answer_names_what_is_others(key: int) -> None:
    """Neither by name nor by id, also where only one of the two is somebody else's, whole and byte by byte."""
    for version in [version for one, version in ANSWERING if one == key]:
        struct = layout.body(key, version, "response")
        for seed in range(6):
            rng = Random(f"{key} {version} {seed}")
            shared = Shared()
            learn(shared.cluster_memory, MINE.bytes, b"a.mine")
            learn(shared.cluster_memory, FOREIGN.bytes, SECRET.encode())
            talk = Dialogue(RULES, shared=shared)
            asked = {"acks": 1} if key == 0 else {}
            talk.client(request(key, version, 1, **asked))
            body = telling(struct, random_struct(struct, rng), rng)
            if (key, version) == (74, 0):  # names of client metrics, which are the cluster's
                body["config_resources"] = []
            talk.broker(response(key, version, 1, **body), 0 if seed else 1)
            assert talk.closed is None, f"{version} {seed}: {talk.closed}"
            assert b"SECRET" not in talk.to_client, f"{version} {seed}"
            if key in ANSWERS_BY_ID and version >= ANSWERS_BY_ID[key]:
                continue  # names none that was not asked for, see test_tenant_requests.py
            assert FOREIGN.bytes not in talk.to_client, f"{version} {seed}"
