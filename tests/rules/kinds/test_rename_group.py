"""rename_group as it is written."""

from __future__ import annotations

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts

ANYBODY = Facts("main", "main", "127.0.0.1")


def test_groups_are_renamed_and_nothing_else() -> None:
    """Any text can be a group id."""
    rules = parse_rules('rules: [{name: r, kind: rename_group, groups: {app: prod.app, "Ünit *": "x/*"}}]')
    names = rules.bind(ANYBODY).names

    assert names is not None and names.groups is not None
    assert (names.topics, names.transactional_ids) == (None, None)
    assert names.groups.to_broker(b"app") == b"prod.app"
    assert names.groups.to_broker("Ünit 5".encode()) == b"x/5"
    assert names.groups.to_client(b"x/5") == "Ünit 5".encode()
    assert names.groups.to_broker(b"prod.app") == b"!unreachable:prod.app"
    assert not names.groups.isolates


@pytest.mark.parametrize(
    ("groups", "mistake"),
    [
        ("{a: x, b: x}", '1:57: "a" and "b" would both be "x" on the brokers'),
        ("{'': x}", "1:48: the client-side name is empty"),
        ('{a: "x*"}', "1:51: no * on the client side and a * on the broker side"),
        ('{a: "!unreachable:"}', '1:51: the broker-side name "!unreachable:" begins with'),
    ],
)
def test_a_bad_map_is_refused_at_its_place(groups: str, mistake: str) -> None:
    """The checks are those of topics, without their alphabet."""
    with pytest.raises(DocumentError) as caught:
        parse_rules(f"rules: [{{name: r, kind: rename_group, groups: {groups} }}]", "f")

    assert [line.startswith(f"f:{mistake}") for line in caught.value.mistakes] == [True]
