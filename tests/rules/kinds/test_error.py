"""The kind error: what it accepts, when it acts, and in every API and version the answer that it gives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kproxy.protocol import Message, decode_response, encode
from kproxy.protocol.framing import framed
from kproxy.protocol.table import schema
from kproxy.protocol.table.shapes import Level, shape
from kproxy.rules.exchange import Fail, FrameDepth
from kproxy.rules.kinds.base.access import can_say
from kproxy.tools.rehearse.dialogue import Dialogue
from tests.support.random_requests import answered, random_request

PRODUCE, FETCH, METADATA, SASL_HANDSHAKE, ENVELOPE = 0, 1, 3, 17, 58
POLICY_VIOLATION = 44  # an error that brokers put nowhere in particular


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("kind: error, error: NOT_LEADER", 'unknown error "NOT_LEADER", did you mean "NOT_LEADER_OR_FOLLOWER"?'),
        ("kind: error, error: 999", "expected an error code from -1 to"),
        ("kind: error, error: 0", "expected an error code, got 0 (NONE); to let a request succeed"),
        ("kind: error, error: NONE", "expected an error code, got 0 (NONE)"),
        ("kind: error", '"error" is missing'),
        ("kind: error, error: 6, at: both", "expected one of request, response, got text"),
        ("kind: error, error: 6, match: {api: Produce}, level: top",
         "a response of Produce 0-13 has no error code at its top; without `level` it can be said"),
        ("kind: error, error: 6, match: {api: Fetch, version: 0-6}, level: top",
         "a response of Fetch 0-6 has no error code at its top; versions 7-18 have"),
        ("kind: error, error: 31, match: {api: DescribeLogDirs, version: 1}",
         "a response of DescribeLogDirs 1 has no error code; versions 3-5 have"),
        ("kind: error, error: 31, match: {api: [Fetch, DescribeLogDirs]}, level: entity",
         "a response of DescribeLogDirs 0-5 has no error code for each of what it is about; without `level`"),
        ("kind: error, error: 6, match: {error: any}, at: request",
         '"match: {error: …}" looks at the broker\'s response, that is too late'),
        ("kind: error, error: 6, not: {error: 3}, at: request",
         '"not: {error: …}" looks at the broker\'s response, that is too late'),
        ("kind: error, error: 6, match: {acks: 0}, at: response", "a Produce request with acks 0 has no response"),
        ("kind: error, error: REQUEST_TIMED_OUT, match: {acks: [0]}", "a Produce request with acks 0 has no response"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(mistakes_of: Any, text: str, mistake: str) -> None:
    """With the reason, and where there is one, the way to say it."""
    (line,) = mistakes_of(text)

    assert line.startswith(mistake), line


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        ("kind: error, error: 6, match: {api: Produce}", []),
        ("kind: error, error: 6, match: {api: Produce, acks: 0}",
         ["a Produce request with acks 0 has no response, it is answered by closing the connection, as brokers do"]),
        ("kind: error, error: 6, match: {acks: [0, 1]}, at: response",
         ["a Produce request with acks 0 has no response, it is not seen by this rule"]),
        ("kind: error, error: 6, match: {api: Fetch}, level: top",
         ["Fetch 0-6 has no place for this error and passes"]),
        ("kind: error, error: 27, match: {api: Heartbeat}, message: x",
         ["no selected version of Heartbeat has a field for a message"]),
        ("kind: error, error: 41, match: {api: CreateTopics}, message: x", []),
        ("kind: error, error: 41, message: x", []),
    ],
)  # fmt: skip
def test_what_it_will_not_do_is_warned_of(hand: Any, text: str, warnings: list[str]) -> None:
    """Where one might think that it does."""
    assert list(hand.rule(text).warnings()) == warnings


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("error: NOT_LEADER_OR_FOLLOWER", False),
        ("error: REQUEST_TIMED_OUT", True),
        ("error: NOT_ENOUGH_REPLICAS_AFTER_APPEND", True),
        ("error: NOT_ENOUGH_REPLICAS", False),
        ("error: REQUEST_TIMED_OUT, at: request", False),
        ("error: 6, at: response", True),
        ("error: 6, match: {error: 3}", True),
    ],
)
def test_some_errors_come_after_the_work(hand: Any, text: str, after: bool) -> None:
    """Those that a broker gives when it has stored the records, and those that depend on its answer."""
    rule = hand.rule(f"kind: error, {text}")

    assert (rule.depth("request", PRODUCE, 9), rule.depth("response", PRODUCE, 9)) == (
        (FrameDepth.NOTHING, FrameDepth.BODY) if after else (FrameDepth.BODY, FrameDepth.NOTHING)
    )


def test_it_decides_for_what_matched(hand: Any) -> None:
    """One decision, with code and text; the top only if that is wanted."""
    exchange = hand.exchange(METADATA, 13, {"topics": []})

    def decided(text: str) -> Any:
        return hand.effect(hand.rule(f"kind: error, {text}")).on_request(exchange, (), 0)

    assert decided("error: 3, message: never") == (Fail(3, "never"),)
    assert decided("error: 129, level: top") == (Fail(129, whole=True),)


def versions() -> Iterator[Any]:
    """The first and the last of each API; with KPROXY_TEST_ALL=1 all."""
    for api in schema.apis():
        ends = (api.versions.first, api.versions.last)
        for version in api.versions if os.environ.get("KPROXY_TEST_ALL") else sorted({*ends}):
            if can_say(api.key, version, None) and (api.key, version) != (SASL_HANDSHAKE, 0):
                yield pytest.param(api, version, id=f"{api.name}-{version}")


def codes(message: Message) -> list[int]:
    """The error codes of a response: of its top and of its entities."""
    form = shape(message.api.key, message.version)
    found = [message.body[form.code]] if form.code else []
    return found + list(inner_codes(form.response, message.body))


def inner_codes(levels: tuple[Level, ...], parent: dict[str, Any]) -> Iterator[int]:
    for element in levels[0].elements(parent) if levels else ():
        if levels[0].code:
            yield element[levels[0].code]
        yield from inner_codes(levels[1:], element)


def asked_of(api: schema.Api, version: int) -> Message:
    """A request about something, which has an answer and belongs to no session."""
    request = random_request(api, version, Random(api.key * 100 + version), full=True)
    sessions = {"acks": -1, "session_id": 0, "session_epoch": -1, "share_session_epoch": 0, "forgotten_topics_data": []}
    request.body.update({name: value for name, value in sessions.items() if name in request.body})
    return request


@pytest.mark.parametrize(("api", "version"), list(versions()))
def test_every_api_can_fail_without_its_broker(api: schema.Api, version: int) -> None:
    """The answer is one of that version, says the error and nothing else, and the broker has seen nothing."""
    request = asked_of(api, version)
    talk = Dialogue(f"rules: [{{name: r, kind: error, match: {{api: {api.name}}}, error: {POLICY_VIOLATION}}}]")
    talk.client(framed(encode(request)))
    if api.key == FETCH:  # a fetch always goes on, without waiting, so that its session stays whole
        seen = talk.requests()[0]
        assert seen.body["max_wait_ms"] == 0
        talk.broker(framed(encode(answered(request, Random(1)))))
    elif api.key == METADATA and version > 0:  # the broker is asked which brokers there are, or no client believes it
        (seen,) = talk.requests()
        assert seen.body["topics"] == []
        talk.broker(framed(encode(answered(seen, Random(1)))))
    else:
        assert talk.to_broker == b""
    response = decode_response(talk.to_client[4:], api.key, version)

    assert response.header["correlation_id"] == request.header["correlation_id"]
    assert set(codes(response)) - {0} == {POLICY_VIOLATION}
    assert talk.rules.live[0].applied == 1


@pytest.mark.parametrize(("api", "version"), list(versions()))
def test_every_api_can_fail_after_the_work(api: schema.Api, version: int) -> None:
    """`at: response`: the broker gets the very bytes; its answer is changed where the error stands."""
    request = asked_of(api, version)
    rule = f"{{name: r, kind: error, match: {{api: {api.name}}}, error: {POLICY_VIOLATION}, at: response}}"
    talk = Dialogue(f"rules: [{rule}]")
    asked = framed(encode(request))
    talk.client(asked).broker(framed(encode(answered(request, Random(1)))))
    response = decode_response(talk.to_client[4:], api.key, version)

    assert talk.to_broker == asked
    assert set(codes(response)) - {0} == {POLICY_VIOLATION}
