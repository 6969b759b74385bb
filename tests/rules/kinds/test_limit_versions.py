"""limit_versions as it is written, and what it comes to."""

from __future__ import annotations

import pytest

from kproxy.base.errors import DocumentError
from kproxy.protocol.table import schema
from kproxy.protocol.table.releases import supported
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts
from kproxy.rules.kinds.limit_versions import NOTHING, VersionLimits

ANYBODY = Facts("main", "main", "127.0.0.1")


def limits(*rules: str) -> VersionLimits:
    """What the rules with these fields leave."""
    lines = (f"  - {{name: rule {number}, kind: limit_versions, {text}}}\n" for number, text in enumerate(rules))
    bound = parse_rules("rules:\n" + "".join(lines)).bind(ANYBODY).versions
    assert bound is not None
    return bound


def mistakes(fields: str) -> list[str]:
    """What is said about a rule with these fields."""
    with pytest.raises(DocumentError) as caught:
        parse_rules(f"rules: [{{name: r, kind: limit_versions, {fields}}}]", file="f")
    return str(caught.value).splitlines()


def test_the_line_of_the_design() -> None:
    """A range, one version, and APIs that are hidden; nothing is said about the others."""
    found = limits("apis: {Fetch: 0-11, Metadata: 9}, hide: [ShareFetch]")

    assert [found.span(key) for key in (1, 3, 78, 0, 999)] == [(0, 11), (9, 9), NOTHING, None, None]
    assert [found.refusal(3, version) for version in (8, 9, 10)] == [
        'Metadata 8: the rule "rule 0" allows 9',
        "",
        'Metadata 10: the rule "rule 0" allows 9',
    ]


@pytest.mark.parametrize(
    ("written", "span"),
    [("4-11", (4, 11)), ("'>=4'", (4, 2**31 - 1)), ("'<=9'", (0, 9)), ("<5", (0, 4)), ("7", (7, 7))],
)
def test_ways_to_write_a_range(written: str, span: tuple[int, int]) -> None:
    """As numbers are selected elsewhere; a number alone is that version only."""
    assert limits(f"apis: {{Fetch: {written}}}").span(1) == span


@pytest.mark.parametrize("name", ["ListOffsets", "ListOffset", "2", "'2'"])
def test_an_api_by_any_of_its_names(name: str) -> None:
    """The name of today, an older one, or the key."""
    assert limits(f"apis: {{{name}: 0-3}}").span(2) == (0, 3)


@pytest.mark.parametrize("hide", ["Share*", "[ShareFetch, ShareAcknowledge, 76]", "/Share.*/"])
def test_several_apis_are_hidden_at_once(hide: str) -> None:
    """By glob, by expression or one by one."""
    found = limits(f"hide: {hide}")

    assert [found.span(key) for key in (76, 78, 79)] == [NOTHING] * 3
    assert found.span(68) is None


@pytest.mark.parametrize("release", ["2.8", "'2.8'", "v2.8", "2.8.1", "2.8.x"])
def test_a_release_is_all_that_it_has(release: str) -> None:
    """What that release lacks is hidden, APIs of the future included."""
    found = limits(f'kafka: "{release.strip(chr(39))}"')

    for api in schema.apis():
        assert found.span(api.key) == supported("2.8").get(api.key, NOTHING)
    assert found.span(999) == NOTHING


def test_a_release_of_today_leaves_the_lower_end_of_produce_to_the_broker() -> None:
    """Brokers list Produce from 0 on purpose, though 0 to 2 are gone (KAFKA-18659)."""
    assert limits('kafka: "4.1"').span(0) == (0, 13)
    assert limits('kafka: "4.1"').span(1) == (4, 18)
    assert limits('kafka: "4.1", apis: {Produce: 3-11}').span(0) == (3, 11)


def test_all_that_is_written_holds() -> None:
    """Fields of one rule and several rules: the intersection, with the rule that was first against a version named."""
    found = limits('kafka: "3.9", apis: {Fetch: 4-15}, hide: Heartbeat', "apis: {Fetch: 0-12, Metadata: '>=4'}")

    assert [found.span(key) for key in (1, 3, 12, 19)] == [(4, 12), (4, 12), NOTHING, (0, 7)]
    assert found.refusal(1, 16) == 'Fetch 16: the rule "rule 0" allows 4-15'
    assert found.refusal(1, 13) == 'Fetch 13: the rule "rule 1" allows 0-12'
    assert found.refusal(3, 3) == 'Metadata 3: the rule "rule 1" allows 4 and newer'


def test_an_api_that_clients_need_may_be_hidden() -> None:
    """That is a test, too."""
    assert limits("hide: Metadata").refusal(3, 0) == 'Metadata is hidden by the rule "rule 0"'


def test_other_connections_have_no_limits() -> None:
    """It binds the connections that match."""
    text = "rules: [{name: r, kind: limit_versions, match: {listener: old}, hide: Fetch}]"

    assert parse_rules(text).bind(ANYBODY).versions is None
    assert parse_rules(text).bind(Facts("old", "main", "127.0.0.1")).versions is not None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("apis: {Fetsh: 1}", ['unknown API "Fetsh", did you mean "Fetch"?']),
        ("apis: {999: 1}", ["expected an API key from 0 to 94, got 999"]),
        ("apis: {xyzzy: 1}", ['unknown API "xyzzy", "kproxy protocol" lists all']),
        ("apis: {'Share*': 0}", ['expected one API, got 4 APIs by "Share*"']),
        ("apis: {Fetch: 0-25}", ["expected versions 0-18 of Fetch, got 0-25"]),
        ("apis: {Fetch: 19}", ["expected versions 0-18 of Fetch, got 19"]),
        ("apis: {Fetch: -3--1}", ["expected versions 0-18 of Fetch, got -3--1"]),
        ("apis: {Fetch: 5-2}", ["the range 5-2 is empty, write 2-5"]),
        ("apis: {Fetch: none}", ["expected a number or a range such as 0-11 or >=4, got 'none'"]),
        ("apis: {}", ["expected at least 1 entry, got 0"]),
        ("apis: {ListOffsets: 1, ListOffset: 2}", ['"ListOffset" and "ListOffsets" are the same API']),
        ("apis: {Fetch: 1}, hide: [Fetch]", ['"Fetch" is hidden by this same rule']),
        ("apis: {ApiVersions: 3}", ["expected version 0 of ApiVersions, because clients fall back to it (KIP-511)"]),
        ("hide: [ApiVersions]", ["ApiVersions cannot be hidden, because clients need it; write apis: "]),
        ("hide: '*'", ["ApiVersions cannot be hidden"]),
        ("hide: [ShareFitch]", ['unknown API "ShareFitch", did you mean "ShareFetch"?']),
        ("kafka: 2.8", ['expected text, got the number 2.8; write "2.8"']),
        ('kafka: "2.9"', ['no Kafka release 2.9 is known, nearest is "2.8"; known are 0.10.0 to 4.4']),
        (
            'kafka: "2.8", apis: {Fetch: 13}',
            ["no version of Fetch left: brokers of Kafka 2.8 have 0-12, got 13; if that is meant, hide it"],
        ),
        (
            'kafka: "2.8", apis: {ShareFetch: 1}',
            ["no version of ShareFetch left: brokers of Kafka 2.8 have none, got 1; if that is meant, hide it"],
        ),
        ("match: {}", ["nothing is limited, at least one of apis, hide and kafka is needed"]),
        ("hide: [Fetsh], apis: {Fitch: x}", ['unknown API "Fitch"', "a number or a range such", 'unknown API "Fetsh"']),
    ],
)
def test_what_cannot_be_meant_is_refused(fields: str, expected: list[str]) -> None:
    """With the place, what was found and what is allowed; all of it at once."""
    found = sorted(mistakes(fields))

    assert len(found) == len(expected)
    for words in expected:
        assert any(words in line for line in found), (words, found)
