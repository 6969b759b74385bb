"""Masks of JSON against a mask of the values that `json` reads, and with a secret at every masked place."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kproxy.rules.content.masks import NULL, Fixed, Hash, JsonMasks, Keep, Mask, MaskNode
from kproxy.rules.filter.record_fields import DEEPEST_JSON, EVERY, MOST_JSON, MOST_MEMBERS, Step, UnreadableRecord
from tests.lab.fuzz.targets import masks as target

MASKED = Fixed("***")
MAIL = "anna@example.com"


def masked(path: str, data: bytes, mask: Mask = MASKED) -> bytes:
    return JsonMasks(
        [(tuple(int(step) if step.lstrip("-").isdigit() else step for step in path.split("/")), mask)]
    ).apply(data)


@pytest.mark.parametrize(
    ("mask", "text", "expected"),
    [
        (Keep(first=1, from_char="@"), MAIL, "a***@example.com"),
        (Keep(first=1, from_char="@"), '"a@b"@example.com', '"***@example.com'),
        (Keep(first=1, from_char="@"), "no mail", "n***"),
        (Keep(last=2, fill="#"), "+49170123", "###23"),
        (Keep(last=2, fill="#"), "23", "###"),
        (Keep(last=2), "", "***"),
        (Keep(to_char="-"), "DE-12-3", "DE-***"),
        (Keep(to_char="-"), "DE", "***"),
        (Keep(first=1, last=1), "é\U0001f600z", "é***z"),
        (Keep(first=9), "short", "***"),
        (Keep(from_char="@"), "@example.com", "***"),
        (Fixed("x"), MAIL, "x"),
        (Hash(b"k" * 16), MAIL, hmac.new(b"k" * 16, MAIL.encode(), hashlib.sha256).hexdigest()[:32]),
    ],
)
def test_masks_text_has_one_result(mask: Mask, text: str, expected: str) -> None:
    assert mask.plain(text.encode()) == expected.encode()
    assert json.loads(mask.json(json.dumps(text).encode())) == expected
    assert json.loads(mask.json(json.dumps(text, ensure_ascii=False).encode())) == expected


@pytest.mark.parametrize(
    ("mask", "value", "expected"),
    [
        (Keep(last=2), b"12345", b'"***45"'),
        (Keep(last=2), b"true", b'"***ue"'),
        (Keep(last=2), b"null", b"null"),
        (Keep(last=2), b'{"anna@example.com":1}', b'"***"'),
        (Keep(last=2), b'["anna"]', b'"***"'),
        (Hash(b"k" * 16), b"null", b"null"),
        (Fixed(0), b"null", b"0"),
        (Fixed({"a": [1]}), b'"x"', b'{"a":[1]}'),
        (NULL, b"[1]", b"null"),
    ],
)
def test_masks_json_types_have_one_result(mask: Mask, value: bytes, expected: bytes) -> None:
    assert mask.json(value) == expected


def test_hash_equal_values_stay_equal() -> None:
    mask = Hash(b"k" * 16)
    assert mask.json(b'"42"') == mask.json(b"42") == mask.json(b'"\\u0034\\u0032"')
    assert mask.json(b"[42]") != mask.json(b"42")
    assert Hash(b"l" * 16).json(b"42") != mask.json(b"42")


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("a", b'{"a":1, "b":  [1.0, 2e3]}', b'{"a":"***","b":[1.0, 2e3]}'),
        ("a", b'{"a":1,"a":2}', b'{"a":"***"}'),
        ("a", b'{"a":1,"\\u0061":2}', b'{"a":"***"}'),
        ("a/b", b'{"a":{"b":1},"a":{"c":2}}', b'{"a":{"c":2}}'),
        ("a/b", b'{"a":"x","a":null}', b'{"a":null}'),
        ("a/b", b'{"a":"x","\\u0061":{"c":1}}', b'{"a":{"c":1}}'),
        ("items/-1/x", b'{"items":[{"x":1},{"y":2},null]}', b'{"items":[{"x":"***"},{"y":2},null]}'),
        ("0/x", b'[{"x":1},{"x":2}]', b'[{"x":"***"},{"x":2}]'),
        ("odd name", b'{"odd name":1}', b'{"odd name":"***"}'),
    ],
)
def test_paths_with_values_are_masked(path: str, data: bytes, expected: bytes) -> None:
    assert masked(path, data) == expected


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("a", b' {"b": 1}\n'),
        ("a/b", b'{"a": {"c": "\\u00e9"}, "d": {"a": 1}}'),
        ("a/b", b'{"a": null}'),
        ("a/-1/b", b'{"a": [], "c": "\\\\"}'),
        ("7", b"[1, 2]"),
        ("a", b"null"),
    ],
)
def test_paths_without_values_keep_the_bytes(path: str, data: bytes) -> None:
    assert masked(path, data) is data


@pytest.mark.parametrize(
    "data",
    [
        b"", b"text", b"{", b'{"a":1}}', b'{"a":1} {"a":2}', b'\xef\xbb\xbf{"a":1}', b"\0\0\0\0\1{}", b'{"a":nan}',
        b'{"\xff":1}', b'{"a":{"b":"\\ud800"}}', b"[1]", b'"anna"', b"17", b'{"a":[1]}', b'{"a":"anna"}',
        b'{"a":{"b":1},}',
        b'{"a":' * (DEEPEST_JSON + 1) + b"1" + b"}" * (DEEPEST_JSON + 1),
        b'{"a":{"b":"' + b"x" * MOST_JSON + b'"}}', b'{"a":{"b":1},"c":[' + b"1," * MOST_MEMBERS + b"1]}",
    ],
)  # fmt: skip
def test_json_that_cannot_be_read_surely_is_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableRecord) as caught:
        masked("a/b", data, Keep(first=1))
    assert "anna" not in str(caught.value)


def test_leaf_masks_keep_structure_and_yield_to_fields() -> None:
    root = MaskNode()
    root.add(("c", "mail"), Keep(from_char="@"))
    root.add(("c",), MASKED, leaves=True)
    root.add(("c", "mail"), NULL)
    before = {"c": {"mail": MAIL, "tags": ["a", {"b": 1}, None], "e": {}}, "d": 1}
    after = json.loads(JsonMasks(root=root).apply(json.dumps(before).encode()))
    assert after == {"c": {"mail": "***@example.com", "tags": ["***", {"b": "***"}, "***"], "e": {}}, "d": 1}
    assert json.loads(JsonMasks(root=root).apply(b'{"c": "anna"}')) == {"c": "***"}


NAMES = ("a", "b", "odd name", 'q"\\')
STEPS = st.lists(st.sampled_from([*NAMES, EVERY, 0, 1]), min_size=1, max_size=3).map(tuple)
TREES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(["x", 1, 1.5, True, None]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=3).map(tuple)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=2), TREES, st.booleans())
@example(paths=[("a", "b")], tree=(("a", (("b", "x"),)), ("a", (("c", 1),))), escaped=True)
def test_masked_json_equals_masks_of_json(paths: list[tuple[Step, ...]], tree: Any, escaped: bool) -> None:
    target.compare(target.written(tree, paths, escaped=escaped), paths)
