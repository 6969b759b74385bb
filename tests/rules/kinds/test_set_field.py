"""set_field: fields of JSON that get other values."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.records import Record, decode, encode_batch, entries

BEFORE = '{"a": {"b" : 1,"c":[1, 2.50]}, "d":"x"}'


def changed(carried: Any, fields: str, before: str | bytes | None = BEFORE, more: str = "") -> Any:
    data = before.encode() if isinstance(before, str) else before
    talk = carried(f"kind: set_field\nfields: {fields}\n{more}")
    batch = encode_batch([Record(0, 9, b'{"k": 1}', data)])
    after = talk.fetched(batch)["records"] if "fetch" in more else talk.produced(batch)
    ((record,),) = ([*decode(entry)] for entry in entries(after))
    return record


@pytest.mark.parametrize(
    ("fields", "after"),
    [
        ("{value.d: y}", '{"a":{"b" : 1,"c":[1, 2.50]},"d":"y"}'),
        ("{value.a.b: null}", '{"a":{"b":null,"c":[1, 2.50]},"d":"x"}'),
        ("{value.a: [1, {z: true}]}", '{"a":[1,{"z":true}],"d":"x"}'),
        ('{"value.a.c[1]": 3}', '{"a":{"b":1,"c":[1,3]},"d":"x"}'),
        ('{"value.a.c[*]": 0}', '{"a":{"b":1,"c":[0,0]},"d":"x"}'),
        ("{value.a: 0, value.new: '{client_id}{{}} {topic}-{partition}'}", '{"a":0,"d":"x","new":"tester{} orders-0"}'),
        ("{value.a.new: 1.5, value.d: 2}", '{"a":{"b":1,"c":[1, 2.50],"new":1.5},"d":2}'),
        ("{value.missing.x: 1, 'value.a.c[7]': 1}", BEFORE),
    ],
)  # fmt: skip
def test_fields_get_values(carried: Any, fields: str, after: str) -> None:
    assert changed(carried, fields).value.decode() == after


@pytest.mark.parametrize("value", [None, b"text", b'{"a": 1', b'{"a": 1}', b"[1]"])
def test_unreadable_values_pass(carried: Any, value: bytes | None) -> None:
    assert changed(carried, "{value.a.b: 1}", value).value == value


@pytest.mark.parametrize(("version", "code"), [(9, 87), (7, 44)])
def test_rejected_records_are_named(carried: Any, version: int, code: int) -> None:
    """The broker does not see the partition. Before Produce 8, POLICY_VIOLATION without records."""
    talk = carried("kind: set_field\nfields: {value.a: 1}\non_unreadable: reject")
    assert talk.produced(talk.batch("{}", "{bad", first=0), version) is None
    (answer,) = talk.received(0, version)["responses"][0]["partition_responses"]

    assert answer["error_code"] == code
    assert [one["batch_index"] for one in answer.get("record_errors", [])] == [1] * (version >= 8)
    assert "bad" not in str(answer)


def test_keys_change_on_fetch(carried: Any) -> None:
    assert changed(carried, "{key.k: 2}", more="at: fetch").key == b'{"k":2}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fields: {key.a: 1}", "expected at: fetch with fields of keys"),
        ("fields: {header.a: 1}", "expected a field of a value or key"),
        ("fields: {value: 1}", "expected a field of a value or key"),
        ('fields: {value.a: "{nobody}"}', "expected one of principal"),
        ('fields: {value.a: "{traceparent}"}', "add_header only"),
        ("fields: {value.a: 1}, on_unreadable: withhold", "expected reject or pass with at: produce"),
    ],
)
def test_wrong_rules_are_rejected(mistakes_of: Any, text: str, expected: str) -> None:
    assert expected in " ".join(mistakes_of(f"kind: set_field, {text}"))
