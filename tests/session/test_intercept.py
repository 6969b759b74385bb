"""intercept: frames wait, go on by themselves, and leave as was decided; nobody else waits."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kproxy.protocol import decode_request, decode_response, encode
from kproxy.protocol.framing import framed
from kproxy.protocol.records import Record, decode, encode_batch, entries
from kproxy.protocol.table import layout, schema
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.held_edit import BadEdit, MessageEdit, answer_of
from kproxy.session.held_frames import HeldRegistry
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.frames import fetch, fetched, message, produce, produced
from tests.support.holding import held_in, holding, only
from tests.support.random_values import random_struct

PRODUCE, FETCH, METADATA, HEARTBEAT, DESCRIBE_GROUPS = 0, 1, 3, 12, 15
HOLD = "rules:\n  - {name: hold, kind: intercept, match: {api: Heartbeat}, MORE}\n"
BEAT, SECOND, META = (
    request(HEARTBEAT, 4, 1, group_id="g"),
    request(HEARTBEAT, 4, 2),
    request(METADATA, 9, 3, topics=None),
)


def rule(more: str = "at: request", api: str = "Heartbeat") -> str:
    return HOLD.replace("Heartbeat", api).replace("MORE", more)


def counts(talk: Dialogue) -> tuple[int, int, int]:
    running = talk.rules.live[0]
    return running.matched, running.fired, running.applied


# ---- waiting


def test_a_held_request_keeps_what_is_behind_it_and_leaves_as_it_came() -> None:
    """In order, byte for byte, when it is let go; until then its client is not read."""
    talk = holding(rule("max_frames: 1"))
    talk.client(BEAT + META)
    held = only(talk)
    assert (talk.to_broker, talk.read[CLIENT], held.behind, held.frame()) == (b"", False, 1, BEAT[4:])

    held.let_go("resumed", "mara")
    assert talk.to_broker == BEAT + META
    assert talk.read[CLIENT]
    assert counts(talk) == (1, 1, 1)
    assert [(one.how, one.who) for one in talk.shared.desk.gone.values()] == [("resumed", "mara")]
    talk.broker(response(HEARTBEAT, 4, 1))
    assert talk.to_client == response(HEARTBEAT, 4, 1)


def test_a_held_response_keeps_what_is_behind_it() -> None:
    """The client sends on, and gets its answers in order later."""
    talk = holding(rule("at: response"))
    answers = response(HEARTBEAT, 4, 1) + response(METADATA, 9, 3)
    talk.client(BEAT + META).broker(answers)
    held = only(talk)
    assert (talk.to_client, talk.read[BROKER], talk.read[CLIENT], held.behind) == (b"", False, True, 1)

    held.let_go()
    assert talk.to_client == answers
    assert talk.read[BROKER]
    assert talk.session.idle


def test_both_sides_of_an_exchange_are_held_one_after_the_other() -> None:
    """By one rule, which fires once."""
    talk = holding(rule("at: both"))
    talk.client(BEAT)
    only(talk).let_go()
    talk.broker(response(HEARTBEAT, 4, 1))
    assert only(talk).at == "response"
    only(talk).let_go()
    assert talk.to_client == response(HEARTBEAT, 4, 1)
    assert counts(talk) == (1, 1, 1)
    assert [one.id for one in talk.shared.desk.gone.values()] == ["1-1", "1-2"]


def test_whatever_is_held_and_not_changed_leaves_as_it_came() -> None:
    """Any API in any version with any values, requests and responses."""
    random = Random(5)
    talk_rules = "rules:\n  - {name: hold, kind: intercept, at: both}\n"
    number = 0
    for api in schema.apis():
        if api.key in (17, 36):  # raw tokens may come behind them
            continue
        version = random.choice(list(api.versions))
        body = random_struct(layout.body(api.key, version, "request"), random)
        if api.key == PRODUCE:
            body["acks"] = -1
        asked = framed(message(api.key, version, "request", body, 7))
        said = framed(
            message(api.key, version, "response", random_struct(layout.body(api.key, version, "response"), random), 7)
        )
        talk = holding(talk_rules)
        talk.client(asked)
        if not held_in(talk):  # ApiVersions and others that kproxy answers
            continue
        only(talk).let_go()
        assert talk.to_broker in (asked, b""), api.name
        if talk.to_broker and talk.closed is None:
            talk.broker(said)
            for held in held_in(talk):
                assert held.at == "response"
                number += 1
                held.let_go()
            if talk.closed is None:
                assert len(talk.to_client) == len(said), api.name
    assert number > 50


def test_nothing_waits_for_ever() -> None:
    """When its time is over it goes on as it is, and that is told."""
    talk = holding(rule("hold_for: 5s"))
    talk.client(BEAT + SECOND)
    talk.later(4.9)
    assert talk.to_broker == b""
    talk.later(0.2)
    assert talk.to_broker == BEAT, "the next one waits for its own five seconds"
    talk.later(5.0)
    assert talk.to_broker == BEAT + SECOND
    assert [one.how for one in talk.shared.desk.gone.values()] == ["timed_out", "timed_out"]


def test_somebody_may_ask_for_more_time_and_gets_ten_minutes_in_all() -> None:
    """The revision stays, so that a decision about the frame as it was seen is right."""
    talk = holding(rule("hold_for: 5s"))
    talk.client(BEAT)
    held = only(talk)
    held.extend(60.0)
    talk.later(64.0)
    assert (held.gone, held.revision, talk.to_broker) == (None, 1, b"")
    held.extend(600.0)
    talk.later(535.0)
    assert held.gone is None
    talk.later(2.0)
    assert (held.gone, talk.to_broker) == ("timed_out", BEAT)


@pytest.mark.parametrize(("at", "then"), [("request", "close"), ("response", "close")])
def test_when_its_time_is_over_its_connection_is_closed_if_the_rule_says_so(at: str, then: str) -> None:
    """In the frame's place."""
    talk = holding(rule(f"at: {at}, hold_for: 1s, on_timeout: {then}"))
    talk.client(BEAT)
    if at == "response":
        talk.broker(response(HEARTBEAT, 4, 1))
    talk.later(1.1)
    assert talk.closed is not None
    assert talk.closed.cause == "rule"
    assert talk.to_client == b""


@pytest.mark.parametrize("at", ["request", "response"])
def test_when_its_time_is_over_an_error_can_be_the_answer(at: str) -> None:
    """In the broker's place, or in place of what the broker has said."""
    talk = holding(rule(f"at: {at}, hold_for: 1s, on_timeout: {{error: REQUEST_TIMED_OUT}}"))
    talk.client(BEAT + META)
    if at == "response":
        talk.broker(response(HEARTBEAT, 4, 1))
    talk.later(1.1)
    (answer,) = talk.responses((HEARTBEAT, 4))
    assert answer.body["error_code"] == 7
    assert talk.to_broker == (META if at == "request" else BEAT + META)


def test_a_write_that_nobody_answers_is_closed_instead() -> None:
    """acks 0: there is no answer that an error could stand in."""
    talk = holding(rule("hold_for: 1s, on_timeout: {error: REQUEST_TIMED_OUT}", "Produce"))
    talk.client(produce(1, "orders", acks=0))
    assert not only(talk).is_answered
    talk.later(1.1)
    assert talk.closed is not None
    assert talk.to_broker == b""


# ---- bounds


def test_no_more_are_held_than_may_be() -> None:
    """Others pass, and are counted; what is held by two rules counts for each."""
    shared = ClusterState()
    talks = [holding(rule("max_frames: 2"), shared=shared, number=number) for number in (1, 2, 3)]
    first = talks[0].rules.live[0]
    for talk in talks[1:]:
        talk.rules.live[0].held = first.held  # as if it were the same rule
    for talk in talks:
        talk.client(BEAT)
    assert [talk.to_broker for talk in talks] == [b"", b"", BEAT]
    assert (len(shared.desk.held), shared.desk.passed_over) == (2, 1)
    assert shared.counters.events["hold_passed_over"] == 1


def test_no_more_bytes_are_held_than_may_be() -> None:
    """A longer frame passes; what is let go makes room."""
    shared = ClusterState(desk=HeldRegistry(200))
    talk = holding(rule(api="Produce"), shared=shared)
    long = produce(1, ("orders", 0, b"r" * 200))
    talk.client(long)
    assert (talk.to_broker, shared.desk.passed_over) == (long, 1)
    short = produce(2, "orders")
    talk.client(short)
    assert shared.desk.bytes == len(short) - 4
    only(talk).let_go()
    assert (shared.desk.bytes, talk.to_broker) == (0, long + short)


def test_how_frames_went_is_forgotten() -> None:
    """After a minute, and beyond a thousand."""
    talk = holding(rule())
    for number in range(1200):
        talk.client(request(HEARTBEAT, 4, number))
        only(talk).let_go()
        talk.broker(response(HEARTBEAT, 4, number))
    assert len(talk.shared.desk.gone) == 1000
    talk.shared.desk.forget(talk.now + 61)
    assert not talk.shared.desk.gone


# ---- ends


def test_a_client_that_leaves_takes_along_what_is_held() -> None:
    """Its connection is over, and the rule holds nothing any more."""
    talk = holding(rule())
    talk.client(BEAT)
    talk.session.owner.cause = "client_closed"
    talk.session.end(talk.now)
    assert not talk.rules.live[0].held
    assert [one.how for one in talk.shared.desk.gone.values()] == ["client_left"]


def test_a_rule_that_goes_lets_go() -> None:
    """Removed, disabled or killed."""
    talk = holding(rule())
    talk.client(BEAT)
    assert talk.rules.live[0].resume("rule_gone") == 1
    assert talk.to_broker == BEAT
    assert [one.how for one in talk.shared.desk.gone.values()] == ["rule_gone"]


def test_a_drain_sends_no_held_request_and_lets_a_response_go() -> None:
    """The broker has not seen the one, and has done the other."""
    talk = holding(rule())
    talk.client(BEAT)
    talk.session.drain(talk.now)
    talk.obey()
    assert (talk.to_broker, talk.closed is not None, held_in(talk)) == (b"", True, [])

    talk = holding(rule("at: response"))
    talk.client(BEAT).broker(response(HEARTBEAT, 4, 1))
    talk.session.drain(talk.now)
    talk.obey()
    assert (talk.to_client, talk.closed is not None) == (response(HEARTBEAT, 4, 1), True)


def test_what_others_hold_is_listed_too() -> None:
    """`when: {hold: true}`: let go, but not edited where only the header was read."""
    talk = holding("rules:\n  - {name: wait, kind: delay, match: {api: Produce}, when: {hold: true}, delay: 1ms}\n")
    long = produce(1, ("orders", 0, b"r" * 500))
    talk.client(long[:100])
    held = only(talk)
    assert (held.running.name, held.until, held.is_whole, held.frame()) == ("wait", None, False, None)
    held.let_go()
    talk.client(long[100:])
    talk.later(0.01)
    assert talk.to_broker == long


def test_a_rule_that_only_observes_holds_nothing() -> None:
    """It counts."""
    talk = holding(rule("mode: dry_run"))
    talk.client(BEAT)
    assert (talk.to_broker, counts(talk)) == (BEAT, (1, 1, 0))


# ---- filters


def test_a_filter_is_asked_before_the_trigger() -> None:
    """The second one that the filter holds for is held, whatever else matches."""
    talk = holding(rule('filter: "~g x", when: {nth: 2}'))
    asked = []
    talk.shared.desk.judge = lambda wanted, session, exchange, given, said, now: (
        asked.append((wanted, said)) or decode_request(given).body["group_id"] == "x"
    )
    for number, group in enumerate("xyyx"):
        talk.client(request(HEARTBEAT, 4, number, group_id=group))
    assert only(talk).evaluation.exchange.correlation_id == 3
    assert asked == [("~g x", None)] * 4
    assert counts(talk) == (2, 1, 0)


def test_a_filter_sees_the_response_where_responses_are_held() -> None:
    """And the request beside it."""
    talk = holding(rule('at: response, filter: "~e"'))

    def judge(wanted: str, session: Any, exchange: Any, asked: bytes, said: bytes | None, now: float) -> bool:
        assert decode_request(asked).body["group_id"] == "g"
        return said is not None and decode_response(said, HEARTBEAT, 4).body["error_code"] != 0

    talk.shared.desk.judge = judge
    talk.client(BEAT).broker(response(HEARTBEAT, 4, 1))
    assert not held_in(talk)
    talk.client(BEAT).broker(response(HEARTBEAT, 4, 1, error_code=27))
    assert only(talk).at == "response"


def test_a_filter_that_cannot_be_judged_holds_nothing() -> None:
    """It is a problem of the rule, and of no client."""
    talk = holding(rule('filter: "~g x"'))
    talk.shared.desk.judge = lambda *given: 1 / 0 > 1
    talk.client(BEAT)
    assert talk.to_broker == BEAT
    assert "ZeroDivisionError" in talk.rules.live[0].problem


# ---- decisions


@pytest.mark.parametrize("how", ["stall", "close", "continue"])
@pytest.mark.parametrize("at", ["request", "response"])
def test_a_dropped_frame_goes_nowhere(at: str, how: Any) -> None:
    """Then the connection stalls, is closed, or goes on."""
    talk = holding(rule(f"at: {at}"))
    talk.client(BEAT + META)
    if at == "response":
        talk.broker(response(HEARTBEAT, 4, 1))
    held = only(talk)
    held.drop(how)
    held.let_go("dropped")
    assert BEAT not in talk.to_broker or at == "response"
    assert talk.to_client == b""
    assert (talk.closed is not None) == (how == "close")
    if how == "continue":
        talk.broker(response(METADATA, 9, 3))
        assert talk.to_client == response(METADATA, 9, 3)


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("at", ["request", "response"])
def test_a_connection_is_closed_in_the_frames_place(at: str, how: Any) -> None:
    """In order or by a reset."""
    talk = holding(rule(f"at: {at}"))
    talk.client(BEAT)
    if at == "response":
        talk.broker(response(HEARTBEAT, 4, 1))
    held = only(talk)
    held.close(how)
    held.let_go("closed")
    assert talk.closed is not None
    assert talk.closed.reset == (how == "rst")


def test_an_answer_leaves_in_its_turn() -> None:
    """Behind the answers to older requests; the broker never sees the request."""
    talk = holding(rule())
    talk.client(META + BEAT)
    held = only(talk)
    said = held.error(27, held.frame())
    assert said is not None
    held.answer(said)
    held.let_go("answered")
    assert talk.to_client == b""
    talk.broker(response(METADATA, 9, 3))
    assert talk.to_client == response(METADATA, 9, 3) + response(HEARTBEAT, 4, 1, error_code=27)
    assert talk.to_broker == META
    assert talk.session.idle


def test_edited_fields_go_on_under_the_brokers_names() -> None:
    """The client's names are edited; renames act behind it, and on the answer."""
    text = rule(api="Produce") + "  - {name: r, kind: rename_topic, topics: {bills: prod.bills}}\n"
    talk = holding(text)
    talk.client(produce(1, "orders"))
    held = only(talk)
    frame = held.frame()
    assert frame is not None
    held.becomes(MessageEdit(frame, PRODUCE, 9, "request").made([("topic_data[0].name", "bills")]))
    held.let_go("edited")
    assert talk.to_broker == produce(1, "prod.bills")
    talk.broker(produced(1, "prod.bills"))
    assert talk.to_client == produced(1, "bills")


def test_edited_bytes_leave_as_they_are() -> None:
    """Whatever they mean; the same for responses."""
    talk = holding(rule("at: both"))
    talk.client(BEAT)
    held = only(talk)
    held.leaves_as(BEAT[4:] + b"more")
    held.let_go("edited")
    assert talk.to_broker == framed(BEAT[4:] + b"more")
    talk.broker(response(HEARTBEAT, 4, 1))
    held = only(talk)
    held.leaves_as(b"\0\0\0\1???")
    held.let_go("edited")
    assert talk.to_client == framed(b"\0\0\0\1???")


def test_an_edited_response_is_what_the_client_gets() -> None:
    """With the client's names, which it had before the edit."""
    text = rule("at: response", "Fetch") + "  - {name: r, kind: rename_topic, topics: {bills: prod.bills}}\n"
    talk = holding(text)
    talk.client(fetch(1, "bills")).broker(fetched(1, "prod.bills"))
    held = only(talk)
    frame = held.frame()
    assert frame is not None
    assert frame == fetched(1, "bills")[4:]
    assert held.came() == fetched(1, "prod.bills")[4:]
    held.becomes(MessageEdit(frame, FETCH, 11, "response").made([("responses[0].partitions[0].high_watermark", 77)]))
    held.let_go("edited")
    assert talk.to_client == fetched(1, "bills", high_watermark=77)


def test_two_rules_hold_one_frame_until_both_let_go() -> None:
    """An edit for the one is another revision for the other."""
    talk = holding(rule() + rule().replace("rules:\n", "").replace("name: hold", "name: other"))
    talk.client(BEAT)
    first, second = held_in(talk)
    first.becomes(SECOND[4:])
    first.let_go("edited")
    assert (talk.to_broker, second.revision, second.frame()) == (b"", 2, SECOND[4:])
    second.let_go()
    assert talk.to_broker == SECOND


# ---- edits


def edited(key: int, version: int, direction: str, body: dict[str, Any], *changes: tuple[str, Any]) -> dict[str, Any]:
    frame = MessageEdit(message(key, version, direction, body), key, version, direction).made(changes)
    read = decode_request(frame) if direction == "request" else decode_response(frame, key, version)
    return read.body


def mistakes(key: int, version: int, body: dict[str, Any], *changes: tuple[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(BadEdit) as caught:
        edited(key, version, "request", body, *changes)
    return list(caught.value.mistakes)


GROUPS = {"groups": ["a", "b"], "include_authorized_operations": False}


def test_arrays_grow_by_an_element_of_defaults() -> None:
    """At their ends; lists of texts, and of structs."""
    assert edited(DESCRIBE_GROUPS, 5, "request", GROUPS, ("groups[2]", "c"), ("groups[0]", "z"))["groups"] == [
        "z", "b", "c",
    ]  # fmt: skip
    body = edited(METADATA, 9, "request", {"topics": []}, ("topics[0].name", "x"), ("topics[1].name", "y"))
    assert [topic["name"] for topic in body["topics"]] == ["x", "y"]
    body = edited(METADATA, 9, "request", {"topics": None}, ("topics[0].name", "x"))
    assert [topic["name"] for topic in body["topics"]] == ["x"]


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("groups[3]", "d", "groups has 2 elements, [2] would be the next one"),
        ("groups[0]", 5, "expected text for groups[]"),
        ("groups[]", "d", "one element is changed at a time, write [0] for the first one"),
        ("groups[0]", None, "null is not legal for this element (groups[])"),
        ("include_authorized_operations", 1, "expected true or false for include_authorized_operations"),
        ("group", "d", 'a DescribeGroups request of version 5 has no such field, did you mean "groups[]"?'),
        ("groups[x]", "d", "expected a path such as"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(path: str, value: Any, told: str) -> None:
    """By type, nullability and place."""
    ((where, text),) = mistakes(DESCRIBE_GROUPS, 5, GROUPS, (path, value))
    assert where == path
    assert told in text


def test_all_mistakes_are_told_at_once() -> None:
    """Nothing is changed if there is one."""
    assert [where for where, _ in mistakes(DESCRIBE_GROUPS, 5, GROUPS, ("groups[0]", 1), ("nope", 2))] == [
        "groups[0]", "nope",
    ]  # fmt: skip


def test_null_is_legal_by_version() -> None:
    """Metadata 1 has null for all topics, Metadata 0 has not."""
    assert edited(METADATA, 1, "request", {"topics": []}, ("topics", None))["topics"] is None
    assert "null is not legal" in mistakes(METADATA, 0, {"topics": []}, ("topics", None))[0][1]


BATCHES = b"".join(
    encode_batch([Record(base + at, 1700000000000, b"k", b"v%d" % at, (("h", b"1"),)) for at in range(2)], codec=codec,
                 base_offset=base)
    for base, codec in ((0, 0), (2, 1))
)  # fmt: skip


def records_of(data: bytes) -> list[Record]:
    return [record for entry in entries(data) for record in decode(entry)]


def test_records_are_edited_with_lengths_and_checksums_anew() -> None:
    """Counted over all batches; a batch that is not touched stays as it was."""
    body = {"acks": -1, "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": BATCHES}]}]}
    at = "topic_data[0].partition_data[0].records"
    found = edited(PRODUCE, 9, "request", body, (f"{at}[3].value", "bills"), (f"{at}[2].key", None),
                   (f"{at}[3].headers", [{"key": "a", "value": None}, {"key": "b", "value": "hex:00ff"}]))  # fmt: skip
    data = found["topic_data"][0]["partition_data"][0]["records"]
    first = len(next(iter(entries(BATCHES))).raw)
    assert data[:first] == BATCHES[:first]
    records = records_of(data)
    assert [record.value for record in records] == [b"v0", b"v1", b"v0", b"bills"]
    assert records[2].key is None
    assert records[3].headers == (("a", None), ("b", b"\0\xff"))
    assert [record.offset for record in records] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("records[4].value", "x", "there are 4 records here"),
        ("records[0].offset", 5, "of a record key, value, headers can be set"),
        ("records[0].value", 5, "expected text or hex:0a0b"),
        ("records[0].headers", {"a": "b"}, "expected a list of headers"),
    ],
)
def test_of_records_only_what_they_carry_is_edited(path: str, value: Any, told: str) -> None:
    body = {"acks": -1, "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": BATCHES}]}]}
    ((_, text),) = mistakes(PRODUCE, 9, body, (f"topic_data[0].partition_data[0].{path}", value))
    assert told in text


def test_acks_stays_what_it_means() -> None:
    """An answer that is due has to come, and none may come that is not."""
    body = {"acks": -1, "topic_data": []}
    assert edited(PRODUCE, 9, "request", body, ("acks", 1))["acks"] == 1
    assert mistakes(PRODUCE, 9, body, ("acks", 0))[0][0] == "acks"
    assert mistakes(PRODUCE, 9, body | {"acks": 0}, ("acks", 1))[0][0] == "acks"


def test_an_answer_has_defaults_for_what_is_not_given() -> None:
    """And is checked as edits are."""
    api = schema.load(HEARTBEAT)
    frame = answer_of(api, 4, 9, {"error_code": 27})
    assert framed(frame) == response(HEARTBEAT, 4, 9, error_code=27)
    with pytest.raises(BadEdit) as caught:
        answer_of(api, 4, 9, {"error_code": 1 << 20, "nope": 1})
    assert [where for where, _ in caught.value.mistakes] == ["error_code", "nope"]


def test_edits_take_no_longer_than_they_are_long() -> None:
    """Ten times as many changes to ten times as long a frame take about ten times as long, in calls."""
    import cProfile
    import pstats

    def calls(count: int) -> int:
        body = {"topics": [{"name": f"t{at}"} for at in range(count)]}
        frame = message(METADATA, 9, "request", body)
        profile = cProfile.Profile()
        profile.enable()
        MessageEdit(frame, METADATA, 9, "request").made([(f"topics[{at}].name", "x") for at in range(count)])
        profile.disable()
        return pstats.Stats(profile).total_calls  # type: ignore[attr-defined]

    calls(10)
    assert calls(1000) < 15 * calls(100)


def test_a_frame_is_encoded_as_it_was_if_nothing_is_set() -> None:
    """What the table does not know stays, too."""
    body = random_struct(layout.body(METADATA, 12, "request"), Random(3)) | {"_tagged_fields": [(300, b"x")]}
    frame = message(METADATA, 12, "request", body)
    assert MessageEdit(frame, METADATA, 12, "request").made([]) == encode(decode_request(frame)) == frame
