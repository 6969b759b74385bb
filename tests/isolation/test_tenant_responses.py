"""Nothing that a broker says tells a tenant of others: every place of every answer, in every version."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.protocol.table import layout, schema
from kproxy.session.plan import STOP
from kproxy.session.rewrite.names.topic_ids import ANSWERS_BY_ID, learn
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.random_values import random_struct

from .telling import CARRIERS, FOREIGN, MINE, SECRET, telling

RULES = "rules:\n- {name: a, kind: prefix, prefix: a.}\n"
PLAN = Dialogue(RULES).session.plan
ANSWERING = sorted({
    (api.key, version) for api in schema.apis() for version in api.versions
    if PLAN[api.key << 16 | version].request != STOP and any(
        slot.kind in CARRIERS for slot in layout.body(api.key, version, "response").everywhere()
    )
})  # fmt: skip


@pytest.mark.parametrize("key", sorted({key for key, _ in ANSWERING}))
def test_no_answer_names_what_is_others(key: int) -> None:
    """Neither by name nor by id, also where only one of the two is somebody else's, whole and byte by byte."""
    for version in [version for one, version in ANSWERING if one == key]:
        struct = layout.body(key, version, "response")
        for seed in range(6):
            rng = Random(f"{key} {version} {seed}")
            shared = ClusterState()
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
