"""Corners of a session in which two things meet: each was wrong once, or easily could be."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol import decode_response
from kproxy.protocol.framing import framed
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.held_memory import HeldMemory
from kproxy.session.plan import ConnectionSettings
from kproxy.session.rewrite.versions import unsupported
from kproxy.session.session_state import CLOSING, STALLED
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.frames import fetched

PASSIVE, ADVERTISE = ConnectionSettings(advertise=False), ConnectionSettings()
RENAME = ConnectionSettings(names=NameMaps(topics=NameMap.of({"orders": "prod.orders"})))
PRODUCE, FETCH, METADATA, HEARTBEAT, HANDSHAKE, GROUP_HEARTBEAT = 0, 1, 3, 12, 17, 68
LATE = bytes.fromhex("0000000b 0012 0063 00000002 ffff 00")  # ApiVersions 99, which kproxy answers itself
MAX = 0x7FFFFFFF
BAD = b"\xff\xff\xff\xff" + bytes(20)


def metadata(correlation: int, nodes: int = 1) -> bytes:
    brokers = [{"node_id": n, "host": f"broker-{n}", "port": 9092, "rack": None} for n in range(nodes)]
    return response(METADATA, 9, correlation, brokers=brokers)


@pytest.mark.parametrize("chunk", [0, 50])
def test_what_stands_between_a_changed_frame_and_a_bad_one_leaves_before_the_end(dialogue: Any, chunk: int) -> None:
    """The changed frame and the good one go by command, and no command follows `Close`."""
    talk = dialogue(ADVERTISE).client(request(METADATA, 9, 1) + request(HEARTBEAT, 4, 2))
    good = response(HEARTBEAT, 4, 2)

    talk.broker(metadata(1) + good + BAD, chunk)

    assert talk.to_client.endswith(good)
    assert talk.closed is not None


@pytest.mark.parametrize("chunk", [0, 5, 50])
@pytest.mark.parametrize("key", [METADATA, HEARTBEAT])
def test_a_last_answer_of_its_own_stays_behind_those_before_it(dialogue: Any, key: int, chunk: int) -> None:
    """The answer before it is changed, or passes out of what was kept, in one read with what ends the connection."""
    version = 9 if key == METADATA else 4
    talk = dialogue(ADVERTISE).client(request(key, version, 1) + LATE)
    said = metadata(1) if key == METADATA else response(HEARTBEAT, 4, 1)

    talk.broker(said + BAD, chunk)

    size = int.from_bytes(talk.to_client[:4], "big") + 4
    assert decode_response(talk.to_client[4:size], key, version).header["correlation_id"] == 1
    assert talk.to_client[size:] == unsupported(2)
    assert talk.closed is not None


def test_frames_before_a_bad_stream_still_arrive(dialogue: Any) -> None:
    """The beginning of a long Fetch that cannot be read stands in one read with a good response."""
    talk = dialogue(ADVERTISE).client(request(HEARTBEAT, 4, 1) + request(FETCH, 17, 2))
    good, bad = response(HEARTBEAT, 4, 1), bytearray(fetched(2, UUID(int=7), version=17, records=b"r" * 100_000))
    bad[19:25] = b"\xff" * 6

    talk.broker(good + bytes(bad[:5000]))

    assert talk.closed is not None and talk.closed.cause == "decode"
    assert talk.to_client.startswith(good)


def test_an_answer_of_its_own_leaves_before_the_stream_behind_it(dialogue: Any) -> None:
    """The stream's first bytes could pass at once, but the answer goes by command."""
    said = fetched(3, UUID(int=7), version=17, records=b"r" * 100_000)
    talk = dialogue(ADVERTISE).client(request(HEARTBEAT, 4, 1) + LATE + request(FETCH, 17, 3))
    first = response(HEARTBEAT, 4, 1)

    talk.broker(first[:5]).broker(first[5:9])
    talk.broker(first[9:] + said[:50_000]).broker(said[50_000:])

    assert talk.to_client.startswith(first)
    assert talk.to_client.endswith(said)
    assert len(talk.to_client) > len(first) + len(said)


def test_an_answer_of_its_own_leaves_before_a_stream_that_a_read_begins_with(dialogue: Any) -> None:
    """The answer is due but held back by the first bytes of a header, then the stream begins."""
    said = fetched(3, UUID(int=7), version=17, records=b"r" * 100_000)
    talk = dialogue(ADVERTISE).client(request(HEARTBEAT, 4, 1) + LATE[:9])
    talk.broker(response(HEARTBEAT, 4, 1))
    talk.client(LATE[9:] + request(FETCH, 17, 3))
    talk.broker(said[:50_000]).broker(said[50_000:])

    assert talk.to_client.endswith(said)
    assert decode_response(talk.to_client[-len(said) - 16 : -len(said)], 18, 0).header["correlation_id"] == 2


def test_an_answer_of_its_own_waits_for_the_token_before_it(dialogue: Any) -> None:
    """Raw tokens have no place in the FIFO, but their order counts all the same."""
    talk = dialogue(PASSIVE).client(request(HANDSHAKE, 0, 1, mechanism="PLAIN"))
    talk.broker(response(HANDSHAKE, 0, 1))
    before = talk.to_client
    talk.client(b"\x00\x00\x00\x03\x00u\x00" + LATE)
    assert talk.to_client == before

    talk.broker(b"\x00\x00\x00\x00")

    assert talk.to_client.startswith(before + b"\x00\x00\x00\x00")
    assert len(talk.to_client) == len(before) + 4 + 20
    assert talk.session.idle


def test_a_limit_of_one_does_not_wait_for_half_a_request(dialogue: Any) -> None:
    """The request that is not all here yet counts, but nothing can answer it before the client is read again."""
    first, second = request(HEARTBEAT, 4, 1), request(HEARTBEAT, 4, 2)
    talk = dialogue(PASSIVE, ClusterState(max_in_flight=1)).client(first + second[:20])
    assert not talk.read[CLIENT]

    talk.broker(response(HEARTBEAT, 4, 1))
    assert talk.read[CLIENT]
    talk.client(second[20:]).broker(response(HEARTBEAT, 4, 2))

    assert talk.session.idle


def test_reads_that_end_in_a_held_frame_count_against_the_limit(dialogue: Any) -> None:
    """However the reads are cut, a client with too many requests in flight is stopped."""
    asked = b"".join(request(METADATA, 9, n, topics=[{"name": "orders"}]) for n in range(20))
    talk = dialogue(RENAME, ClusterState(max_in_flight=4))
    size = len(asked) // 20
    talk.client(asked[: 9 * size + 20])

    assert not talk.read[CLIENT]


def test_a_full_connection_drains_when_half_a_request_is_here(dialogue: Any) -> None:
    """It is read again for the rest of that request, which is answered, and no more."""
    asked = [request(HEARTBEAT, 4, n) for n in range(4)]
    talk = dialogue(PASSIVE, ClusterState(max_in_flight=2)).client(b"".join(asked)[:-5])
    talk.session.drain(0.0)
    talk.obey()
    talk.broker(b"".join(response(HEARTBEAT, 4, n) for n in range(3)))
    assert talk.read[CLIENT]

    talk.client(asked[3][-5:])
    assert not talk.read[CLIENT]
    talk.broker(response(HEARTBEAT, 4, 3))

    assert talk.closed is not None and talk.closed.cause == "drained"


@pytest.mark.parametrize("cut", [1, 5, 13, 25])
def test_a_drain_stops_where_a_frame_ends(dialogue: Any, cut: int) -> None:
    """A read brings the rest of one request and a part of the next, which is then waited for, too."""
    asked = [request(HEARTBEAT, 4, n) for n in range(2)]
    talk = dialogue(PASSIVE).client(asked[0][:20])
    talk.session.drain(0.0)
    talk.obey()

    talk.client(asked[0][20:] + asked[1][:cut])
    assert talk.read[CLIENT]
    talk.client(asked[1][cut:])
    assert not talk.read[CLIENT]
    talk.broker(response(HEARTBEAT, 4, 0) + response(HEARTBEAT, 4, 1))

    assert talk.to_broker == b"".join(asked)
    assert talk.closed is not None and talk.closed.cause == "drained"


def test_a_client_that_is_not_read_is_not_late(dialogue: Any) -> None:
    """Half a frame that waits for kproxy's memory does not run into the time-out for the client; then it does again."""
    shared = ClusterState(requests=HeldMemory(300))
    asked = request(METADATA, 9, 1, topics=[{"name": "t" * 200}])
    other, talk = dialogue(RENAME, shared).client(asked[:50]), dialogue(RENAME, shared)
    talk.now = 5.0
    talk.client(asked[:50])
    assert not talk.read[CLIENT]
    assert talk.session.waiting_since is None

    other.client(asked[50:])
    assert talk.session.holding_since() is None
    talk.session.granted(30.0)
    talk.obey()

    assert talk.read[CLIENT]
    assert talk.session.waiting_since == 30.0
    assert talk.session.holding_since() == (CLIENT, 30.0)
    talk.client(asked[50:])
    assert talk.to_broker == asked
    assert talk.session.waiting_since is None
    assert talk.session.holding_since() is None


def test_a_held_frame_that_grows_has_been_held_since_its_beginning(dialogue: Any) -> None:
    """A byte now and then keeps the header's time-out away, not the time that its memory is kept; of both sides."""
    asked, said = request(METADATA, 9, 1, topics=[{"name": "t" * 200}]), metadata(1, nodes=2)
    talk = dialogue(RENAME)
    for number in range(3):
        talk.now = 5.0 + number
        talk.client(asked[30 * number : 30 * number + 30])
    assert talk.session.waiting_since == 7.0
    assert talk.session.holding_since() == (CLIENT, 5.0)
    assert talk.session.cut_off
    talk.client(asked[90:])
    assert not talk.session.cut_off
    talk.now = 9.0
    talk.broker(said[:40]).later(1.0).broker(said[40:50])

    assert talk.session.holding_since() == (BROKER, 9.0)
    talk.broker(said[50:])
    assert talk.session.holding_since() is None


def test_each_held_frame_takes_its_own_memory(dialogue: Any) -> None:
    """What was read while a lane waited holds the rest of a frame and the start of a longer one."""
    talk = dialogue(ADVERTISE).client(request(METADATA, 9, 1) + request(METADATA, 9, 2))
    talk.nodes = None
    small, large = metadata(1, nodes=2), metadata(2, nodes=100)
    talk.broker(small[:30]).broker(small[30:]).broker(large[:100])
    assert talk.shared.responses.used == len(small)

    talk.session.nodes_ready({0: ("p", 1), 1: ("p", 2)}, 0.0)
    talk.obey()

    assert talk.shared.responses.used == len(large)
    talk.nodes = lambda node: ("p", node)
    talk.broker(large[100:])
    assert talk.shared.responses.used == 0
    assert talk.session.idle


@pytest.mark.parametrize(("more", "cause"), [(b"", "broker_closed"), (b"\x00\x00\x00", "broker_closed_mid_frame")])
def test_the_end_of_a_broker_is_judged_when_what_came_before_has_gone(dialogue: Any, more: bytes, cause: str) -> None:
    """A whole response waits for a port, and the broker closes: the client still gets it."""
    talk = dialogue(ADVERTISE).client(request(METADATA, 9, 1))
    talk.nodes = None
    talk.broker(metadata(1)).broker(more)
    talk.session.eof(BROKER, 0.0)
    talk.obey()
    assert talk.closed is None

    talk.session.nodes_ready({0: ("p", 1)}, 0.0)
    talk.obey()

    assert len(decode_response(talk.to_client[4:], METADATA, 9).body["brokers"]) == 1
    assert talk.closed is not None and talk.closed.cause == cause


def test_a_client_that_stops_while_its_request_waits_still_gets_its_answer(dialogue: Any) -> None:
    """The request is whole; that it waits for the topics is not the client's fault."""
    values = {"group_id": "g", "member_id": "m", "subscribed_topic_regex": "orders"}
    talk = dialogue(RENAME).client(request(GROUP_HEARTBEAT, 1, 1, **values))
    talk.session.eof(CLIENT, 0.0)
    talk.obey()
    assert talk.closed is None

    talk.broker(response(METADATA, 10, -0x6B70)).broker(response(GROUP_HEARTBEAT, 1, 1))

    assert talk.closed is None
    assert talk.to_client == response(GROUP_HEARTBEAT, 1, 1)


def test_nothing_passes_after_the_end(dialogue: Any) -> None:
    """A read that was under way, a late answer about nodes or memory: they change nothing any more."""
    talk = dialogue(ADVERTISE).client(request(METADATA, 9, 1))
    talk.nodes = None
    talk.broker(metadata(1)).client(BAD)
    assert talk.closed is not None
    heard, said = talk.to_broker, talk.to_client

    talk.client(request(HEARTBEAT, 4, 2)).broker(metadata(1))
    talk.session.nodes_ready({0: ("p", 1)}, 0.0)
    talk.session.granted(0.0)
    talk.obey()

    assert (talk.to_broker, talk.to_client) == (heard, said)


@pytest.mark.parametrize("tags", [(97,), (98, 9797), tuple(range(1, 127)), tuple(range(200, 400)), (5, MAX)])
@pytest.mark.parametrize("host", ["b" * 40, "b" * 9, "b"])
def test_a_filler_finds_a_place_among_all_tags(dialogue: Any, tags: tuple[int, ...], host: str) -> None:
    """Tags ascend (KIP-482), and their count may need one more byte: the tail stays well formed and as long."""
    nodes = [{"node_id": 1, "host": host, "port": 9092, "rack": None}]
    said = fetched(
        1,
        UUID(int=7),
        version=17,
        records=b"r" * 100_000,
        node_endpoints=nodes,
        _tagged_fields=[(tag, b"x") for tag in tags],
    )
    talk = dialogue(ADVERTISE).client(request(FETCH, 17, 1)).broker(said, 5000)

    body = decode_response(talk.to_client[4:], FETCH, 17).body
    assert len(talk.to_client) == len(said)
    assert set(tags) <= {tag for tag, _ in body["_tagged_fields"]}
    assert all(node["host"] == "proxy" for node in body["node_endpoints"])


@pytest.mark.parametrize("length", [13, 15, 16, 17, 18])
@pytest.mark.parametrize("rules", ["", "rules: [{name: q, kind: quota, match: {client_id: other}, produce: 1kB/s}]"])
def test_acks_is_not_read_from_the_frame_behind(rules: str, length: int) -> None:
    """A Produce that ends before acks closes the connection, whether the next frame came with it or not."""
    cut = framed(request(0, 9, 1, "etl-1", acks=1)[4 : 4 + length])
    for chunk in (0, 5):
        talk = Dialogue(rules).client(cut + request(12, 4, 2, group_id="g" * 40), chunk)
        assert talk.to_broker == b""
        assert talk.closed is not None
        assert talk.closed.message == f"Produce request of {length} bytes has no acks in its first {length + 4}"


def test_a_close_that_needs_no_care_is_known() -> None:
    """The driver reads what a broker still sends before it closes only where an answer may come that nobody waits for,
    or a rule or a failed login keeps the client from what it waits for: two system calls less for all others."""
    talk = Dialogue().client(request(12, 4, 1, group_id="g")).broker(response(12, 4, 1))
    assert talk.session.settled
    talk.session.eof(CLIENT, 0.0)
    assert talk.session.phase is CLOSING
    assert talk.session.settled

    stalled = Dialogue("rules: [{name: s, kind: disconnect, close_with: half, match: {api: Heartbeat}}]")
    stalled.client(request(12, 4, 1, group_id="g"))
    assert stalled.session.phase is STALLED
    stalled.session.eof(CLIENT, 0.0)
    assert not stalled.session.settled
