"""What need not be read for some rules."""

from __future__ import annotations

from typing import Any
from uuid import UUID

FETCH = 1
FETCH_SESSION_ID_NOT_FOUND = 70


def later_fetch(talk: Any) -> dict[str, Any] | None:
    """A Fetch in a session whose start was not seen, which lists a topic by an id that nobody has told."""
    topics = [{"topic_id": UUID(int=9), "partitions": [{"partition": 0}]}]
    asked: dict[str, Any] | None = talk.ask(FETCH, 16, session_id=5, session_epoch=3, topics=topics)
    return asked


def test_rules_about_answers_leave_fetch_sessions_and_topic_ids_alone(dialogue: Any) -> None:
    """The request goes to the broker as it is, and nothing is asked before."""
    for rule in ("kind: hide_node\nnode: 2", "kind: wrong_address\nport: 1"):
        talk = dialogue(rule)
        assert later_fetch(talk) is not None
        assert len(talk.talk.requests()) == 1


def test_rules_about_partitions_need_the_session(dialogue: Any) -> None:
    """It is unknown, so the client is told to begin a new one."""
    talk = dialogue("kind: empty_fetch")
    assert later_fetch(talk) is None

    assert talk.received(FETCH, 16)["error_code"] == FETCH_SESSION_ID_NOT_FOUND
