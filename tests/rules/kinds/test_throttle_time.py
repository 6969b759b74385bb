"""The kind throttle_time: clients are told to wait."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.rules.exchange import FrameDepth
from kproxy.session.commands import CLIENT
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

PRODUCE, FETCH, METADATA, HEARTBEAT, VOTE = 0, 1, 3, 12, 52


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", '"delay" is missing'),
        ("delay: 0", "expected more than 0, got 0"),
        ("delay: 100w", "expected a duration"),
        ("delay: 3000000", "expected at most 2147483.647, got 3000000"),
        ("delay: 30d", "expected at most 2147483.647 s, got 30d"),
        ("delay: 1s, match: {api: Vote}",
         'a response of Vote 0-2 has no throttle_time_ms; "mute: true" would stop reading from the client'),
        ("delay: 1s, match: {api: Heartbeat, version: 0}",
         "a response of Heartbeat 0 has no throttle_time_ms; versions 1-4 have"),
    ],
)  # fmt: skip
def test_what_could_not_be_told_is_refused(mistakes_of: Any, text: str, mistake: str) -> None:
    """With the versions that can."""
    (line,) = mistakes_of(f"kind: throttle_time, {text}".rstrip(", "))

    assert line.startswith(mistake), line


def test_what_will_not_be_told_is_warned_of(hand: Any) -> None:
    """Old versions, and requests without an answer."""
    rule = hand.rule("kind: throttle_time, delay: 1s, match: {api: Produce, version: 0-9, acks: [0, 1]}")

    assert list(rule.warnings()) == [
        "a Produce request with acks 0 has no response for the throttle time", "Produce 0 has no throttle_time_ms",
    ]  # fmt: skip
    assert not list(hand.rule("kind: throttle_time, delay: 1s, mute: true, match: {api: Produce}").warnings())


def test_only_headers_are_looked_at(hand: Any) -> None:
    """Bodies stream on; a rule about errors waits for the answer."""
    rule = hand.rule("kind: throttle_time, delay: 1s")
    assert [rule.depth("request", PRODUCE, version) for version in (0, 9)] == [FrameDepth.NOTHING, FrameDepth.HEADER]
    assert rule.depth("response", PRODUCE, 9) == FrameDepth.NOTHING

    late = hand.rule("kind: throttle_time, delay: 1s, match: {error: any}")
    assert (late.depth("request", PRODUCE, 9), late.depth("response", PRODUCE, 9)) == (
        FrameDepth.NOTHING,
        FrameDepth.HEADER,
    )

    muting = hand.rule("kind: throttle_time, delay: 1s, mute: true")
    assert muting.depth("request", PRODUCE, 0) == FrameDepth.HEADER


@pytest.mark.parametrize(("key", "version"), [(METADATA, 9), (PRODUCE, 9), (FETCH, 11), (HEARTBEAT, 4), (18, 3)])
def test_the_field_is_set_wherever_it_stands(key: int, version: int) -> None:
    """First or last in the response; nothing else changes, and nothing is delayed."""
    body = {"acks": 1} if key == PRODUCE else {"session_epoch": -1} if key == FETCH else {}
    body |= {"client_software_name": "x", "client_software_version": "1"} if key == 18 else {}
    talk = Dialogue("rules: [{name: r, kind: throttle_time, delay: 3s}]")
    talk.client(request(key, version, 1, **body)).broker(response(key, version, 1))

    assert talk.to_client == response(key, version, 1, throttle_time_ms=3000)
    assert talk.read[CLIENT]


def test_a_longer_time_stays() -> None:
    """That of the broker, or of another rule."""
    talk = Dialogue("rules: [{name: a, kind: throttle_time, delay: 3s}, {name: b, kind: throttle_time, delay: 1s}]")
    talk.client(request(HEARTBEAT, 4, 1)).broker(response(HEARTBEAT, 4, 1, throttle_time_ms=20))
    talk.client(request(HEARTBEAT, 4, 2)).broker(response(HEARTBEAT, 4, 2, throttle_time_ms=9000))

    assert talk.to_client == response(HEARTBEAT, 4, 1, throttle_time_ms=3000) + response(
        HEARTBEAT, 4, 2, throttle_time_ms=9000
    )


def test_a_muted_client_is_not_read_for_that_time() -> None:
    """After the response, which comes at once."""
    talk = Dialogue("rules: [{name: r, kind: throttle_time, delay: 3s, mute: true}]")
    talk.client(request(HEARTBEAT, 4, 1)).broker(response(HEARTBEAT, 4, 1))

    assert talk.to_client == response(HEARTBEAT, 4, 1, throttle_time_ms=3000)
    assert not talk.read[CLIENT]
    assert not talk.later(2.9).read[CLIENT]
    assert talk.later(0.2).read[CLIENT]
