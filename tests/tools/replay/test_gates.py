"""Gates."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.tools.replay.routing import RecordingGates


@pytest.fixture
def recording(tools: Any) -> Any:
    """Two connections: a and b are answered before c is sent on the other one; d is sent on the first, at the end."""
    return tools.record([
        tools.seen(0, 9, {"acks": 1, "topic_data": []}, {}, at=0, seconds=2, line=1),
        tools.seen(22, 4, {}, {}, at=1, seconds=2, line=2),
        tools.seen(0, 9, {"acks": 1, "topic_data": []}, {}, at=5, seconds=1, line=2),
        tools.seen(0, 9, {"acks": 1, "topic_data": []}, {}, at=9, seconds=1, line=1),
    ])  # fmt: skip


def test_a_request_waits_for_all_answers_that_came_before_it(recording: Any) -> None:
    """On whatever connection, in whatever order they come now."""
    a, b, c, d = recording.exchanges
    gates = RecordingGates(recording, apart=False)
    opened = [[gates.open_for(one) for one in (a, b, c, d)]]
    for done in (b, a, c):
        gates.finish(done)
        opened.append([gates.open_for(one) for one in (c, d)])

    assert opened == [[True, True, False, False], [False, False], [True, False], [True, True]]


def test_connections_apart_wait_for_themselves(recording: Any) -> None:
    """And for answers of others that give something: here a producer id."""
    a, b, c, d = recording.exchanges
    gates = RecordingGates(recording, apart=True)
    gates.finish(b)
    opened = [gates.open_for(c), gates.open_for(d)]
    gates.finish(a)

    assert opened == [True, False]
    assert gates.open_for(d)


def test_a_gate_can_be_forced(recording: Any) -> None:
    """What was waited for counts as done, now and when it comes later."""
    a, b, _c, d = recording.exchanges
    gates = RecordingGates(recording, apart=False)
    gates.force(d)
    opened = gates.open_for(d)
    for late in (a, b):
        gates.finish(late)

    assert opened and gates.open_for(d)


def test_requests_without_answers_hold_up_nothing(tools: Any) -> None:
    """Nobody waited for them in the recording either."""
    recording = tools.record([tools.seen(1, 4, {"topics": []}, None, at=0), tools.seen(3, 9, {}, {}, at=1)])
    gates = RecordingGates(recording, apart=False)
    gates.finish(recording.exchanges[0])

    assert gates.open_for(recording.exchanges[1])
