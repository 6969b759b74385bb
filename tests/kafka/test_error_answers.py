"""Answers to failed requests against Kafka's own: `getErrorResponse` of its request classes, of two releases.

The bodies have to be equal. `LIKE_KAFKA` below makes ours into Kafka's where they differ on purpose, each with its
reason; two more differences are left out of the requests: an entity that is asked for twice (Kafka mirrors it twice in
most APIs, and once in others), and topics without partitions in the APIs of `FULL` (Kafka leaves them out).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kproxy.protocol import Message, decode_request, encode
from kproxy.protocol.codec import structs as codec
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.schema import Api
from kproxy.session.respond import Failure, fail
from kproxy.testing.kafka import KAFKA_VERSION, kafka_libs
from tests.support.java_program import JavaProgram
from tests.support.random_requests import tell_apart

from .conftest import HERE, OLD_KAFKA_VERSION
from .random_values import random_message, random_struct
from .test_java_messages import CASES, OTHER_LAYOUT, versions

pytestmark = pytest.mark.timeout(120, func_only=True)  # the first run fetches jars
COUNT = 8
"""Requests for each API, version and error."""

ERRORS = {29: "Topic authorization failed.", 6: None, -1: None, 42: None}
"""Errors, the first with Kafka's own text for it."""

TEXT = "no, because"
FULL = ("Produce", "OffsetFetch", "WriteTxnMarkers", "DescribeUserScramCredentials")
UNORDERED = ("StopReplica", "Produce", "OffsetFetch", "WriteTxnMarkers", "AlterUserScramCredentials")
"""Kafka answers these in the order of a hash table, or sorted; ours are in the request's order."""


@dataclass(frozen=True)
class Case:
    """What an exception may depend on."""

    release: str
    version: int


def no_user(body: dict[str, Any], case: Case) -> None:
    """Kafka forgets the name of the user here; a broker's usual answer has it."""
    for result in body["results"]:
        result["user"] = ""


def empty_name(body: dict[str, Any], case: Case) -> None:
    """For a topic asked for by its id Kafka writes an empty name here; brokers write null for unknown ids."""
    for topic in body["topics"]:
        topic["name"] = topic["name"] or ""


def null_records(body: dict[str, Any], case: Case) -> None:
    """Kafka 3.9 has null for the records of a failed partition; 4.4, like we, an empty field."""
    for topic in body["responses"]:
        for partition in topic["partitions"]:
            partition["records"] = None if case.release == "3.9" else partition["records"]


def top_of_metadata(body: dict[str, Any], case: Case) -> None:
    """The code at the top of Metadata 13 is a thing of Kafka 4."""
    if case.version >= 13 and case.release == "3.9":
        body["error_code"] = 0


LIKE_KAFKA: dict[str, tuple[Callable[[dict[str, Any], Case], None], ...]] = {
    "DescribeUserScramCredentials": (no_user,),
    "Metadata": (empty_name, top_of_metadata),
    "Fetch": (null_records,),
}


def legal(request: Message, chance: random.Random) -> None:
    """Change a random request into one that Kafka's classes take."""
    body = request.body
    match request.api.name:
        case "Produce":
            body["acks"] = chance.choice((1, -1))
            for topic in body["topic_data"]:
                for partition in topic["partition_data"]:
                    partition["records"] = partition["records"] or b""
        case "Metadata" if request.version >= 12:
            for topic in (body["topics"] or ())[::2]:
                topic["name"] = None
        case "UpdateMetadata":
            for broker in body["live_brokers"]:
                for endpoint in broker.get("endpoints", ()):
                    endpoint["security_protocol"] = 0
        case "DescribeAcls" | "CreateAcls" | "DeleteAcls":
            for acl in body.get("creations") or body.get("filters") or [body]:
                acl |= {field: 3 for field in acl if "type" in field or field == "operation"}
        case _:
            pass


@pytest.fixture(scope="session")
def java_answers() -> Iterator[dict[str, JavaProgram]]:
    """Kafka release → the program that makes its error responses."""
    with (
        JavaProgram(HERE / "errors", "ErrorAnswers", kafka_libs(OLD_KAFKA_VERSION)) as old,
        JavaProgram(HERE / "errors", "ErrorAnswers", kafka_libs(KAFKA_VERSION)) as new,
    ):
        yield {"3.9": old, "4.4": new}


@pytest.mark.parametrize(("release", "api"), CASES)
def test_whole_requests(java_answers: dict[str, JavaProgram], release: str, api: Api) -> None:
    """A random request that fails has the answer that Kafka's class of that API makes, up to what is listed above."""
    chance = random.Random(api.key)
    asked = []
    for version in versions(api, release) or ():
        if (release, api.key, version, "response") in OTHER_LAYOUT:
            continue
        for code in ERRORS:
            requests = []
            for _ in range(COUNT):
                request = random_message(chance, api, version, "request")
                full = api.name in FULL or chance.random() < 0.5
                tell_apart(request, chance, full=full, make=lambda struct, chance: random_struct(chance, struct))
                legal(request, chance)
                requests.append(encode(request))
            frames = [frame.hex() for frame in requests]
            answer = java_answers[release].start(
                "answer", key=api.key, version=version, code=code, message=TEXT, frames=frames
            )
            asked.append((version, code, requests, answer))
    assert asked
    for version, code, requests, answer in asked:
        for frame, theirs in zip(requests, answer.result(90), strict=True):
            assert not theirs.startswith("error"), theirs
            assert_same(api, Case(release, version), code, frame, bytes.fromhex(theirs))


def assert_same(api: Api, case: Case, code: int, frame: bytes, theirs: bytes) -> None:
    struct = layout.body(api.key, case.version, "response")
    ours = encode(fail(decode_request(frame), Failure(code, TEXT)))
    start = 4 + header_version(api.key, case.version, "response")
    mine = codec.decode(struct, ours, start, api=api.name, version=case.version)[0]
    kafkas = codec.decode(struct, theirs, api=api.name, version=case.version)[0]
    for change in LIKE_KAFKA.get(api.name, ()):
        change(mine, case)
    if api.name in UNORDERED:
        mine, kafkas = ordered(mine), ordered(kafkas)
    assert_texts(mine, kafkas, code)

    assert plain(kafkas) == plain(mine)


def assert_texts(mine: Any, kafkas: Any, code: int) -> None:
    """Ours is the text of the failure; Kafka's is that, its own, null or empty. Both are taken out."""
    if isinstance(mine, dict):
        if "error_message" in mine:
            text = kafkas.pop("error_message")
            assert mine.pop("error_message") == TEXT
            assert text in (None, "", TEXT) or code == -1 or text == (ERRORS[code] or text)
        for name, value in mine.items():
            assert_texts(value, kafkas[name], code)
    elif isinstance(mine, list):
        for one, other in zip(mine, kafkas, strict=True):
            assert_texts(one, other, code)


def ordered(value: Any) -> Any:
    """All arrays of structs sorted."""
    if isinstance(value, dict):
        return {name: ordered(inner) for name, inner in value.items()}
    return sorted(map(ordered, value), key=repr) if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """Views as bytes."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return bytes(value) if isinstance(value, memoryview) else value


def test_produce_without_acks(java_answers: dict[str, JavaProgram]) -> None:
    """Kafka answers no Produce with acks 0; we make an answer, which is not to be sent."""
    api = schema.load(0)
    header = {"request_api_key": 0, "request_api_version": 8, "correlation_id": 1}
    frame = encode(Message(api, 8, header, {"acks": 0, "topic_data": []}))

    assert [None] == java_answers["4.4"]("answer", key=0, version=8, code=6, message="", frames=[frame.hex()])
    assert fail(decode_request(frame), Failure(6)).body["responses"] == []


def test_the_comparison_itself() -> None:
    """A wrong code, key or default fails: the test above can fail."""
    header = {"request_api_key": 10, "request_api_version": 4, "correlation_id": 1}
    frame = encode(Message(schema.load(10), 4, header, {"key_type": 0, "coordinator_keys": ["g"]}))
    struct = layout.body(10, 4, "response")
    right = {"key": "g", "node_id": -1, "host": "", "port": -1, "error_code": 15, "error_message": TEXT}
    assert_same(schema.load(10), Case("4.4", 4), 15, frame, codec.encode(struct, {"coordinators": [right]}))
    for change in ({"key": "h"}, {"port": 0}, {"error_code": 16}):
        with pytest.raises(AssertionError):
            assert_same(
                schema.load(10), Case("4.4", 4), 15, frame, codec.encode(struct, {"coordinators": [right | change]})
            )
