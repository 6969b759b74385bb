"""Structs of a message."""

from __future__ import annotations

from typing import Any

from kproxy.tools.replay.recording import carriers, codes, layout_of, of_kind, structs


def test_structs_are_found_wherever_they_stand(tools: Any) -> None:
    """The message itself, elements of arrays, structs in tagged fields; what is null has none."""
    parts = [{"index": number, "error_code": number, "base_offset": 0} for number in (0, 3)]
    message = tools.answer(0, 10, responses=[{"name": "t", "partition_responses": parts}])
    kinds = [sorted(slot.name for slot in of_kind(struct, "error_code"))
             for struct, _ in structs(layout_of(message), message.body)]  # fmt: skip

    assert kinds.count(["error_code"]) == 2
    assert codes(message) == {3}


def test_which_apis_carry_a_kind_of_value() -> None:
    """By direction, in any version."""
    assert {0, 1, 3} <= carriers("topic_id", "request")
    assert 10 not in carriers("topic_id", "request")
    assert 22 in carriers("producer_id", "response")
