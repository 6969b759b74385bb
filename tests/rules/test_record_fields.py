"""Conditions about the content of one record."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.base.cooperative import install_hooks
from kproxy.base.errors import FilterError
from kproxy.protocol.records import Record, encode_batch, encode_message_set, entries
from kproxy.protocol.records.spans import EntrySpans
from kproxy.rules.filter import record_fields
from kproxy.rules.filter.evaluate import Literals, RecordCondition, literals
from kproxy.rules.filter.kinds import EXPRESSION, JSON, ORDER, in_quotes
from kproxy.rules.filter.parse import FieldTest, parse, written
from kproxy.rules.filter.record_fields import (
    EVERY,
    FIELDS,
    MOST_JSON,
    RECORDS,
    UnreadableRecord,
    path_text,
    search,
    too_deep,
)

ORDER_VALUE = (
    b'{"customer": {"country": "DE", "vip": true, "note": null}, "amount": 17.50, "count": 3, "17": "17", "none": {},'
    b' "big": 123456789012345678901, "items": [{"sku": "a", "qty": 1}, {"sku": "b", "qty": 20}], "odd name": {"a.b": 1'
    b', "back\\\\slash": 2}, "text": "17", "deep": [[1, [2]]], "twice": 1, "twice": 2, "over": 3, "over": {"a": 1}}'
)
HEADERS = (("trace-id", b"abc"), ("a.b", b"1"), ("x y", None), ("trace-id", b"def"))
RECORD = Record(7, 1_700_000_000_123, b'{"id": 5}', ORDER_VALUE, HEADERS)
TEXT_RECORD = Record(0, -1, None, b"plain \xff text")


def matches(condition: str, record: Record = RECORD, form: Any = "auto", now: float = 1_700_000_060_123) -> bool:
    spans = EntrySpans(next(entries(encode_batch([record]))))
    (span,) = spans
    return RecordCondition(condition, form).matches(spans, span, now)


HOLD = [
    "value.customer.country == DE", "value.customer.country in (FR, DE)", "value.customer.country ~ ^D",
    "value.customer.country != FR", "value.missing != FR", "value.customer.country.code != FR", "value.amount == 17.5",
    "value.amount > 17.49999999999999999999", "value.amount >= 1.75e1", "value.count < 3.5", "value.count in (1, 3)",
    "value.customer.vip == true", "value.customer.note == null", "value.customer.vip", "not value.customer.note",
    "value.customer", "not value.none", "value.big == 123456789012345678901", "value.big != 123456789012345678900",
    "value.items[0].sku == a", "value.items[*].qty > 10", "not value.items[*].qty > 20", "value.items[1]",
    "not value.items[2]", "not value.items[1].sku.x", "value.over.a == 1", 'value."odd name"."a.b" == 1',
    "value.'odd name'.'a.b' == 1", "value.'odd name'.'back\\\\slash' == 2",
    'value.text == "17"',
    "not value.text == 17", "value.17 == '17'", "value.deep[0][1][0] == 2", "value.twice == 2", "value.amount ~ ^17",
    "not value.amount == '17.50'", "value.customer.country >= D", "not value.customer.vip ~ true", "key.id == 5",
    "header.trace-id == def", "header.trace-id == abc", "header.a.b == 1", 'header."x y" == ""', "not header.replay",
    'header ~ "^trace-id=abc$"', "headers == 4", "timestamp >= 2023-11-14T22:13:20.123", "timestamp < 2023-11-14T22:14",
    "age == 60s", "offset == 7", "record_size > 300", "not keyless and not tombstone", "structured", "~val country",
]  # fmt: skip
HOLD_FOR_TEXT = [
    "keyless", "not timestamp > 1970-01-01", "not age > 0ms", "not structured", "value ~ 'plain . text'",
    "not value.customer", "value.customer != DE", "record_size == 12", "headers == 0", "not header",
]  # fmt: skip


@pytest.mark.parametrize("condition", HOLD)
def test_condition_holds_for_a_structured_record(condition: str) -> None:
    assert matches(condition)
    assert not matches(f"not ({condition})")
    assert str(RecordCondition(str(RecordCondition(condition)))) == str(RecordCondition(condition))


@pytest.mark.parametrize("condition", HOLD_FOR_TEXT)
def test_condition_holds_for_a_text_record(condition: str) -> None:
    assert matches(condition, TEXT_RECORD)


def test_conditions_read_messages_of_old_formats() -> None:
    """They have no headers. With log append time, the timestamp is the broker's."""
    made = encode_message_set([Record(3, 5, None, b'{"a": 1}')], 1, log_append_time=1_700_000_000_000)
    (span,) = (spans := EntrySpans(next(entries(made))))

    for condition in ("value.a == 1", "headers == 0", "keyless", "timestamp > 2023", "offset == 3"):
        assert RecordCondition(condition.replace("2023", "2023-01-01")).matches(spans, span)


def test_form_decides_if_a_value_is_structured() -> None:
    for before in (b"", b" ", b"\r\n\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf "):  # JSON parsers accept all of them
        assert matches("value.a == 1", Record(0, 0, None, before + b'{"a": 1}'))
    assert matches("value.a == 1", Record(0, 0, None, b' {"a": 1}'), "json")
    assert not matches("value.a == 1 or structured", Record(0, 0, None, b'{"a": 1}'), "text")


UNREADABLE = {
    "invalid JSON": (b'{"a": 1', "expected JSON, got"),
    "invalid JSON after the path": (b'{"a": 1, "b": }', "expected JSON, got"),
    "half a character": (b'{"a": "\\ud800"}', "expected JSON, got"),
    "bytes": (b'{"a": "' + b"x" * MOST_JSON + b'"}', "expected JSON of at most 1048576 bytes"),
    "levels": (b'{"b": ' + b"[" * 64 + b"]" * 64 + b"}", "expected JSON of at most 64 levels"),
    "many levels": (b'{"b": ' + b"[" * 400_000 + b"]" * 400_000 + b"}", "expected JSON of at most 64 levels"),
    "digits": (b'{"a": ' + b"9" * 401 + b"}", "expected a number of at most 400 characters, got 401"),
    "exponent": (b'{"a": 1e99999999999999999999}', "expected a number, got"),
    "elements": (b'{"a": [' + b"0," * 20_000 + b"0]}", "more than 20000 values"),
    "members": (b'{"a": [' + b"0," * 65_537 + b"0]}", "expected JSON of at most 65536 members"),
    **{
        text: ('{"a": 1}'.encode(text), "expected JSON")  # Python and Jackson detect them
        for text in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
    },
}


@pytest.mark.parametrize(("value", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_record_is_an_error(value: bytes, message: str) -> None:
    condition = "value.a[*] > 1" if b"[0," in value else "value.a == 1"
    with pytest.raises(UnreadableRecord, match=message):
        matches(condition, Record(0, 0, None, value))


def levels(document: Any) -> int:
    inside = document.values() if isinstance(document, dict) else document if isinstance(document, list) else None
    return 0 if inside is None else 1 + max(map(levels, inside), default=0)


@settings(deadline=None)
@given(
    st.recursive(
        st.text('[]{}"\\ a', max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text('[{"\\', max_size=2), inner, max_size=2),
        max_leaves=9,
    )
)
def test_levels_of_any_json_are_counted(document: Any) -> None:
    with patch.object(record_fields, "DEEPEST_JSON", 2):
        assert too_deep(json.dumps(document).encode()) == (levels(document) > 2)


def test_levels_and_brackets_in_texts_are_counted_apart() -> None:
    assert matches("value.a == 1", Record(0, 0, None, b'{"a": 1, "b": ' + b"[" * 63 + b"]" * 63 + b"}"))
    assert matches("value.a == 1", Record(0, 0, None, b'{"b": "\\"' + b"[" * 100 + b'", "a": 1}'))
    assert matches("value.a == 1", Record(0, 0, None, b'{"b": [' + b"{}," * 100 + b'1], "a": 1}'))


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        ("value..a == 1", 0, "expected a path of at most 64 steps such as .items[0].sku, got ..a"),
        ("not value.a[x]", 4, "expected a path of at most 64 steps such as .items[0].sku, got .a[x]"),
        ("value" + "[0]" * 65, 0, "expected a path of at most 64 steps such as .items[0].sku, got " + "[0]" * 65),
        ("header[0]", 0, 'expected a header such as header.trace-id or header."x y", got header[0]'),
        ("value.a > null", 10, "expected text or a number after >, got null"),
        ("value.a == 1e9999999", 11, "expected an exponent of at most 100000, got 1e9999999"),
        ("topic == x", 0, 'unknown field "topic", `kproxy help filters` lists them'),
    ],
)
def test_wrong_condition_has_its_place(text: str, at: int, problem: str) -> None:
    with pytest.raises(FilterError) as raised:
        RecordCondition(text)
    assert (raised.value.at, raised.value.problem) == (at, problem)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_example_of_a_record_field_is_a_condition(field: Any) -> None:
    assert parse(field.example, RECORDS).field == field.name


STEPS = st.lists(st.text(max_size=6) | st.integers(0, 99) | st.just(EVERY), min_size=1, max_size=4)
VALUES = st.text(max_size=8) | st.decimals(allow_nan=False, allow_infinity=False, places=3) | st.booleans() | st.none()


@settings(deadline=None)
@given(
    st.sampled_from(["key", "value"]), STEPS, st.sampled_from(JSON.operators), st.lists(VALUES, min_size=1, max_size=3)
)
def test_written_path_claim_is_read_again(root: str, steps: list[Any], operator: str, values: list[Any]) -> None:
    value: Any = tuple(values) if operator == "in" else "a'\"\\\\" if operator in EXPRESSION else values[0]
    if operator in ORDER and not isinstance(value, str | Decimal):
        value = "true"
    claim = FieldTest(root + path_text(steps), operator, value)

    assert parse(written(claim, RECORDS), RECORDS) == claim


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


@settings(deadline=None)
@given(JSON_VALUES, st.lists(st.sampled_from(["a", "b", 0, 1, EVERY]), max_size=3), st.booleans())
def test_search_finds_the_values_of_json(document: Any, steps: list[Any], indented: bool) -> None:
    found = [document]
    for step in steps:
        if isinstance(step, str):
            found = [one[step] for one in found if isinstance(one, dict) and step in one]
        else:
            lists = [one for one in found if isinstance(one, list)]
            found = [item for one in lists for item in (one if step == EVERY else one[step : step + 1])]
    expected = [
        bool(one) if isinstance(one, dict | list)
        else Decimal(json.dumps(one)) if type(one) in (int, float) else one
        for one in found
    ]  # fmt: skip
    text = json.dumps(document, indent=2 if indented else None).encode()

    assert [bool(one) if type(one) is tuple else one for one in search(tuple(steps))(text)] == expected


LITERALS = {
    "value.a == DE": ((b'"DE"',), b"\\u"), "value.customer.a > 1": ((b'"customer"',), b"\\u"), "value.a in (x, y)":
    ((b'"x"', b'"y"'), b"\\u"), "value.a in (x, 1)": ((b'"a"',), b"\\u"), "value[*] == x": ((b'"x"',), b"\\u"),
    "value[0] > 1": None, "value.a != x": None, "not value.a": None, "~val x": None, "value == x": ((b"x",), b""),
    'value == ""': None, "value == '\ufffd'": None, "key in (a, b)": ((b"a", b"b"), b""), "header": None,
    'header."x y"': ((b"x y",), b""), "header.a == b": ((b"b",), b""),
    "value.a == DE and not header.replay": ((b'"DE"',), b"\\u"),
    "value.a == x or key == y": ((b'"x"', b"y"), b"\\u"), "value.a == x or keyless": None,
    "value.country and value.a == x": ((b'"country"',), b"\\u"), "value.a == x/y": ((b'"x/y"',), b"\\"),
    " or ".join(["key == a"] * 9): None,
}  # fmt: skip


@pytest.mark.parametrize(("condition", "expected"), LITERALS.items())
def test_literals_of_a_condition(condition: str, expected: Any) -> None:
    assert literals(parse(condition, RECORDS)) == (None if expected is None else Literals(*expected))


JSON_TEXT = st.text('ab\u00e9\\"{/', max_size=3)
DOCUMENTS = st.dictionaries(
    JSON_TEXT, JSON_TEXT | st.integers(0, 3) | st.dictionaries(JSON_TEXT, JSON_TEXT, max_size=2)
)


@settings(deadline=None)
@given(st.lists(st.tuples(DOCUMENTS, JSON_TEXT, st.booleans()), max_size=4), JSON_TEXT.filter(bool), JSON_TEXT)
def test_prefilter_changes_no_result(documents: Any, name: str, text: str) -> None:
    records = [
        Record(number, 0, key.encode(), json.dumps(document, ensure_ascii=escapes).encode(), ((key, text.encode()),))
        for number, (document, key, escapes) in enumerate(documents)
    ]
    spans = EntrySpans(next(entries(encode_batch(records))))
    path = path_text((name,))
    for condition in (f"value{path} == {in_quotes(text)}", f"value{path}", f"key == {in_quotes(text)}", "header.a",
                      f"value{path} == {in_quotes(text)} or header.ab == {in_quotes(text)}"):  # fmt: skip
        made = RecordCondition(condition)
        exact, fast = made.test(spans), made.test(spans, raises=False)
        assert [exact(span) for span in spans] == [fast(span) for span in spans]


def test_condition_yields_by_the_bytes_that_it_reads() -> None:
    records = [Record(number, 0, None, b'{"a": "%b"}' % (b"x" * 5_000)) for number in range(200)]
    spans = EntrySpans(next(entries(encode_batch(records))))
    calls: list[int] = []
    before = install_hooks(lambda: calls.append(1))
    try:
        assert not any(map(RecordCondition("value.a ~ y or value.b ~ z").test(spans), spans))
        assert len(calls) >= 7
        calls.clear()
        matches("value.a.b.c == 1", Record(0, 0, None, b'{"a": [' + b"{}," * 200_000 + b'1], "a": {"b": {"c": 1}}}'))
        assert len(calls) >= 400_000 // record_fields.PIECE
    finally:
        install_hooks(before)


def test_condition_that_yields_keeps_its_limit_of_values() -> None:
    """Another connection may test a record by the same condition meanwhile."""
    condition = RecordCondition("value.a[*] == 7")
    spans = EntrySpans(next(entries(encode_batch([Record(0, 0, None, b'{"a": [' + b"1, " * 19_000 + b"7]}")]))))
    (span,) = spans
    results: list[bool] = []

    def other_connection() -> None:
        install_hooks(None)
        results.append(condition.test(spans)(span))

    before = install_hooks(other_connection)
    try:
        results.append(condition.test(spans)(span))
    finally:
        install_hooks(before)
    assert results == [True, True]
