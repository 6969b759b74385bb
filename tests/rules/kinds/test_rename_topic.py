"""rename_topic as it is written."""

from __future__ import annotations

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts

ANYBODY = Facts("main", "main", "127.0.0.1")


def test_a_rename_is_bound_to_connections() -> None:
    """The line of the design works as it stands there."""
    rules = parse_rules(
        'rules: [{name: r, kind: rename_topic, topics: {orders: prod.orders, "clicks-*": "prod.clicks-*"}}]'
    )
    names = rules.bind(ANYBODY).names

    assert names is not None and names.topics is not None
    assert names.topics.to_broker(b"orders") == b"prod.orders"
    assert names.topics.to_client(b"prod.clicks-eu") == b"clicks-eu"


@pytest.mark.parametrize(
    ("topics", "mistake"),
    [
        ("{}", "1:47: expected at least 1 entry, got 0"),
        ("", "1:47: expected a mapping, got nothing"),
        ("[a]", "1:47: expected a mapping, got a list"),
        ("{a: 1}", '1:51: expected text, got the number 1; write "1"'),
        ("{a b: x}", '1:48: the client-side name "a b" holds " "'),
        ("{a: x, b: x}", '1:57: "a" and "b" would both be "x" on the brokers'),
        ("{a: ..}", '1:51: the broker-side name ".." is no topic name'),
    ],
)
def test_a_bad_map_is_refused_at_its_place(topics: str, mistake: str) -> None:
    """With line and column of the name."""
    with pytest.raises(DocumentError) as caught:
        parse_rules(f"rules: [{{name: r, kind: rename_topic, topics:{topics and ' ' + topics} }}]", "f")

    assert len(caught.value.mistakes) == 1
    assert caught.value.mistakes[0].startswith(f"f:{mistake}")
