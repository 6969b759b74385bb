"""Renames of topics: what goes to the broker leads back, and no two names meet."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kproxy.rules.kinds.base.name_rule import check_renames
from kproxy.rules.names.composed import CACHED_NAMES, NameMap
from kproxy.rules.names.layer import INTERNAL, TOPIC

LETTERS = "ab."
UNIVERSE = [
    *("".join(letters).encode() for length in range(5) for letters in product(LETTERS, repeat=length)),
    *INTERNAL, b"!", b"!a", b"!!a", b"a b", b"\xff", b"axb", b"a" * 250, b"b" * 249,
]  # fmt: skip
"""Every short name over three letters, and odd ones."""

words = st.text(LETTERS, max_size=3)
exact = st.tuples(st.text(LETTERS, min_size=1, max_size=3), st.text(LETTERS, min_size=1, max_size=3))
globs = st.builds(lambda a, b, c, d: (f"{a}*{b}", f"{c}*{d}"), words, words, words, words)
maps = st.lists(st.one_of(exact, globs), max_size=4).map(dict)
good_maps = maps.filter(lambda topics: not list(check_renames(topics)))


@settings(deadline=None, max_examples=60)
@given(st.lists(good_maps, max_size=3))
def test_every_client_name_comes_back(topics: list[dict[str, str]]) -> None:
    """to_client(to_broker(c)) is c for every name a client can send, and no two meet on one broker name."""
    names = NameMap.of(*topics)
    sent = {}
    for client in UNIVERSE:
        broker = names.to_broker(client)

        assert names.to_client(broker) == client
        assert sent.setdefault(broker, client) == client


@settings(deadline=None, max_examples=60)
@given(st.lists(good_maps, max_size=3))
def test_every_visible_topic_can_be_asked_for(topics: list[dict[str, str]]) -> None:
    """A broker's topic is either hidden, or shown under a name that reaches exactly this topic."""
    names = NameMap.of(*topics)
    for broker in UNIVERSE:
        client = names.to_client(broker)
        if client is not None and not broker.startswith(b"!"):
            assert names.to_broker(client) == broker
            assert not names.is_unreachable(client)


@settings(deadline=None, max_examples=60)
@given(st.lists(good_maps, max_size=3))
def test_unreachable_names_are_those_sent_in_disguise(topics: list[dict[str, str]]) -> None:
    """A legal name is unreachable exactly if it goes out under a name that no broker can have."""
    names = NameMap.of(*topics)
    for client in UNIVERSE:
        disguised = names.to_broker(client) == b"!" + client

        assert names.is_unreachable(client) == (disguised and TOPIC.is_legal(client))


@settings(deadline=None)
@given(maps)
def test_the_check_refuses_exactly_the_maps_in_which_names_meet(topics: dict[str, str]) -> None:
    """A map passes if and only if no two legal client names are given the same broker name."""
    legal = {key: value for key, value in topics.items() if not {key, value} & {".", ".."}}
    legal = {key: value for key, value in legal.items() if key.count("*") == value.count("*")}
    layer = NameMap.of(legal).layers[0]
    meet = False
    for broker in BIGGER:
        ways = [entry.to_client(broker) for entry in layer.entries if entry.broker.matches(broker)]
        legal_ways = [client for client in ways if TOPIC.is_legal(client)]
        decided = {client for client in legal_ways if layer.winner(client).to_broker(client) == broker}
        meet |= len(decided) > 1

    assert bool(list(check_renames(legal))) == meet


ENDS = ["".join(letters).encode() for length in range(4) for letters in product(LETTERS, repeat=length)]
BIGGER = sorted({prefix + middle + suffix for prefix in ENDS for middle in (b"", b"x", b"xx") for suffix in ENDS})
"""Whatever globs with up to three letters on each side give, also with a letter that none of them has."""


@settings(deadline=None)
@given(good_maps, st.text(LETTERS, max_size=4).map(str.encode))
@example({".*": "a*"}, b".")
@example({"a*": ".*"}, b"a")
@example({"*": "a.*"}, b"")
def test_a_mapped_prefix_means_the_same_topics(topics: dict[str, str], prefix: bytes) -> None:
    """A prefix that can be mapped holds the same topics on both sides, and is mapped back to itself."""
    names = NameMap.of(topics)
    mapped = names.prefix_to_broker(prefix)
    if mapped is None:
        return
    for client in UNIVERSE:
        if TOPIC.is_legal(client) and not names.is_unreachable(client):
            assert client.startswith(prefix) == names.to_broker(client).startswith(mapped)
    assert names.prefix_to_client(mapped) == prefix


def test_an_exact_name_beats_a_glob_and_the_longest_prefix_wins() -> None:
    """Of several entries that match, the most specific one decides."""
    names = NameMap.of({"*": "p.*", "clicks-*": "c.*", "clicks-eu-*": "eu.*", "clicks-eu-1": "one"})

    assert names.to_broker(b"orders") == b"p.orders"
    assert names.to_broker(b"clicks-us") == b"c.us"
    assert names.to_broker(b"clicks-eu-2") == b"eu.2"
    assert names.to_broker(b"clicks-eu-1") == b"one"
    assert names.to_client(b"one") == b"clicks-eu-1"
    assert names.to_client(b"c.eu-1") is None


def test_a_topic_whose_spelling_is_taken_is_hidden() -> None:
    """With orders: prod.orders, the brokers' own topic `orders` is not shown."""
    names = NameMap.of({"orders": "prod.orders"})

    assert names.to_client(b"prod.orders") == b"orders"
    assert names.to_client(b"orders") is None
    assert names.to_client(b"other") == b"other"


def test_a_renames_target_cannot_be_named() -> None:
    """A client that names prod.orders asks for what no broker can have, and reads its own word in the answer."""
    names = NameMap.of({"orders": "prod.orders"})

    assert names.is_unreachable(b"prod.orders")
    assert names.to_broker(b"prod.orders") == b"!prod.orders"
    assert names.to_client(b"!prod.orders") == b"prod.orders"
    assert not names.is_unreachable(b"orders")


def test_two_topics_can_change_places() -> None:
    """{a: b, b: a} is one-to-one; nothing is hidden."""
    names = NameMap.of({"a": "b", "b": "a"})

    assert (names.to_broker(b"a"), names.to_broker(b"b")) == (b"b", b"a")
    assert (names.to_client(b"a"), names.to_client(b"b")) == (b"b", b"a")


def test_rules_compose_in_file_order() -> None:
    """The second rule renames what the first one gives; answers go the other way round."""
    names = NameMap.of({"orders": "sales"}, {"*": "prod.*"})

    assert names.to_broker(b"orders") == b"prod.sales"
    assert names.to_client(b"prod.sales") == b"orders"
    assert names.is_unreachable(b"sales")
    assert names.to_client(b"prod.orders") is None
    assert names.to_client(b"sales") is None


@pytest.mark.parametrize("name", sorted(INTERNAL))
def test_internal_topics_are_never_touched(name: bytes) -> None:
    """A glob for everything leaves Kafka's own topics alone, on both sides."""
    names = NameMap.of({"*": "prod.*"})

    assert names.to_broker(name) == name
    assert names.to_client(name) == name
    assert names.to_client(b"prod." + name) is None


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a b", b"a*", b"\xff\xfe", b"!", b"a" * 40_000])
def test_names_that_are_no_topics_survive(name: bytes) -> None:
    """What the broker will refuse reaches it so that its answer shows the client its own words."""
    names = NameMap.of({"*": "prod.*"})

    assert names.to_client(names.to_broker(name)) == name


def test_a_name_that_grows_too_long_is_left_to_the_broker() -> None:
    """249 characters with a prefix are too many: the broker says INVALID_TOPIC_EXCEPTION, kproxy does not hide it."""
    names = NameMap.of({"*": "prod.*"})

    assert names.to_broker(b"a" * 249) == b"prod." + b"a" * 249
    assert not names.is_unreachable(b"a" * 249)


def test_caches_are_bounded() -> None:
    """However many names a client invents, only so many answers are kept, and no long ones."""
    names = NameMap.of({"*": "prod.*"})
    for number in range(CACHED_NAMES + 100):
        names.to_broker(b"%d" % number)
    names.to_broker(b"x" * 30_000)

    assert names._cached_forward.cache_info().currsize == CACHED_NAMES


@pytest.mark.parametrize(
    ("topics", "prefix", "expected"),
    [
        ({"clicks-*": "prod.clicks-*"}, b"clicks-eu", b"prod.clicks-eu"),
        ({"clicks-*": "prod.clicks-*"}, b"clicks-", b"prod.clicks-"),
        ({"clicks-*": "prod.clicks-*"}, b"cli", None),
        ({"clicks-*": "prod.clicks-*"}, b"orders", b"orders"),
        ({"clicks-*": "prod.clicks-*"}, b"prod.", None),
        ({"clicks-*": "prod.clicks-*"}, b"prod.clicks-x", None),
        ({"orders": "prod.orders"}, b"ord", None),
        ({"orders": "prod.orders"}, b"orders-", b"orders-"),
        ({"*": "prod.*"}, b"a", b"prod.a"),
        ({"*": "prod.*"}, b"__con", None),
        ({"*": "prod.*", "clicks-*": "prod.clicks-*"}, b"cl", b"prod.cl"),
        ({"*": "prod.*", "orders": "shared"}, b"o", None),
        ({"*-eu": "eu.*"}, b"a", None),
        ({}, b"a", b"a"),
    ],
)  # fmt: skip
def test_a_prefix_is_mapped_whole_or_not_at_all(topics: dict[str, str], prefix: bytes, expected: bytes | None) -> None:
    """A prefix that holds both renamed and other topics cannot be said on the other side."""
    assert NameMap.of(topics).prefix_to_broker(prefix) == expected
