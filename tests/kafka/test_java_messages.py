"""Every message against Kafka's Java client library: each reads what the other writes, sees the same, writes the same.

Two releases of the library take part: 3.9, which still has every version that Kafka 4 removed, and 4.4.
"""

from __future__ import annotations

import base64
import math
import os
import random
from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol import decode_request, decode_response, encode
from kproxy.protocol.codec.message import Message
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Slot, Struct
from tests.support.java_program import JavaProgram

from .random_values import random_message

pytestmark = pytest.mark.timeout(120, func_only=True)  # the first run fetches jars
COUNT = 100 if os.environ.get("KPROXY_TEST_ALL") else 6
"""Messages for each (API, version, direction) and way."""

OTHER_LAYOUT = {("4.4", 87, 0, "response")}
"""ReadShareGroupStateSummary v0 has another layout from Kafka 4.1 on; the table has that of the 3.9 guide."""

OTHER_NAMES = {
    "replicaepoch": "candidateepoch",  # Vote, renamed in 4.0
    "replicaid": "candidateid",
    "replicadirectoryid": "candidatedirectoryid",
    "configresources": "clientmetricsresources",  # ListConfigResources, renamed in 4.1
    "resourcename": "name",
    "acceptablerecoverylaglegacy": "acceptablerecoverylag",  # StreamsGroupHeartbeat v0, renamed in 4.4
    "generationid": "generationidormemberepoch",  # TxnOffsetCommit, renamed in 4.4
}
"""Fields with another name in a release: the table's name → the release's, without underscores."""


def versions(api: schema.Api, release: str) -> schema.Versions | None:
    """What the table says about an API in a release: the last entry up to it."""

    def number(text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split(".")))

    known = [has for since, has in api.releases.items() if number(since) <= number(release)]
    return known[-1] if known else None


CASES = [
    pytest.param(release, api, id=f"{api.name}-{release}")
    for release in ("3.9", "4.4")
    for api in schema.apis()
    if versions(api, release)
]


@pytest.mark.parametrize("release", ["3.9", "4.4"])
def test_the_releases_of_the_table(java_messages: dict[str, JavaProgram], release: str) -> None:
    """The table gives each API the very versions that Kafka's own classes of that release have, and its name."""
    found = {
        (name, key): f"{low}-{high}" if low != high else str(low)
        for key, low, high, name in java_messages[release]("list")
        if low <= high
    }
    names = schema.names()

    assert dict(found.keys()) == {name: names[name] for name, _ in found}
    assert {key: has for (_, key), has in found.items()} == {
        api.key: str(has) for api in schema.apis() if (has := versions(api, release))
    }


def test_table_versions_are_in_some_release() -> None:
    """Each version of the table is in at least one of the two releases."""
    reached = {
        (api.key, version)
        for api in schema.apis()
        for release in ("3.9", "4.4")
        for version in versions(api, release) or ()
    }
    table = {(api.key, version) for api in schema.apis() for version in api.versions}

    assert table == reached


def layouts(api: schema.Api, release: str) -> list[tuple[int, str]]:
    """(version, direction) of all that table and release have in common."""
    every = [(version, direction) for version in versions(api, release) or () for direction in ("request", "response")]
    return [
        (version, direction)
        for version, direction in every
        if (release, api.key, version, direction) not in OTHER_LAYOUT
    ]


@pytest.mark.parametrize(("release", "api"), CASES)
def test_what_java_writes(java_messages: dict[str, JavaProgram], release: str, api: schema.Api) -> None:
    """Random messages of Java's serialiser decode to Java's values, and encode to the very bytes."""
    start = java_messages[release].start
    asked = {
        (version, direction): start(
            "make", key=api.key, version=version, direction=direction, seed=version, count=COUNT
        )
        for version, direction in layouts(api, release)
    }
    assert asked
    for (version, direction), answer in asked.items():
        for hexed, header, body in answer.result(90):
            frame = bytes.fromhex(hexed)
            message = decode_request(frame) if direction == "request" else decode_response(frame, api.key, version)

            assert (api.key, version, direction) == (message.api.key, message.version, message.direction)
            assert_struct(layout.header(direction, api.header_version(direction, version)), header, message.header)
            assert_struct(layout.body(api.key, version, direction), body, message.body)
            assert frame == encode(message)


@pytest.mark.parametrize(("release", "api"), CASES)
def test_what_java_reads(java_messages: dict[str, JavaProgram], release: str, api: schema.Api) -> None:
    """Random messages written here are read by Java to their last byte, and written by it to the very bytes."""
    chance = random.Random(api.key)
    start = java_messages[release].start
    asked = []
    for version, direction in layouts(api, release):
        frames = [encode(random_message(chance, api, version, direction)).hex() for _ in range(COUNT)]
        answer = start("read", key=api.key, version=version, direction=direction, frames=frames)
        asked.append((frames, answer))
    assert asked
    for frames, answer in asked:
        assert frames == answer.result(90)


def assert_struct(struct: Struct, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Java's JSON and our dict say the same. Java leaves out tagged fields that have their default."""
    names = {plain(name): value for name, value in theirs.items()}
    for slot in struct.all_slots:
        name = plain(slot.name)
        if name not in names:
            name = OTHER_NAMES.get(name, name)
        if name not in names and slot.tag is not None:
            assert slot.default() == ours[slot.name], slot.path
        else:
            assert_value(slot, names.pop(name), ours[slot.name])
    assert not names
    assert set(ours) <= {slot.name for slot in struct.all_slots} | {"_tagged_fields"}


def plain(name: str) -> str:
    return name.replace("_", "").lower()


def assert_value(slot: Slot, theirs: Any, ours: Any) -> None:
    if theirs is None or ours is None:
        assert theirs is ours is None, slot.path
    elif slot.array:
        assert len(theirs) == len(ours), slot.path
        for their, our in zip(theirs, ours, strict=True):
            assert_scalar(slot, their, our)
    else:
        assert_scalar(slot, theirs, ours)


def assert_scalar(slot: Slot, theirs: Any, ours: Any) -> None:
    if slot.struct is not None:
        assert_struct(slot.struct, theirs, ours)
    elif slot.type == "records":
        assert theirs == ""  # all that Java's JSON says about records; their bytes are compared with the frame
    elif slot.type == "float64":
        same = float(theirs) == ours and math.copysign(1, float(theirs)) == math.copysign(1, ours)
        assert same or (math.isnan(float(theirs)) and math.isnan(ours)), slot.path
    else:
        assert from_json(slot.type, theirs) == ours, slot.path
        assert isinstance(ours, PYTHON_TYPES.get(slot.type, int)), slot.path


PYTHON_TYPES: dict[str, Any] = {"bool": bool, "string": str, "bytes": bytes | bytearray | memoryview, "uuid": UUID}


def from_json(kind: str, value: Any) -> Any:
    if kind == "uuid":
        return UUID(bytes=base64.urlsafe_b64decode(value + "=="))
    if kind == "bytes":
        return base64.b64decode(value)
    return value


def test_the_comparison_itself() -> None:
    """A difference of one value, one field or one null fails: the tests above can fail."""
    struct = layout.body(3, 12, "request")
    theirs = {
        "topics": [{"topicId": "AAAAAAAAAAAAAAAAAAAAAA", "name": "a"}],
        "allowAutoTopicCreation": True,
        "includeTopicAuthorizedOperations": False,
    }
    ours = {
        "topics": [{"topic_id": UUID(int=0), "name": "a"}],
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": False,
    }
    assert_struct(struct, theirs, ours)
    wrong: list[dict[str, Any]] = [
        {"topics": None},
        {"topics": []},
        {"topics": [{"topicId": "AAAAAAAAAAAAAAAAAAAAAA", "name": None}]},
        {"topics": [{"topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "name": "a"}]},
        {"allowAutoTopicCreation": False},
        {"more": 1},
    ]
    for change in wrong:
        with pytest.raises(AssertionError):
            assert_struct(struct, {**theirs, **change}, ours)


def test_a_message_is_random() -> None:
    """The values written here differ from one message to the next."""
    chance = random.Random(0)
    api = schema.load(3)
    made: list[Message] = [random_message(chance, api, 12, "response") for _ in range(20)]

    assert len({encode(message) for message in made}) == 20
