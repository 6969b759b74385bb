"""A broker's message about a name that collides does not name somebody else's topic."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol import decode_response
from kproxy.protocol.table import schema
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

RULES = "rules:\n- {name: a, kind: prefix, prefix: a.}\n"


@pytest.mark.parametrize("version", [one for one in schema.load(19).versions if one >= 1])
def test_only_that_message_is_replaced(version: int) -> None:
    """Others say what is wrong with what the tenant wrote."""
    said = "Topic 'a.x' collides with existing topic: a_x"
    topics: list[dict[str, Any]] = [
        {"name": "a.x", "error_code": 17, "error_message": said},
        {"name": "a.y", "error_code": 40, "error_message": "Unknown topic config name: z"},
        {"name": "a.z", "error_code": 0, "error_message": None},
    ]
    talk = Dialogue(RULES).client(request(19, version, 1)).broker(response(19, version, 1, topics=topics), 5)
    found = decode_response(talk.to_client[4:], 19, version).body["topics"]
    assert [one["name"] for one in found] == ["x", "y", "z"]
    assert "a_x" not in found[0]["error_message"] and "underscores" in found[0]["error_message"]
    assert [one["error_message"] for one in found[1:]] == ["Unknown topic config name: z", None]
