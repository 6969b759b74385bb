"""ApiVersions answers, cut down to what is understood."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol import decode_response
from kproxy.protocol.framing import framed
from kproxy.rules.kinds.limit_versions import NOTHING, Limit, VersionLimits
from kproxy.session.counters import Counters
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.rewrite.versions import VersionsAnswers, cap, unsupported
from kproxy.tools.rehearse.dialogue import request, response


def answer(produce: int, level: int = 2) -> dict[str, Any]:
    feature = {"name": "transaction.version", "max_version_level": level, "min_version_level": level}
    keys = [
        {"api_key": 0, "min_version": 0, "max_version": produce},
        {"api_key": 3, "min_version": 0, "max_version": 13},
        {"api_key": 99, "min_version": 0, "max_version": 4},
    ]
    return {"api_keys": keys, "finalized_features": [feature]}


def limits(*rules: dict[int, tuple[int, int]], others: bool = True) -> VersionLimits:
    """Rules a, b, c … with these spans."""
    return VersionLimits(tuple(Limit("abc"[index], spans, others) for index, spans in enumerate(rules)))


def test_versions_are_capped_and_apis_hidden() -> None:
    """What has a newest version is cut to it, what is hidden is left out, the rest stays; minimums stay."""
    body = answer(13)

    assert cap(body, {0: (0, 20), 3: (0, 9), 99: NOTHING}.get)
    assert [(entry["api_key"], entry["max_version"]) for entry in body["api_keys"]] == [(0, 13), (3, 9)]
    assert not cap(answer(13), {}.get)


@pytest.mark.parametrize(
    ("broker", "newest", "level"),
    [(13, 11, 1), (12, 11, 1), (13, 12, 2), (11, 9, 2), (13, None, 2)],
)
def test_a_lower_produce_takes_transactions_v2_back(broker: int, newest: int | None, level: int) -> None:
    """KIP-890: clients believe the feature and would use Produce 12; it is taken back only when kproxy lowered Produce
    from 12 or above."""
    body = answer(broker)

    cap(body, {0: None if newest is None else (0, newest)}.get)

    assert body["finalized_features"][0]["max_version_level"] == level


def test_a_lower_bound_is_the_larger_of_both() -> None:
    """The intersection of what the broker has and what is allowed; an API is left out when it is empty."""
    body = answer(13)

    assert cap(body, {0: (14, 20), 3: (4, 11), 99: (2, 4)}.get)
    assert [tuple(entry.values()) for entry in body["api_keys"]] == [(3, 4, 11), (99, 2, 4)]


def test_an_answer_without_produce_keeps_its_features() -> None:
    """A controller's answer lists no Produce, and is none of our business."""
    body = answer(13)
    del body["api_keys"][0]

    assert not cap(body, {}.get)
    assert body["finalized_features"][0]["max_version_level"] == 2


def test_the_same_answer_is_cut_once() -> None:
    """What became of an answer is kept by its bytes; the correlation id is each request's own."""
    asked: list[int] = []
    answers = VersionsAnswers(lambda key: asked.append(key) or (0, 5))
    keys = [{"api_key": 3, "min_version": 0, "max_version": 9}]
    counters = Counters()

    found = [
        b"".join(answers.cap(3, response(18, 3, number, api_keys=keys)[4:], counters) or ()) for number in (1, 2, 77)
    ]

    assert asked == [3]
    assert [decode_response(frame[4:], 18, 3).header["correlation_id"] for frame in found] == [1, 2, 77]
    assert all(decode_response(frame[4:], 18, 3).body["api_keys"][0]["max_version"] == 5 for frame in found)


def test_an_unknown_version_is_answered_in_the_oldest_layout() -> None:
    """Error 35 as v0, with the range of ApiVersions that kproxy reads (KIP-511)."""
    body = decode_response(unsupported(-5)[4:], 18, 0).body

    assert body["error_code"] == 35
    assert body["api_keys"] == [{"api_key": 18, "min_version": 0, "max_version": 5}]


# ---- rules that limit versions

PASSIVE = ConnectionSettings(advertise=False)


def limited(*rules: dict[int, tuple[int, int]], others: bool = True) -> ConnectionSettings:
    return ConnectionSettings(advertise=False, versions=limits(*rules, others=others))


@pytest.mark.parametrize(
    ("spans", "version", "reason"),
    [
        ([{1: (4, 11)}], 11, ""),
        ([{1: (4, 11)}], 4, ""),
        ([{1: (4, 11)}], 12, 'Fetch 12: the rule "a" allows 4-11'),
        ([{1: (4, 11)}], 3, 'Fetch 3: the rule "a" allows 4-11'),
        ([{1: (4, 11)}, {1: (0, 5)}], 6, 'Fetch 6: the rule "b" allows 0-5'),
        ([{3: (0, 1)}, {1: NOTHING}], 12, 'Fetch is hidden by the rule "b"'),
    ],
)
def test_a_frame_that_ignores_the_limits_closes(
    dialogue: Any, spans: list[dict[int, tuple[int, int]]], version: int, reason: str
) -> None:
    """It is stopped and counted, and the reason names the first rule that is against it; others pass as they are."""
    frame = request(1, version, 7)
    talk = dialogue(limited(*spans)).client(frame)

    assert (talk.closed.message if talk.closed else "") == reason
    assert talk.shared.counters.stopped["Fetch"] == bool(reason)
    assert talk.shared.counters.events["requests_blocked_by_rule"] == bool(reason)
    assert talk.to_broker == (b"" if reason else frame)


def test_apis_that_are_not_listed_may_be_hidden_together(dialogue: Any) -> None:
    """A rule for a release leaves nothing but what that release has, unknown APIs included."""
    bound = limited({3: (0, 12)}, others=False)

    assert dialogue(bound).client(request(12, 4, 1)).closed.message == 'Heartbeat is hidden by the rule "a"'
    unknown = framed((999).to_bytes(2, "big") + bytes(8) + b"\xff\xff")
    assert dialogue(bound).client(unknown).closed.message == 'api key 999 is hidden by the rule "a"'
    assert dialogue(PASSIVE).client(unknown).closed is None


def test_api_versions_itself_may_be_limited(dialogue: Any) -> None:
    """A newer one than is allowed gets error 35 as version 0, with the range that is allowed (KIP-511); an allowed one
    goes to the broker, whose answer is cut."""
    talk = dialogue(limited({18: (0, 2)})).client(request(18, 3, 5))
    body = decode_response(talk.to_client[4:], 18, 0).body

    assert (talk.to_broker, talk.closed) == (b"", None)
    assert (body["error_code"], body["api_keys"]) == (35, [{"api_key": 18, "min_version": 0, "max_version": 2}])

    talk.out[0].clear()
    keys = [{"api_key": 18, "min_version": 0, "max_version": 4}]
    talk.client(request(18, 2, 6)).broker(response(18, 2, 6, api_keys=keys))
    assert decode_response(talk.to_client[4:], 18, 2).body["api_keys"] == [keys[0] | {"max_version": 2}]


def test_limits_and_what_kproxy_reads_hold_both() -> None:
    """While advertising DescribeQuorum ends at 2, whatever a rule allows; the narrower one is shown."""
    plan = Plan(ConnectionSettings(versions=limits({55: (0, 3), 0: (3, 9), 3: (9, 30000), 12: (1, 2)})))

    assert plan.allowed(55) == (0, 2)
    assert plan.allowed(0) == (3, 9)
    assert plan.allowed(3) == (9, 13)
    assert plan.allowed(12) == (1, 2)
    assert plan.allowed(11) is None
    assert plan.allowed(999) == (0, -1)
