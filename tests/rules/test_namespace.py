"""What can be a topic name, a group id and a transactional id, and what rules may say of them."""

from __future__ import annotations

import pytest

from kproxy.rules.names.layer import GROUP, TOPIC, TRANSACTIONAL_ID


@pytest.mark.parametrize(
    ("name", "topic", "group", "transactional_id"),
    [
        (b"orders", True, True, True),
        (b"__consumer_offsets", False, True, True),
        ("größe 5 / *".encode(), False, True, True),
        (b"", False, False, False),
        (b"..", False, True, True),
        (b"!x", False, True, True),
        (b"!unreachable:x", False, False, False),
        (b"x" * 1000, True, True, True),
    ],
)
def test_what_renames_may_touch(name: bytes, topic: bool, group: bool, transactional_id: bool) -> None:
    """Topics have an alphabet and internal names; the others are any text but what kproxy keeps for itself."""
    assert (TOPIC.is_legal(name), GROUP.is_legal(name), TRANSACTIONAL_ID.is_legal(name)) == (
        topic, group, transactional_id
    )  # fmt: skip


def test_a_group_without_a_name_has_a_prefix_too() -> None:
    """Simple consumers keep offsets there, of which no other tenant may know; empty ids elsewhere are refused."""
    assert GROUP.takes_prefix(b"")
    assert not TRANSACTIONAL_ID.takes_prefix(b"")
    assert not TOPIC.takes_prefix(b"")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("größe 5", None),
        ("team-*", None),
        ("", "is empty"),
        ("a*b*", 'has 2 *, at most one is allowed'),
        ("a\tb", "holds a control character"),
        ("!unreachable:x", 'begins with "!unreachable:", which kproxy keeps for itself'),
        ("x" * 40_000, "has 40000 characters, group ids have at most 32767"),
    ],
)  # fmt: skip
def test_what_a_rule_may_say_of_groups(text: str, problem: str | None) -> None:
    """The reason goes on from "the name …"."""
    found = GROUP.problem(text)
    assert found is None if problem is None else problem in (found or "")
