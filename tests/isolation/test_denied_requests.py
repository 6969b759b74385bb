"""Who is denied something, or may only read it, in every request of the protocol and at every place that names it."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from kproxy.protocol import Message
from kproxy.protocol.table import layout, schema
from kproxy.rules.document.read import parse_rules
from kproxy.rules.permissions import permissions
from kproxy.rules.select.mentions import HARMLESS
from kproxy.session.cluster import CORRELATION
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session_state import NOWHERE
from kproxy.tools.rehearse.dialogue import Dialogue, response
from kproxy.tools.rehearse.dialogue import request as frame

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
    talking,
)

FETCH = 1
ALL = "KPROXY_TEST_ALL" in os.environ
PAIRS = [(key, version) for key in schema.paths() for version in schema.load(key).versions]
PLACES = [
    (key, version, role, path)
    for key, version in PAIRS
    for role in ROLES
    for path in places(key, version, "request", role)
]
STRIPPED = ("JoinGroup", "SyncGroup")
"""Of whose bytes what is forbidden is left out."""


def rules(kind: str, role: str, pattern: str = f'"{SECRET[:6]}*"') -> str:
    return f"rules: [{{name: r, kind: {kind}, match: {{{role}: {pattern}}}}}]"


def asked(key: int, version: int, wanted: Wanted) -> dict[str, Any]:
    body: dict[str, Any] = fitting(key, wanted, filled(layout.body(key, version, "request"), wanted))
    return body


def sent(talk: Dialogue) -> list[Message]:
    """What reached the broker of the client's own."""
    return [one for one in talk.requests() if one.header["correlation_id"] != CORRELATION]


def shows(value: Any) -> bool:
    """Whether something forbidden is in it."""
    if isinstance(value, dict):
        return any(map(shows, value.values()))
    if isinstance(value, list):
        return any(map(shows, value))
    if isinstance(value, bytes | bytearray | memoryview):
        return SECRET.encode() in bytes(value)
    return SECRET in value if isinstance(value, str) else value == SECRET_ID


def tell(talk: Dialogue, key: int, version: int, body: dict[str, Any], chunk: int = 0) -> list[Message]:
    """The client asks; what is asked of the broker meanwhile is answered."""
    talk.client(request(key, version, 7, body), chunk)
    say_topics(talk)
    return sent(talk)


def sample(cases: list[Any], most: int) -> list[Any]:
    """All of them, or so many: the same ones each time, and of each API some."""
    if ALL or len(cases) <= most:
        return cases
    first = list({case[0]: case for case in reversed(cases)}.values())
    return sorted({*first, *random.Random(15).sample(cases, max(most - len(first), 0))})


@pytest.mark.parametrize("chunk", [0, 1], ids=["whole", "bytes"])
@pytest.mark.parametrize(("key", "version", "role", "path"), sample(PLACES, 250))
def test_nothing_denied_reaches_the_broker(key: int, version: int, role: str, path: str, chunk: int) -> None:
    """In an element of its own behind an open one, and alone. What is harmless there stands in a table, with why."""
    name = schema.load(key).name
    for both in (True, False):
        wanted = Wanted(role, path.__eq__, lambda where, both=both: both)
        body = asked(key, version, wanted)
        if not both:
            wanted = Wanted(role, path.__eq__, lambda where: False)
            body = alone(key, version, wanted)
        if not shows(body):
            continue
        talk = talking(rules("deny", role))
        seen = tell(talk, key, version, body, chunk)
        if (name, path) in HARMLESS and name not in STRIPPED:
            continue
        assert not any(shows(one.body) for one in seen), f"{name} {version} {path}"
        if name in STRIPPED and role == "topic":
            assert seen, "it goes on without what is forbidden"


def alone(key: int, version: int, wanted: Wanted) -> dict[str, Any]:
    """Every array has one element, the one that is forbidden."""
    body: dict[str, Any] = fitting(key, wanted, filled(layout.body(key, version, "request"), wanted, True))
    return body


CHANGING = [
    case for case in PLACES
    if permissions()[case[0]].changes == "data" or permissions()[case[0]].makes_topics
]  # fmt: skip


@pytest.mark.parametrize(("key", "version", "role", "path"), sample(CHANGING, 150))
def test_who_may_only_read_changes_nothing(key: int, version: int, role: str, path: str) -> None:
    """The same for read_only, of all that changes what is stored or makes topics."""
    name = schema.load(key).name
    wanted = Wanted(role, path.__eq__)
    body = asked(key, version, wanted)
    if not shows(body) or (name, path) in HARMLESS:
        return
    talk = talking(rules("read_only", role))
    seen = tell(talk, key, version, body)

    for one in seen:
        if name == "Metadata":
            assert not one.body.get("allow_auto_topic_creation", shows(one.body))
        elif name == "StreamsGroupHeartbeat":
            parts = one.body["topology"]["subtopologies"]
            made = ("state_changelog_topics", "repartition_source_topics")
            assert not any(shows(part[field]) for part in parts for field in made)
        else:
            assert not shows(one.body), f"{name} {version} {path}"


@pytest.mark.parametrize("kind", ["deny", "read_only"])
@pytest.mark.parametrize(("key", "version"), sample(PAIRS, 150))
def test_who_is_limited_has_no_business_among_brokers(key: int, version: int, kind: str) -> None:
    """Nothing that brokers alone say to each other goes on, as far as it changes something; all else does."""
    wanted = Wanted("topic", lambda path: False)
    body = alone(key, version, wanted)
    talk = talking(rules(kind, "topic"))
    seen = tell(talk, key, version, body)
    line, name = permissions()[key], schema.load(key).name
    refused = line.brokers_only and (kind == "deny" or line.changes == "data")

    if name == "Envelope":
        assert talk.closed is not None and not seen
    elif key in (17, 18, 36):
        assert talk.closed is None
    else:
        assert bool(seen) != refused, f"{name} {version}"
        assert OPEN in str(body) or not shows(body)


@pytest.mark.parametrize("kind", ["deny", "read_only"])
def test_what_cannot_be_read_does_not_pass(kind: str) -> None:
    """APIs and versions that the table lacks, whatever is in them."""
    unknown = [(max(schema.paths()) + 1, 0), (999, 3), (32767, 0)]
    newer = [(key, schema.load(key).versions.last + 1) for key in schema.paths()]
    for key, version in unknown + newer:
        talk = talking(rules(kind, "topic"))
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + (7).to_bytes(4, "big")
        frame = head + b"\xff\xff" + SECRET.encode()
        talk.client(len(frame).to_bytes(4, "big") + frame)
        passed = SECRET.encode() in talk.to_broker
        known = key in schema.paths()
        mute = known and permissions()[key].checks == ("nobody",)
        could = not known or any(case[0] == key and case[2] == "topic" for case in PLACES)
        if kind == "read_only":
            could = could and (not known or permissions()[key].changes == "data" or permissions()[key].makes_topics)
        assert not (passed and could and not mute), (key, version)


@pytest.mark.parametrize("version", list(schema.load(FETCH).versions))
def test_what_is_fetched_of_a_denied_topic_is_not_shown(version: int) -> None:
    """Although the request forgets it again, which brokers do not heed when a session begins: the answer has records of
    what is open, and of the rest an error."""
    wanted = Wanted("topic", lambda path: True)
    body = asked(FETCH, version, wanted)
    talk = talking(rules("deny", "topic"))
    tell(talk, FETCH, version, body)
    said = asked_answer(version)
    talk.broker(response(FETCH, version, 7, **said))
    found = {
        topic.get("topic", topic.get("topic_id")): part
        for topic in talk.responses((FETCH, version))[0].body["responses"]
        for part in topic["partitions"]
    }
    secret = found[SECRET_ID if version > 12 else SECRET]

    assert secret["error_code"] and b"record" not in bytes(secret["records"] or b"")
    assert found[OPEN_ID if version > 12 else OPEN]["records"] == b"record"


def asked_answer(version: int) -> dict[str, Any]:
    """Records of both topics, if the broker was asked for both."""
    wanted = Wanted("topic", lambda path: True)
    body: dict[str, Any] = filled(layout.body(FETCH, version, "response"), wanted)
    for topic in body["responses"]:
        topic["partitions"] = topic["partitions"][:1]
        for part in topic["partitions"]:
            part["records"], part["error_code"] = b"record", 0
    return {"responses": body["responses"]}


SHARE = [(key, version) for key in (78, 79) for version in schema.load(key).versions]


@pytest.mark.parametrize("epoch", [-1, 0])
@pytest.mark.parametrize(("key", "version"), SHARE)
@pytest.mark.parametrize("kind", ["deny", "read_only, offsets: true"])
def test_a_share_session_without_partitions_is_its_group_s_all_the_same(
    kind: str, key: int, version: int, epoch: int
) -> None:
    """It is opened, or ended, and then what a member has acquired is given to others."""
    for group, passes in ((SECRET, False), (OPEN, True)):
        talk = Dialogue(rules("deny", "group").replace("deny", kind))
        asked_for = frame(key, version, 1, group_id=group, member_id="m", share_session_epoch=epoch, topics=[])
        talk.client(asked_for)

        assert (talk.to_broker == asked_for) is passes and (talk.to_broker == b"") is not passes
        assert talk.closed is None


def test_a_rule_that_comes_is_about_share_sessions_that_are_open() -> None:
    """The group is the request's, also for partitions that it does not list."""
    talk = Dialogue(rules("deny", "group", '"other*"'))
    part = [{"topic_id": OPEN_ID, "partitions": [{"partition_index": 0}]}]
    common = {"group_id": SECRET, "member_id": "m"}
    talk.client(frame(78, 1, 5, **common, share_session_epoch=0, topics=part)).broker(response(78, 1, 5))
    before = len(talk.to_broker)
    held = parse_rules(rules("deny", "group")).bind(NOWHERE)
    talk.session.use(Plan(ConnectionSettings(advertise=False), held.live), talk.now)
    talk.client(frame(78, 1, 6, **common, share_session_epoch=1, topics=[]))

    assert before and len(talk.to_broker) == before
