"""prefix as it is written."""

from __future__ import annotations

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts

ANYBODY = Facts("main", "main", "127.0.0.1")


def test_all_names_of_a_tenant_have_the_prefix() -> None:
    """Topics, groups and transactional ids, unless a field says no."""
    names = parse_rules("rules: [{name: a, kind: prefix, prefix: tenant-a.}]").bind(ANYBODY).names

    assert names is not None
    assert [one.to_broker(b"x") for one in names.maps] == [b"tenant-a.x"] * 3
    assert [one.to_client(b"other") for one in names.maps] == [None] * 3
    assert all(one.isolates for one in names.maps)
    names = parse_rules("rules: [{name: a, kind: prefix, prefix: ü, topics: false}]").bind(ANYBODY).names
    assert names is not None and names.topics is None
    assert names.groups is not None and names.groups.to_broker(b"x") == "üx".encode()


@pytest.mark.parametrize(
    ("fields", "mistake"),
    [
        ('prefix: ""', '1:41: the prefix is empty'),
        ("prefix: a b", '1:41: the prefix "a b" holds " ", topic names have only'),
        ("prefix: a*", '1:41: the prefix "a*" holds "*", a prefix is literal text'),
        ("prefix: __", '1:41: the prefix "__" is the beginning of the internal topic __cluster_metadata'),
        ("prefix: " + "x" * 249, "1:41: the prefix has 249 characters and leaves none for a topic name"),
        ("prefix: x, topics: 1", "1:52: expected true or false, got the number 1"),
        ("prefix: x, topics: false, groups: false, transactional_ids: false", "1:33: the prefix is for nothing"),
        ("topics: true", '1:9: "prefix" is missing'),
        ('prefix: "!unreachable:x", topics: false', 'begins with "!unreachable:", which kproxy keeps for itself'),
    ],
)  # fmt: skip
def test_a_bad_prefix_is_refused_at_its_place(fields: str, mistake: str) -> None:
    """With line and column."""
    with pytest.raises(DocumentError) as caught:
        parse_rules(f"rules: [{{name: r, kind: prefix, {fields}}}]", "f")

    assert len(caught.value.mistakes) == 1
    assert mistake in caught.value.mistakes[0]
