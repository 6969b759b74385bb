"""The name rules of one connection, composed, for one namespace: client-side names ↔ broker-side ones, as bytes.

Strategy: each rule is a layer; towards the broker they apply in file order, back in reverse order. Each is one-to-one
where it gives a name at all, hence so is the whole. A name that must not reach what it spells (a rename's target) is
sent with the namespace's `escape` in front, and with the prefixes of prefix rules. No broker can have such a topic,
nor make one, and no other client can mean such a group; so the answer is the broker's own "no such thing", under a
name that leads back unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial

from .layer import Layer
from .namespace import TOPIC, Namespace
from .prefix import PrefixLayer
from .prefixes import prefix_backward, prefix_forward

CACHED_NAMES = 8192
"""Answers kept per direction: at most 8192 × 2 names of 249 bytes, some 5 MB. More names only cost time."""
LONGEST_CACHED = 249
"""Longer names are no topics; a hostile client's 32 KiB names are not kept."""

AnyLayer = Layer | PrefixLayer


class NameMap:
    """Composed map of one namespace; immutable but for its caches. Shared by all connections with the same rules."""

    def __init__(self, layers: Sequence[AnyLayer], space: Namespace = TOPIC) -> None:
        self.space = space
        self.layers = tuple(layers)
        self._prefixes = tuple(layer for layer in self.layers if isinstance(layer, PrefixLayer))
        self._cached_forward = lru_cache(CACHED_NAMES)(self._forward)
        self._cached_backward = lru_cache(CACHED_NAMES)(self._backward)

    @classmethod
    def of(cls, *renames: Mapping[str, str], space: Namespace = TOPIC) -> NameMap:
        """Return the map of one or more rename rules, in file order. Nothing is checked: see `name_checks.py`."""
        return cls([Layer.of(one, space) for one in renames], space)

    @property
    def isolates(self) -> bool:
        """Return True if all but what belongs to this client is invisible to it, by whatever way it is asked for."""
        return bool(self._prefixes)

    @property
    def owner(self) -> bytes:
        """Return the bytes that tell tenants apart, also when rules are loaded anew: the prefixes of their names."""
        return b"".join(layer.prefix for layer in self._prefixes)

    def to_broker(self, name: bytes) -> bytes:
        """Return the name to ask the broker for; `is_escaped` when it must not be found. Never fails."""
        mapped = self._cached_forward(name) if len(name) <= LONGEST_CACHED else self._forward(name)
        return self.escaped(name) if mapped is None else mapped

    def to_client(self, name: bytes) -> bytes | None:
        """Return the name to show to the client; None: hidden, it belongs to others or a rename has taken its
        spelling."""
        return self._cached_backward(name) if len(name) <= LONGEST_CACHED else self._backward(name)

    def escaped(self, client: bytes) -> bytes:
        """Return a broker-side name that nothing has, and that leads back to this client-side one."""
        name = self.space.escape + client
        for layer in self._prefixes:
            name = layer.prefix + name
        return name

    def is_escaped(self, broker: bytes) -> bool:
        """Return True if this broker-side name stands for one that must not be reached."""
        return self._unescaped(broker) is not None

    def is_unreachable(self, client_name: bytes) -> bool:
        """Return True if a client names something by a name that is not its own: a rename's target, or a taken name.

        False for names that are no names at all; those the broker itself refuses.
        """
        return self.space.is_legal(client_name) and self._cached_forward(client_name) is None

    def prefix_to_broker(self, prefix: bytes) -> bytes | None:
        """Return, for prefixed ACLs, the broker-side prefix of exactly the names with this one; None when it straddles
        a mapping, so that no single prefix means the same."""
        mapped: bytes | None = prefix
        for layer in self.layers:
            if mapped is not None:
                own = layer.prefix_forward if isinstance(layer, PrefixLayer) else partial(prefix_forward, layer)
                mapped = own(mapped)
        return mapped

    def prefix_to_client(self, prefix: bytes) -> bytes | None:
        """Return the inverse of `prefix_to_broker`; None when no client-side prefix means the same."""
        mapped: bytes | None = prefix
        for layer in reversed(self.layers):
            if mapped is not None:
                own = layer.prefix_backward if isinstance(layer, PrefixLayer) else partial(prefix_backward, layer)
                mapped = own(mapped)
        return mapped

    def _forward(self, name: bytes) -> bytes | None:
        if name.startswith(self.space.escape):
            return None
        mapped: bytes | None = name
        for layer in self.layers:
            if mapped is None:
                return None
            mapped = layer.forward(mapped)
        return None if mapped is None or self._unescaped(mapped) is not None else mapped

    def _backward(self, name: bytes) -> bytes | None:
        client = self._unescaped(name)
        if client is not None:
            return client if self._forward(client) is None else None
        mapped: bytes | None = name
        for layer in reversed(self.layers):
            if mapped is None:
                return None
            mapped = layer.backward(mapped)
        return None if mapped is None or mapped.startswith(self.space.escape) else mapped

    def _unescaped(self, broker: bytes) -> bytes | None:
        """Return the client-side name that `escaped` made this from; None if it did not."""
        for layer in reversed(self._prefixes):
            if not broker.startswith(layer.prefix):
                return None
            broker = broker[len(layer.prefix) :]
        return broker[len(self.space.escape) :] if broker.startswith(self.space.escape) else None
