"""Answers put together from recorded elements."""

from __future__ import annotations

from typing import Any

from kproxy.tools.replay.recorded_responses import RecordedElements


def produce(tools: Any, at: float, *parts: tuple[int, int]) -> Any:
    """A Produce to these partitions of t, answered with these codes."""
    asked = [{"index": number, "records": None} for number, _ in parts]
    answers = [{"index": number, "error_code": code, "base_offset": int(at)} for number, code in parts]
    return tools.seen(0, 9, {"acks": 1, "topic_data": [{"name": "t", "partition_data": asked}]},
                      {"responses": [{"name": "t", "partition_responses": answers}]}, at=at)  # fmt: skip


def answer(tools: Any, pieces: RecordedElements, *partitions: int) -> tuple[list[tuple[int, int, int]], list[str]]:
    """Partition, code and offset of each element, and what is missing."""
    found = pieces.answer(tools.asked(tools.record([produce(tools, 0, *((one, 0) for one in partitions))]).exchanges[0])
                          .message)  # fmt: skip
    assert found is not None
    response, missing = found
    (topic,) = response.body["responses"]
    return [(one["index"], one["error_code"], one["base_offset"]) for one in topic["partition_responses"]], missing


def test_each_element_is_given_once_and_the_last_good_one_again(tools: Any) -> None:
    """Partition by partition, in whatever portions they are asked for."""
    pieces = RecordedElements(tools.record([produce(tools, 1, (0, 0), (1, 0)), produce(tools, 2, (0, 0)),
                                  produce(tools, 3, (0, 6))]))  # fmt: skip

    assert answer(tools, pieces, 0)[0] == [(0, 0, 1)]
    assert answer(tools, pieces, 1, 0)[0] == [(1, 0, 1), (0, 0, 2)]
    assert answer(tools, pieces, 0)[0] == [(0, 6, 3)]
    assert answer(tools, pieces, 0)[0] == [(0, 0, 2)]


def test_what_was_never_answered_gets_an_error(tools: Any) -> None:
    """And is named."""
    pieces = RecordedElements(tools.record([produce(tools, 1, (0, 0))]))
    found, missing = answer(tools, pieces, 0, 9)

    assert found == [(0, 0, 1), (9, 3, -1)]
    assert missing == ["t 9"]


def test_apis_whose_answers_have_no_elements_have_no_pieces(tools: Any) -> None:
    """Nor have those that were never answered."""
    pieces = RecordedElements(tools.record([tools.seen(12, 3, {}, {})]))

    assert pieces.answer(tools.exchange(12, 3, {}, {}).request) is None
    assert pieces.answer(tools.exchange(3, 9, {}, {}).request) is None
