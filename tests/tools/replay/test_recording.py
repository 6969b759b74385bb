"""Recordings."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kproxy.record.exchange import Form
from kproxy.record.observer.credentials import CONFIG_VALUES
from kproxy.tools.replay.recording import AUTHENTICATION, BARE, CUT


def test_exchanges_stand_in_the_order_of_their_requests(tools: Any) -> None:
    """Over all connections, however they were handed in; lines are numbered as they come up."""
    seen = [tools.seen(3, 9, {}, {}, at=at, line=line) for at, line in ((3, 1), (1, 5), (2, 1))]
    recording = tools.record(seen)

    assert [(one.sent, one.line.number, one.place) for one in recording.exchanges] == [(1, 1, 0), (2, 2, 1), (3, 2, 2)]
    assert [len(line.exchanges) for line in recording.lines] == [1, 2]
    assert (recording.start, recording.seconds) == (1, 2)


def test_responses_without_requests_are_left_out(tools: Any) -> None:
    """Of a capture that began in the middle."""
    one = tools.seen(3, 9, {}, {})
    one.request = None

    assert tools.record([one]).exchanges == []


def test_what_cannot_be_sent_again_says_why(tools: Any) -> None:
    """Authentication, frames that are withheld or cut, APIs that nobody knows."""
    whole, cut, bare, secret, configs, unknown = (tools.seen(3, 9, {}, {}, at=at) for at in range(6))
    cut.request.form, bare.request.form = Form.HEAD, Form.NONE
    secret.request.withheld, configs.request.withheld, unknown.key = "delegation token", CONFIG_VALUES, 999
    sasl = tools.seen(36, 1, {"auth_bytes": b""}, {}, at=6)
    reasons = [one.unfit for one in tools.record([whole, cut, bare, secret, configs, unknown, sasl]).exchanges]

    assert reasons == [
        "", CUT, BARE, "something in it was withheld: delegation token",
        "something in it was withheld: config values", "api key 999 is not known", AUTHENTICATION,
    ]  # fmt: skip


def test_names_of_topic_ids_come_from_all_answers(tools: Any) -> None:
    """Also from those that are not wanted."""
    topic = {"error_code": 0, "name": "orders", "topic_id": UUID(int=5), "is_internal": False, "partitions": []}
    seen = [tools.seen(3, 12, {}, {"topics": [topic]}), tools.seen(1, 13, {"topics": []}, {}, at=1)]
    recording = tools.record(seen, lambda one: one.key == 1)

    assert [one.api for one in recording.exchanges] == ["Fetch"]
    assert recording.names == {UUID(int=5): "orders"}


def test_an_answer_that_is_not_whole_is_none(tools: Any) -> None:
    """It cannot be compared; one whose config values are withheld can."""
    cut, configs = tools.seen(3, 9, {}, {}), tools.seen(32, 1, {}, {}, at=1)
    cut.response.form, configs.response.withheld = Form.HEAD, CONFIG_VALUES
    one, other = tools.record([cut, configs]).exchanges

    assert (one.response_frame, one.response) == (None, None)
    assert other.response is not None


def test_frames_that_cannot_be_read_have_no_message(tools: Any) -> None:
    """But they have their bytes."""
    seen = tools.seen(3, 9, {}, {})
    seen.request.data = seen.request.data[:-1]
    (one,) = tools.record([seen]).exchanges

    assert one.request is None and one.request_frame == seen.request.data


def test_a_produce_without_acks_expects_nothing(tools: Any) -> None:
    """By its acks, or as the capture says."""
    silent, loud = (tools.exchange(0, 9, {"acks": acks, "topic_data": []}) for acks in (0, 1))

    assert (silent.silent, loud.silent) == (True, False)
