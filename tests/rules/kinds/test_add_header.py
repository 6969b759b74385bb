"""add_header: headers from templates, in each format, API and direction."""

from __future__ import annotations

import dataclasses
import re
from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.records import (
    Producer,
    Record,
    check_crc,
    decode,
    encode_batch,
    entries,
)
from kproxy.protocol.table import schema
from kproxy.rules.kinds.base.content_rule import Template, new_traceparent, time_text

PRODUCE, FETCH, SHARE_FETCH = 0, 1, 78
BEFORE = Record(5, 10_000, b"key", b"value", (("x", b"old"), ("other", None)))
TRACE = re.compile(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-01")
RULE = 'kind: add_header\nat: fetch\nheaders: {x: "{topic}-{partition}"}'


def records_of(data: Any) -> list[Record]:
    found = list(entries(data))
    for entry in found:
        check_crc(entry)
    return [record for entry in found for record in decode(entry)]


@pytest.mark.parametrize(
    ("rule", "before", "expected"),
    [
        ("headers: {a: b}", (), (("a", b"b"),)),
        ("headers: {a: ''}", (("z", b"1"),), (("z", b"1"), ("a", b""))),
        ("headers: {a: b, größe: ü}", (), (("a", b"b"), ("größe", "ü".encode()))),
        ("headers: {x: new}", (("x", b"1"), ("y", b"2"), ("x", b"3")), (("y", b"2"), ("x", b"new"))),
        (
            "replace: false\nheaders: {x: new, a: b}",
            (("x", b"1"), ("x", b"3")),
            (("x", b"1"), ("x", b"3"), ("a", b"b")),
        ),
        ("headers: {x: same}", (("x", b"same"),), (("x", b"same"),)),
        ("headers: {a: b}", (("b", b"has an a inside"),), (("b", b"has an a inside"), ("a", b"b"))),
        ("headers: {a: '{client_id}@{listener}/{cluster} {{}}'}", (), (("a", b"tester@/ {}"),)),
        ("headers: {a: '{topic}-{partition} {now} {now_ms}'}", (), (("a", b"orders-0 1970-01-01T00:00:00.000Z 0"),)),
    ],
)  # fmt: skip
def test_headers_of_a_record_are_set(carried: Any, rule: str, before: Any, expected: Any) -> None:
    """Everything else of the record stays."""
    record = dataclasses.replace(BEFORE, headers=before)
    after = carried(f"kind: add_header\nat: fetch\n{rule}").fetched(encode_batch([record]))["records"]

    assert records_of(after) == [dataclasses.replace(record, headers=expected)]


@pytest.mark.parametrize(
    ("before", "traced"),
    [((), True), ((("a", b"b3"),), True), ((("b3", b"0"),), False), ((("traceparent", None),), False)],
)
def test_traceparent_is_added_to_untraced_records(carried: Any, before: Any, traced: bool) -> None:
    """Each record gets another trace id."""
    rule = 'kind: add_header\nreplace: false\nheaders: {traceparent: "{traceparent}", v: "1"}'
    record = dataclasses.replace(BEFORE, headers=before)
    first, second = records_of(carried(rule).produced(encode_batch([record, dataclasses.replace(record, offset=6)])))

    added = [dict(one.headers)["traceparent"] for one in (first, second)] if traced else []
    assert len(set(added)) == 2 * traced and all(TRACE.fullmatch(one or b"") for one in added)
    expected = [*before, ("v", b"1"), *([("traceparent", added[0])] if traced else [])]
    assert sorted(first.headers) == sorted(expected)


@pytest.mark.parametrize("at", ["produce", "fetch"])
def test_every_format_keeps_its_fields(carried: Any, form: dict[str, int], at: str) -> None:
    """Batches keep producer, epochs, offsets and flags; messages of magic 0 and 1 pass, and are counted."""
    talk = carried(f"kind: add_header\nat: {at}\nheaders: {{a: b}}")
    more = {"producer": Producer(9, 3, 70, True), "partition_leader_epoch": 4} if form["magic"] == 2 else {}
    before = talk.batch("one", None, first=0, **form, **more)
    after = talk.fetched(before)["records"] if at == "fetch" else talk.produced(before)

    assert talk.read(after) == [(0, "one"), (1, None)]
    assert [one.headers for one in records_of(after)] == [(("a", b"b"),) if form["magic"] == 2 else ()] * 2
    assert talk.rule.problems == (form["magic"] < 2 and len(list(entries(before))))
    if form["magic"] == 2:
        (old,), (new,) = entries(before), entries(after)
        assert dataclasses.replace(new, length=old.length, crc=old.crc, raw=old.raw) == old
    else:
        assert bytes(after) == before


@pytest.mark.parametrize("name", ["magic", "codec", "cut", "good"])
def test_unchangeable_records_are_rejected(carried: Any, name: str) -> None:
    """By default they pass, with the headers of the client."""
    talk = carried("kind: add_header\nheaders: {a: b}\non_unreadable: reject")
    good = talk.batch("one", first=0)
    codec = bytearray(good)
    codec[22] |= 7
    data = {"magic": talk.batch("one", magic=1, first=0), "codec": bytes(codec), "cut": good[:-1], "good": good}[name]
    after = talk.produced(data)
    if name == "good":
        assert [one.headers for one in records_of(after)] == [(("a", b"b"),)]
        return
    assert after is None
    assert talk.received(PRODUCE, 9)["responses"][0]["partition_responses"][0]["error_code"] == 87
    assert carried("kind: add_header\nheaders: {a: b}").produced(data) == data


def versions(key: int, first: int) -> list[tuple[int, int]]:
    return [(key, version) for version in schema.load(key).versions if version >= first]


@pytest.mark.parametrize(("key", "version"), [*versions(PRODUCE, 3), *versions(FETCH, 4), *versions(SHARE_FETCH, 1)])
def test_every_version_gets_headers(carried: Any, key: int, version: int) -> None:
    topic_id = UUID(int=7)
    data = encode_batch([BEFORE])
    talk = carried(RULE.replace("fetch", "produce") if key == PRODUCE else RULE)
    talk.knows("orders", topic_id)
    if key == FETCH:
        after = talk.fetched(data, version)["records"]
    elif key == PRODUCE and version < 13:
        after = talk.produced(data, version)
    else:
        if key == PRODUCE:
            data_of = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": data}]}]
            body = talk.ask(PRODUCE, version, topic_data=data_of)
            after = body["topic_data"][0]["partition_data"][0]["records"]
        else:
            topic = {"topic_id": topic_id, "partitions": [{"partition_index": 0}]}
            talk.ask(key, version, group_id="g", member_id="m", topics=[topic])
            part = {"partition_index": 0, "records": data}
            body = talk.answer(key, version, responses=[{"topic_id": topic_id, "partitions": [part]}])
            after = body["responses"][0]["partitions"][0]["records"]

    assert dict(records_of(after)[0].headers)["x"] == b"orders-0"


def test_several_rules_see_earlier_headers(dialogue: Any, carried: Any) -> None:
    """The second rule keeps the header of the first one; one of another topic does nothing."""
    talk = carried(
        "kind: add_header\nheaders: {a: first}",
        'kind: add_header, replace: false, headers: {a: second, b: "2"}',
        "kind: set_record, at: produce, value: changed",
        "kind: add_header, match: {topic: other}, headers: {c: d}",
    )
    (after,) = records_of(talk.produced(encode_batch([BEFORE], codec=4)))

    assert (after.value, after.headers[2:]) == (b"changed", (("a", b"first"), ("b", b"2")))


def test_condition_selects_single_records(carried: Any) -> None:
    """Only records that match get the header; a later rule reads the header that an earlier one has added."""
    talk = carried(
        "kind: add_header\nmatch: {topic: orders, records: value == b}\nheaders: {b: yes-b}",
        'kind: add_header, match: {topic: orders, records: header.b}, headers: {c: "2"}',
    )
    found = records_of(talk.produced(talk.batch("a", "b", "c", codec=3)))

    assert [dict(one.headers) for one in found] == [{}, {"b": b"yes-b", "c": b"2"}, {}]


def test_dry_run_counts_and_changes_nothing(carried: Any) -> None:
    talk = carried(RULE + "\nmode: dry_run")
    data = encode_batch([BEFORE])

    assert talk.fetched(data)["records"] == data
    assert (talk.rule.matched, talk.rule.fired, talk.rule.applied) == (1, 1, 0)


def test_unknown_values_are_empty_and_counted(carried: Any) -> None:
    talk = carried('kind: add_header\nheaders: {p: "<{principal}>"}')

    assert records_of(talk.produced(encode_batch([BEFORE])))[0].headers[-1] == ("p", b"<>")
    assert (talk.rule.problems, "{principal}" in talk.rule.problem) == (1, True)


def fetch_with(talk: Any, max_bytes: int, *fields: bytes, version: int = 12) -> tuple[Any, list[bytes]]:
    """The limits that the broker gets, and the records of each partition that the client gets."""
    numbers = range(len(fields))
    topic = {"topic": "orders", "partitions": [{"partition": number} for number in numbers]}
    body = talk.ask(
        FETCH, version, max_wait_ms=500, min_bytes=9 << 20, max_bytes=max_bytes, session_epoch=-1, topics=[topic]
    )
    parts = [{"partition_index": number, "records": data} for number, data in zip(numbers, fields, strict=True)]
    answer = talk.answer(FETCH, version, responses=[{"topic": "orders", "partitions": parts}])
    return body, [one["records"] for one in answer["responses"][0]["partitions"]]


def test_fetch_stays_within_limits(carried: Any) -> None:
    """The broker gets a lower max_bytes. Batches that no longer fit the client's max_bytes are removed."""
    talk = carried('kind: add_header\nat: fetch\nheaders: {x: "0123456789"}')
    data = encode_batch([dataclasses.replace(BEFORE, headers=())])
    body, after = fetch_with(talk, 50 << 20, data)
    grown = len(after[0])
    assert (body["max_bytes"], body["min_bytes"], grown > len(data)) == (8 << 20, 8 << 20, True)
    assert (talk.rule.matched, talk.rule.applied) == (1, 1)

    body, after = fetch_with(talk, 3 * grown - 1, data + data, data)
    assert (body["max_bytes"], [len(one) for one in after]) == (3 * grown - 1, [2 * grown, 0])
    assert [len(one) for one in fetch_with(talk, 10, data, data)[1]] == [grown, 0]

    talk.talk.session.shared.content.max_fetch_bytes = 1 << 20
    body, _ = fetch_with(talk, 50 << 20, data)
    assert (body["max_bytes"], body["min_bytes"]) == (1 << 20, 1 << 20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('headers: {a: "{user}"}', "expected one of principal, client_id"),
        ('headers: {a: "{topic"}', "expected {name}, or {{ and }} for braces"),
        ('headers: {a: "{traceparent}"}, replace: false', "whole value of the header traceparent"),
        ('headers: {traceparent: "{traceparent}"}', "expected replace: false"),
        ("headers: {}", "at least 1"),
        ("headers: {a: 1}", "text"),
    ],
)
def test_wrong_rules_are_rejected(mistakes_of: Any, text: str, expected: str) -> None:
    assert expected in " ".join(mistakes_of(f"kind: add_header, {text}"))


def test_templates_and_values() -> None:
    assert Template("{{{topic}}}").fill({"topic": "t"}.get) == (b"{t}", True)
    assert Template("{now}{topic}").fill({"now": "x"}.get) == (b"x", False)
    assert time_text(1_700_000_000.9996) == "2023-11-14T22:13:20.999Z"
    assert TRACE.fullmatch(new_traceparent())
    assert new_traceparent(1e-17).endswith(b"-00")
    with pytest.raises(ValueError, match="expected a template of at most 1000 characters, got 1001"):
        Template("x" * 1001)
