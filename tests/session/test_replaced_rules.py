"""Rules that others take the place of are gone at once, with all that was made of them: nothing is left to the garbage
collector, which comes by every ten minutes for what is old."""

from __future__ import annotations

import gc
import textwrap
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from kproxy.base.errors import KproxyError
from kproxy.protocol.table import schema
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts
from kproxy.rules.kinds import KINDS
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session import Session
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import request

FACTS = Facts("main", "main", "10.0.0.1")
SEVERAL = """
- {name: topics, kind: rename_topic, topics: {"soak-*": "prod.soak-*"}}
- {name: groups, kind: rename_group, groups: {"*": "prod.*"}}
- {name: waits, kind: delay, delay: 1ms, match: {topic: [orders, "o*"]}, when: {first: 1}}
- {name: seldom, kind: error, match: {api: [Produce, Fetch]}, when: {probability: 0.05}, error: NOT_LEADER_OR_FOLLOWER}
"""
USES = {kind: model.example for kind, model in KINDS.items()} | {"several": SEVERAL}


@pytest.fixture(autouse=True, scope="module")
def uncollected() -> Iterator[None]:
    """No garbage collection meanwhile."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def used(rules: str) -> list[weakref.ref[Any]]:
    """Use rules for the newest version of each API and a connection's first requests; return weakly what was made."""
    made = parse_rules("rules:\n" + textwrap.indent(rules, "  "))
    for running in made.live:
        running.restart(0.0)
    bound = made.bind(FACTS)
    plan = Plan(ConnectionSettings.of(bound, advertise=True), bound.live)
    steps = (plan[key << 16 | schema.load(key).versions.last] for key in schema.paths())
    programs = [step.program for step in steps if step.program is not None]
    session = Session(plan, ClusterState(), FACTS, 1, bound)
    for number in range(3):
        frame = bytearray(request(3, 8, number))
        with suppress(KproxyError):
            session.from_client(memoryview(frame), len(frame), 1.0)
        session.commands.clear()
    session.end(2.0)
    return [weakref.ref(one) for one in (made, plan, session, *programs)]


@pytest.mark.parametrize("rules", USES.values(), ids=USES)
def test_rules_leave_nothing(rules: str) -> None:
    """Without a garbage collection, whatever kind they are of."""
    left = [one() for one in used(rules) if one() is not None]

    assert not left
