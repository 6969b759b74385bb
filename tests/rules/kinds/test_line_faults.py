"""Faults of whole connections: bandwidth, slice, refuse, blackhole, and disconnect by bytes or age."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.rules.exchange import Close, FrameDepth, Swallow, TrafficShape

BOTH = frozenset(("to_client", "to_broker"))


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("kind: bandwidth, rate: 100kB/s", TrafficShape(BOTH, rate=100_000)),
        ("kind: bandwidth, rate: 1kB/s, direction: to_client", TrafficShape(frozenset(("to_client",)), rate=1000)),
        (
            "kind: slice, bytes: 10, every: 20ms, direction: to_broker",
            TrafficShape(frozenset(("to_broker",)), piece=10, pause=0.02),
        ),
        ("kind: slice, bytes: 1kB", TrafficShape(BOTH, piece=1000, pause=0.005)),
        ("kind: disconnect, after: 1MB", TrafficShape(BOTH, max_bytes=1_000_000)),
        ("kind: disconnect, age: 30s, close_with: rst", TrafficShape(BOTH, age=30, close_with="rst")),
        ("kind: disconnect, age: 1m, after: 5B", TrafficShape(BOTH, max_bytes=5, age=60)),
        ("kind: disconnect, close_with: fin", None),
        ("kind: delay, delay: 1s", None),
    ],
)
def test_bytes_flow_as_the_rule_says(text: str, shape: TrafficShape | None, hand: Any) -> None:
    """For every connection that it is for; rules about frames shape nothing."""
    assert hand.effect(hand.rule(text)).shape(hand.connection()) == shape


@pytest.mark.parametrize("text", ["kind: bandwidth, rate: 1kB/s", "kind: slice, bytes: 1", "kind: disconnect, age: 1s"])
def test_rules_about_lines_look_at_no_frame(text: str, hand: Any) -> None:
    """All frames stay opaque."""
    rule = hand.rule(text)

    assert {rule.depth(side, key, 3) for side in ("request", "response") for key in (0, 1, 3)} == {FrameDepth.NOTHING}
    assert not rule.connects


def test_refused_connections_are_closed(hand: Any) -> None:
    """By a reset unless it is to be in order."""
    for text, how in (("kind: refuse", "rst"), ("kind: refuse, close_with: fin", "fin")):
        rule = hand.rule(text)

        assert rule.connects
        assert hand.effect(rule).on_connect(hand.connection(), 0.0) == (Close(how),)


def test_a_blackhole_begins_with_the_connection(hand: Any) -> None:
    """If nothing but connections is selected."""
    rule = hand.rule("kind: blackhole, match: {client_address: 10.0.0.0/8, node: 2}")

    assert rule.connects
    assert rule.depth("request", 3, 9) == FrameDepth.NOTHING
    assert hand.effect(rule).on_connect(hand.connection(), 0.0) == (Swallow(),)


@pytest.mark.parametrize("selectors", ["match: {client_id: x}", "match: {api: Produce}", "not: {topic: y}"])
def test_a_blackhole_begins_at_a_request(selectors: str, hand: Any) -> None:
    """If something of frames is selected."""
    rule = hand.rule(f"kind: blackhole, {selectors}")

    assert not rule.connects
    assert rule.depth("request", 0, 9) == FrameDepth.HEADER
    assert rule.depth("response", 0, 9) == FrameDepth.NOTHING
    assert hand.effect(rule).on_request(hand.exchange(0, 9), (), 0.0) == (Swallow(),)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            "kind: bandwidth, rate: 1kB/s, match: {api: Fetch}",
            'a bandwidth is that of a whole connection, so that "api" cannot be selected on, only listener, cluster, ',
        ),
        ("kind: bandwidth, rate: 1kB/s, when: {nth: 3}", 'a bandwidth is in force for a time, so that "nth" cannot be'),
        ("kind: bandwidth, rate: 1kB/s, when: {after: 3}", "a bandwidth is in force for a time: expected a duration"),
        ("kind: slice, bytes: 0", "expected at least 1, got 0"),
        ("kind: slice, bytes: 1, not: {topic: x}", "the bytes of a whole connection are cut in pieces, so that"),
        ("kind: refuse, match: {client_id: x}", "connections are refused before there is any frame, so that"),
        ("kind: disconnect, after: 1MB, at: request", '"after" closes wherever a frame is just then, "at" cannot be'),
        ("kind: disconnect, age: 1s, close_with: half", 'expected fin or rst with "age", got half'),
        ("kind: disconnect, age: 1s, match: {api: Fetch}", '"age" is about a whole connection, so that "api" cannot'),
        ("kind: disconnect, age: 1s, when: {once: true}", '"age" is in force for a time, so that "once" cannot be'),
        ("kind: disconnect, after: 0", "expected more than 0, got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, mistake: str, mistakes_of: Any) -> None:
    """With the reason."""
    (found,) = mistakes_of(text)

    assert found.startswith(mistake)


@pytest.mark.parametrize("when", ["{for: 30s}", "{after: 5s, for: 1m}"])
def test_times_can_be_said(when: str, hand: Any) -> None:
    """A slow line for a while."""
    assert hand.rule(f"kind: bandwidth, rate: 1kB/s, when: {when}").when is not None
