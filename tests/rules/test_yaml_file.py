"""YAML with positions: every kind of text that is no YAML, or none that is used here, is named at its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.rules.values.source import Source, to_value
from kproxy.rules.values.yaml_file import MAX_NODES, YamlMistake, read_tree
from tests.support.stretches import BY_COST, Cost


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("topic: *", 1, 8, "a * without quotes begins an alias in YAML"),
        ("topics:\n  *-eu: x", 2, 3, 'there is no such anchor; write it in quotes: "*-eu"'),
        ("topics: {*: x}", 1, 10, "a * without quotes"),
        ("é: *x", 1, 4, '"*x"'),
        ("&: 1", 1, 1, "a & without quotes begins an anchor"),
        ("a:\n\tb: 1", 2, 1, "a tab is used for indentation"),
        ("a:\n  - b\n\t- c", 3, 1, "a tab is used for indentation"),
        ("a: 'b", 1, 4, "the quote that opens here is never closed"),
        ("a: [b, c", 1, 4, "the list that opens here lacks a , or its ]"),
        ("a: {b: c", 1, 4, "the mapping that opens here lacks a , or its }"),
        ("a: b: c", 1, 5, "a second `: ` in one line"),
        ("a: 1\n b: 2", 2, 3, "the indentation does not fit"),
        ("- a\nb: c", 2, 1, "a `- ` was expected"),
        ("a: @b", 1, 4, "a value cannot begin with @, write it in quotes"),
        ("a: 1\n---\nb: 2", 2, 1, "a second document begins here"),
        ("a: !secret b", 1, 4, "the tag !secret is not used here"),
        ("a: !!python/object:os.system b", 1, 4, "the tag !!python/object:os.system is not used here"),
        ("a: &x [*x]", 1, 8, "the alias *x stands inside its own anchor"),
        ("a: b\nc: \x07", 2, 4, "the control character U+0007 is not allowed"),
        ("[" * 100_000, 1, 51, "nested 51 levels deep, the limit is 50"),
    ],
)  # fmt: skip
def test_text_that_is_no_yaml_is_named_at_its_place(text: str, line: int, column: int, words: str) -> None:
    """Line and column count from 1 and from characters; the message says what to write instead."""
    with pytest.raises(YamlMistake) as caught:
        read_tree(text)

    assert (caught.value.line, caught.value.column) == (line, column)
    assert words in caught.value.message


def test_bytes_that_are_no_utf_8_are_named_at_their_place() -> None:
    """A file in Latin-1 says so."""
    with pytest.raises(YamlMistake, match="not UTF-8: byte 0xe9") as caught:
        read_tree(b"a: 1\nb: caf\xe9")

    assert (caught.value.line, caught.value.column) == (2, 7)


def test_aliases_are_counted_as_if_written_out() -> None:
    """Nine lists of ten aliases each would be a thousand million values; they are refused, at once."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]

    with pytest.raises(YamlMistake, match=f"more than {MAX_NODES} keys and values"):
        read_tree("\n".join(lines))


@BY_COST
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\u2028"])
def test_tag_directives_are_refused_before_parsing(end: str, cost: Cost, monkeypatch: pytest.MonkeyPatch) -> None:
    """libyaml compares each with all directives before it, in one call: a megabyte of them took half a minute."""
    document = "".join(f"%TAG !t{number}! tag:x{number},2000:{end}" for number in range(20_000))
    assert read_tree("a: '%TAG'") is not None
    monkeypatch.setattr("kproxy.rules.values.yaml_file.yaml.parse", pytest.fail)

    def refuse() -> None:
        with pytest.raises(YamlMistake, match="%TAG is not used here"):
            read_tree(f"{document}---{end}rules: []{end}")

    cost.check(refuse, lines=1000, seconds=0.1)


def test_an_alias_is_the_value_of_its_anchor() -> None:
    """Honest aliases work."""
    assert to_value(Source("f", "a: &x {k: 1}\nb: *x")) == {"a": {"k": 1}, "b": {"k": 1}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), ("-3", -3), ("10_000", 10_000), ("010", "010"), ("0x1f", "0x1f"), ("1:30", "1:30"),
        ("1.5", 1.5), ("1e3", "1e3"), ("2024-01-01", "2024-01-01"), ("true", True), ("False", False), ("null", None),
        ("~", None), ("yes", True), ("Off", False), ("y", "y"), ('"12"', "12"), ("'no'", "no"),
        ("9193-9292", "9193-9292"),
        ("1" * 5000, "1" * 5000), ("!!str 12", "12"),
    ],
)  # fmt: skip
def test_only_plain_decimal_numbers_are_numbers(text: str, value: object) -> None:
    """Dates, base-60 and octal numbers of YAML 1.1 stay text."""
    assert to_value(Source("f", f"a: {text}")) == {"a": value}


def test_keys_that_are_twice_there_or_no_text_are_mistakes() -> None:
    """All of them at once, in file order, and the first of two equal keys stands."""
    source = Source("f.yaml", "a: 1\nno: 2\na: 3\n? [x]\n: 4\n~: 5\n'on': 6\n")

    assert to_value(source)["a"] == 1
    assert source.lines() == [
        'f.yaml:2:1: no without quotes is the boolean false in YAML, write the key in quotes: "no"',
        'f.yaml:3:1: the key "a" is there twice, first in line 1',
        "f.yaml:4:3: a key must be text; text with { } [ ] in it must be quoted",
        'f.yaml:6:1: a key is missing here; if "~" is meant, write it in quotes',
    ]


def test_variables_come_from_the_environment() -> None:
    """${NAME} is replaced wherever it stands, also by numbers; $${ is a plain ${."""
    source = Source("f", 'a: ${PORT}\nb: "x${NAME}y"\nc: $${NAME}\nd: "${PORT}"')

    assert to_value(source, variables=True, environment={"PORT": "9092", "NAME": "n"}) == {
        "a": 9092, "b": "xny", "c": "${NAME}", "d": "9092",
    }  # fmt: skip
    assert source.lines() == []


def test_a_missing_variable_is_named_where_it_stands() -> None:
    """Every one of them, with line and column."""
    source = Source("f", "a: ${ONE}\nb:\n  - ${TWO}\nc: ${3}\nd: ${FOUR")
    to_value(source, variables=True, environment={})

    assert source.lines() == [
        "f:1:4: the environment variable ONE is not set",
        "f:3:5: the environment variable TWO is not set",
        'f:4:4: "${3}" is no variable, write ${NAME}, or $${ for ${',
        'f:5:4: "${FOUR" is no variable, write ${NAME}, or $${ for ${',
    ]


@given(st.one_of(st.binary(max_size=60), st.text("ab:-*&!{}[]'\"\n\t #|>%@`,?~\x00\x85", max_size=40)))
def test_any_text_is_read_or_has_a_mistake_with_a_place(data: bytes | str) -> None:
    """Whatever a file holds, nothing but a YamlMistake comes out, and it stands in the file."""
    source = Source("f", data)
    if source.is_yaml:
        to_value(source)
    for line in source.lines():
        _, row, column, _ = line.split(":", 3)

        assert int(row) >= 1
        assert int(column) >= 1
