"""JSON read with the place of everything in it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kproxy.admin.limits import LONGEST_BODY
from kproxy.admin.operation import has_few_values, text_end
from kproxy.rules.values.source import _TOKEN, json_source, to_value
from tests.support.stretches import BY_COST, Cost

TEXT = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@example(value=[5e-06, -1e300, 1.5e-7], indent=None, ascii_only=True)
@given(value=VALUES, indent=st.sampled_from([None, 1, "\t"]), ascii_only=st.booleans())
def test_it_reads_what_python_reads(value: Any, indent: int | str | None, ascii_only: bool) -> None:
    """Any JSON, however it is laid out."""
    source = json_source("<api>", json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode())

    assert source.lines() == []
    assert to_value(source) == value


def test_places_are_those_of_the_text() -> None:
    """Lines and columns from 1, of keys and of values."""
    source = json_source("<api>", b'{"rules": [\n  {"name": "a",\n   "kind":\t"x"}]}')

    assert source.place(("rules", 0)) == (2, 3)
    assert source.place(("rules", 0, "kind"), key=True) == (3, 4)
    assert source.place(("rules", 0, "kind")) == (3, 12)


def test_keys_that_are_there_twice() -> None:
    """Python would take the last one and say nothing."""
    source = json_source("<api>", b'{"a": 1, "a": 2}')
    to_value(source)

    assert source.lines() == ['<api>:1:10: the key "a" is there twice, first in line 1']


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "<api>:1:1: not JSON: expecting value"),
        (b'{"a": 1;}', "<api>:1:8: not JSON: expecting ',' delimiter"),
        (b"{'a': 1}", "<api>:1:2: not JSON: expecting property name enclosed in double quotes"),
        (b'["\xff"]', "<api>:1:1: the document is not UTF-8: byte 0xff"),
        (b"[" * 100_000, "<api>:1:51: nested 51 levels deep, the limit is 50"),
        (b"[" * 51 + b"]" * 51, "<api>:1:51: nested 51 levels deep, the limit is 50"),
        (b'["\\ud83d\\ude00",\n "x\\udc00"]', "<api>:2:2: \\udc00 is half a character, without the other half"),
        (b'{"\\ud800": 1}', "<api>:1:2: \\ud800 is half a character, without the other half"),
        (b"[Infinity]", "<api>:1:1: not JSON: expected a number of JSON, got Infinity"),
        (b"[" + b"1," * 200_000 + b"1]", "<api>:1:400000: more than 200000 keys and values"),
        (b"[" + b"1" * 10_000 + b"]", "<api>:1:1: not JSON: "),
    ],
)
def test_what_is_no_json_is_said_with_its_place(data: bytes, line: str) -> None:
    """One mistake, and no value."""
    source = json_source("<api>", data)

    assert len(source.lines()) == 1
    assert source.lines()[0].startswith(line)
    assert to_value(source) is None
    assert not source.is_yaml


LONG = {
    "letters": b'"' + b"x" * (LONGEST_BODY - 10) + b'"',
    "quotes": b'"' + b'\\"' * (LONGEST_BODY // 2 - 10) + b'"',
    "backslashes": b'"' + b"\\\\" * (LONGEST_BODY // 2 - 10) + b'"',
    "both": b'"' + b"x\\n" * (LONGEST_BODY // 3 - 10) + b'"',
    "no end": b'"' + b"x" * (LONGEST_BODY - 10),
    "no end of escapes": b'"' + b'\\"' * (LONGEST_BODY // 2 - 10),
    "blanks": b" \t" * (LONGEST_BODY // 2),
    "a word": b"x" * LONGEST_BODY,
}


@BY_COST
@pytest.mark.parametrize("name", LONG)
def test_json_token_as_long_as_a_body_is_matched_fast(name: str, cost: Cost) -> None:
    """No other thread runs while a regular expression is matched."""
    text = LONG[name].decode()
    cost.check(lambda: _TOKEN.match(text, 0), lines=10, seconds=0.1)
    cost.check(lambda: has_few_values(LONG[name]), lines=200, seconds=0.1)


def test_json_token_expression_never_backtracks() -> None:
    """Each repetition is possessive, so a match takes linear time."""
    assert re.findall(r"(?<!\\)[*+](?!\+)", _TOKEN.pattern.replace("*+", "").replace("++", "")) == []
    assert _TOKEN.pattern.count("*+") + _TOKEN.pattern.count("++") >= 4


@given(st.lists(st.sampled_from([b'"', b"\\", b"x", b"\n"]), max_size=12).map(b"".join), st.integers(0, 3))
def test_a_text_ends_at_its_first_quote_that_is_not_escaped(data: bytes, begin: int) -> None:
    """Read sign by sign; without such a quote it ends with the data."""
    at = min(begin, len(data))
    end = at
    while end < len(data) and data[end : end + 1] != b'"':
        end += 2 if data[end : end + 1] == b"\\" else 1
    assert text_end(data, at) == min(end + 1, len(data))
