"""Comparing answers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kproxy.tools.replay.compare import IgnoredFields, ResponseComparison, ResponseDifference, error_name, shown


def found(recorded: Any, now: Any, **wanted: Any) -> list[tuple[str, str, str]]:
    """Path, recorded value and value now of each difference."""
    comparison = ResponseComparison(IgnoredFields(**wanted), {UUID(int=1): "t"}.get, {UUID(int=2): "t"}.get)
    return [(one.path, one.recorded, one.now) for one in comparison.differences(recorded, now)]


def produced(tools: Any, *parts: tuple[int, int, int], **more: Any) -> Any:
    responses = [{"index": index, "error_code": code, "base_offset": offset} for index, code, offset in parts]
    return tools.answer(0, 9, responses=[{"name": "t", "partition_responses": responses}], **more)


def test_elements_find_each_other_by_their_keys(tools: Any) -> None:
    """In any order; paths name them; errors have names."""
    recorded = produced(tools, (0, 0, 5), (1, 0, 7))
    now = produced(tools, (1, 3, -1), (0, 0, 5), throttle_time_ms=50)

    assert found(recorded, now) == [
        ("responses[t].partition_responses[1].error_code", "NONE", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("responses[t].partition_responses[1].base_offset", "7", "-1"),
    ]


def test_groups_of_fields_can_be_left_out_or_taken_in(tools: Any) -> None:
    """Offsets are compared unless told otherwise, throttling is not."""
    recorded, now = produced(tools, (0, 0, 5)), produced(tools, (0, 0, 9), throttle_time_ms=50)

    assert found(recorded, now, ignore=["offsets"]) == []
    assert found(recorded, now, ignore=["offsets"], compare=["throttle"]) == [("throttle_time_ms", "0", "50")]


def test_elements_that_are_on_one_side_only_are_told(tools: Any) -> None:
    """By their key."""
    recorded, now = produced(tools, (0, 0, 5), (1, 0, 7)), produced(tools, (0, 0, 5))

    assert found(recorded, now) == [("responses[t].partition_responses[1]", "there", "not there")]


def fetched(tools: Any, topic_id: int, *codes: int) -> Any:
    parts = [{"partition_index": n, "error_code": code, "high_watermark": n, "aborted_transactions": None,
              "records": b"x" * n} for n, code in enumerate(codes)]  # fmt: skip
    return tools.answer(1, 13, responses=[{"topic_id": UUID(int=topic_id), "partitions": parts}])


def test_topic_ids_are_compared_as_names(tools: Any) -> None:
    """Of each side's own cluster."""
    assert found(fetched(tools, 1, 0), fetched(tools, 2, 0)) == []
    assert [path for path, _, _ in found(fetched(tools, 1, 0), fetched(tools, 3, 6))] == [
        f"responses[{UUID(int=3)}].partitions[0].error_code"
    ]


def test_a_fetch_may_leave_out_a_partition_that_has_nothing_to_say(tools: Any) -> None:
    """That depends on the moment; an error does not."""
    assert found(fetched(tools, 1, 0), fetched(tools, 2, 0, 0)) == []
    assert found(fetched(tools, 1, 0, 6), fetched(tools, 2, 0)) == [
        ("responses[t].partitions[1].error_code", "NOT_LEADER_OR_FOLLOWER", "NONE")
    ]


def test_answers_in_another_version_differ(tools: Any) -> None:
    """ApiVersions of a broker that does not know the version (KIP-511)."""
    comparison = ResponseComparison(IgnoredFields(), {}.get, {}.get)

    assert comparison.differences(tools.answer(18, 3), tools.answer(18, 0)) == [
        ResponseDifference("version", "version", "3", "0", error=True)
    ]


def test_bytes_and_nulls_are_shown_as_text(tools: Any) -> None:
    """Long values are cut; codes that nobody knows are numbers."""
    recorded, now = tools.answer(14, 3, assignment=b"\1"), tools.answer(14, 3, assignment=b"\2")

    assert found(recorded, now) == [("assignment", "01", "02")]
    assert shown("x" * 100) == f"{'x' * 60}… (100 letters)"
    assert (shown(None), error_name(9999), error_name(0)) == ("null", "9999", "NONE")
