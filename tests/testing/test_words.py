"""Arguments of Python calls as documents."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.rules.document.read import read_document
from kproxy.testing.rule_arguments import Misuse, match_of, plain, rule_source


@pytest.mark.parametrize(
    ("given", "document"),
    [
        ({"not_": {"topic": ("a", "b")}, "for_": 1}, {"not": {"topic": ["a", "b"]}, "for": 1}),
        ({"partition": range(2)}, {"partition": [0, 1]}),
        ({"topic_id": UUID(int=1)}, {"topic_id": "00000000-0000-0000-0000-000000000001"}),
        ({1: None, "a": [True, 0.5]}, {"1": None, "a": [True, 0.5]}),
    ],
)
def test_values_of_python(given: Any, document: Any) -> None:
    """Words that Python keeps for itself lose their underscore; sequences are lists."""
    assert plain(given) == document


def test_what_no_document_has() -> None:
    """Named with its type."""
    with pytest.raises(Misuse, match=r"b'x' is a bytes, which no rule has"):
        plain({"topic": [b"x"]})


@pytest.mark.parametrize("text", ["no", "*", "a: b # c", '"', "ü", "\u2028\x85", "🧪", "{x}", "- 1", "0x1", ""])
def test_text_arrives_as_it_is(text: str) -> None:
    """Nothing in it means what it would mean in YAML."""
    source = rule_source({"name": "a", "kind": "error", "error": 6, "message": text})

    (written,) = read_document(source).parsed_rules

    assert source.lines() == []
    assert written.rule is not None
    assert written.rule.model_dump()["message"] == text


def test_selectors() -> None:
    """None is left out; several mistakes are told at once."""
    assert match_of({"api": "Fetch", "topic": None}).model_dump(exclude_none=True) == {"api": ["Fetch"]}

    with pytest.raises(Misuse) as raised:
        match_of({"api": "Fetsh", "partition": "x"})
    assert [line.partition(": ")[2].partition(":")[0] for line in str(raised.value).splitlines()] == [
        "api",
        "partition",
    ]
