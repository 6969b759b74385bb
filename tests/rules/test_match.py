"""Selectors of rules that bind when a connection opens."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.rules.exchange import Facts
from kproxy.rules.select.match import ConnectionMatch, text_test
from kproxy.rules.values.model import validate
from kproxy.rules.values.source import Source, to_value

FACTS = Facts("outside", "main", "10.1.2.3", sni="b1.example.com", certificate="CN=etl,O=Example")


@pytest.mark.parametrize(
    ("pattern", "text", "holds"),
    [
        ("orders", "orders", True),
        ("orders", "orders-2", False),
        ("orders-*", "orders-2", True),
        ("orders-*", "my-orders-2", False),
        ("*", "", True),
        ("a.c", "abc", False),
        ("a.*", "a.b\nc", True),
        ("aba*ba", "aba", False),
        ("aba*ba", "ababa", True),
        ("*-*", "a-b", True),
        ("/orders-[0-9]+/", "orders-12", True),
        ("/orders/", "orders-12", False),
        ("/(?i)ORDERS/", "orders", True),
        ("/", "/", True),
    ],
)
def test_text_is_exact_a_glob_or_an_expression(pattern: str, text: str, holds: bool) -> None:
    """An expression must match the whole text."""
    assert text_test(pattern)(text) is holds


@given(st.text("ab*", min_size=1, max_size=6), st.text("ab\n", max_size=8))
def test_a_glob_is_the_expression_that_it_stands_for(pattern: str, text: str) -> None:
    """Also where what stands before and after a star is the same few letters."""
    assert text_test(pattern)(text) is bool(re.fullmatch(pattern.replace("*", ".*"), text, re.DOTALL))


@pytest.mark.parametrize(
    ("selectors", "holds"),
    [
        ({}, True),
        ({"listener": "outside"}, True),
        ({"listener": ["inside", "out*"]}, True),
        ({"listener": "outside", "cluster": "other"}, False),
        ({"client_address": "10.0.0.0/8"}, True),
        ({"client_address": ["192.168.0.0/16", "10.1.2.3"]}, True),
        ({"client_address": "fd00::/8"}, False),
        ({"sni": "*.example.com", "certificate": "/CN=etl,.*/"}, True),
        ({"certificate": "CN=other"}, False),
    ],
)
def test_all_selectors_must_hold_and_a_list_is_any_of(selectors: dict[str, Any], holds: bool) -> None:
    """And between lines, or within a list."""
    assert ConnectionMatch.model_validate(selectors).holds(FACTS) is holds


def test_a_selector_whose_fact_is_lacking_does_not_match() -> None:
    """A plain connection has no SNI, and not even * matches what is not there."""
    plain = Facts("outside", "main", "10.1.2.3")

    assert not ConnectionMatch.model_validate({"sni": "*"}).holds(plain)
    assert not ConnectionMatch.model_validate({"certificate": "*"}).holds(plain)


@pytest.mark.parametrize("address", ["::ffff:10.1.2.3", "10.1.2.3"])
def test_ipv4_in_ipv6_counts_as_ipv4(address: str) -> None:
    """A socket that listens on [::] shows IPv4 clients in IPv6 form."""
    match = ConnectionMatch.model_validate({"client_address": "10.0.0.0/8"})

    assert match.holds(Facts("outside", "main", address))


def test_an_address_that_is_none_matches_no_network() -> None:
    """A client on a Unix socket, or a test, is in no network; nothing is raised."""
    assert not ConnectionMatch.model_validate({"client_address": "::/0"}).holds(Facts("l", "c", "unknown"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topic: orders", '1:1: "topic" cannot be selected on here: this rule binds when a connection opens'),
        ("listner: a", '1:1: unknown selector "listner", did you mean "listener"?'),
        ("listener: []", "1:11: expected at least 1 entry, got 0"),
        ("listener: 5", '1:11: expected text, got the number 5; write "5"'),
        ("listener: no", '1:11: expected text, got the boolean false; write "no"'),
        ("listener: [a, no]", '1:15: expected text, got the boolean false; write "no"'),
        ("listener: ''", "1:11: expected text, got empty text, which never matches"),
        ("client_address: 10.0.0.1/8", "1:17: expected a network such as 10.0.0.0/8"),
        ("sni: /(/", '1:6: the regular expression "(" cannot be used: missing )'),
        (r"sni: '/(a)\1/'", r'1:6: the regular expression "(a)\1" cannot be used: invalid escape sequence'),
        ("sni: /((a{100}){100}){100}/", "1:6: the regular expression"),
    ],
)
def test_a_bad_selector_is_refused_with_the_reason(text: str, words: str) -> None:
    """At its place in the file."""
    source = Source("f", text)

    assert validate(ConnectionMatch, to_value(source), source) is None
    assert len(source.lines()) == 1
    assert source.lines()[0].startswith(f"f:{words}")


def test_no_expression_can_hang() -> None:
    """RE2 takes linear time for what makes backtracking engines hang."""
    assert not text_test("/(a*)*b/")("a" * 50_000)
