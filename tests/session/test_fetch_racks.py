"""Racks of Fetch requests by templates: whatever comes, it is what the codec would make of it."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol import Message, encode
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import FIXED, Struct
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.session.commands import BROKER
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.rewrite.racks import LONGEST, MOST_KNOWN, FetchRacks
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, request
from tests.support.line_count import LineCount
from tests.support.random_values import random_element, random_struct

FETCH = 1
ZONE = "euc1-az1"
BOUND = ConnectionSettings(advertise=False, rack=ZONE.encode())
VERSIONS = [version for version in schema.load(FETCH).versions if version >= 11]
RACKS = ("", "", "", "a", "\x01", "mine", None)


def changed_numbers(value: Any, struct: Struct, random: Random) -> Any:
    """The same value with other numbers, so that nothing moves."""
    found = dict(value)
    for slot in (*struct.slots, *struct.tagged):
        old = found[slot.name]
        if slot.struct is not None and slot.array and old is not None:
            found[slot.name] = [changed_numbers(each, slot.struct, random) for each in old]
        elif slot.type in FIXED and slot not in struct.tagged and not slot.array:
            found[slot.name] = random_element(slot, random, 3)
    return found


NAMED = request(18, 3, 0, client_software_name="tester", client_software_version="1")
"""What clients begin with that know of followers."""


def client(bound: ConnectionSettings = BOUND) -> Dialogue:
    """A client that has said which library it is."""
    talk = Dialogue(bound=bound).client(NAMED)
    talk.out[BROKER].clear()
    return talk


def give(talk: Dialogue, data: bytes, room: int = 1000) -> None:
    """Let the client send this in one read, into a buffer with so much room behind it."""
    buf = bytearray(data) + b"beyond" * room
    with memoryview(buf) as view:
        go = talk.session.from_client(view, len(data), 0.0)
        talk.out[BROKER] += view[:go]
    buf[:] = b"\xee" * len(buf)
    talk.obey()


def frame(version: int, body: dict[str, Any], correlation: int, client_id: str | None) -> bytes:
    """A request with its size."""
    api = schema.load(FETCH)
    header = {"request_api_key": FETCH, "request_api_version": version, "correlation_id": correlation}
    data = encode(Message(api, version, header | {"client_id": client_id}, body))
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(5))
def test_every_request_is_what_the_codec_makes_of_it(version: int, seed: int) -> None:
    """Random ones, and those that differ from one before in numbers only, however they are cut into reads; what says a
    rack, be it a byte that looks like another one's end, leaves as it came."""
    random, struct = Random(f"{version} {seed}"), layout.body(FETCH, version, "request")
    talk = client()
    bodies: list[dict[str, Any]] = []
    sent, expected = b"", b""
    for number in range(150):
        if bodies and random.random() < 0.7:
            body = changed_numbers(random.choice(bodies), struct, random)
        else:
            body = random_struct(struct, random) | {"rack_id": random.choice(RACKS)}
            bodies.append(body)
        client_id = random.choice(("tester", "", None, "x" * 200))
        sent += frame(version, body, number, client_id)
        expected += frame(version, body | {"rack_id": body["rack_id"] or ZONE}, number, client_id)
        if random.random() < 0.8:  # mostly at the end of a request, as clients send them
            cut = len(sent) if random.random() < 0.8 else random.randrange(len(sent) + 1)
            give(talk, sent[:cut], random.choice((0, 1, 2, 1000)))
            sent = sent[cut:]
    give(talk, sent)

    assert talk.closed is None
    assert talk.to_broker == expected
    filled = talk.shared.counters.rewritten["racks"]
    assert filled > 20


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_like_the_one_before_is_compared(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One walk in all, for any number of clients, offsets and sessions."""
    walked: list[bytes] = []
    find_place = FetchRacks.find_place

    def counting(racks: FetchRacks, buf: Any, body: int, end: int) -> Any:
        walked.append(bytes(buf[body:end]))
        return find_place(racks, buf, body, end)

    monkeypatch.setattr(FetchRacks, "find_place", counting)
    talk = client()
    topic = {"topic_id": UUID(int=7)} if version >= 13 else {"topic": "orders"}
    for number in range(20):
        topics = [topic | {"partitions": [{"partition": number, "fetch_offset": number << 33}]}]
        give(talk, request(FETCH, version, number, "x" * number, session_epoch=number, topics=topics))
    give(talk, b"".join(request(FETCH, version, number, topics=topics) for number in range(30)))  # no room in between

    assert talk.shared.counters.rewritten["racks"] == 50
    assert len(walked) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_broken_is_told_as_ever(version: int) -> None:
    """A request cut short, and one with a byte too many, behind good ones of the same length."""
    good = request(FETCH, version, 1)
    talk = client()
    give(talk, good)
    give(talk, good)
    longer = (len(good) - 3).to_bytes(4, "big") + good[4:] + b"\0"
    give(talk, longer)
    assert talk.shared.counters.events["trailing_bytes"] == 1

    broken = bytearray(good)
    broken[-3:] = b"\xff\xff\xff"
    give(talk, bytes(broken))
    assert talk.closed is not None
    assert talk.closed.cause == "decode"


def test_clients_that_do_not_name_their_library_are_left_alone() -> None:
    """Before and after others have taught a template: they may not know of followers, and be sent away for ever."""
    shared = ClusterState()
    plan = Plan(BOUND)
    fetch = request(FETCH, 17, 1)
    for opening, filled in ((request(18, 2, 0), 0), (NAMED, 3), (request(18, 3, 0), 3)):
        talk = Dialogue(plan=plan, shared=shared).client(opening)
        for _ in range(3):
            give(talk, fetch)
        assert shared.counters.rewritten["racks"] == filled
        assert (fetch in talk.to_broker) is (opening is not NAMED)


def test_templates_are_bounded() -> None:
    """However many lengths there are, few are kept, and none of long requests."""
    talk = client()
    step = talk.session.plan[FETCH << 16 | 12]
    for length in range(1, 4 * MOST_KNOWN):
        topics = [{"topic": "x" * (length * 8 % 250 + 1), "partitions": [{"partition": 1}] * (length // 4)}]
        give(talk, request(FETCH, 12, length, topics=topics))

    assert step.racks is not None
    assert 0 < len(step.racks.known) <= MOST_KNOWN
    assert max(step.racks.known) <= LONGEST


def test_lengths_that_mean_two_things_are_not_learnt_for_ever() -> None:
    """A client that takes turns between requests of one length costs a walk each, and seldom another one."""
    talk = client()
    step = talk.session.plan[FETCH << 16 | 12]
    learnt = []
    for number in range(200):
        before = dict(step.racks.known)
        give(talk, request(FETCH, 12, number, topics=[{"topic": f"{number:04}", "partitions": []}]))
        learnt.append(step.racks.known != before)

    assert sum(learnt) < 40
    assert talk.shared.counters.rewritten["racks"] == 200


def test_fetch_rack_after_renamed_produce_in_one_read_is_filled() -> None:
    """The read is handled as two reads, although the scan knows the heads of both requests."""
    talk = client(
        ConnectionSettings(NameMaps(topics=NameMap.of({"orders": "prod.orders"})), advertise=False, rack=ZONE.encode())
    )
    produce = request(0, 9, 1, acks=1, topic_data=[{"name": "orders", "partition_data": []}])
    give(talk, produce)
    give(talk, request(FETCH, 17, 2))
    alone = talk.to_broker
    give(talk, produce + request(FETCH, 17, 2))
    assert talk.to_broker == alone * 2


def test_filling_in_a_rack_costs_few_lines() -> None:
    """Less than five times the lines of a request that passes."""

    def cost(bound: ConnectionSettings) -> int:
        talk = Dialogue(bound=bound).client(NAMED)
        session, buf = talk.session, memoryview(bytearray(4096))
        data = request(FETCH, 17, 1)
        session.commands.clear()
        with LineCount() as count:
            for _ in range(50):
                buf[: len(data)] = data
                session.from_client(buf, len(data), 0.0)
                session.inflight.fifo.clear()
        return count.total

    assert cost(BOUND) < 5 * cost(ConnectionSettings(advertise=False))
