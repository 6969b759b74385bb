"""What a denied client is sent names nothing that it is denied, whatever a broker says: all answers of the protocol."""

from __future__ import annotations

import os
import random
from typing import Any, Literal

import pytest

from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.shapes import shape
from kproxy.rules.permissions import permissions
from kproxy.rules.select.frame_match import can_ask_all
from kproxy.tools.rehearse.dialogue import Dialogue, response
from kproxy.tools.rehearse.dialogue import request as asking

from .forbidden import (
    OPEN,
    OPEN_ID,
    ROLES,
    SECRET,
    SECRET_ID,
    Wanted,
    filled,
    fitting,
    places,
    request,
    say_topics,
    subscription,
    talking,
)

ALL = "KPROXY_TEST_ALL" in os.environ
COORDINATOR_LOAD_IN_PROGRESS = 14
NOT_DENIED = (17, 18, 36)
METRICS_ONLY = (74, 0)
"""ListConfigResources 0 lists what belongs to client metrics, which is nothing that rules select."""
All = Literal["null", "empty", "filter", ""]
"""How a request asks for all there is; empty: it does not."""


def ways_to_ask_all(key: int, version: int) -> list[All]:
    """Null is tried in each version, also in those that do not have it, and that some brokers take all the same."""
    form = shape(key, version)
    if not form.request:
        return ["filter"]
    return ["null", "empty"] if form.all in ("empty", "either") else ["null"]


CASES = [
    (key, version, role, all_)
    for key in schema.paths()
    for version in schema.load(key).versions
    for role in ROLES
    if list(places(key, version, "response", role)) and (key, version) != METRICS_ONLY
    for all_ in (("", *ways_to_ask_all(key, version)) if can_ask_all(key, version) else ("",))
]


def rules(role: str, more: str = "") -> str:
    return f'rules: [{{name: r, kind: deny, match: {{{role}: "secret*"}}{more}}}]'


def asked(key: int, version: int, wanted: Wanted, all_: All) -> dict[str, Any]:
    """A request for what is open, or for all there is."""
    body: dict[str, Any] = fitting(key, wanted, filled(layout.body(key, version, "request"), wanted))
    form = shape(key, version)
    if all_ and form.request:
        body[form.request[0].array] = [] if all_ == "empty" else None
    elif all_ and "resource_name_filter" in body:
        body["resource_name_filter"] = None
    for name in body:
        if name.endswith("epoch") and name != "topology_epoch":
            body[name] = 0 if "session" in name else 1
    return body


def keyed(key: int, version: int) -> set[str]:
    """Arrays of an answer whose elements are what the request has asked for."""
    form = shape(key, version)
    return {level.path for level in (*form.response, *form.lists)}


def answered(key: int, version: int, wanted: Wanted, all_: All) -> dict[str, Any]:
    """An answer that names what is forbidden wherever nobody asked for it by name."""
    asked_for = set() if all_ else keyed(key, version)
    said = Wanted(wanted.role, lambda path: True, lambda path: path not in asked_for)
    body: dict[str, Any] = fitting(key, said, filled(layout.body(key, version, "response"), said))
    for slot in layout.body(key, version, "response").slots:
        if slot.kind in ("group_id", "transactional_id", "topic_name"):
            body[slot.name] = OPEN
    if "error_code" in body:
        body["error_code"] = 0
    return body


def dialogue(key: int, version: int, role: str, all_: All, *, known: bool = True, more: str = "") -> Dialogue:
    """The client asks, the broker answers; what reached the client is in the dialogue."""
    wanted = Wanted(role, lambda path: False)
    talk = talking(rules(role, more), known=known)
    talk.client(request(key, version, 7, asked(key, version, wanted, all_)))
    say_topics(talk)
    mine = [one for one in talk.requests() if one.header["correlation_id"] == 7]
    if mine and talk.closed is None:
        talk.broker(response(key, version, 7, **answered(key, version, wanted, all_)))
    return talk


def sample(cases: list[Any], most: int) -> list[Any]:
    """All of them, or so many: the same ones each time, and the newest version of each API in any case."""
    if ALL or len(cases) <= most:
        return cases
    newest = {(case[0], *case[2:]): case for case in cases}
    return sorted({*newest.values(), *random.Random(15).sample(cases, most // 2)})


@pytest.mark.parametrize(("key", "version", "role", "all_"), sample(CASES, 250))
def test_an_answer_names_nothing_that_is_denied(key: int, version: int, role: str, all_: All) -> None:
    """Made so that it does in every field that can; what is open is still there."""
    talk = dialogue(key, version, role, all_)
    name = schema.load(key).name

    assert SECRET.encode() not in talk.to_client, f"{name} {version}"
    assert SECRET_ID.bytes not in talk.to_client, f"{name} {version}"
    if not permissions()[key].brokers_only and name != "Envelope":
        assert talk.closed is None and talk.to_client
        (answer,) = talk.responses((key, version))
        said = frame(key, version, answered(key, version, Wanted(role, lambda path: False), all_))
        if OPEN.encode() in said and (talk.to_broker or not all_):  # what would change all there is fails
            assert OPEN.encode() in talk.to_client, f"{name} {version}: {answer.body}"


def has_null(key: int, version: int) -> bool:
    """Return True if the outermost array of what is asked for may be null by the protocol."""
    slots = {slot.name: slot for slot in layout.body(key, version, "request").slots}
    return any(slots[level.array].nullable for level in shape(key, version).request[:1])


NO_NULL = [
    case for case in CASES if case[3] == "null" and not has_null(*case[:2]) and len(shape(*case[:2]).request) < 3
]
"""Cases in which the protocol has no null."""


def test_all_can_be_asked_for_where_there_is_no_null() -> None:
    assert {(key, version) for key, version, *_ in NO_NULL} == {(3, 0), (9, 0), (9, 1), (75, 0)}


@pytest.mark.parametrize(("key", "version", "role", "all_"), NO_NULL)
def test_a_null_that_the_protocol_has_not_is_no_way_past_a_rule(key: int, version: int, role: str, all_: All) -> None:
    """A broker may take it for all there is."""
    talk = dialogue(key, version, role, all_)

    assert talk.to_broker
    assert SECRET.encode() not in talk.to_client


def frame(key: int, version: int, body: dict[str, Any]) -> bytes:
    return response(key, version, 7, **body)


@pytest.mark.parametrize(("key", "version", "role", "all_"), [case for case in sample(CASES, 1) if case[2] == "topic"])
def test_who_only_observes_changes_no_answer(key: int, version: int, role: str, all_: All) -> None:
    """The same answers under a dry-run rule, byte for byte."""
    talk = dialogue(key, version, role, all_, more=", mode: dry_run")
    said = answered(key, version, Wanted(role, lambda path: False), all_)

    if key not in NOT_DENIED and schema.load(key).name != "Envelope" and talk.closed is None:
        assert talk.to_client == frame(key, version, said)


@pytest.mark.parametrize("key", [68, 76])
def test_an_assignment_of_an_unknown_topic_is_asked_for_again(key: int) -> None:
    """An answer that cannot be judged becomes an error upon which a member tries again; then the ids are known."""
    version = schema.load(key).versions.last
    talk = dialogue(key, version, "topic", "", known=False)
    (first,) = talk.responses((key, version))
    body = asked(key, version, Wanted("topic", lambda path: False), "")
    talk.client(request(key, version, 8, body))
    assert say_topics(talk)
    talk.broker(response(key, version, 8, **answered(key, version, Wanted("topic", lambda path: False), "")))
    _, second = talk.responses((key, version), (key, version))

    assert first.body["error_code"] == COORDINATOR_LOAD_IN_PROGRESS
    assert SECRET_ID.bytes not in talk.to_client
    assert [one["topic_id"] for one in second.body["assignment"]["topic_partitions"]] == [OPEN_ID]


@pytest.mark.parametrize("key", [68, 76])
def test_the_topics_of_who_joins_are_known_before(key: int) -> None:
    """A member that joins waits until kproxy knows all topics, so that its first assignment can be judged."""
    version = schema.load(key).versions.last
    talk = talking(rules("topic"), known=False)
    body = asked(key, version, Wanted("topic", lambda path: False), "") | {"member_epoch": 0}
    talk.client(request(key, version, 7, body))
    assert not [one for one in talk.requests() if one.header["correlation_id"] == 7]
    assert say_topics(talk)
    talk.broker(response(key, version, 7, **answered(key, version, Wanted("topic", lambda path: False), "")))
    (answer,) = talk.responses((key, version))

    assert [one["topic_id"] for one in answer.body["assignment"]["topic_partitions"]] == [OPEN_ID]


def test_a_list_goes_on_behind_what_is_denied() -> None:
    """The cursor of DescribeTopicPartitions is a word of kproxy's, which leads back to the name."""
    talk = talking(rules("topic"))
    blank = {"is_internal": False, "partitions": []}
    talk.client(request(75, 0, 1, {"topics": [], "response_partition_limit": 2, "cursor": None}))
    talk.broker(response(75, 0, 1, topics=[blank | {"name": OPEN, "topic_id": OPEN_ID, "error_code": 0}],
                         next_cursor={"topic_name": SECRET, "partition_index": 3}))  # fmt: skip
    (answer,) = talk.responses((75, 0))
    cursor = answer.body["next_cursor"]
    talk.client(request(75, 0, 2, {"topics": [], "response_partition_limit": 2, "cursor": cursor}))

    assert SECRET.encode() not in talk.to_client
    assert talk.requests()[1].body["cursor"] == {"topic_name": SECRET, "partition_index": 3}


def test_a_rule_counts_an_answer_only_if_something_was_left_out() -> None:
    """A heartbeat without a forbidden topic is no match."""
    talk = talking(rules("topic"))
    body = {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": []}
    for correlation, topics in ((1, (OPEN,)), (2, (OPEN, SECRET))):
        talk.client(request(11, 1, correlation, {
            "group_id": "g", "session_timeout_ms": 1, "rebalance_timeout_ms": 1, "member_id": "",
            "protocol_type": "consumer", "protocols": [],
        }))  # fmt: skip
        members = [{"member_id": "m", "metadata": subscription(*topics)}]
        talk.broker(response(11, 1, correlation, members=members))
    running = talk.rules.live[0]

    assert body and (running.matched, running.fired, running.applied) == (1, 1, 1)


def test_bytes_that_cannot_be_the_consumer_protocols_are_not_shown() -> None:
    """Of a group that says it speaks it. What other protocols say to each other is theirs."""
    for kind, shown in (("consumer", b""), ("connect", b"\x00\x09 secret.x")):
        talk = talking(rules("topic"))
        talk.client(request(15, 0, 1, {"groups": ["g"]}))
        member = {"member_id": "m", "client_id": "c", "client_host": "h",
                  "member_metadata": b"\x00\x09 secret.x", "member_assignment": b""}  # fmt: skip
        talk.broker(response(15, 0, 1, groups=[{
            "error_code": 0, "group_id": "g", "group_state": "Stable", "protocol_type": kind, "protocol_data": "range",
            "members": [member],
        }]))  # fmt: skip
        (answer,) = talk.responses((15, 0))
        assert answer.body["groups"][0]["members"][0]["member_metadata"] == shown


def test_an_answer_that_cannot_be_read_is_not_passed_on() -> None:
    """It may show what is forbidden."""
    talk = talking(rules("topic"))
    talk.client(request(15, 0, 1, {"groups": ["g"]}))
    said = (1).to_bytes(4, "big") + b"\x00\x00\x00\x09" + SECRET.encode()
    talk.broker(len(said).to_bytes(4, "big") + said)

    assert talk.closed is not None and talk.to_client == b""


@pytest.mark.parametrize(("key", "version", "topic"), [(9, 8, "name"), (9, 9, "name"), (90, 0, "topic_name")])
@pytest.mark.parametrize("named", [(None, None), (None, ["open"]), (["open"], None)], ids=str)
def test_what_is_asked_for_twice_is_left_out_twice(key: int, version: int, topic: str, named: Any) -> None:
    """A group's offsets, all of them in one question: whichever of the answers is to that, none names the topic."""
    asked: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []
    for some in named:
        topics = None if some is None else [{topic: one} for one in some]
        asked.append({"group_id": "g", "topics": topics})
        listed = [{topic: one, "partitions": [{"partition_index": 0}]} for one in (OPEN, SECRET)]
        said.append({"group_id": "g", "topics": listed[: 2 if some is None else 1]})
    talk = Dialogue(rules("topic"))
    talk.client(asking(key, version, 1, groups=asked)).broker(response(key, version, 1, groups=said))

    assert OPEN.encode() in talk.to_client
    assert SECRET.encode() not in talk.to_client
