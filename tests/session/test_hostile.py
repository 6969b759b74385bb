"""Bytes from an enemy on either side: a session never raises, and passes frames or closes, in bounded work.

Frames start as random values of the table's messages, so that they get far, and are then changed at random places; a
quarter stays as it is. The answers a broker gives follow the requests that reached it, or do not.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from kproxy.protocol import Message, encode
from kproxy.protocol.framing import framed
from kproxy.protocol.primitives import write_uvarint
from kproxy.protocol.table import layout, schema
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import NAMESPACES, PrefixLayer
from kproxy.session.commands import CloseBoth
from kproxy.session.held_memory import HeldMemory
from kproxy.session.plan import MOST_STEPS, ConnectionSettings
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.frames import message
from tests.support.line_count import LineCount
from tests.support.random_values import random_struct

ROUNDS = 60 if os.environ.get("KPROXY_TEST_ALL") else 1
MOST_LINES = 500_000
"""Python lines of a whole dialogue of at most some hundred kB; most have some thousand."""
RENAME = NameMap.of({"a": "prod.a", "topic-*": "t-*", "x*": "x-much-longer-than-it-was-*"}, {"prod.a": "b"})
TENANT = NameMaps(*(NameMap([PrefixLayer(space, b"tenant.")], space) for space in NAMESPACES))
BOUNDS = [
    ConnectionSettings(advertise=False),
    ConnectionSettings(),
    ConnectionSettings(names=NameMaps(topics=RENAME)),
    ConnectionSettings(names=NameMaps(topics=RENAME), advertise=False),
    ConnectionSettings(names=TENANT),
    ConnectionSettings(names=TENANT, advertise=False),
]
EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF)
CUTS = (1, 3, 7, 14, 16, 100, 5000, 262144)
API_VERSIONS, METADATA, FETCH, SHARE_FETCH = 18, 3, 1, 78


def shared() -> ClusterState:
    limits = HeldMemory(1 << 20), HeldMemory(1 << 20)
    return ClusterState(
        requests=limits[0], responses=limits[1], max_frame_bytes=1 << 20, buffer_threshold=200, max_in_flight=5
    )


def frame(key: int, version: int, direction: str, correlation: int, random: Random) -> bytes:
    """A random message with its size; now and then with one field that makes it long."""
    values = random_struct(layout.body(key, version, direction), random)
    return framed(message(key, version, direction, values, correlation, random.choice((None, "c"))))


def changed(data: bytes, random: Random) -> bytes:
    """With some bytes changed, mostly behind what tells frames apart, or cut; or as it was."""
    found = bytearray(data)
    kind = random.randrange(4)
    first = random.choice((0, 8, 12, 12, 12)) if len(found) > 12 else 0
    for _ in range(random.choice((1, 2, 5)) if kind else 0):
        found[random.randrange(first, len(found))] = random.choice((*EDGES, random.randrange(256)))
    if kind == 1:
        del found[random.randrange(8, len(found)) :]
        found[:4] = (len(found) - 4).to_bytes(4, "big")
    return bytes(found)


@pytest.mark.parametrize("bound", BOUNDS, ids=["passive", "advertise", "both", "rename", "tenant", "bare tenant"])
@pytest.mark.parametrize("key", list(schema.paths()), ids=lambda key: schema.load(key).name)
def test_changed_messages_pass_or_close(dialogue: Any, key: int, bound: ConnectionSettings) -> None:
    """Every API and version, both directions, changed and cut at random: bytes go on, or the end is asked for."""
    random = Random(key)
    for version in list(schema.load(key).versions) * ROUNDS:
        talk = dialogue(bound, shared())
        talk.nodes = lambda node: None if node % 3 == 0 else ("proxy", 30000)
        with LineCount() as count:
            for correlation in range(4):
                whole = random.randrange(2)
                asked = frame(key, version, "request", correlation, random)
                talk.client(asked if whole else changed(asked, random), random.choice(CUTS))
                said = frame(key, version, "response", correlation, random)
                if talk.closed is None:
                    talk.broker(changed(said, random), random.choice(CUTS))
                if talk.closed is not None:
                    break
        assert count.total <= MOST_LINES
        talk.session.end(talk.now)
        assert talk.shared.requests.used == talk.shared.responses.used == 0


@pytest.mark.parametrize("seed", range(20 * ROUNDS))
def test_any_bytes_pass_or_close(dialogue: Any, seed: int) -> None:
    """Noise of every size, first or behind good frames, from both sides at once."""
    random = Random(seed)
    talk = dialogue(random.choice(BOUNDS), shared())
    with LineCount() as count:
        if random.randrange(2):
            talk.client(frame(12, 4, "request", 1, random))
        for _ in range(10):
            noise = random.choice((random.randbytes, bytes, lambda n: b"\xff" * n))(random.choice((1, 4, 20, 3000)))
            if random.randrange(2):
                noise = len(noise).to_bytes(4, "big") + noise
            if talk.closed is None:
                random.choice((talk.client, talk.broker))(noise, random.choice(CUTS))

    assert count.total <= MOST_LINES
    assert talk.closed is None or isinstance(talk.closed, CloseBoth)


@pytest.mark.parametrize("key", [FETCH, SHARE_FETCH])
@pytest.mark.parametrize("seed", range(20 * ROUNDS))
def test_changed_tails_of_streamed_responses_pass_or_close(dialogue: Any, key: int, seed: int) -> None:
    """The tail is looked at after the length has gone; there may be tags twice, out of order, by the hundred."""
    random = Random(seed)
    version = random.randrange(16, 19) if key == FETCH else random.randrange(1, 3)
    talk = dialogue(ConnectionSettings(), shared()).client(frame(key, version, "request", 7, random))
    given = random.choice((("h", 1), ("longer." * 20, 1), None))
    talk.nodes = lambda node: given
    nodes = [{"node_id": n, "host": "broker" * 5, "port": 9092, "rack": None} for n in range(random.choice((1, 2, 9)))]
    body = random_struct(layout.body(key, version, "response"), random) | {"node_endpoints": nodes}
    body["_tagged_fields"] = [(tag, b"x") for tag in random.choice(((), (97,), (0x7FFFFFFF,), range(100, 226)))]
    said = encode(Message(schema.load(key), version, {"correlation_id": 7}, body))
    said = len(said).to_bytes(4, "big") + said
    tail = bytearray(said)
    for _ in range(random.choice((0, 0, 1, 3))):
        tail[random.randrange(len(said) // 2, len(said))] = random.choice((*EDGES, random.randrange(256)))

    talk.broker(bytes(tail), random.choice((16, 20, 100, 300)))

    if talk.closed is None:
        assert len(talk.to_client) == 4 + int.from_bytes(talk.to_client[:4], "big")
        assert talk.session.idle


@pytest.mark.parametrize("side", ["client", "broker"])
def test_empty_tokens_by_the_thousand_are_only_counted(dialogue: Any, side: str) -> None:
    """GSSAPI has no fixed number of tokens, and an empty one takes four bytes."""
    talk = dialogue(ConnectionSettings()).client(b"\x00\x00\x00\x01\x60")
    getattr(talk, side)(bytes(4 * 50_000))

    assert talk.closed is None
    assert len(talk.to_broker if side == "client" else talk.to_client) >= 4 * 50_000


@pytest.mark.parametrize("frame", ["0000000a 0011 0000 00000001 ffff", "0000000c 0011 0000 00000001 ffff 7fff"])
def test_a_handshake_without_its_mechanism_passes(dialogue: Any, frame: str) -> None:
    """The broker will say what is wrong with it."""
    asked = bytes.fromhex(frame)
    talk = dialogue(ConnectionSettings()).client(asked, 5).client(asked)

    assert talk.to_broker == asked * 2


def test_a_node_named_twice_with_two_addresses_is_asked_for_once_a_frame(dialogue: Any) -> None:
    """However a broker contradicts itself in one response, the session does not ask for ever."""
    talk = dialogue(ConnectionSettings()).client(request(METADATA, 9, 1))
    nodes = [{"node_id": 1, "host": f"b{n}", "port": 9092, "rack": None} for n in range(3)]
    talk.broker(response(METADATA, 9, 1, brokers=nodes))

    assert talk.session.idle
    assert b"proxy" in talk.to_client and b"b1" not in talk.to_client
    assert sum(type(command).__name__ == "EnsureNodes" for command in talk.log) == 1


def test_a_host_without_a_node_is_not_shown(dialogue: Any) -> None:
    """An id or a port below zero says that there is no node; a host beside it is a broker's address all the same."""
    talk = dialogue(ConnectionSettings()).client(request(METADATA, 9, 1) + request(10, 3, 2))
    nodes = [{"node_id": -1, "host": "secret", "port": 9092, "rack": None}]
    talk.broker(response(METADATA, 9, 1, brokers=nodes))
    talk.broker(response(10, 3, 2, node_id=-1, host="secret", port=-1))

    assert b"secret" not in talk.to_client
    assert talk.session.idle


@pytest.mark.parametrize("null", ["api_versions", "own_metadata"])
def test_a_null_list_of_versions_or_topics_is_an_empty_one(dialogue: Any, null: str) -> None:
    """Readers let a null through where the wire has one, and so must what looks at it."""
    if null == "api_versions":
        talk = dialogue(ConnectionSettings()).client(request(API_VERSIONS, 0, 1))
        said = framed(b"\x00\x00\x00\x01\x00\x00\xff\xff\xff\xff")
        assert talk.broker(said).to_client == said
    else:
        talk = dialogue(ConnectionSettings(names=NameMaps(topics=RENAME)))
        talk.client(request(68, 1, 1, group_id="g", member_id="m", subscribed_topic_regex="a"))
        answer = response(METADATA, 10, -0x6B70, topics=[], brokers=[])
        talk.broker(answer[:-4] + b"\xff\xff\xff\xff")
        assert not talk.session.requests.blocked
    assert talk.closed is None


def test_a_client_id_of_32_kilobytes_is_read_in_a_few_steps(dialogue: Any) -> None:
    """acks stands behind it; bytes that come one by one must not be looked at again for each few."""
    asked = request(0, 9, 1, client_id="c" * 32767, acks=1)
    talk = dialogue(ConnectionSettings())
    looks = 0
    acks = talk.session.plan[9].acks

    def counted(*args: Any) -> int | None:
        nonlocal looks
        looks += 1
        return acks(*args)

    talk.session.plan[9].acks = counted
    talk.client(asked, 100)

    assert talk.to_broker == asked
    assert looks < 20


def test_a_long_header_of_a_streamed_response_may_be_cut(dialogue: Any) -> None:
    """Its tags are skipped like all tags that are not known, wherever reads end."""
    body = response(FETCH, 17, 1, node_endpoints=[], throttle_time_ms=1)[9:]
    filler = bytes(300)
    tags = b"\x01\x05" + write_uvarint(len(filler)) + filler
    said = framed(b"\x00\x00\x00\x01" + tags + body)
    for chunk in (1, 16, 20, 200):
        talk = dialogue(ConnectionSettings(), shared()).client(request(FETCH, 17, 1)).broker(said, chunk)
        assert talk.closed is None
        assert talk.to_client == said


@pytest.mark.parametrize("rules", ["", "rules: [{name: r, kind: delay, delay: 1s, match: {topic: nobody}}]"])
def test_versions_that_nobody_knows_leave_room_for_those_that_are_known(rules: str) -> None:
    """Connections share their plan: one that asks for ApiVersions in every version there could be, each of which is
    answered, must not have the steps of all others' requests made anew for each frame."""
    talk = Dialogue(rules)
    plan = talk.session.plan
    head = "0012{:04x}00000001ffff"
    talk.client(b"".join(framed(bytes.fromhex(head.format(99 + number))) for number in range(MOST_STEPS + 50)))
    assert talk.closed is None
    assert len(plan) == MOST_STEPS
    for key in schema.paths():
        for version in schema.load(key).versions:
            assert plan[key << 16 | version] is plan[key << 16 | version]
    unknown = 18 << 16 | 30000
    assert plan[unknown] is not plan[unknown]
