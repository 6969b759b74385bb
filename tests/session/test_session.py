"""The session without rules that change anything: order, acks=0, sizes, answers of its own, addresses."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol import decode_response
from kproxy.protocol.framing import framed
from kproxy.session.commands import BROKER, CLIENT, Dial
from kproxy.session.plan import ConnectionSettings
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.frames import produce

PASSIVE = ConnectionSettings(advertise=False)
HEARTBEAT, LIST_GROUPS, METADATA, API_VERSIONS, PRODUCE, FETCH = 12, 16, 3, 18, 0, 1


def whole_conversation() -> tuple[bytes, bytes]:
    asked = [request(API_VERSIONS, 3, 1, client_software_name="t", client_software_version="1")]
    said = [response(API_VERSIONS, 3, 1, api_keys=[{"api_key": 3, "min_version": 0, "max_version": 12}])]
    for number in range(2, 40):
        if number % 5 == 0:
            asked.append(produce(number, "orders", acks=0))
            continue
        if number % 7 == 0:
            asked.append(produce(number, "orders", acks=1, records=b"y" * 3000))
            said.append(response(PRODUCE, 9, number))
            continue
        asked.append(request(HEARTBEAT, 4, number, group_id="g", member_id="m" * number))
        said.append(response(HEARTBEAT, 4, number))
    return b"".join(asked), b"".join(said)


@pytest.mark.parametrize("chunk", [0, 1, 2, 3, 7, 13, 14, 15, 64, 1000])
@pytest.mark.parametrize("bound", [PASSIVE, ConnectionSettings()], ids=["passive", "advertising"])
def test_untouched_frames_leave_as_the_bytes_that_came(dialogue: Any, chunk: int, bound: ConnectionSettings) -> None:
    """What no rule changes arrives byte for byte, however the bytes are cut on the way."""
    asked, said = whole_conversation()
    talk = dialogue(bound)

    talk.client(asked, chunk).broker(said, chunk)

    assert talk.to_broker == asked
    assert talk.to_client == said
    assert talk.closed is None
    assert talk.session.idle


def test_the_broker_is_dialled_with_the_first_header_and_only_once(dialogue: Any) -> None:
    """Bytes that are no request do not reach a broker; the first whole header does, once."""
    frame = request(HEARTBEAT, 4, 1)
    talk = dialogue(PASSIVE)

    talk.client(frame[:13])
    assert talk.log == []
    talk.client(frame[13:] + frame)

    assert [command for command in talk.log if isinstance(command, Dial)] == [Dial()]


@pytest.mark.parametrize(
    ("first", "cause", "word"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not_kafka", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdefgh", "not_kafka", "TLS"),
        (b"\xff\xff\xff\xff" + bytes(20), "frame_size", "-1"),
        (b"\x00\x00\x00\x00" + bytes(20), "frame_size", "0 bytes"),
        (b"\x7f\xff\xff\xff" + bytes(20), "frame_size", "2147483647"),
    ],
)
def test_what_is_no_kafka_closes_its_connection_and_says_so(dialogue: Any, first: bytes, cause: str, word: str) -> None:
    """A bad first frame closes the connection with a cause and a message that names what was found."""
    talk = dialogue(PASSIVE).client(first)

    assert talk.closed is not None
    assert talk.closed.cause == cause
    assert word in talk.closed.message
    assert talk.to_broker == b""


def test_a_response_out_of_order_closes_the_connection(dialogue: Any) -> None:
    """A correlation id that is not the oldest one waiting closes the connection, and the message has both numbers."""
    talk = dialogue(PASSIVE).client(request(HEARTBEAT, 4, 7) + request(HEARTBEAT, 4, 8))

    talk.broker(response(HEARTBEAT, 4, 8))

    assert talk.closed is not None
    assert talk.closed.cause == "correlation"
    assert "8" in talk.closed.message and "7" in talk.closed.message
    assert talk.to_client == b""


def test_good_responses_before_a_bad_one_still_arrive(dialogue: Any) -> None:
    """One read with a good response and a wrong one: the good one reaches the client."""
    talk = dialogue(PASSIVE).client(request(HEARTBEAT, 4, 7) + request(HEARTBEAT, 4, 8))
    good = response(HEARTBEAT, 4, 7)

    talk.broker(good + response(HEARTBEAT, 4, 99))

    assert talk.to_client == good
    assert talk.closed is not None


def test_a_response_that_nobody_asked_for_closes_the_connection(dialogue: Any) -> None:
    """No request is in flight: any response is an error."""
    talk = dialogue(PASSIVE).client(request(HEARTBEAT, 4, 1)).broker(response(HEARTBEAT, 4, 1) * 2)

    assert talk.closed is not None
    assert talk.closed.cause == "correlation"


@pytest.mark.parametrize("chunk", [0, 1, 9])
def test_an_answer_to_acks_0_is_dropped_and_counted(dialogue: Any, chunk: int) -> None:
    """librdkafka's mock answers acks=0 Produce requests; the client must not see that, and order is kept."""
    talk = dialogue(PASSIVE)
    talk.client(produce(1, "orders", acks=0) + request(HEARTBEAT, 4, 2) + produce(3, "orders", acks=0))

    last = response(HEARTBEAT, 4, 2)
    talk.broker(response(PRODUCE, 9, 1) + last + response(PRODUCE, 9, 3), chunk)

    assert talk.to_client == last
    assert talk.closed is None
    assert talk.shared.counters.events["acks0_response_dropped"] == 2


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks_is_read_in_every_version_of_produce(dialogue: Any, version: int, acks: int) -> None:
    """Only requests with acks other than 0 are entered in the FIFO."""
    talk = dialogue(PASSIVE).client(request(PRODUCE, version, 5, acks=acks))

    assert len(talk.session.inflight.fifo) == (acks != 0)


def test_a_produce_version_that_is_not_known_closes_the_connection(dialogue: Any) -> None:
    """Whether it is answered cannot be told, so it must not be forwarded."""
    frame = bytearray(request(PRODUCE, 13, 5, acks=1))
    frame[6:8] = (14).to_bytes(2, "big")

    talk = dialogue(PASSIVE).client(bytes(frame))

    assert talk.closed is not None
    assert talk.closed.cause == "api_blocked"
    assert "14" in talk.closed.message and "13" in talk.closed.message
    assert talk.to_broker == b""


def test_unknown_apis_pass_only_when_nothing_is_advertised(dialogue: Any) -> None:
    """An API that the table lacks could carry addresses: it is stopped while advertising, counted, and else opaque."""
    frame = framed(bytes.fromhex("03e7000000000005") + b"\x00\x01abody")
    answer = framed(b"\x00\x00\x00\x05anything")

    open_ = dialogue(PASSIVE).client(frame).broker(answer)
    guarded = dialogue(ConnectionSettings()).client(frame)
    passing = dialogue(ConnectionSettings(hide_unknown_apis=False)).client(frame).broker(answer)

    assert (open_.to_broker, open_.to_client) == (frame, answer)
    assert (passing.to_broker, passing.to_client) == (frame, answer)
    assert guarded.to_broker == b""
    assert guarded.closed is not None and "999" in guarded.closed.message
    assert guarded.shared.counters.stopped["unknown"] == 1


def test_an_api_versions_request_from_the_future_is_answered_as_a_broker_would(dialogue: Any) -> None:
    """KIP-511: error 35 in the v0 layout with the one entry from which the client takes its next version."""
    talk = dialogue(ConnectionSettings()).client(request(HEARTBEAT, 4, 1))
    late = framed(bytes.fromhex("0012006300000002") + b"\xff\xff\x00" + b"\x05nameless")

    talk.client(late)
    assert talk.to_client == b""
    first = response(HEARTBEAT, 4, 1)
    talk.broker(first[:10])
    assert talk.to_client == first[:10]
    talk.broker(first[10:])

    assert talk.to_client.startswith(first)
    answer = decode_response(talk.to_client[len(first) + 4 :], API_VERSIONS, 0)
    assert answer.header["correlation_id"] == 2
    assert answer.body["error_code"] == 35
    assert answer.body["api_keys"] == [{"api_key": 18, "min_version": 0, "max_version": 5}]
    assert talk.session.idle


def test_answers_of_its_own_stand_between_the_responses_of_one_read(dialogue: Any) -> None:
    """Response, own answer, response: the order of the requests, though both responses come in one read."""
    late = framed(bytes.fromhex("0012006300000002") + b"\xff\xff\x00" + b"\x05nameless")
    first, third = response(HEARTBEAT, 4, 1), response(HEARTBEAT, 4, 3)

    talk = dialogue(ConnectionSettings()).client(request(HEARTBEAT, 4, 1) + late + request(HEARTBEAT, 4, 3))
    talk.broker(first + third)

    assert talk.to_client.startswith(first)
    assert talk.to_client.endswith(third)
    assert len(talk.to_client) > len(first) + len(third)
    assert talk.to_broker.count(b"nameless") == 0


def test_api_versions_is_capped_to_what_is_understood(dialogue: Any) -> None:
    """Versions of the address-carrying APIs beyond the table and unknown APIs are hidden."""
    keys = [(0, 99), (1, 99), (3, 99), (10, 99), (16, 99), (55, 3), (60, 99), (78, 99), (79, 99), (999, 1)]
    listed = [{"api_key": key, "min_version": 0, "max_version": top} for key, top in keys]
    talk = dialogue(ConnectionSettings()).client(request(API_VERSIONS, 4, 1))

    talk.broker(response(API_VERSIONS, 4, 1, api_keys=listed))

    body = decode_response(talk.to_client[4:], API_VERSIONS, 4).body
    found = {entry["api_key"]: entry["max_version"] for entry in body["api_keys"]}
    assert found == {0: 13, 1: 18, 3: 13, 10: 6, 16: 99, 55: 2, 60: 2, 78: 2, 79: 2}


@pytest.mark.parametrize("rules", ["", "rules: [{name: twice, kind: duplicate_response}]"])
@pytest.mark.parametrize("version", [3, 4])
def test_an_api_versions_answer_that_cannot_be_read_has_the_client_ask_in_an_older_version(
    rules: str, version: int
) -> None:
    """librdkafka's mock gives one, of which Java's client takes that it is to wait for 20 minutes."""
    odd = framed(bytes.fromhex("00000001") + b"\x00\x23\x01\x00\x12\x00\x00\x00\x02\x00")
    talk = Dialogue(rules, advertise=True).client(request(API_VERSIONS, version, 1)).broker(odd)

    told = decode_response(talk.to_client[4 : 4 + int.from_bytes(talk.to_client[:4])], API_VERSIONS, 0)
    assert told.header["correlation_id"] == 1
    assert told.body == {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 2}]}
    assert talk.shared.counters.events["api_versions_unreadable"] == 1


@pytest.mark.parametrize("version", [0, 3, 4])
def test_bytes_behind_an_api_versions_answer_pass_with_it(version: int) -> None:
    """Clients pass them over, so that they are no reason to hide from a client what the broker can."""
    listed = [{"api_key": API_VERSIONS, "min_version": 0, "max_version": 0}]
    said = response(API_VERSIONS, version, 1, api_keys=listed)
    odd = framed(said[4:] + b"xyz")
    talk = Dialogue(advertise=True).client(request(API_VERSIONS, version, 1)).broker(odd)

    assert talk.to_client == odd
    assert "api_versions_unreadable" not in talk.shared.counters.events


def test_one_of_an_old_version_passes_counted(dialogue: Any) -> None:
    """There is no older one to ask in."""
    odd = framed(bytes.fromhex("00000001") + b"\x00\x23\x05\x00\x01")
    talk = dialogue(ConnectionSettings()).client(request(API_VERSIONS, 2, 1)).broker(odd)

    assert talk.to_client == odd
    assert talk.shared.counters.events["api_versions_unreadable"] == 1


def test_too_many_requests_in_flight_stop_the_client(dialogue: Any) -> None:
    """Beyond the limit the client is not read; it is again when half of them are answered."""
    talk = dialogue(PASSIVE, ClusterState(max_in_flight=4))
    for number in range(6):
        talk.client(request(HEARTBEAT, 4, number))
    assert not talk.read[CLIENT]

    for number in range(3):
        talk.broker(response(HEARTBEAT, 4, number))
        assert not talk.read[CLIENT]
    talk.broker(response(HEARTBEAT, 4, 3))

    assert talk.read[CLIENT]


def test_a_drained_connection_closes_after_its_last_answer(dialogue: Any) -> None:
    """Requests in flight are answered, no more are read, and then the session asks to be closed."""
    talk = dialogue(PASSIVE).client(request(HEARTBEAT, 4, 1) + request(HEARTBEAT, 4, 2))

    talk.session.drain(0.0)
    talk.obey()
    assert not talk.read[CLIENT]
    assert talk.closed is None
    said = response(HEARTBEAT, 4, 1) + response(HEARTBEAT, 4, 2)
    talk.broker(said[:-3])
    assert talk.closed is None
    talk.broker(said[-3:])

    assert talk.to_client == said
    assert talk.closed is not None and talk.closed.cause == "drained"


def test_an_idle_connection_drains_at_once(dialogue: Any) -> None:
    """Nothing is in flight: nothing to wait for."""
    talk = dialogue(PASSIVE).client(request(HEARTBEAT, 4, 1)).broker(response(HEARTBEAT, 4, 1))

    talk.session.drain(0.0)
    talk.obey()

    assert talk.closed is not None and talk.closed.cause == "drained"


def test_a_drain_in_the_middle_of_a_request_waits_for_its_rest(dialogue: Any) -> None:
    """A request that is half here is taken whole and answered before the end."""
    frame = produce(1, "orders", acks=1, records=b"z" * 5000)
    talk = dialogue(PASSIVE).client(frame[:3000])

    talk.session.drain(0.0)
    talk.obey()
    assert talk.read[CLIENT]
    talk.client(frame[3000:])
    talk.broker(response(PRODUCE, 9, 1))

    assert talk.to_broker == frame
    assert talk.closed is not None and talk.closed.cause == "drained"


@pytest.mark.parametrize(
    ("side", "sent", "cause"),
    [
        (BROKER, "nothing", "broker_closed"),
        (BROKER, "half", "broker_closed_mid_frame"),
        (CLIENT, "nothing", None),
    ],
)
def test_the_end_of_a_side_is_named(dialogue: Any, side: int, sent: str, cause: str | None) -> None:
    """A broker that dies closes the connection, in the middle of a frame by another name; a client that has asked and
    then stopped sending still gets its answer."""
    talk = dialogue(PASSIVE).client(request(HEARTBEAT, 4, 1))
    if sent == "half":
        talk.broker(response(HEARTBEAT, 4, 1)[:6])

    talk.session.eof(side, 0.0)
    talk.obey()

    assert (talk.closed.cause if talk.closed else None) == cause


def test_waiting_since_tells_of_a_header_that_does_not_come(dialogue: Any) -> None:
    """The driver times out a client that sends half a header: since when it waits is known, until it ends."""
    frame = request(HEARTBEAT, 4, 1)
    talk = dialogue(PASSIVE)
    assert talk.session.waiting_since is None

    talk.now = 5.0
    talk.client(frame[:3])
    talk.now = 9.0
    talk.client(frame[3:6])
    assert talk.session.waiting_since == 5.0
    talk.client(frame[6:])

    assert talk.session.waiting_since is None
