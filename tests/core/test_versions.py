"""ApiVersions answers, cut down to what is understood."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.core.counters import Counters
from kproxy.core.versions import HIDDEN, VersionsAnswers, cap, unsupported
from kproxy.wire import decode_response


def answer(produce: int, level: int = 2) -> dict[str, Any]:
    feature = {"name": "transaction.version", "max_version_level": level, "min_version_level": level}
    keys = [
        {"api_key": 0, "min_version": 0, "max_version": produce},
        {"api_key": 3, "min_version": 0, "max_version": 13},
        {"api_key": 99, "min_version": 0, "max_version": 4},
    ]
    return {"api_keys": keys, "finalized_features": [feature]}


def test_versions_are_capped_and_apis_hidden() -> None:
    """What has a newest version is cut to it, what is hidden is left out, the rest stays; minimums stay."""
    body = answer(13)

    assert cap(body, {0: 20, 3: 9, 99: HIDDEN}.get)
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

    cap(body, {0: newest}.get)

    assert body["finalized_features"][0]["max_version_level"] == level


def test_an_answer_without_produce_keeps_its_features() -> None:
    """A controller's answer lists no Produce, and is none of our business."""
    body = answer(13)
    del body["api_keys"][0]

    assert not cap(body, {}.get)
    assert body["finalized_features"][0]["max_version_level"] == 2


def test_the_same_answer_is_cut_once(frames: Any) -> None:
    """What became of an answer is kept by its bytes; the correlation id is each request's own."""
    asked: list[int] = []
    answers = VersionsAnswers(lambda key: asked.append(key) or 5)  # type: ignore[func-returns-value]
    keys = [{"api_key": 3, "min_version": 0, "max_version": 9}]
    counters = Counters()

    found = [
        b"".join(answers.cap(3, frames.response(18, 3, number, api_keys=keys)[4:], counters) or ())
        for number in (1, 2, 77)
    ]

    assert asked == [3]
    assert [decode_response(frame[4:], 18, 3).header["correlation_id"] for frame in found] == [1, 2, 77]
    assert all(decode_response(frame[4:], 18, 3).body["api_keys"][0]["max_version"] == 5 for frame in found)


def test_an_unknown_version_is_answered_in_the_oldest_layout() -> None:
    """Error 35 as v0, with the range of ApiVersions that kproxy reads (KIP-511)."""
    body = decode_response(unsupported(-5)[4:], 18, 0).body

    assert body["error_code"] == 35
    assert body["api_keys"] == [{"api_key": 18, "min_version": 0, "max_version": 5}]
