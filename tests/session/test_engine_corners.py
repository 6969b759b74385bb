"""Rules that meet each other, name rules, and frames that are cut in odd places or hold odd things."""

from __future__ import annotations

from uuid import UUID

import pytest

from kproxy.protocol import Message, encode
from kproxy.protocol.framing import framed
from kproxy.protocol.table import schema
from kproxy.session.cluster import CORRELATION
from kproxy.session.commands import CLIENT, WakeAt
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response
from tests.support.frames import fetch, produce

ID = UUID(int=(4 << 76) + 5)
PRODUCE, FETCH, METADATA, CONTROLLED_SHUTDOWN, HEARTBEAT = 0, 1, 3, 7, 12


def numbers(data: bytes) -> list[int]:
    return [int.from_bytes(frame[:4], "big") for frame in frames(data)]


# ---- with name rules


def test_a_request_that_a_rule_changes_is_renamed_whole() -> None:
    """The only topic of a Produce request is renamed in place, and all that stands behind it is still there."""
    text = """
rules:
  - {name: names, kind: rename_topic, topics: {orders: prod.orders}}
  - {name: patient, kind: set, match: {api: Produce}, fields: {timeout_ms: 77}, at: request}
"""
    talk = Dialogue(text)
    talk.client(produce(1, "orders"))
    assert talk.to_broker == produce(1, "prod.orders", timeout_ms=77)


# ---- reordered answers


def test_an_answer_leaves_behind_one_that_is_only_looked_at_by_its_header() -> None:
    """The next response is throttled in place and may stream; what was to leave behind it does."""
    text = """
rules:
  - {name: swap, kind: reorder_responses, match: {api: Metadata}}
  - {name: wait, kind: throttle_time, match: {api: Heartbeat}, delay: 1s}
"""
    for chunk in (0, 1, 9):
        talk = Dialogue(text)
        talk.client(request(METADATA, 9, 1, topics=None) + request(HEARTBEAT, 4, 2))
        talk.broker(response(METADATA, 9, 1) + response(HEARTBEAT, 4, 2), chunk)
        assert numbers(talk.to_client) == [2, 1]
        assert talk.responses((HEARTBEAT, 4), (METADATA, 9))[0].body["throttle_time_ms"] == 1000
        assert talk.session.idle


def test_no_answer_leaves_behind_the_handshake_of_raw_tokens() -> None:
    """The tokens that follow it are not told apart by frames, so they come right behind it."""
    talk = Dialogue("rules:\n  - {name: swap, kind: reorder_responses, match: {api: Metadata}}\n")
    talk.client(request(METADATA, 9, 1, topics=None) + request(17, 0, 2, mechanism="PLAIN"))
    talk.broker(response(METADATA, 9, 1) + response(17, 0, 2))
    assert numbers(talk.to_client) == [1, 2]
    talk.client(framed(b"\x00alice\x00secret")).broker(framed(b""))
    assert talk.session.identity.principal == "alice"


def test_a_response_that_is_dropped_is_not_changed_first() -> None:
    """Two rules about the same response: one leaves it out, the other has nothing to work on."""
    text = """
rules:
  - {name: tail, kind: trailing_bytes, match: {api: Heartbeat}, bytes: 3}
  - {name: lost, kind: drop, match: {api: Heartbeat}, what: response, connection: continue}
"""
    talk = Dialogue(text)
    talk.client(request(HEARTBEAT, 4, 1) + request(METADATA, 9, 2, topics=None))
    talk.broker(response(HEARTBEAT, 4, 1) + response(METADATA, 9, 2))
    assert numbers(talk.to_client) == [2]


def test_an_answer_of_its_own_leaves_behind_what_came_before_it() -> None:
    """The name of a topic id is asked for, and the request is then answered by kproxy: not before the response that
    came together with the name, however these two are cut."""
    text = "rules:\n  - {name: gone, kind: error, match: {api: DeleteTopics, topic: orders}, error: 29}\n"
    text += "  - {name: other, kind: set, match: {api: Heartbeat}, fields: {throttle_time_ms: 5}}\n"
    said = response(HEARTBEAT, 4, 0) + response(METADATA, 9, 1)
    said += response(METADATA, 10, CORRELATION, topics=[{"name": "orders", "topic_id": ID}])
    for chunk in (0, 1, 3, 20, len(said) - 5):
        talk = Dialogue(text)
        talk.client(request(HEARTBEAT, 4, 0) + request(METADATA, 9, 1, topics=None))
        talk.client(request(20, 6, 2, topics=[{"topic_id": ID}])).broker(said, chunk)
        assert numbers(talk.to_client) == [0, 1, 2]
        assert talk.responses((HEARTBEAT, 4), (METADATA, 9), (20, 6))[2].body["responses"][0]["error_code"] == 29
        assert talk.session.idle


# ---- throttled at the response


def test_a_response_with_tags_in_its_header_is_throttled() -> None:
    """throttle_time_ms stands behind them, wherever the bytes are cut."""
    text = "rules:\n  - {name: wait, kind: throttle_time, match: {api: Fetch}, delay: 3s}\n"
    header = {"correlation_id": 1, "_tagged_fields": [(5, b"t" * 100)]}
    body = Dialogue().client(request(FETCH, 12, 1)).broker(response(FETCH, 12, 1)).responses((FETCH, 12))[0].body
    said = framed(encode(Message(schema.load(FETCH), 12, header, body)))
    for chunk in (0, 1, 30, 40, 115):
        talk = Dialogue(text)
        talk.client(request(FETCH, 12, 1, session_epoch=-1)).broker(said, chunk)
        (answer,) = talk.responses((FETCH, 12))
        assert answer.body["throttle_time_ms"] == 3000
        assert answer.header["_tagged_fields"] == [(5, b"t" * 100)]


def test_a_quota_on_fetched_bytes_is_told_however_the_response_is_cut() -> None:
    """What the response brings is known at its header, and what it costs is told behind it."""
    text = "rules:\n  - {name: thin, kind: quota, fetch: 1kB/s, burst: 1s}\n"
    said = response(FETCH, 4, 1, responses=[{"topic": "a", "partitions": [{"records": b"x" * 5000}]}])
    for chunk in (0, 1, 9, 15):
        talk = Dialogue(text)
        talk.client(request(FETCH, 4, 1, topics=[{"topic": "a", "partitions": [{}]}])).broker(said, chunk)
        assert talk.responses((FETCH, 4))[0].body["throttle_time_ms"] > 3000
        assert not talk.read[CLIENT]


# ---- counters


def test_a_rule_is_applied_once_an_exchange() -> None:
    """Held at the request and changed at the response is one exchange to which something was done."""
    text = "rules:\n  - {name: w, kind: delay, match: {api: Heartbeat}, when: {hold: true}, delay: 1ms, at: response}\n"
    talk = Dialogue(text)
    talk.client(request(HEARTBEAT, 4, 1))
    talk.rules.live[0].resume()
    talk.session.released(talk.now)
    talk.obey()
    talk.broker(response(HEARTBEAT, 4, 1)).later(0.1)
    assert numbers(talk.to_client) == [1]
    running = talk.rules.live[0]
    assert (running.matched, running.fired, running.applied) == (1, 1, 1)


def test_a_shape_is_counted_when_it_comes_into_force_and_not_at_each_swap() -> None:
    """A connection is slowed once, though other rules come and go a hundred times; nor does each swap set a timer."""
    text = "rules:\n  - {name: thin, kind: bandwidth, rate: 1kB/s, when: {for: 1h}}\n"
    text += "  - {name: seen, kind: slice, bytes: 10, mode: dry_run}\n"
    talk = Dialogue(text)
    for _ in range(100):
        talk.session.use(talk.session.plan, talk.now)
        talk.obey()
    assert [(one.matched, one.fired, one.applied) for one in talk.rules.live] == [(1, 1, 1), (1, 1, 0)]
    assert len(talk.session.timers.calls) == 1
    assert len(talk.shapes) == 1
    talk.later(3601)
    assert talk.shapes == ()


def test_a_far_time_is_asked_for_once() -> None:
    """A rule ends in an hour, and many frames are delayed until then: the driver is not told of the hour at each."""
    text = "rules:\n  - {name: thin, kind: bandwidth, rate: 1kB/s, when: {for: 1h}}\n"
    text += "  - {name: slow, kind: delay, delay: 5ms, at: request}\n"
    talk = Dialogue(text)
    for number in range(50):
        talk.client(request(HEARTBEAT, 4, number)).later(0.01)
    asked = [command.when for command in talk.log if isinstance(command, WakeAt)]
    assert len(asked) == 51
    assert len(talk.wakes) == 1


# ---- rules that only look


def test_who_observes_leaves_fetch_sessions_alone() -> None:
    """The start of the session was not seen: an enforced rule has the client begin anew, an observed one does not."""
    text = "rules:\n  - {name: gone, kind: error, match: {api: Fetch, topic: orders}, error: 6, mode: dry_run}\n"
    talk = Dialogue(text)
    for number, topics in enumerate((("orders",), (), ("orders", "clicks")), start=5):
        talk.client(fetch(number, *topics, session_id=77, session_epoch=number))
    assert talk.to_client == b""
    assert talk.to_broker == fetch(5, "orders", session_id=77, session_epoch=5) + fetch(
        6, session_id=77, session_epoch=6
    ) + fetch(7, "orders", "clicks", session_id=77, session_epoch=7)
    assert talk.rules.live[0].matched == 2


@pytest.mark.parametrize(
    ("rule", "session"),
    [
        ("kind: malformed_batch, defect: bad_magic, match: {topic: orders}", False),
        ("kind: malformed_batch, defect: bad_magic, match: {topic: orders}, mode: dry_run", True),
        ("kind: error, match: {api: Fetch, client_id: somebody}, error: 6", True),
    ],
)
def test_a_fetch_of_ids_that_nobody_has_named_gets_no_session_from_rules_on_names(rule: str, session: bool) -> None:
    """What the rule says of these partitions changes when their name is heard, so each request lists them.

    A dry run, or a rule about something else,, leaves the request as it came.
    """
    talk = Dialogue(f"rules:\n  - {{name: r, {rule}}}\n")
    said = {"topics": [{"topic_id": ID, "partitions": [{"partition": 0}]}]}
    gone = [{"topic_id": ID, "partitions": [1]}]
    talk.client(request(FETCH, 13, 1, session_epoch=0, forgotten_topics_data=gone, **said))
    if talk.requests()[0].header["correlation_id"] == CORRELATION:
        talk.broker(response(METADATA, 12, CORRELATION, topics=[{"topic_id": ID, "error_code": 100}]))
    went = request(FETCH, 13, 1, session_epoch=-1, forgotten_topics_data=[], **said)
    came = request(FETCH, 13, 1, session_epoch=0, forgotten_topics_data=gone, **said)
    assert talk.to_broker.endswith(came if session else went)
    talk.broker(response(FETCH, 13, 1, session_id=0)).client(request(FETCH, 13, 2, session_epoch=0, **said))
    assert [one.header["correlation_id"] for one in talk.requests()][-2:] == [1, 2]


# ---- odd frames


def test_a_rule_on_errors_reads_what_was_asked() -> None:
    """Its kind only looks at lengths and needs no bodies, but its selector does."""
    text = "rules:\n  - {name: e, kind: delay, match: {api: Heartbeat, error: any}, delay: 1s, at: response}\n"
    talk = Dialogue(text)
    talk.client(request(HEARTBEAT, 4, 1) + request(HEARTBEAT, 4, 2))
    talk.broker(response(HEARTBEAT, 4, 1) + response(HEARTBEAT, 4, 2, error_code=27))
    assert numbers(talk.to_client) == [1]
    talk.later(1.1)
    assert numbers(talk.to_client) == [1, 2]


def test_a_rule_that_selects_on_errors_too_late_does_nothing() -> None:
    """It would act on requests; nothing is counted, and nothing goes wrong in it."""
    talk = Dialogue("rules:\n  - {name: e, kind: duplicate_records, match: {error: any}, at: produce}\n")
    asked = produce(1, "orders")
    talk.client(asked).broker(
        response(PRODUCE, 9, 1, responses=[{"name": "orders", "partition_responses": [{"error_code": 3}]}])
    )
    assert talk.to_broker == asked
    assert (talk.rules.live[0].matched, talk.rules.live[0].problems) == (0, 0)


def test_a_write_of_nothing_is_changed() -> None:
    """Null where topics are listed: no client sends it, and no rule stumbles over it."""
    talk = Dialogue("rules:\n  - {name: s, kind: set, match: {api: Produce}, fields: {timeout_ms: 7}, at: request}\n"
                    "  - {name: w, kind: set, match: {api: Produce}, fields: {throttle_time_ms: 5}}\n")  # fmt: skip
    asked = request(PRODUCE, 9, 1, acks=-1, topic_data=None)
    talk.client(asked)
    talk.broker(response(PRODUCE, 9, 1))
    assert talk.responses((PRODUCE, 9))[0].body["throttle_time_ms"] == 5


def test_a_request_without_a_client_id() -> None:
    """ControlledShutdown 0 has a header without one; the broker's id that stands there is no client id."""
    text = 'rules:\n  - {name: a, kind: error, match: {api: ControlledShutdown, client_id: "*"}, error: 3}\n'
    talk = Dialogue(text)
    asked = framed(
        encode(
            Message(
                schema.load(CONTROLLED_SHUTDOWN), 0,
                {"request_api_key": CONTROLLED_SHUTDOWN, "request_api_version": 0, "correlation_id": 1},
                {"broker_id": 0x00020000},
            )
        )
    )  # fmt: skip
    talk.client(asked)
    assert talk.to_broker == asked
    assert talk.rules.live[0].matched == 0


def test_names_that_are_no_utf_8_match_patterns() -> None:
    """A broker refuses them; rules with patterns look at them as at all others."""
    text = 'rules:\n  - {name: a, kind: error, match: {api: Metadata, topic: "or*s"}, error: 3}\n'
    talk = Dialogue(text)
    talk.client(request(METADATA, 9, 1, topics=[{"name": "or\udcffs"}, {"name": "\udcff"}]))
    assert [topic["name"] for topic in talk.requests()[0].body["topics"]] == ["\udcff"]
    assert talk.rules.live[0].matched == 1


def test_a_handshake_without_a_mechanism() -> None:
    """Null is not allowed there, and closes nothing: the broker says what it thinks of it."""
    talk = Dialogue("rules:\n  - {name: a, kind: error, match: {api: Heartbeat, principal: a}, error: 3}\n")
    asked = request(17, 1, 1, mechanism=None) + request(36, 2, 2, auth_bytes=b"\x00a\x00b")
    talk.client(asked)
    assert talk.to_broker == asked
