"""What is refused in the `topics:` of a rename rule, with position and reason."""

from __future__ import annotations

import pytest

from kproxy.rules.kinds.base.name_rule import check_renames
from kproxy.rules.names.layer import MAX_TOPIC_NAME
from kproxy.rules.values.model import KEY


@pytest.mark.parametrize(
    ("topics", "where", "words"),
    [
        ({"a b": "x"}, ("a b", KEY), 'the client-side name "a b" holds " "'),
        ({"a": "x/y"}, ("a",), 'the broker-side name "x/y" holds "/"'),
        ({"": "x"}, ("", KEY), "the client-side name is empty"),
        ({"a": ".."}, ("a",), 'the broker-side name ".." is no topic name'),
        ({"a": "x" * 250}, ("a",), f"has 250 characters, topic names have at most {MAX_TOPIC_NAME}"),
        ({"a*b*": "x*"}, ("a*b*", KEY), 'the client-side name "a*b*" has 2 *, at most one is allowed'),
        ({"a-*": "x"}, ("a-*",), "a * on the client side and no * on the broker side, both sides need the same"),
        ({"a": "x-*"}, ("a",), "no * on the client side and a * on the broker side"),
        ({"__consumer_offsets": "x"}, ("__consumer_offsets", KEY), "is an internal topic, which is never renamed"),
        ({"a": "__transaction_state"}, ("a",), "is an internal topic, which is never renamed"),
        ({"a": "x", "b": "x"}, ("b",), '"a" and "b" would both be "x" on the brokers'),
        ({"a-*": "x.*", "b-*": "x.*"}, ("b-*",), '"a-…" and "b-…" would both be "x.…" on the brokers'),
        ({"*": "x.*", "a": "x.b"}, ("a",), '"b" and "a" would both be "x.b" on the brokers'),
        ({"a*": "x.*", "b*": "x.y*"}, ("b*",), '"ay…" and "b…" would both be "x.y…" on the brokers'),
        ({"*-a": "*-x", "b-*": "y-*"}, ("b-*",), '"y-…-a" and "b-…-x" would both be "y-…-x" on the brokers'),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_with_its_reason(topics: dict[str, str], where: tuple[str, ...], words: str) -> None:
    """Each mistake stands at the name that is wrong, a clash at the later of the two lines."""
    found = list(check_renames(topics))

    assert [place for place, _ in found] == [where]
    assert words in found[0][1]


@pytest.mark.parametrize(
    "topics",
    [
        {"a": "b", "b": "a"},
        {"*": "x.*", "a": "x.b", "b": "x.a"},
        {"*": "x.*", "common": "common"},
        {"a*": "x.*", "ab*": "x.b*"},
        {"*": "*"},
        {"*": "x.*", "clicks-*": "x.clicks-*"},
    ],
)
def test_a_map_that_can_be_undone_passes(topics: dict[str, str]) -> None:
    """Overlapping patterns are fine as long as no name is reached on two ways."""
    assert list(check_renames(topics)) == []


def test_all_lines_are_checked() -> None:
    """One bad line does not hide the next."""
    found = [where for where, _ in check_renames({"a b": "x", "c": "d e", "f": "y", "g": "y"})]

    assert found == [("a b", KEY), ("c",), ("g",)]


def test_many_exact_names_are_checked_in_little_time() -> None:
    """Ten thousand names take a look-up each."""
    topics = {f"topic-{number}": f"prod.topic-{number}" for number in range(10_000)}

    assert list(check_renames({**topics, "clicks-*": "prod.clicks-*"})) == []
