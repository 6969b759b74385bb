"""Name rules of all kinds together: one-to-one in every namespace, whatever their order."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.rules.kinds.base.name_rule import check_renames
from kproxy.rules.names.composed import AnyLayer, NameMap, NameMaps
from kproxy.rules.names.layer import GROUP, NAMESPACES, TOPIC, TRANSACTIONAL_ID, Layer, Namespace, PrefixLayer

LETTERS = "ab."
SHORT = ["".join(letters).encode() for length in range(4) for letters in product(LETTERS, repeat=length)]
UNIVERSE = [
    *SHORT, *(b"!unreachable:" + name for name in SHORT), *(b"ab." + name for name in SHORT), b"__consumer_offsets",
    b"!", b"!a", b"!ab.a", b"a b", b"\xff", b"ab.!a", b"ab.!unreachable:a", b"!unreachable:!unreachable:a", b"a" * 300,
]  # fmt: skip

words = st.text(LETTERS, max_size=3)
exact = st.tuples(st.text(LETTERS, min_size=1, max_size=3), st.text(LETTERS, min_size=1, max_size=3))
globs = st.builds(lambda a, b, c, d: (f"{a}*{b}", f"{c}*{d}"), words, words, words, words)
maps = st.lists(st.one_of(exact, globs), max_size=3).map(dict)
spaces = st.sampled_from(NAMESPACES)


@st.composite
def chains(draw: st.DrawFn) -> NameMap:
    """Up to three layers, renames and prefixes mixed."""
    space: Namespace = draw(spaces)
    layers: list[AnyLayer] = []
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            layers.append(PrefixLayer(space, draw(st.sampled_from([b"a", b"ab.", b"b."]))))
        else:
            renames = draw(maps.filter(lambda names: not list(check_renames(names, space))))
            layers.append(Layer.of(renames, space))
    return NameMap(layers, space)


@settings(deadline=None, max_examples=60)
@given(chains())
def test_every_client_name_comes_back(names: NameMap) -> None:
    """to_client(to_broker(c)) is c for every name a client can send, and no two meet on one broker name."""
    sent: dict[bytes, bytes] = {}
    for client in UNIVERSE:
        broker = names.to_broker(client)
        assert names.to_client(broker) == client
        assert sent.setdefault(broker, client) == client


@settings(deadline=None, max_examples=60)
@given(chains())
def test_what_is_shown_can_be_asked_for(names: NameMap) -> None:
    """A broker-side name is hidden, or shown under a client-side name that leads to exactly it."""
    for broker in UNIVERSE:
        client = names.to_client(broker)
        if client is not None and names.space.takes_prefix(broker):
            assert names.to_broker(client) == broker


@settings(deadline=None, max_examples=60)
@given(chains())
def test_a_tenant_reaches_only_what_has_its_prefix(names: NameMap) -> None:
    """Whatever a client says, the broker is asked for something below the last prefix, or for nothing that exists.

    Renames behind the last prefix may lead elsewhere, if that is what they say.
    """
    last = names.layers[-1]
    if not isinstance(last, PrefixLayer):
        return
    for client in UNIVERSE:
        broker = names.to_broker(client)
        assert broker.startswith(last.prefix) or not names.space.takes_prefix(broker)
    for broker in UNIVERSE:
        if not broker.startswith(last.prefix) and names.space.takes_prefix(broker):
            assert names.to_client(broker) is None


def test_a_rename_in_front_of_a_prefix() -> None:
    """Towards the brokers in file order, back in reverse; a rename's target stays out of reach within the tenant."""
    names = NameMap([Layer.of({"app": "prod"}, GROUP), PrefixLayer(GROUP, b"t.")], GROUP)

    assert names.to_broker(b"app") == b"t.prod"
    assert names.to_client(b"t.prod") == b"app"
    assert names.to_broker(b"prod") == b"t.!unreachable:prod"
    assert names.to_client(b"t.!unreachable:prod") == b"prod"
    assert names.to_client(b"t.app") is None
    assert names.to_client(b"prod") is None
    assert names.to_broker(b"") == b"t."


def test_each_namespace_has_its_own_layers() -> None:
    """None where no rule says anything."""
    names = NameMaps.of([(GROUP, PrefixLayer(GROUP, b"x")), (TRANSACTIONAL_ID, PrefixLayer(TRANSACTIONAL_ID, b"y"))])

    assert names is not None
    assert (names.topics, names.get(TOPIC)) == (None, None)
    assert names.get(GROUP) is names.groups is names.maps[0]
    assert names.transactional_ids is not None and names.transactional_ids.to_broker(b"a") == b"ya"
    assert NameMaps.of([]) is None


def test_prefixes_of_acls_pass_through_all_layers() -> None:
    """All that a tenant has is its prefix."""
    names = NameMap([Layer.of({"x-*": "y-*"}, GROUP), PrefixLayer(GROUP, b"t.")], GROUP)

    assert names.prefix_to_broker(b"x-a") == b"t.y-a"
    assert names.prefix_to_client(b"t.y-a") == b"x-a"
    assert names.prefix_to_broker(b"y-a") is None
    assert names.prefix_to_client(b"u.y-a") is None
    assert NameMap([PrefixLayer(TOPIC, b"t.")]).prefix_to_client(b"t.") == b""
