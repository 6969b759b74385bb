"""One answer made of several."""

from __future__ import annotations

from typing import Any

from kproxy.protocol import decode_response
from kproxy.tools.rehearse.dialogue import response
from kproxy.tools.replay.routing import ResponseGatherer


def fetched(partition: int, code: int = 0, topic: str = "t") -> bytes:
    """An answer about one partition."""
    part = {"partition_index": partition, "error_code": 0, "high_watermark": 1, "aborted_transactions": None,
            "records": b""}  # fmt: skip
    return response(1, 11, 5, error_code=code, responses=[{"topic": topic, "partitions": [part]}])[4:]


def gathered(tools: Any, *frames: bytes | None) -> list[bytes | None]:
    """What is handed on when these come."""
    told: list[bytes | None] = []
    request = tools.exchange(1, 11, {"topics": []}, {}).request
    gather = ResponseGatherer(request, len(frames), lambda frame, now: told.append(frame))
    for frame in frames:
        gather.part(frame, 1.0)
    return told


def test_elements_stand_side_by_side(tools: Any) -> None:
    """Partitions of the same topic in one element; an error of any part is the answer's."""
    (frame,) = gathered(tools, fetched(0), fetched(2, 70), fetched(1, topic="u"))
    assert frame is not None
    body = decode_response(frame, 1, 11).body

    assert body["error_code"] == 70
    assert [(one["topic"], [part["partition_index"] for part in one["partitions"]]) for one in body["responses"]] == [
        ("t", [0, 2]), ("u", [1]),
    ]  # fmt: skip


def test_a_part_without_an_answer_leaves_the_request_without_one(tools: Any) -> None:
    """Told once, whatever comes after it."""
    assert gathered(tools, fetched(0), None, fetched(1), None) == [None]


def test_parts_that_cannot_be_read_are_not_put_together(tools: Any) -> None:
    """The first stands for all."""
    assert gathered(tools, fetched(0), b"\0\0\0\1odd") == [fetched(0)]
