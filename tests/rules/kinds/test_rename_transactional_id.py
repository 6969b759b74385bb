"""rename_transactional_id as it is written."""

from __future__ import annotations

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts

ANYBODY = Facts("main", "main", "127.0.0.1")


def test_transactional_ids_are_renamed_and_nothing_else() -> None:
    """One-to-one, as all renames."""
    names = parse_rules('rules: [{name: r, kind: rename_transactional_id, ids: {pay: b.pay, "w-*": "b.w-*"}}]').bind(
        ANYBODY
    ).names  # fmt: skip

    assert names is not None and names.transactional_ids is not None
    assert (names.topics, names.groups) == (None, None)
    assert names.transactional_ids.to_broker(b"w-1") == b"b.w-1"
    assert names.transactional_ids.to_client(b"b.pay") == b"pay"
    assert names.transactional_ids.to_client(b"pay") is None


def test_a_map_that_cannot_be_undone_is_refused() -> None:
    """At the later of the two lines."""
    with pytest.raises(DocumentError) as caught:
        parse_rules("rules: [{name: r, kind: rename_transactional_id, ids: {a: x, b: x}}]", "f")

    assert caught.value.mistakes == [
        'f:1:65: "a" and "b" would both be "x" on the brokers, this cannot be undone in answers'
    ]  # fmt: skip
