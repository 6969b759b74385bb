"""The kind require: what producers have to keep to."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.records import Producer, Record, encode_batch
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.frames import produce as produce_frame
from tests.support.frames import produced
from tests.support.wrong_batches import LZ4, wrong_checksum

TOO_LARGE, ACKS, POLICY, COMPRESSION, INVALID = 10, 21, 44, 76, 87
ZSTD, GZIP = 4, 1


def requiring(line: str) -> Dialogue:
    return Dialogue(f"rules: [{{name: r, kind: require, {line}}}]")


def records(value: bytes = b"v", codec: int = 0, producer: int = -1) -> bytes:
    return encode_batch([Record(0, 5, None, value)], codec=codec, producer=Producer(producer, 0, 0))


def produce(*parts: bytes | None, acks: int = -1, version: int = 9, client_id: str | None = "team-a") -> bytes:
    places = [("t", index, one) for index, one in enumerate(parts)]
    return produce_frame(1, *places, version=version, client_id=client_id, acks=acks)


def errors(talk: Dialogue, version: int = 9) -> list[int]:
    (answer,) = talk.responses((0, version))
    return [part["error_code"] for part in answer.body["responses"][0]["partition_responses"]]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "nothing is required, at least one of acks, compression, max_record, idempotence, client_id is needed"),
        ("acks: 2", "expected acks 0, 1 or all, got 2"),
        ("compression: brotli", "expected one of none, gzip, snappy, lz4, zstd, got text"),
        ("compression: []", "expected at least 1 entry, got 0"),
        ("max_record: big", "expected a size such as 64KiB"),
        ("idempotence: false", "expected true or no value, got false"),
        ("acks: all, match: {api: Fetch}", "acks can be required of Produce only"),
        ("acks: all, compression: zstd, match: {api: [Fetch, Metadata]}",
         "acks, compression can be required of Produce only"),
        ('client_id: "a*", match: {api: ApiVersions}', "ApiVersions is let pass whatever a client calls itself"),
        ("acks: all, match: {error: any}", "this is decided before the broker answers"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(mistakes_of: Any, text: str, mistake: str) -> None:
    """With the reason."""
    (line,) = mistakes_of(f"kind: require, {text}".rstrip(", "))

    assert line.startswith(mistake), line


@pytest.mark.parametrize(
    ("line", "part", "code"),
    [
        ("compression: [zstd, lz4]", records(), COMPRESSION),
        ("compression: [zstd, lz4]", records(codec=GZIP), COMPRESSION),
        ("compression: [zstd, lz4]", records(codec=LZ4), 0),
        ("compression: [none]", records(), 0),
        ("compression: zstd", records(codec=ZSTD) + records(codec=LZ4), COMPRESSION),
        ("idempotence: true", records(), POLICY),
        ("idempotence: true", records(producer=0), 0),
        ("max_record: 1kB", records(b"v" * 1001), TOO_LARGE),
        ("max_record: 1kB", records(b"v" * 1001, codec=ZSTD), TOO_LARGE),
        ("max_record: 1kB", records(b"v" * 1000, codec=ZSTD), 0),
        ("max_record: 1kB, compression: zstd", records(b"v" * 1001), COMPRESSION),
        ("compression: zstd", None, 0),
        ("compression: zstd", b"no records at all", INVALID),
        ("idempotence: true", records(producer=1) + b"no records at all", INVALID),
        ("max_record: 1kB", wrong_checksum(b"v" * 1001), INVALID),
    ],
)
def test_records_are_judged_partition_by_partition(line: str, part: bytes | None, code: int) -> None:
    """Good partitions of the same request are the broker's; what cannot be read is not as required."""
    good = records(codec=ZSTD, producer=3) if "none" not in line else records()
    talk = requiring(line).client(produce(good, part))
    (seen,) = talk.requests()
    there = [one["index"] for one in seen.body["topic_data"][0]["partition_data"]]
    said = [{"index": index} for index in there]
    talk.broker(response(0, 9, 1, responses=[{"name": "t", "partition_responses": said}]))

    assert there == ([0] if code else [0, 1])
    assert errors(talk) == [0, code]


def test_the_reason_is_told_where_there_is_a_place_for_it() -> None:
    """From Produce 8 on."""
    talk = requiring("compression: [zstd, lz4]").client(produce(records(codec=GZIP)))
    (answer,) = talk.responses((0, 9))
    (part,) = answer.body["responses"][0]["partition_responses"]

    assert part["error_message"] == "compression gzip not allowed, expected zstd, lz4"


@pytest.mark.parametrize(("acks", "wanted", "code"), [(1, "all", ACKS), (-1, "all", 0), (1, "[1, all]", 0)])
@pytest.mark.parametrize("version", [3, 9])
def test_acks_wrong_fails_all_partitions(acks: int, wanted: str, code: int, version: int) -> None:
    asked = produce(records(), records(), acks=acks, version=version)
    talk = requiring(f"acks: {wanted}").client(asked)

    assert talk.to_broker == (b"" if code else asked)
    if code:
        assert errors(talk, version) == [code, code]


def test_without_acks_it_goes_nowhere_and_the_connection_is_closed() -> None:
    """As brokers do on errors of requests that have no answer; what keeps to the rules passes."""
    asked = produce(records(codec=ZSTD), acks=0)
    talk = requiring("compression: zstd").client(asked)
    assert (talk.to_broker, talk.closed) == (asked, None)

    talk.client(produce(records(), acks=0))
    assert talk.to_broker == asked
    assert talk.closed is not None
    assert talk.rules.live[0].fired == 2

    talk = requiring("acks: all").client(asked)
    assert talk.to_broker == b""
    assert talk.closed is not None


def test_a_client_has_to_call_itself_right() -> None:
    """In all requests but those that find the brokers and log in."""
    line = 'client_id: ["team-*", ops]'
    for name in ("other", None, ""):
        talk = requiring(line).client(produce(records(), client_id=name))
        assert (talk.to_broker, errors(talk)) == (b"", [POLICY])
        talk = requiring(line).client(request(12, 4, 1, name, group_id="g"))
        (answer,) = talk.responses((12, 4))
        assert (talk.to_broker, answer.body["error_code"]) == (b"", POLICY)
        for key, version in ((3, 9), (10, 3), (18, 3), (17, 1)):
            asked = request(key, version, 1, name)
            assert requiring(line).client(asked).to_broker == asked
    for name in ("team-a", "ops"):
        asked = produce(records(), client_id=name)
        assert requiring(line).client(asked).to_broker == asked


def test_only_what_is_selected_is_looked_at() -> None:
    """Other topics may be written in any way."""
    asked = produce(records())

    assert requiring("match: {topic: orders}, compression: zstd").client(asked).to_broker == asked


@pytest.mark.parametrize(("line", "code"), [("acks: all", ACKS), ("client_id: ops", POLICY)])
def test_require_with_topic_forwards_other_topics(line: str, code: int) -> None:
    talk = requiring(f"match: {{topic: t}}, {line}").client(produce_frame(1, ("t", 0, None), ("u", 0, None), acks=1))

    (sent,) = talk.requests()
    assert [topic["name"] for topic in sent.body["topic_data"]] == ["u"]
    talk.broker(produced(1, ("u", 0)))
    (answer,) = talk.responses((0, 9))
    found = {one["name"]: one["partition_responses"][0]["error_code"] for one in answer.body["responses"]}
    assert found == {"t": code, "u": 0}
