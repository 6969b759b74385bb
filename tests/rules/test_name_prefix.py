"""One prefix rule: names with the prefix and without it, in both directions."""

from __future__ import annotations

import pytest

from kproxy.rules.names.layer import GROUP, TOPIC, TRANSACTIONAL_ID, PrefixLayer

LAYERS = {space: PrefixLayer(space, b"a.") for space in (TOPIC, GROUP, TRANSACTIONAL_ID)}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=lambda layer: layer.space.plural)
def test_names_get_the_prefix_and_lose_it(layer: PrefixLayer) -> None:
    """Others are hidden, also those that are called as the tenant calls its own."""
    assert layer.forward(b"orders") == b"a.orders"
    assert layer.backward(b"a.orders") == b"orders"
    assert layer.backward(b"a.a.orders") == b"a.orders"
    for other in (b"orders", b"b.orders", b"a", b"ab.orders", b"__consumer_offsets"):
        assert layer.backward(other) is None


@pytest.mark.parametrize("name", [b"a b", b"", b".", b"..", "ü".encode(), b"\xff"])
def test_what_is_no_topic_passes(name: bytes) -> None:
    """Brokers refuse it, and the answer shows the client its own word."""
    assert LAYERS[TOPIC].forward(name) == LAYERS[TOPIC].backward(name) == name


def test_names_that_the_prefix_would_end_in() -> None:
    """A topic needs something behind the prefix that is a name; a group does not."""
    assert LAYERS[TOPIC].backward(b"a.") is None
    assert LAYERS[TOPIC].backward(b"a..") is None
    assert (LAYERS[GROUP].forward(b""), LAYERS[GROUP].backward(b"a.")) == (b"a.", b"")
    assert LAYERS[TRANSACTIONAL_ID].forward(b"") == LAYERS[TRANSACTIONAL_ID].backward(b"") == b""


def test_prefixes_have_it_too() -> None:
    """For ACLs: what covers more than this tenant has no counterpart."""
    layer = LAYERS[TOPIC]
    assert (layer.prefix_forward(b"x"), layer.prefix_backward(b"a.x")) == (b"a.x", b"x")
    assert layer.prefix_backward(b"a.") == b""
    assert layer.prefix_backward(b"a") is None
