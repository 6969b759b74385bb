"""Name rules that take names from each other."""

from __future__ import annotations

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules


def mistakes(*rules: str) -> list[str]:
    """Lines without file, for rules that stand one on each line from line 2 on."""
    try:
        parse_rules("rules:\n" + "\n".join(f"- {rule}" for rule in rules), "f")
    except DocumentError as error:
        return [line.removeprefix("f:") for line in error.mistakes]
    return []


TENANT = "{name: t, kind: prefix, prefix: t.}"


@pytest.mark.parametrize(("kind", "field"), [("rename_group", "groups"), ("rename_transactional_id", "ids")])
def test_a_name_that_a_later_rule_takes_is_refused(kind: str, field: str) -> None:
    """In every namespace, and across a prefix."""
    first = f"{{name: r, kind: {kind}, {field}: {{a: x}}}}"
    second = f"{{name: s, kind: {kind}, {field}: {{b: x}}}}"
    behind = f"{{name: s, kind: {kind}, {field}: {{t.b: t.x}}}}"

    (found,) = mistakes(first, second)
    assert found.endswith('"x" would be unreachable: the rule "s" gives that name to "b"')
    (found,) = mistakes(first, TENANT, behind)
    assert found.endswith('"x" would be unreachable: the rule "s" gives that name to "t.b"')


def test_namespaces_do_not_meet() -> None:
    """A group and a topic may be called the same."""
    assert (
        mistakes("{name: r, kind: rename_group, groups: {a: x}}", "{name: s, kind: rename_topic, topics: {b: x}}") == []
    )


def test_a_rename_behind_a_prefix_is_about_names_with_it() -> None:
    """One for the client's names would never act: the message says what to do."""
    assert mistakes(TENANT, "{name: r, kind: rename_topic, topics: {orders: sales}}") == [
        '3:42: "orders" never comes to this rule: the rule "t" puts "t." in front before it; put this rule first'
    ]
    assert mistakes(TENANT, "{name: r, kind: rename_topic, topics: {t.orders: u.orders, 't.x-*': 'u.x-*'}}") == []
    assert mistakes(TENANT, "{name: r, kind: rename_topic, topics: {'*': 'u.*'}}") == []
    assert mistakes("{name: r, kind: rename_topic, topics: {orders: sales}}", TENANT) == []


def test_rules_for_different_connections_do_not_meet() -> None:
    """A prefix for some is not in front of the rename of others."""
    tenant = "{name: t, kind: prefix, prefix: t., match: {listener: a}}"
    assert mistakes(tenant, "{name: r, kind: rename_topic, topics: {orders: sales}, match: {listener: b}}") == []
