"""Targets that are not ready yet."""

from __future__ import annotations

from typing import Any

from kproxy.tools.replay.routing import not_ready, was_refused
from kproxy.tools.replay.target import TargetCluster


def test_a_target_that_is_not_ready_is_asked_again(tools: Any) -> None:
    """When the recorded cluster was."""
    one = tools.exchange(22, 4, {}, {"producer_id": 7})
    target = TargetCluster(("b", 1))

    assert not_ready(one, tools.answer(22, 4, error_code=14), target)
    assert not not_ready(one, tools.answer(22, 4, error_code=47), target)
    assert not not_ready(one, tools.answer(22, 4), target)


def test_an_error_that_was_recorded_is_taken(tools: Any) -> None:
    """The client has asked again by itself, and the recording has that."""
    one = tools.exchange(22, 4, {}, {"error_code": 14})

    assert not not_ready(one, tools.answer(22, 4, error_code=14), TargetCluster(("b", 1)))


def test_a_missing_topic_is_waited_for_only_if_it_was_made(tools: Any) -> None:
    """By the replay itself."""
    parts = [{"index": 0, "records": None}]
    one = tools.exchange(0, 9, {"acks": 1, "topic_data": [{"name": "t", "partition_data": parts}]}, {})
    failed = [{"name": "t", "partition_responses": [{"index": 0, "error_code": 3, "base_offset": -1}]}]
    now, target = tools.answer(0, 9, responses=failed), TargetCluster(("b", 1))
    before = not_ready(one, now, target)
    target.make(["t"])

    assert (before, not_ready(one, now, target)) == (False, True)


def test_what_has_moved_is_sent_again_if_nothing_of_it_went_well(tools: Any) -> None:
    """A Produce that went well in part would be written twice."""
    parts = [{"index": number, "records": None} for number in (0, 1)]
    one = tools.exchange(0, 9, {"acks": 1, "topic_data": [{"name": "t", "partition_data": parts}]}, {})
    answers = [
        [{"index": number, "error_code": code, "base_offset": -1} for number, code in enumerate(codes)]
        for codes in ((6, 6), (6, 0))
    ]
    found = [
        not_ready(
            one, tools.answer(0, 9, responses=[{"name": "t", "partition_responses": each}]), TargetCluster(("b", 1))
        )
        for each in answers
    ]

    assert found == [True, False]
    assert not_ready(tools.exchange(12, 3, {}, {}), tools.answer(12, 3, error_code=16), TargetCluster(("b", 1)))
    assert not not_ready(
        tools.exchange(1, 11, {"topics": []}, {}), tools.answer(1, 11, error_code=6), TargetCluster(("b", 1))
    )


def test_what_the_recorded_cluster_refused_is_not_done_twice(tools: Any) -> None:
    """Its client has sent it again. Questions, and what went well in part, are sent as they were."""
    part = {"index": 0, "error_code": 6, "base_offset": -1}
    answers = [[part], [part, part | {"index": 1, "error_code": 0}], [part | {"error_code": 2}]]
    produced = [
        tools.exchange(0, 9, {"acks": 1, "topic_data": []}, {"responses": [{"name": "t", "partition_responses": each}]})
        for each in answers
    ]
    others = [tools.exchange(11, 5, {}, {"error_code": 14}), tools.exchange(11, 5, {}, {"error_code": 79}),
              tools.exchange(10, 2, {"key": "g"}, {"error_code": 15}), tools.exchange(11, 5, {}, None)]  # fmt: skip

    assert [was_refused(one) for one in produced] == [True, False, False]
    assert [was_refused(one) for one in others] == [True, False, False, False]
