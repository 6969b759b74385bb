"""Cases that hold, and what is said of those that do not."""

from __future__ import annotations

from typing import Any

import pytest

ERROR = """
rules:
  - name: second
    kind: error
    match: {api: Produce, topic: orders}
    when: {nth: 2}
    error: NOT_LEADER_OR_FOLLOWER
"""
WRITE = "{api: Produce, version: 9, body: {acks: -1, topic_data: [{name: orders, partition_data: [{records: [a]}]}]}}"
WRITTEN = "{body: {responses: [{name: orders, partition_responses: [{base_offset: 7}]}]}}"
HEARTBEAT = "{api: Heartbeat, version: 4, body: {group_id: g}}"


def test_a_dialogue_that_holds(played: Any) -> None:
    """The first write passes as it is, the second is answered in the broker's place; counters agree."""
    assert played(
        ERROR,
        f"""
tests:
  - name: the second fails
    steps:
      - {{client: {WRITE}, to_broker: untouched, broker: {WRITTEN}, to_client: untouched}}
      - client: {WRITE}
        to_broker: nothing
        to_client: {{body: {{responses: [{{partition_responses: [{{error_code: NOT_LEADER_OR_FOLLOWER}}]}}]}}}}
        counts: {{second: {{matched: 2, fired: 1, applied: 1}}}}
""",
    ) == [[]]


def test_values_that_differ_are_told_with_their_paths(played: Any) -> None:
    """Expected and found, errors with their names, numbers as ranges; the first wrong step is the last one played."""
    ((answer, counts),) = played(
        ERROR,
        f"""
tests:
  - name: wrong
    steps:
      - client: {WRITE}
        broker: {WRITTEN}
        to_client:
          body: {{responses: [{{name: clicks, partition_responses: [{{error_code: 3, base_offset: ">8"}}]}}]}}
        counts: {{second: {{matched: 2}}}}
      - closed: rst
""",
    )

    assert answer.position.endswith("r.test.yaml:8:11")
    assert answer.what == "to_client: another Produce 9 response"
    assert [tuple(one) for one in answer.differences] == [
        ("responses[0].name", '"clicks"', '"orders"'),
        ("responses[0].partition_responses[0].error_code", "3 (UNKNOWN_TOPIC_OR_PARTITION)", "0 (NONE)"),
        ("responses[0].partition_responses[0].base_offset", "9 or more", "7"),
    ]
    assert [tuple(one) for one in counts.differences] == [("matched", "2", "1")]


@pytest.mark.parametrize(
    ("step", "what"),
    [
        (f"{{client: {HEARTBEAT}, to_broker: nothing}}", "to_broker: expected nothing, got a Heartbeat 4 request"),
        (f"{{client: {HEARTBEAT}, to_client: untouched}}", "to_client: expected 1 frame, got no frames"),
        ("{broker: {}}", "the broker has no request that it could answer"),
        (f"{{client: {HEARTBEAT}, to_broker: {{after: 1s}}}}", "expected nothing for 1 s, it came at once"),
        (f"{{client: {HEARTBEAT}, to_broker: {{changed: true}}}}",
         "to_broker: expected a change, got the original bytes"),
        (f"{{client: {HEARTBEAT}, to_broker: {{api: Metadata}}}}", "to_broker: another frame"),
        (f"{{client: {HEARTBEAT}, broker: {{}}, to_client: {{correlation_id: 7}}}}", "to_client: another frame"),
        (f"{{client: {HEARTBEAT}, broker: {{}}, to_client: {{bytes: 5}}}}", "to_client: another frame"),
        (f"{{client: {HEARTBEAT}, broker: {{}}, to_client: {{readable: false}}}}",
         "to_client: expected an unreadable frame, got a Heartbeat 4 response"),
        (f"{{client: {HEARTBEAT}, broker: {{}}, to_client: [untouched, untouched]}}",
         "to_client: expected 2 frames, got 1 frame"),
        (f"{{client: {HEARTBEAT}, to_broker: {{exactly: {{group_id: g, member_id: m}}}}}}",
         "to_broker: another Heartbeat 4 request"),
        (f"{{client: {HEARTBEAT}, to_broker: {{client_id: me}}}}", "to_broker: another frame"),
        ("{closed: fin}", "closed"),
        ("{muted: true}", "muted"),
        ("{held: 1}", "held"),
        ("{flow: [{rate: 1kB/s}]}", "flow"),
    ],
)  # fmt: skip
def test_each_expectation_can_fail(played: Any, step: str, what: str) -> None:
    """In words that say what was expected and what was found."""
    ((failure,),) = played(ERROR, f"tests: [{{name: t, steps: [{step}]}}]")

    assert failure.what == what


def test_a_connection_that_is_closed_unexpectedly_fails(played: Any) -> None:
    """Whatever else the step says; the reason is shown."""
    closing = "rules: [{name: end, kind: disconnect, match: {api: Heartbeat}}]"
    ((failure,), fine) = played(
        closing,
        f"""
tests:
  - {{name: unexpected, steps: [client: {HEARTBEAT}]}}
  - {{name: expected, steps: [{{client: {HEARTBEAT}, to_broker: nothing, closed: fin}}, {{to_client: nothing}}]}}
""",
    )

    assert failure.what == 'kproxy has closed the connection: closed by "end"'
    assert fine == []


def test_time_passes_by_hand(played: Any) -> None:
    """A delay is waited for to the moment; too early and too late are told apart."""
    slow = "rules: [{name: slow, kind: delay, delay: 200ms}]"
    results = played(
        slow,
        f"""
tests:
  - {{name: right, steps: [{{client: {HEARTBEAT}, to_broker: {{after: 200ms, body: {{group_id: g}}}}}}]}}
  - {{name: within, steps: [{{client: {HEARTBEAT}, to_broker: {{after: [100ms, 300ms]}}}}]}}
  - {{name: early, steps: [{{client: {HEARTBEAT}, to_broker: {{after: 500ms}}}}]}}
  - {{name: late, steps: [{{client: {HEARTBEAT}, to_broker: {{after: 100ms}}}}]}}
  - {{name: waited, steps: [{{client: {HEARTBEAT}, to_broker: nothing}}, {{wait: 1s, to_broker: untouched}}]}}
""",
    )

    assert [[one.what for one in failures] for failures in results] == [
        [],
        [],
        ["expected it after 500 ms, it came after 200 ms"],
        ["expected it after 100 ms, it did not come"],
        [],
    ]


def test_what_is_held_is_released(played: Any) -> None:
    """`held` counts requests that wait, `resume` lets them go."""
    rules = "rules: [{name: wait, kind: error, match: {api: Heartbeat}, when: {hold: true}, error: 27, at: response}]"
    assert played(
        rules,
        f"""
tests:
  - name: held
    steps:
      - {{client: {HEARTBEAT}, to_broker: nothing, held: 1}}
      - {{resume: wait, to_broker: untouched, held: 0, broker: {{}}, to_client: {{body: {{error_code: 27}}}}}}
""",
    ) == [[]]


def test_several_connections_share_rules_and_time(played: Any) -> None:
    """A delay on one holds nobody else, and the rule counts on both."""
    slow = "rules: [{name: slow, kind: delay, match: {client_address: 10.0.0.1}, delay: 1s}]"
    assert played(
        slow,
        f"""
connection: {{client_address: 10.0.0.1}}
tests:
  - name: two
    connections: {{other: {{client_address: 10.0.0.2}}}}
    steps:
      - {{client: {HEARTBEAT}, to_broker: nothing}}
      - {{connection: other, client: {HEARTBEAT}, to_broker: untouched, broker: {{}}, to_client: untouched}}
      - {{wait: 1s, to_broker: untouched, counts: {{slow: {{matched: 1, fired: 1}}}}}}
""",
    ) == [[]]


def test_a_scenario_goes_through_its_stages(played: Any) -> None:
    """Rules of a stage act as long as it lasts; those of another one count nothing."""
    rules = """
scenario:
  stages:
    - {for: 10s, rules: [{name: first, kind: error, match: {api: Heartbeat}, error: 27}]}
    - {for: 10s, rules: [{name: then, kind: error, match: {api: Heartbeat}, error: 25}]}
"""
    assert played(
        rules,
        f"""
tests:
  - name: stages
    steps:
      - {{client: {HEARTBEAT}, to_client: {{body: {{error_code: 27}}}}, counts: {{then: {{matched: 0}}}}}}
      - {{wait: 10s, client: {HEARTBEAT}, to_client: {{body: {{error_code: 25}}}}, counts: {{first: {{matched: 1}}}}}}
      - {{wait: 10s, client: {HEARTBEAT}, to_broker: untouched}}
""",
    ) == [[]]


def test_addresses_are_those_of_the_rule(played: Any) -> None:
    """Ports by the rule's range, fixed nodes, host names; a node that has none stays hidden."""
    asked = "{api: Metadata, version: 9}"
    brokers = "{body: {brokers: [{node_id: 1, host: b1, port: 9092}, {node_id: 2, host: b2, port: 9092}]}}"
    for rule, first, second in (
        ("host: k, ports: 100-101", "k, port: 101", ""),
        ('nodes: {2: "n2:5"}', "", "n2, port: 5"),
        ('sni: "b{node}.k:443"', "b1.k, port: 443", "b2.k, port: 443"),
    ):
        left = [f"{{node_id: {node}, host: {told}}}" for node, told in ((1, first), (2, second)) if told]
        to_client = f"to_client: {{body: {{brokers: [{', '.join(left)}]}}}}"
        test = f"tests: [{{name: t, steps: [{{client: {asked}, broker: {brokers}, {to_client}}}]}}]"
        assert played(f"rules: [{{name: a, kind: advertise, {rule}}}]", test) == [[]]


def test_records_are_compared_by_what_is_in_them(played: Any) -> None:
    """Values, keys, headers and the codec; offsets count from 0."""
    sent = "{batch: [a, {key: k, value: b, headers: {h: x}}], compression: gzip, producer_id: 7}"
    wanted = "{batch: [{value: a, offset: 0}, {value: c, headers: {h: x}}], compression: zstd, crc: good}"
    ((failure,),) = played(
        ERROR,
        f"""
tests:
  - name: t
    steps:
      - client: {{api: Produce, version: 9, body: {{acks: 1, topic_data: [{{partition_data: [{{records: {sent}}}]}}]}}}}
        to_broker: {{body: {{topic_data: [{{partition_data: [{{records: {wanted}}}]}}]}}}}
""",
    )

    at = "topic_data[0].partition_data[0].records"
    assert [tuple(one) for one in failure.differences] == [
        (f"{at}.compression", '"zstd"', '"gzip"'),
        (f"{at}[1].value", "1 byte: 63", "1 byte: 62"),
    ]


def test_a_frame_from_a_capture(played: Any) -> None:
    """Hex as `kproxy decode` takes it, with or without its length."""
    from kproxy.tools.rehearse.dialogue import request

    frame = request(12, 4, 99, group_id="g")
    for data in (frame, frame[4:]):
        step = f"{{client: {{hex: '{data.hex()}'}}, to_broker: {{body: {{group_id: g}}, correlation_id: 1}}}}"
        assert played(ERROR, f"tests: [{{name: t, steps: [{step}]}}]") == [[]]


def test_a_rule_that_goes_wrong_inside_fails_the_test(played: Any, tmp_path: Any, monkeypatch: Any) -> None:
    """Though traffic goes on, as it would in the proxy."""
    from kproxy.rules.kinds.delay import DelayRule

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(DelayRule, "decide", broken)
    ((failure,),) = played(
        "rules: [{name: slow, kind: delay, delay: 1s}]", f"tests: [{{name: t, steps: [{{client: {HEARTBEAT}}}]}}]"
    )

    assert failure.what == 'the rule "slow" went wrong: ZeroDivisionError: by nought'


def test_a_muted_client_sends_when_it_is_read_again(played: Any) -> None:
    """What it sends before waits, as in its socket."""
    throttle = (
        "rules: [{name: wait, kind: throttle_time, match: {api: Heartbeat}, when: {nth: 1}, delay: 2s, mute: true}]"
    )
    step = f"client: {HEARTBEAT}, to_broker: untouched, broker: {{}}"
    assert played(
        throttle,
        f"""
tests:
  - name: muted
    steps:
      - {{{step}, to_client: {{body: {{throttle_time_ms: 2000}}}}, muted: true}}
      - {{client: {HEARTBEAT}, to_broker: {{after: 2s}}, muted: false}}
""",
    ) == [[]]


def test_fields_may_have_any_name(played: Any) -> None:
    """Such as `key`, which FindCoordinator 0 has."""
    step = "{client: {api: FindCoordinator, version: 0, body: {key: g}}, to_broker: {exactly: {key: g}}}"
    assert played(ERROR, f"tests: [{{name: t, steps: [{step}]}}]") == [[]]


def test_what_nobody_expected_fails_only_its_own_test(played: Any, monkeypatch: Any) -> None:
    """It is named, and the tests behind it are run."""
    from kproxy.session.live.engine import Engine

    def broken(*_: Any) -> Any:
        raise IndexError("out of range")

    monkeypatch.setattr(Engine, "request", broken)
    ((failure,), fine) = played(
        ERROR, f"tests: [{{name: t, steps: [{{client: {WRITE}}}]}}, {{name: u, steps: [{{client: {HEARTBEAT}}}]}}]"
    )

    assert failure.what == "kproxy itself went wrong: IndexError: out of range"
    assert fine == []


def test_a_connection_may_be_said_to_be_open(played: Any) -> None:
    """`closed: false`, which YAML also reads from `no`."""
    assert played(ERROR, "tests: [{name: t, steps: [{closed: no}, {closed: false}]}]") == [[]]
    ((failure,),) = played(ERROR, "tests: [{name: t, steps: [{closed: rst}]}]")
    assert [tuple(one) for one in failure.differences] == [("", "rst", "not at all")]
