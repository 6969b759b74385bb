"""Fetch sessions of a tenant: only those that began on its connection are continued or closed there."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table.schema import load
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import NAMESPACES, PrefixLayer
from kproxy.session.plan import ConnectionSettings
from kproxy.session.rewrite.context import FETCH_SESSIONS, MAX_ENTRIES
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

TENANT = NameMaps(*(NameMap([PrefixLayer(space, b"a.")], space) for space in NAMESPACES))
FETCH, FOREIGN, MINE = 1, 77, 5
VERSIONS = [one for one in load(FETCH).versions if one >= 7]


def sent(talk: Any) -> list[tuple[int, int]]:
    """Session and epoch of each Fetch that the broker got."""
    return [(one.body["session_id"], one.body["session_epoch"]) for one in talk.requests() if one.api.key == FETCH]


@pytest.mark.parametrize("advertise", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_that_began_elsewhere_is_none(dialogue: Any, version: int, advertise: bool) -> None:
    """Neither continued, nor closed by beginning or ending with its number; the client's own is, from then on."""
    talk = dialogue(ConnectionSettings(names=TENANT, advertise=advertise))
    for number, epoch in enumerate((1, 0, -1, 2**31 - 1, -5)):
        talk.client(request(FETCH, version, number, session_id=FOREIGN, session_epoch=epoch))
        talk.broker(response(FETCH, version, number, error_code=70), 3)
    assert sent(talk) == [(0, 1), (0, 0), (0, -1), (0, 2**31 - 1), (0, -5)]

    talk.client(request(FETCH, version, 10, session_id=0, session_epoch=0))
    answer = response(FETCH, version, 10, session_id=MINE)
    before = len(talk.to_client)
    talk.broker(answer, 1)
    assert talk.to_client[before:] == answer
    for number, epoch in ((11, 1), (12, -1)):
        talk.client(request(FETCH, version, number, session_id=MINE, session_epoch=epoch))
    assert sent(talk)[-2:] == [(MINE, 1), (MINE, -1)]
    assert talk.shared.counters.events["fetch_sessions_unreachable"] == 5


def test_a_long_answer_that_opens_a_session_streams(dialogue: Any) -> None:
    """Its head is all that is waited for."""
    talk = dialogue(ConnectionSettings(names=TENANT)).client(request(FETCH, 13, 1, session_epoch=0))
    part = {"partition_index": 0, "records": b"r" * 300_000}
    answer = response(FETCH, 13, 1, session_id=MINE, responses=[{"partitions": [part]}])
    for start in range(0, len(answer), 10_000):
        talk.broker(answer[start : start + 10_000])
        assert talk.shared.responses.used == 0
    assert talk.to_client == answer
    talk.client(request(FETCH, 13, 2, session_id=MINE, session_epoch=1))
    assert sent(talk)[-1] == (MINE, 1)


@pytest.mark.parametrize("rule", ["delay, delay: 0ms", "throttle_time, delay: 1ms", "error, error: 3, at: response"])
def test_rules_that_look_at_answers_do_not_hide_it(rule: str) -> None:
    """Whichever way an answer goes, the session that it tells is known."""
    rules = f"rules:\n- {{name: a, kind: prefix, prefix: a.}}\n- {{name: x, kind: {rule}, match: {{api: Fetch}}}}\n"
    for version in (12, 16):
        talk = Dialogue(rules).client(request(FETCH, version, 1, session_epoch=0))
        talk.broker(response(FETCH, version, 1, session_id=MINE)).later(0.1)
        talk.client(request(FETCH, version, 2, session_id=MINE, session_epoch=1)).later(0.1)
        assert sent(talk) == [(0, 0), (MINE, 1)]


def test_sessions_of_others_who_share_the_cluster_are_not_this_ones(dialogue: Any) -> None:
    """Not even of another connection of the same tenant; and a connection remembers a few."""
    talk = dialogue(ConnectionSettings(names=TENANT))
    for number in range(1, MAX_ENTRIES[FETCH_SESSIONS] + 5):
        talk.client(request(FETCH, 16, number, session_epoch=0))
        talk.broker(response(FETCH, 16, number, session_id=number))
    assert len(talk.session.context.memory[FETCH_SESSIONS]) == MAX_ENTRIES[FETCH_SESSIONS]
    other = dialogue(ConnectionSettings(names=TENANT), talk.shared)
    other.client(request(FETCH, 16, 1, session_id=MAX_ENTRIES[FETCH_SESSIONS], session_epoch=1))
    assert sent(other) == [(0, 1)]
