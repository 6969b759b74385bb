"""A quick look for the bytes of names: it may find too much, never too little, and changes nothing but the work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Struct
from kproxy.rules.kinds.deny import DenyRule
from kproxy.rules.select import match
from kproxy.rules.select.match import FEW, needed_bytes, readable, search, text_test
from kproxy.session.literal_search import LONGEST
from kproxy.session.live.response_evaluation import ResponseEvaluation
from kproxy.session.rewrite.names.topic_ids import learn
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.line_count import LineCount

from .forbidden import OPEN, OPEN_ID, SECRET, SECRET_ID, Wanted, filled, fitting, say_topics, subscription, talking
from .forbidden import request as asking

DENY = "rules: [{name: r, kind: deny, match: {topic: %s}}]"
CASES = [
    (key, version, said)
    for key in schema.paths()
    for version in {schema.load(key).versions.first, schema.load(key).versions.last}
    for said in ("nothing", "request", "answer")
]


@pytest.mark.parametrize(
    ("pattern", "letters"),
    [
        ("secret", b"secret"), ("secret*", b"secret"), ("*-audit", b"-audit"), ("a*payments*b", b"payments"),
        ("*", None), ("x", None), ("ünter", None), ("/secret.*/", b"secret"), (r"/pay\.in\..*/", b"pay.in."),
        ("/secrets?/", b"secret"), (r"/pay\.*/", b"pay"), ("/ab{0}/", None), ("/secret|open/", None),
        ("/(secret)/", None), ("/(?i)secret/", None), ("/[s]ecret/", None), ("/^secret$/", None), ("/.*/", None),
    ],
)  # fmt: skip
def test_letters_of_a_pattern(pattern: str, letters: bytes | None) -> None:
    """The longest run of ASCII letters that stands in all that it holds for."""
    assert needed_bytes(pattern) == letters


PIECES = st.sampled_from(["se", "cret", ".", "\\.", "*", "?", "+", "{0,2}", "(", ")", "|", "[a-z]", "x", "_", "-", "é"])
TEXTS = st.text(st.sampled_from("secrtx._-é\ufffdz"), max_size=12)


@given(st.lists(PIECES, min_size=1, max_size=6).map("".join), st.booleans(), TEXTS)
def test_what_a_pattern_holds_for_has_its_letters(pattern: str, expression: bool, text: str) -> None:
    """Whatever the pattern and the text, also in the bytes of it."""
    pattern = f"/{pattern}/" if expression else pattern
    try:
        holds = text_test(pattern)
    except ValueError:
        return
    letters = needed_bytes(pattern)
    raw = text.encode().replace("\ufffd".encode(), b"\xff")
    if letters is not None and holds(readable(raw.decode("utf-8", "surrogateescape"))):
        assert letters in raw


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 2000])
def test_one_search_for_all_names(count: int) -> None:
    """Each of many names is found, in the midst of any bytes; what is no name is not."""
    names = [b"secret-%d-x" % number for number in range(count)]
    holds = search(frozenset(names))

    assert all(holds(b"\xff\x00\n" + name + b"\xfe") for name in names[:: max(1, count // 50)])
    assert not holds(bytes(range(256)) * 4 + b"secret-x")


def test_search_for_too_many_names_builds_no_automaton(monkeypatch: pytest.MonkeyPatch) -> None:
    """An automaton of 20,000 names would block the loop for a second. Each frame is read instead."""
    names = [b"%05d" % number + b"x" * 195 for number in range(20_000)]
    monkeypatch.setattr(match, "automaton", pytest.fail)
    with LineCount() as count:
        holds = search(frozenset(names))
    assert holds(b"nothing of the kind")
    assert count.total < 100


def test_many_names_are_compiled_once() -> None:
    """Whatever the number of APIs, versions and connections that look for them."""
    names = [b"secret-%d-y" % number for number in range(FEW + 1)]
    assert search(frozenset(names)) is search(frozenset(reversed(names)))


@pytest.mark.parametrize(("key", "version", "said"), CASES)
def test_the_quick_look_changes_nothing(key: int, version: int, said: str) -> None:
    """All APIs: with and without it the same bytes reach both sides, and the same is counted."""
    with patch.object(DenyRule, "required_literals", lambda *_: None):
        slow = dialogue(key, version, said)
    quick = dialogue(key, version, said)

    assert quick.to_broker == slow.to_broker
    assert quick.to_client == slow.to_client
    assert quick.closed == slow.closed
    assert counted(quick) == counted(slow)


MIXED = range(10 if os.environ.get("KPROXY_TEST_ALL") else 1)
UNKNOWN_ID = UUID("0c0c0c0c-0c0c-4c0c-8c0c-0c0c0c0c0c0c")


@pytest.mark.parametrize("key", schema.paths())
def test_the_quick_look_changes_nothing_however_things_are_named(key: int) -> None:
    """The same for names, ids, ids that nobody has named and nulls in any mixture, of members that join or do not."""
    for seed in MIXED:
        with patch.object(DenyRule, "required_literals", lambda *_: None):
            slow = mixed(key, seed)
        quick = mixed(key, seed)
        assert (quick.to_broker, quick.to_client, quick.closed) == (slow.to_broker, slow.to_client, slow.closed), seed
        assert counted(quick) == counted(slow), seed


def mixed(key: int, seed: int) -> Dialogue:
    """Two requests and their answers, of one version."""
    random, versions = Random(f"{seed} {key}"), schema.load(key).versions
    version = random.choice((versions.last, random.randint(versions.first, versions.last)))
    talk = talking(DENY % random.choice(('"secret*"', "secret.x", "[secret.x, one.z, two.z, three.z, four.z]")))
    if random.random() < 0.6:
        for known, name in ((OPEN_ID, OPEN), (SECRET_ID, SECRET)):
            learn(talk.session.context.cluster_memory, known.bytes, name.encode())
    asks, tells = (Wanted("topic", lambda path: random.random() < 0.4) for _ in range(2))
    for number in (7, 8):
        struct = layout.body(key, version, "request")
        body = fitting(key, asks, varied(struct, filled(struct, asks), random))
        if "member_epoch" in body:
            body["member_epoch"] = random.choice((0, 3, -1))
        if talk.closed is None:
            talk.client(asking(key, version, number, body))
        if talk.closed is None and random.random() < 0.8:
            say_topics(talk)
        if talk.closed is None and any(one.header["correlation_id"] == number for one in talk.requests()):
            struct = layout.body(key, version, "response")
            answer: dict[str, Any] = fitting(key, tells, varied(struct, filled(struct, tells), random))
            talk.broker(response(key, version, number, **answer))
    return talk


def varied(struct: Struct, body: dict[str, Any], random: Random) -> dict[str, Any]:
    """A body with other ids, empty arrays and nulls; an id has no name of another topic beside it, which no client
    sends and nobody could tell what is meant by."""
    found = {}
    for slot in struct.all_slots:
        value = body[slot.name]
        if slot.nullable and random.random() < 0.15:
            value = None
        elif slot.struct is not None and value is not None:
            some = value if slot.array else [value]
            some = [varied(slot.struct, one, random) for one in some if not slot.array or random.random() < 0.9]
            value = some if slot.array else some[0]
        elif slot.kind == "topic_id" and not slot.array:
            value = random.choice((value, OPEN_ID, SECRET_ID, UNKNOWN_ID, UUID(int=0)))
        found[slot.name] = value
    names = [slot.name for slot in struct.slots if slot.kind == "topic_name" and not slot.array]
    for slot in struct.slots:
        if slot.kind == "topic_id" and not slot.array and names and found[names[0]]:
            found[slot.name] = {OPEN: OPEN_ID, SECRET: SECRET_ID}[found[names[0]]]
    return found


def counted(talk: Dialogue) -> list[tuple[int, int, int]]:
    return [(one.matched, one.fired, one.applied) for one in talk.rules.live]


def dialogue(key: int, version: int, said: str) -> Dialogue:
    """What is forbidden stands in all places of the request, of the answer, or nowhere."""
    asks = Wanted("topic", lambda path: said == "request", lambda path: said == "request")
    tells = Wanted("topic", lambda path: said == "answer", lambda path: said == "answer")
    talk = talking(DENY % '"secret*"')
    body: dict[str, Any] = fitting(key, asks, filled(layout.body(key, version, "request"), asks))
    talk.client(asking(key, version, 7, body))
    say_topics(talk)
    if talk.closed is None and any(one.header["correlation_id"] == 7 for one in talk.requests()):
        answer: dict[str, Any] = fitting(key, tells, filled(layout.body(key, version, "response"), tells))
        talk.broker(response(key, version, 7, **answer))
    return talk


def join(*topics: str) -> bytes:
    return request(11, 5, 1, group_id="g", member_id="m", protocol_type="consumer",
                   protocols=[{"name": "range", "metadata": subscription(*topics)}])  # fmt: skip


def joined(*topics: str) -> bytes:
    members = [{"member_id": f"m{number}", "metadata": subscription(topic)} for number, topic in enumerate(topics)]
    return response(11, 5, 1, protocol_name="range", leader="m", member_id="m", members=members)


def test_a_joining_that_names_nothing_forbidden_is_not_read() -> None:
    """Neither the request nor the answer is decoded; one that names it is."""
    talk = Dialogue(DENY % "secret.x")
    with patch.object(ResponseEvaluation, "evaluate", side_effect=AssertionError("read")):
        talk.client(join(OPEN)).broker(joined(OPEN, "other"))
        assert talk.to_broker == join(OPEN)
        assert talk.to_client == joined(OPEN, "other")
    talk = Dialogue(DENY % "secret.x")
    talk.client(join(OPEN)).broker(joined(OPEN, SECRET))
    assert SECRET.encode() not in talk.to_client
    assert OPEN.encode() in talk.to_client
    assert counted(talk) == [(1, 1, 1)]


def test_a_topic_by_its_id_is_known_by_its_name() -> None:
    """An id says nothing by its bytes: the name that it has is looked for, and one without a name is not believed."""
    for topic_id, forbidden in ((OPEN_ID, False), (SECRET_ID, True), (UUID(int=9 << 70), None)):
        talk = Dialogue(DENY % "secret.x")
        for known, name in ((OPEN_ID, OPEN), (SECRET_ID, SECRET)):
            learn(talk.session.context.cluster_memory, known.bytes, name.encode())
        talk.client(request(68, 1, 1, group_id="g", member_id="m", member_epoch=3, topic_partitions=None))
        assigned = {"topic_partitions": [{"topic_id": topic_id, "partitions": [0]}]}
        talk.broker(response(68, 1, 1, member_id="m", member_epoch=3, assignment=assigned))
        (answer,) = talk.responses((68, 1))
        left = answer.body["assignment"] and answer.body["assignment"]["topic_partitions"]
        assert (answer.body["error_code"] != 0) == (forbidden is None)
        assert bool(left) == (forbidden is False)


def test_an_answer_that_waits_for_one_before_it_is_looked_at_all_the_same() -> None:
    """A rule that swaps answers makes no way around the one that forbids."""
    swap = "{name: s, kind: reorder_responses, match: {api: Heartbeat}}"
    talk = Dialogue(f"rules: [{{name: r, kind: deny, match: {{topic: secret.x}}}}, {swap}]")
    beat = request(12, 4, 9, group_id="g", member_id="m")
    talk.client(beat + join(OPEN)).broker(response(12, 4, 9) + joined(OPEN, SECRET))

    assert OPEN.encode() in talk.to_client
    assert SECRET.encode() not in talk.to_client


def join_and_beat(cost: Callable[[bytes, bytes], float]) -> tuple[float, float]:
    """Return the costs of a JoinGroup under a rule about another topic, and of a Heartbeat, which no rule is about."""
    beat = request(12, 4, 9, group_id="g", member_id="m"), response(12, 4, 9)
    return cost(join(OPEN), joined(OPEN, "other", "third")), cost(*beat)


def pass_often(ask: bytes, answer: bytes, times: int) -> Callable[[], None]:
    talk = Dialogue(DENY % "secret.x")
    talk.client(ask).broker(answer)
    session = talk.session
    frames = [(bytearray(ask), bytearray(answer)) for _ in range(times)]

    def run() -> None:
        for to_broker, to_client in frames:
            session.from_client(to_broker, len(ask), 0.0)
            session.from_broker(to_client, len(answer), 0.0)

    return run


def test_join_group_costs_few_heartbeats_in_lines() -> None:
    def lines(ask: bytes, answer: bytes) -> float:
        run = pass_often(ask, answer, 20)
        with LineCount() as count:
            run()
        return float(count.total)

    joining, beat = join_and_beat(lines)
    assert joining < 15 * beat


@pytest.mark.measured
def test_join_group_costs_few_heartbeats_in_seconds() -> None:
    def seconds(ask: bytes, answer: bytes) -> float:
        run = pass_often(ask, answer, 200)
        start = time.thread_time()
        run()
        return time.thread_time() - start

    least, plain = (min(costs) for costs in zip(*(join_and_beat(seconds) for _ in range(10)), strict=True))
    assert least < 15 * plain  # it was 190 times as much


def test_a_frame_too_long_to_be_searched_at_once_is_read() -> None:
    """Searching stops nobody: what is longer goes the way that lets others run."""
    talk = Dialogue(DENY % "secret.x")
    long = join(*(f"{OPEN}-with-a-long-name-{number}" for number in range(LONGEST // 40)))
    assert len(long) > LONGEST
    talk.client(long).broker(joined(OPEN, SECRET))

    assert talk.to_broker == long
    assert SECRET.encode() not in talk.to_client
