"""The renames of one connection, composed: client-side topic names ↔ broker-side ones. Names are bytes.

Strategy: each rename rule is a `Layer`; towards the broker they apply in file order, back in reverse order. Each is
one-to-one where it gives a name at all, hence so is the whole. A name that must not reach the broker (it spells a
rename's target) is sent with `!` in front. No broker can have such a topic, nor make one, because `!` is not legal
in topic names, so the answer is the broker's own "no such topic" under a name that leads back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from kproxy.rules.name_layer import Layer, can_map
from kproxy.rules.name_prefixes import prefix_backward, prefix_forward

ESCAPE = b"!"
"""In front of names that no broker may find."""
CACHED_NAMES = 8192
"""Answers kept per direction: at most 8192 × 2 names of 249 bytes, some 5 MB. More topics only cost time."""
LONGEST_CACHED = 249
"""Longer names are no topics; a hostile client's 32 KiB names are not kept."""


class NameMap:
    """The composed rename; immutable but for its caches. Shared by all connections with the same rules."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = tuple(layers)
        self._cached_forward = lru_cache(CACHED_NAMES)(self._forward)
        self._cached_backward = lru_cache(CACHED_NAMES)(self._backward)

    @classmethod
    def of(cls, *topics: Mapping[str, str]) -> NameMap:
        """From the `topics:` of one or more rules, in file order. Nothing is checked: see `name_checks.py`."""
        return cls([Layer.of(one) for one in topics])

    def to_broker(self, name: bytes) -> bytes:
        """The name to ask the broker for; begins with `!` when it must not be found. Never fails."""
        mapped = self._cached_forward(name) if len(name) <= LONGEST_CACHED else self._forward(name)
        return ESCAPE + name if mapped is None else mapped

    def to_client(self, name: bytes) -> bytes | None:
        """The name to show to the client; None: the topic is hidden, a rename has taken its client-side spelling."""
        return self._cached_backward(name) if len(name) <= LONGEST_CACHED else self._backward(name)

    def is_unreachable(self, client_name: bytes) -> bool:
        """Whether a client names something by a name that is not its own: a rename's target, or a taken name.

        False for names that are no topic names at all; those the broker itself refuses.
        """
        return can_map(client_name) and self._cached_forward(client_name) is None

    def prefix_to_broker(self, prefix: bytes) -> bytes | None:
        """For prefixed ACLs: the broker-side prefix of exactly the topics with this one; None when it straddles a
        mapping, so that no single prefix means the same."""
        return _through(prefix, [(prefix_forward, layer) for layer in self.layers])

    def prefix_to_client(self, prefix: bytes) -> bytes | None:
        """The inverse of `prefix_to_broker`; None when no client-side prefix means the same."""
        return _through(prefix, [(prefix_backward, layer) for layer in reversed(self.layers)])

    def _forward(self, name: bytes) -> bytes | None:
        if name.startswith(ESCAPE):
            return None
        mapped: bytes | None = name
        for layer in self.layers:
            if mapped is None:
                return None
            mapped = layer.forward(mapped)
        return mapped

    def _backward(self, name: bytes) -> bytes | None:
        if name.startswith(ESCAPE):
            return name[len(ESCAPE) :]
        mapped: bytes | None = name
        for layer in reversed(self.layers):
            if mapped is None:
                return None
            mapped = layer.backward(mapped)
        return mapped


def _through(prefix: bytes, steps: Sequence[tuple[Callable[[Layer, bytes], bytes | None], Layer]]) -> bytes | None:
    mapped: bytes | None = prefix
    for step, layer in steps:
        if mapped is None:
            return None
        mapped = step(layer, mapped)
    return mapped
