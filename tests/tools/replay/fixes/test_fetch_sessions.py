"""Fetch sessions."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.tools.replay.request_fixes import UNSEEN, FetchSessionFix


def fetch(tools: Any, number: int, epoch: int, offsets: dict[int, int], given: int, **more: Any) -> Any:
    """A recorded Fetch of partitions of `orders`, answered with this session id."""
    parts = [{"partition": one, "fetch_offset": offset, "partition_max_bytes": 1000} for one, offset in offsets.items()]
    topics = [{"topic": "orders", "partitions": parts}] if parts else []
    fields = {"session_id": number, "session_epoch": epoch, "topics": topics, **more}
    return tools.exchange(1, 11, fields, {"session_id": given}, at=epoch + 1)


def said(asked: Any) -> tuple[int, int, dict[int, int]]:
    """Session, epoch and offsets of what is sent."""
    body = asked.message.body
    offsets = {one["partition"]: one["fetch_offset"] for topic in body["topics"] for one in topic["partitions"]}
    return body["session_id"], body["session_epoch"], offsets


class Talk:
    """One request after the other on the same recorded connection."""

    def __init__(self, tools: Any) -> None:
        self.tools, self.fix, self.line, self.place = tools, FetchSessionFix(), None, 0

    def ask(self, exchange: Any, **answer: Any) -> tuple[int, int, dict[int, int]]:
        """What is sent for it, when the target answers so."""
        exchange.place, self.place = self.place, self.place + 1
        self.line = exchange.line = self.line or exchange.line
        asked = self.tools.asked(exchange)
        self.fix.request(asked)
        found = said(asked)
        self.notes = asked.notes
        self.fix.answer(asked, exchange.response, self.tools.answer(1, 11, **answer))
        return found


@pytest.fixture
def talk(tools: Any) -> Talk:
    """A connection with session 77 of partitions 0 and 1, which the target calls 5000."""
    talk = Talk(tools)
    assert talk.ask(fetch(tools, 0, 0, {0: 10, 1: 20}, 77), session_id=5000) == (0, 0, {0: 10, 1: 20})
    return talk


def test_later_requests_use_the_target_s_session(tools: Any, talk: Talk) -> None:
    """With its own epochs, which rise by one."""
    assert talk.ask(fetch(tools, 77, 1, {0: 11}, 77), session_id=5000) == (5000, 1, {0: 11})
    assert talk.ask(fetch(tools, 77, 2, {}, 77), session_id=5000) == (5000, 2, {})


def test_a_session_that_the_target_lost_is_opened_anew(tools: Any, talk: Talk) -> None:
    """With all partitions, each at the offset that the client said last; epochs then begin anew."""
    talk.ask(fetch(tools, 77, 1, {0: 11}, 77), error_code=70)

    assert talk.ask(fetch(tools, 77, 2, {1: 25}, 77), session_id=6000) == (0, 0, {0: 11, 1: 25})
    assert talk.ask(fetch(tools, 77, 3, {}, 77), session_id=6000) == (6000, 1, {})


def test_a_target_without_sessions_gets_full_requests(tools: Any) -> None:
    """Each time."""
    talk = Talk(tools)
    talk.ask(fetch(tools, 0, 0, {0: 10, 1: 20}, 77), session_id=0)

    assert talk.ask(fetch(tools, 77, 1, {0: 11}, 77), session_id=0) == (0, 0, {0: 11, 1: 20})
    assert talk.ask(fetch(tools, 77, 2, {}, 77), session_id=0) == (0, 0, {0: 11, 1: 20})


def test_what_a_client_forgets_is_not_asked_for_any_more(tools: Any, talk: Talk) -> None:
    """Also when the session is opened anew after it."""
    forgotten = [{"topic": "orders", "partitions": [0]}]
    talk.ask(fetch(tools, 77, 1, {}, 77, forgotten_topics_data=forgotten), error_code=70)

    assert talk.ask(fetch(tools, 77, 2, {}, 77), session_id=1) == (0, 0, {1: 20})


def test_closing_a_session_names_the_target_s(tools: Any, talk: Talk) -> None:
    """An epoch of -1 ends it, 0 opens another in its place."""
    assert talk.ask(fetch(tools, 77, -1, {0: 3}, 0), session_id=0) == (5000, -1, {0: 3})
    assert talk.ask(fetch(tools, 77, 0, {0: 3}, 78), session_id=1) == (0, 0, {0: 3})


def test_a_session_from_before_the_recording_is_not_gone_on_with(tools: Any) -> None:
    """What the request lists is asked for without a session, and the report says so."""
    talk = Talk(tools)

    assert talk.ask(fetch(tools, 55, 9, {0: 10}, 55), session_id=0) == (0, -1, {0: 10})
    assert talk.notes == [UNSEEN]


def test_versions_without_sessions_stay_as_they_are(tools: Any) -> None:
    """Before 7."""
    one = tools.exchange(1, 4, {"topics": []}, {})
    fix, asked = FetchSessionFix(), tools.asked(one)
    before = dict(asked.message.body)
    fix.request(asked)
    fix.answer(asked, one.response, tools.answer(1, 4))

    assert asked.message.body == before
