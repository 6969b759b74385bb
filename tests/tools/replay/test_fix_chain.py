"""All fixes together."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.base.errors import EncodeError
from kproxy.protocol import decode_request
from kproxy.tools.replay import request_fixes
from kproxy.tools.replay.request_fixes import UNWRITTEN, FixChain


def test_what_no_fix_is_about_is_sent_byte_by_byte(tools: Any) -> None:
    """Its answer is read all the same."""
    one, fixes = tools.exchange(10, 2, {"key": "g"}, {}), FixChain({}, {})
    frame, asked = fixes.request(one, 1)
    now = fixes.answer(one, asked, one.response_frame)

    assert (frame, asked) == (one.request_frame, None)
    assert now is not None and now.body == one.response.body


def test_what_cannot_be_read_is_sent_as_it_is(tools: Any) -> None:
    """A body that ends too early, say."""
    seen = tools.seen(1, 11, {"topics": []}, {})
    seen.request.data = seen.request.data[:-1]
    (one,) = tools.record([seen]).exchanges

    assert FixChain({}, {}).request(one, 1) == (seen.request.data, None)


def test_several_fixes_change_one_request(tools: Any) -> None:
    """A Fetch by topic id: the id, the leader epoch and the session."""
    part = {"partition": 0, "current_leader_epoch": 9, "fetch_offset": 5}
    topics = [{"topic_id": UUID(int=1), "partitions": [part]}]
    one = tools.exchange(1, 13, {"session_id": 7, "session_epoch": 3, "topics": topics}, {})
    frame, asked = FixChain({UUID(int=1): "t"}, {"t": UUID(int=2)}).request(one, 1)
    body = decode_request(frame).body
    (topic,) = body["topics"]

    assert (topic["topic_id"], topic["partitions"][0]["current_leader_epoch"]) == (UUID(int=2), -1)
    assert (body["session_id"], body["session_epoch"]) == (0, -1)
    assert asked is not None and len(asked.notes) == 1
    assert topic["partitions"][0]["fetch_offset"] == 5


def test_unknown_tagged_fields_stay(tools: Any) -> None:
    """As the client sent them."""
    seen = tools.seen(12, 4, {"group_id": "g", "_tagged_fields": [(99, b"new")]}, {})
    frame, _ = FixChain({}, {}).request(tools.record([seen]).exchanges[0], 1)

    assert [(tag, bytes(value)) for tag, value in decode_request(frame).body["_tagged_fields"]] == [(99, b"new")]


def test_an_answer_that_cannot_be_read_teaches_nothing(tools: Any) -> None:
    """It is compared as bytes."""
    one = tools.exchange(22, 4, {}, {"producer_id": 7})

    assert FixChain({}, {}).answer(one, None, b"\0\0\0\1") is None


def test_what_cannot_be_written_is_sent_as_it_was(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason."""

    def fails(message: Any) -> bytes:
        raise EncodeError("too long")

    monkeypatch.setattr(request_fixes, "encode", fails)
    one = tools.exchange(12, 3, {"group_id": "g"}, {})
    frame, asked = FixChain({}, {}).request(one, 1)

    assert frame == one.request_frame
    assert asked is not None and asked.notes == [f"{UNWRITTEN}too long"]
