"""Frames of one read whose heads are written anew at once: what leaves is what leaves when each frame comes alone.

The other way is a session that remembers no head, so that each frame is found, read and put back by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import NAMESPACES, TRANSACTIONAL_ID, PrefixLayer
from kproxy.session.plan import ConnectionSettings
from kproxy.session.rewrite.names import SingleTopicRewriter
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.hooks import hooked

PRODUCE, FETCH, HEARTBEAT = 0, 1, 12
RENAMES = NameMaps(
    topics=NameMap.of({"orders": "prod.orders", "a-name-that-is-long": "b"}),
    transactional_ids=NameMap.of({"worker-*": "blue.worker-*"}, space=TRANSACTIONAL_ID),
)
TENANT = NameMaps(*(NameMap([PrefixLayer(space, b"a.")], space) for space in NAMESPACES))
OURS = ("orders", "a-name-that-is-long", "bills", "prod.orders", "!bills", "é" * 70, "t" * 249)
THEIRS = ("prod.orders", "b", "bills", "orders", "a.orders", "a.é", "other.orders", "a." + "t" * 240)
SEEDS = range(40)


def asked(
    chance: random.Random, version: int, correlation: int, usual: float
) -> tuple[bytes, Callable[[], bytes] | None]:
    """Return a request and what makes its response, if it is due one. So many of them are `usual`: of one topic."""
    if chance.random() < usual:
        data = [{"name": "orders", "partition_data": [{"index": 0, "records": b"r" * chance.randrange(90)}]}]
        said = [{"name": "prod.orders", "partition_responses": [{"index": 0, "base_offset": 7}]}]
        known = response(PRODUCE, version, correlation, responses=said)
        return request(PRODUCE, version, correlation, "c", acks=-1, topic_data=data), lambda: known
    client_id = chance.choice(["c", None, "longer"])
    if chance.random() < 0.15:
        body = response(HEARTBEAT, 3, correlation)
        return request(HEARTBEAT, 3, correlation, client_id, group_id="g", member_id="m"), lambda: body
    acks = chance.choice([1, -1, -1, 0])
    topics = [chance.choice(OURS) for _ in range(chance.choice([1, 1, 1, 1, 2, 0]))]
    data = [{"name": name, "partition_data": [{"index": 0, "records": b"r" * chance.randrange(90)}]} for name in topics]
    transactional_id = chance.choice([None, None, None, "worker-1", "", "x"]) if version >= 3 else None
    more: dict[str, Any] = {"transactional_id": transactional_id} if version >= 3 else {}
    sent: bytes = request(PRODUCE, version, correlation, client_id, acks=acks, topic_data=data, **more)

    def answer() -> bytes:
        names = [chance.choice(THEIRS) for _ in range(chance.choice([1, 1, 1, 2]))]
        said = [{"name": name, "partition_responses": [{"index": 0, "base_offset": 7}]} for name in names]
        nodes = [{"node_id": 3, "host": "h", "port": 9}] if version >= 10 and chance.random() < 0.2 else None
        return response(PRODUCE, version, correlation, responses=said, **({"node_endpoints": nodes} if nodes else {}))

    return sent, answer if acks else None


def state(talk: Dialogue) -> tuple[object, ...]:
    counters = talk.session.counters
    return (
        talk.to_broker, talk.to_client, talk.closed, dict(counters.rewritten), dict(counters.events),
        [entry[0] for entry in talk.session.inflight.fifo],
        {label: (tally.requests, tally.responses) for label, tally in talk.session.plan.tallies.items()},
    )  # fmt: skip


@pytest.mark.parametrize("version", [2, 3, 7, 8, 9, 10, 11, 12])
@pytest.mark.parametrize("names", [RENAMES, TENANT], ids=["renames", "tenant"])
def test_a_read_is_as_its_frames_alone(version: int, names: NameMaps, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in SEEDS:
        chance = random.Random(f"{version} {seed}")
        usual = chance.choice([0, 0.8, 1])
        sent = [asked(chance, version, number, usual) for number in range(chance.choice([1, 3, 40]))]
        said = [answer() for _, answer in sent if answer is not None]
        cut = chance.choice([0, 0, 1, 7, 13])
        requests, responses = b"".join(frame for frame, _ in sent), b"".join(said)
        together, alone = (Dialogue(bound=ConnectionSettings(names=names)) for _ in range(2))
        for _ in range(2):  # the second time all heads were met before
            together.client(requests[: len(requests) - cut]).client(requests[len(requests) - cut :])
            together.broker(responses[: len(responses) - cut]).broker(responses[len(responses) - cut :])
        with monkeypatch.context() as patched:
            patched.setattr(SingleTopicRewriter, "met_before", lambda *_: None)
            for _ in range(2):
                for frame, _ in sent:
                    alone.client(frame)
                for frame in said:
                    alone.broker(frame)
        assert state(together) == state(alone), seed


def test_others_have_turns_in_a_read_of_many() -> None:
    """Ten thousand small frames whose topic is renamed take a while: others run in between, and nothing is lost."""
    frame = request(PRODUCE, 9, 1, None, acks=0, topic_data=[{"name": "orders", "partition_data": []}])
    talk = Dialogue(bound=ConnectionSettings(names=RENAMES)).client(frame)
    once, turns = talk.to_broker, list[int]()
    with hooked(lambda: turns.append(1)):
        talk.client(frame * 5000)
    assert len(turns) > 50
    assert talk.to_broker == once * 5001
