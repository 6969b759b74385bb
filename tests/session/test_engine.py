"""Live rules in the session: what fires, what is answered, what goes on, and in which order."""

from __future__ import annotations

from kproxy.protocol.framing import framed
from kproxy.rules.document.read import parse_rules
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.frames import fetch, fetched, produce, produced

PRODUCE, FETCH, METADATA, HEARTBEAT = 0, 1, 3, 12
NOT_LEADER = 6

THIRD = """
rules:
  - name: the third write fails
    kind: error
    match: {api: Produce, topic: orders, partition: 0}
    when: {nth: 3}
    error: NOT_LEADER_OR_FOLLOWER
"""


def codes(talk: Dialogue, count: int, version: int = 9) -> list[dict[tuple[str, int], int]]:
    return [
        {
            (topic["name"], part["index"]): part["error_code"]
            for topic in answer.body["responses"]
            for part in topic["partition_responses"]
        }
        for answer in talk.responses(*[(PRODUCE, version)] * count)
    ]


def test_the_third_matching_request_is_answered_in_the_brokers_place() -> None:
    """The broker sees all but the third; the client gets four answers in the order of its requests."""
    talk = Dialogue(THIRD)
    asked = [produce(number, "orders") for number in range(1, 5)]
    said = [produced(number, "orders") for number in (1, 2, 4)]
    for frame in asked:
        talk.client(frame)
    talk.broker(b"".join(said))

    assert talk.to_broker == asked[0] + asked[1] + asked[3]
    assert [answer[("orders", 0)] for answer in codes(talk, 4)] == [0, 0, NOT_LEADER, 0]
    assert [message.header["correlation_id"] for message in talk.responses(*[(PRODUCE, 9)] * 4)] == [1, 2, 3, 4]
    running = talk.rules.live[0]
    assert (running.matched, running.fired, running.applied) == (4, 1, 1)


def test_the_rest_of_a_mixed_request_is_the_brokers() -> None:
    """Only the partition that fails is taken out; the answer has all of them in the order of the request."""
    talk = Dialogue(THIRD.replace("{nth: 3}", "{nth: 1}"))
    talk.client(produce(1, "orders", ("orders", 1), "clicks"))

    (seen,) = talk.requests()
    assert [[topic["name"], len(topic["partition_data"])] for topic in seen.body["topic_data"]] == [
        ["orders", 1], ["clicks", 1],
    ]  # fmt: skip
    talk.broker(produced(1, ("orders", 1), "clicks"))
    (answer,) = codes(talk, 1)
    assert answer == {("orders", 0): NOT_LEADER, ("orders", 1): 0, ("clicks", 0): 0}
    assert list(answer) == [("orders", 0), ("orders", 1), ("clicks", 0)]


def test_an_error_after_the_work_changes_only_the_answer() -> None:
    """`at: response`: the broker gets the very bytes, and the client another answer."""
    talk = Dialogue(THIRD.replace("nth: 3", "nth: 1") + "    at: response\n")
    asked = produce(1, "orders", ("orders", 1))
    talk.client(asked).broker(produced(1, "orders", ("orders", 1)))

    assert talk.to_broker == asked
    assert codes(talk, 1) == [{("orders", 0): NOT_LEADER, ("orders", 1): 0}]


def test_what_does_not_fire_passes_as_it_came() -> None:
    """Frames of other APIs, other topics, and those for which it is not their turn are the same bytes."""
    talk = Dialogue(THIRD)
    asked = [produce(1, "orders"), request(HEARTBEAT, 4, 2, group_id="g"), produce(3, "clicks")]
    said = [produced(1, "orders"), response(HEARTBEAT, 4, 2), produced(3, "clicks")]
    for chunk in (0, 1, 7, 100):
        talk = Dialogue(THIRD)
        talk.client(b"".join(asked), chunk).broker(b"".join(said), chunk)
        assert (talk.to_broker, talk.to_client) == (b"".join(asked), b"".join(said))
        assert talk.rules.live[0].matched == 1


def test_observe_counts_and_changes_nothing() -> None:
    """Dry run: fired is counted, applied is not, and every byte passes."""
    talk = Dialogue(THIRD.replace("nth: 3", "nth: 1") + "    mode: dry_run\n")
    asked, said = produce(1, "orders"), produced(1, "orders")
    talk.client(asked).broker(said)

    assert (talk.to_broker, talk.to_client) == (asked, said)
    running = talk.rules.live[0]
    assert (running.matched, running.fired, running.applied) == (1, 1, 0)


def test_a_write_without_acks_that_fails_closes_the_connection() -> None:
    """There is no answer to carry the error; a broker closes then, too."""
    talk = Dialogue(THIRD.replace("nth: 3", "nth: 1"))
    talk.client(produce(1, "orders", acks=0))

    assert talk.to_broker == b""
    assert talk.closed is not None
    assert talk.closed.cause == "rule"


def test_a_failed_partition_of_a_fetch_is_put_into_the_brokers_answer() -> None:
    """The broker is asked to answer at once, and its session stays whole."""
    rules = "rules:\n  - {name: gone, kind: error, match: {api: Fetch, topic: orders}, error: NOT_LEADER_OR_FOLLOWER}\n"
    talk = Dialogue(rules)
    topics = [{"topic": name, "partitions": [{"partition": 0, "fetch_offset": 5}]} for name in ("orders", "clicks")]
    talk.client(request(FETCH, 11, 1, max_wait_ms=500, topics=topics))
    (seen,) = talk.requests()
    assert seen.body["max_wait_ms"] == 0
    assert [topic["topic"] for topic in seen.body["topics"]] == ["orders", "clicks"]

    said = [
        {"topic": name, "partitions": [{"partition_index": 0, "high_watermark": 9, "records": b"x" * 10}]}
        for name in ("orders", "clicks")
    ]
    talk.broker(response(FETCH, 11, 1, responses=said))
    (answer,) = talk.responses((FETCH, 11))
    found = {topic["topic"]: topic["partitions"][0] for topic in answer.body["responses"]}
    assert found["orders"]["error_code"] == NOT_LEADER
    assert not found["orders"]["records"]
    assert bytes(found["clicks"]["records"]) == b"x" * 10


def test_a_held_request_waits_until_it_is_let_go() -> None:
    """`hold`: nothing passes the held request on its connection; when it is released all goes on in order."""
    rules = """
rules:
  - {name: wait, kind: error, match: {api: Heartbeat}, when: {hold: true, nth: 1}, error: 27, at: response}
"""
    talk = Dialogue(rules)
    first, second = request(HEARTBEAT, 4, 1, group_id="g"), request(METADATA, 9, 2, topics=None)
    talk.client(first + second)
    assert talk.to_broker == b""
    assert not talk.read[CLIENT]
    assert len(talk.rules.live[0].held) == 1

    assert talk.rules.live[0].resume() == 1
    talk.session.released(talk.now)
    talk.obey()
    assert talk.to_broker == first + second
    assert talk.read[CLIENT]
    talk.broker(response(HEARTBEAT, 4, 1))
    (answer,) = talk.responses((HEARTBEAT, 4))
    assert answer.body["error_code"] == 27
    assert BROKER not in talk.shut


FETCH_FAILS = """
rules:
  - {name: gone, kind: error, match: {api: Fetch, topic: orders}, when: {nth: 2}, error: NOT_LEADER_OR_FOLLOWER}
"""


def test_a_fetch_that_lists_nothing_is_about_its_whole_session() -> None:
    """The second request of a session lists no partition, and the one that fails is added to the broker's answer."""
    talk = Dialogue(FETCH_FAILS)
    talk.client(fetch(1, "orders", "clicks", session_id=0, session_epoch=0)).broker(
        fetched(1, "orders", "clicks", session_id=77), 5
    )
    assert talk.to_client == fetched(1, "orders", "clicks", session_id=77)

    talk.client(fetch(2, session_id=77, session_epoch=1)).broker(fetched(2, "clicks", session_id=77))
    answer = talk.responses((FETCH, 11), (FETCH, 11))[1]
    found = {topic["topic"]: topic["partitions"][0]["error_code"] for topic in answer.body["responses"]}
    assert found == {"clicks": 0, "orders": NOT_LEADER}
    assert talk.rules.live[0].matched == 2


def test_a_session_whose_start_was_not_seen_begins_anew() -> None:
    """The client is told that there is no such session, once, and the broker does not hear of it."""
    talk = Dialogue(FETCH_FAILS)
    talk.client(fetch(1, session_id=77, session_epoch=5))
    (answer,) = talk.responses((FETCH, 11))
    assert answer.body["error_code"] == 70
    assert talk.to_broker == b""
    again = fetch(2, "orders", session_id=0, session_epoch=0)
    talk.client(again)
    assert talk.to_broker == again


DELAYED = "rules:\n  - {name: slow, kind: delay, match: {api: Heartbeat}, delay: 200ms, at: AT}\n"


def test_a_delayed_request_holds_what_follows_it_on_its_connection() -> None:
    """Nothing reaches the broker before the time; what came with it is not delayed a second time."""
    talk = Dialogue(DELAYED.replace("AT", "request"))
    frames = [request(HEARTBEAT, 4, 1, group_id="g"), request(METADATA, 9, 2, topics=None), request(HEARTBEAT, 4, 3)]
    talk.client(b"".join(frames))
    assert talk.to_broker == b""
    talk.later(0.19)
    assert talk.to_broker == b""
    talk.later(0.02)
    assert talk.to_broker == b"".join(frames)
    assert talk.read[CLIENT]
    assert [running.applied for running in talk.rules.live] == [2]


def test_a_delayed_response_is_delayed_from_when_it_came() -> None:
    """Two answers that came together leave together; the order stays."""
    talk = Dialogue(DELAYED.replace("AT", "response"))
    asked = [request(HEARTBEAT, 4, 1), request(HEARTBEAT, 4, 2), request(METADATA, 9, 3, topics=None)]
    said = [response(HEARTBEAT, 4, 1), response(HEARTBEAT, 4, 2), response(METADATA, 9, 3)]
    talk.client(b"".join(asked)).broker(b"".join(said))
    assert talk.to_client == b""
    talk.later(0.21)
    assert talk.to_client == b"".join(said)


def test_a_dropped_response_stalls_its_connection() -> None:
    """The broker has done its work; the client hears nothing any more, and the connection stays open."""
    talk = Dialogue("rules:\n  - {name: lost, kind: drop, match: {api: Heartbeat}, what: response}\n")
    talk.client(request(HEARTBEAT, 4, 1)).broker(response(HEARTBEAT, 4, 1))
    talk.client(request(METADATA, 9, 2, topics=None))
    assert talk.to_broker == request(HEARTBEAT, 4, 1)
    assert talk.to_client == b""
    assert talk.closed is None
    assert talk.rules.live[0].applied == 1


def test_rules_change_at_the_next_frame_and_not_for_those_in_flight() -> None:
    """The answer to a request that a rule fired for is changed by it, though the rule is gone; the next is not."""
    talk = Dialogue(THIRD.replace("nth: 3", "first: 9") + "    at: response\n")
    talk.client(produce(1, "orders"))
    plain = Dialogue().session.plan
    talk.session.use(plain, talk.now)
    talk.client(produce(2, "orders")).broker(produced(1, "orders") + produced(2, "orders"))
    assert [answer[("orders", 0)] for answer in codes(talk, 2)] == [NOT_LEADER, 0]


THROTTLED = "rules:\n  - {name: wait, kind: throttle_time, match: {api: [Fetch, Produce]}, delay: 3s, mute: true}\n"


def test_a_throttled_client_is_told_and_not_read() -> None:
    """throttle_time_ms is in the answer, the records stream on, and nothing is read from the client for that long."""
    for chunk in (0, 1, 9, 20):
        talk = Dialogue(THROTTLED)
        talk.client(fetch(1, "orders", session_id=0, session_epoch=0)).broker(
            fetched(1, "orders", session_id=77), chunk
        )
        (answer,) = talk.responses((FETCH, 11))
        assert answer.body["throttle_time_ms"] == 3000
        assert not talk.read[CLIENT]
        talk.later(2.9)
        assert not talk.read[CLIENT]
        talk.later(0.2)
        assert talk.read[CLIENT]
    talk = Dialogue(THROTTLED)
    talk.client(produce(1, "orders")).broker(produced(1, "orders"))
    assert talk.responses((PRODUCE, 9))[0].body["throttle_time_ms"] == 3000
    talk = Dialogue(THROTTLED)
    talk.client(produce(1, "orders", acks=0))
    assert not talk.read[CLIENT]


def test_a_rule_on_principals_sees_who_has_authenticated() -> None:
    """PLAIN: the name counts once the broker has accepted it."""
    rules = "rules:\n  - {name: not alice, kind: error, match: {api: Heartbeat, principal: alice}, error: 27}\n"
    talk = Dialogue(rules)
    talk.client(request(17, 1, 1, mechanism="PLAIN")).broker(response(17, 1, 1))
    talk.client(request(HEARTBEAT, 4, 2)).broker(response(HEARTBEAT, 4, 2))
    talk.client(request(36, 1, 3, auth_bytes=b"\x00alice\x00secret")).broker(response(36, 1, 3))
    talk.client(request(HEARTBEAT, 4, 4))
    answers = talk.responses((17, 1), (HEARTBEAT, 4), (36, 1), (HEARTBEAT, 4))
    assert [answer.body["error_code"] for answer in answers] == [0, 0, 0, 27]


def test_bytes_behind_the_last_field_are_passed_over() -> None:
    """librdkafka's Metadata 13 has some, and brokers do not look at them: rules see the rest, and they go on."""
    talk = Dialogue('rules: [{name: r, kind: set, match: {api: Metadata}, fields: {"brokers[].rack": r}}]')
    asked = framed(request(METADATA, 13, 1)[4:] + b"xyz")
    said = response(METADATA, 13, 1, brokers=[{"host": "h"}])
    talk.client(asked).broker(framed(said[4:] + b"q"))

    assert talk.to_broker == asked
    assert talk.to_client == framed(response(METADATA, 13, 1, brokers=[{"host": "h", "rack": "r"}])[4:] + b"q")

    talk = Dialogue("rules: [{name: r, kind: error, match: {api: Metadata, topic: a}, error: 3}]")
    asked = request(METADATA, 12, 1, topics=[{"name": "a"}, {"name": "b"}])
    talk.client(framed(asked[4:] + b"xyz"))
    assert talk.to_broker[-3:] == b"xyz"


def test_a_fetch_of_nothing_is_not_about_any_topic() -> None:
    """A request that lists no topic does not match a rule that selects one; a rule that selects none is about it."""
    rules = """
rules:
  - {name: orders, kind: throttle_time, match: {api: Fetch, topic: orders}, delay: 1s}
  - {name: any, kind: throttle_time, match: {api: Fetch}, not: {topic: orders}, delay: 2s}
"""
    talk = Dialogue(rules)
    talk.client(request(FETCH, 11, 1, session_epoch=-1, topics=[]))
    assert [running.matched for running in talk.rules.live] == [0, 1]


FOURTH_AND_FIFTH = """
rules:
  - {name: fourth, kind: error, match: {api: Produce}, when: {nth: 4}, error: NOT_LEADER_OR_FOLLOWER}
  - {name: fifth, kind: error, match: {api: Produce}, when: {nth: 5%s}, error: TOPIC_AUTHORIZATION_FAILED}
"""
FORBIDDEN = 29


def test_what_a_rule_before_has_decided_does_not_count() -> None:
    """A fourth and a fifth act on the fourth and the sixth, unless the second counts all; also where the same request
    comes again and again, and with partitions of which only some are decided."""
    for counts, expected in (("", [0, 0, 0, 6, 0, FORBIDDEN, 0]), (", count: all", [0, 0, 0, 6, FORBIDDEN, 0, 0])):
        talk = Dialogue(FOURTH_AND_FIFTH % counts)
        for number in range(1, 8):
            talk.client(produce(number, "orders"))
            if expected[number - 1] == 0:
                talk.broker(produced(number, "orders"))
        assert [answer["orders", 0] for answer in codes(talk, 7)] == expected
        fourth, fifth = talk.rules.live
        assert (fourth.matched, fourth.fired) == (7, 1)
        assert (fifth.matched, fifth.fired, fifth.applied) == (7 if counts else 6, 1, 1)


def test_each_of_many_rules_has_its_request() -> None:
    """Every request is the next rule's: none of them is counted less for the errors before it, although each of these
    could be answered with what was answered before."""
    made = "".join(
        f"  - {{name: r{number}, kind: error, match: {{api: Produce, topic: orders}}, error: {number}, at: request,"
        f" when: {{nth: {number}, count: all}}}}\n"
        for number in range(1, 21)
    )
    talk = Dialogue(f"rules:\n{made}")
    for number in range(1, 23):
        talk.client(produce(number, "orders"))
    talk.broker(produced(21, "orders") + produced(22, "orders"))

    assert [answer["orders", 0] for answer in codes(talk, 22)] == [*range(1, 21), 0, 0]
    assert [(one.matched, one.fired) for one in talk.rules.live] == [(22, 1)] * 20


def test_a_turn_that_another_rule_took_is_over() -> None:
    """Both mean the second: the first one acts, the second counts it as matched, and does not act later."""
    rules = FOURTH_AND_FIFTH.replace("nth: 4", "nth: 2") % ", count: all"
    talk = Dialogue(rules.replace("nth: 5", "nth: 2"))
    for number in range(1, 5):
        talk.client(produce(number, "orders"))
        if number != 2:
            talk.broker(produced(number, "orders"))

    assert [answer["orders", 0] for answer in codes(talk, 4)] == [0, 6, 0, 0]
    assert [(one.matched, one.fired, one.applied) for one in talk.rules.live] == [(4, 1, 1), (4, 0, 0)]


def test_partitions_that_another_rule_has_failed_count() -> None:
    """The second rule's only partition is decided in the first request; the rest of it goes on."""
    talk = Dialogue("""
rules:
  - {name: one, kind: error, match: {api: Produce, partition: 0}, when: {nth: 1}, error: NOT_LEADER_OR_FOLLOWER}
  - name: two
    kind: error
    match: {api: Produce, topic: orders, partition: 0}
    when: {nth: 2, count: all}
    error: TOPIC_AUTHORIZATION_FAILED
""")
    talk.client(produce(1, "orders", ("orders", 1))).broker(produced(1, ("orders", 1)))
    talk.client(produce(2, "orders", ("orders", 1))).broker(produced(2, ("orders", 1)))

    assert codes(talk, 2) == [
        {("orders", 0): NOT_LEADER, ("orders", 1): 0},
        {("orders", 0): FORBIDDEN, ("orders", 1): 0},
    ]


def test_a_connection_that_another_rule_has_refused_counts() -> None:
    made = parse_rules("""
rules:
  - {name: one, kind: refuse, when: {nth: 2}}
  - {name: two, kind: refuse, when: {nth: 3, count: all}}
""")
    opened = [Dialogue(plan=Plan(ConnectionSettings(), made.live)) for _ in range(4)]
    assert [talk.closed is not None for talk in opened] == [False, True, True, False]
    assert [(one.matched, one.fired) for one in made.live] == [(4, 1), (4, 1)]
