"""The name rules of one connection, composed, for one namespace: client-side names ↔ broker-side ones, as bytes.

Strategy: each rule is a layer; towards the broker they apply in file order, back in reverse order. Each is one-to-one
where it gives a name at all, hence so is the whole. A name that must not reach what it spells (a rename's target) is
sent with the namespace's `escape` in front, and with the prefixes of prefix rules. No broker can have such a topic,
nor make one, and no other client can mean such a group; so the answer is the broker's own "no such thing", under a
name that leads back unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from kproxy.base.bounded_map import unheld

from .layer import GROUP, NAMESPACES, TOPIC, TRANSACTIONAL_ID, Layer, NamePattern, Namespace, PrefixLayer, RenameEntry

CACHED_NAMES = 8192
"""Answers kept per direction: at most 8192 × 2 names of 249 bytes, some 5 MB. More names only cost time."""
LONGEST_CACHED = 249
"""Topic names are not longer. Longer names from clients are not cached."""

AnyLayer = Layer | PrefixLayer


class NameMap:
    """Composed map of one namespace; immutable but for its caches. Shared by all connections with the same rules."""

    def __init__(self, layers: Sequence[AnyLayer], space: Namespace = TOPIC) -> None:
        self.space = space
        self.layers = tuple(layers)
        self._prefixes = tuple(layer for layer in self.layers if isinstance(layer, PrefixLayer))
        self._cached_forward = lru_cache(CACHED_NAMES)(unheld(self._forward))
        self._cached_backward = lru_cache(CACHED_NAMES)(unheld(self._backward))

    @classmethod
    def of(cls, *renames: Mapping[str, str], space: Namespace = TOPIC) -> NameMap:
        """Return the map of one or more rename rules, in file order; `rules/kinds/base/name_rule.py` has checked
        them."""
        return cls([Layer.of(one, space) for one in renames], space)

    @property
    def isolates(self) -> bool:
        """Return True if all but what belongs to this client is invisible to it, by whatever way it is asked for."""
        return bool(self._prefixes)

    @property
    def owner(self) -> bytes:
        """Return the bytes that identify a tenant across reloads: the prefixes of its names."""
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
        """Return True if this broker-side name is escaped."""
        return self._unescaped(broker) is not None

    def is_unreachable(self, client_name: bytes) -> bool:
        """Return True if a client uses a name that is not its own: a rename's target, or a taken name. False for
        illegal names, which the broker rejects."""
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


NO_NAMES = (b".", b"..")
"""Names that no topic has, though their letters are legal: a rename leaves out what would come from them, or lead to
them."""


def prefix_forward(layer: Layer, prefix: bytes) -> bytes | None:
    """Return the broker-side prefix for a client-side one; None when it straddles."""
    touched = [entry for entry in layer.entries if _touches(entry.client, prefix)]
    if not touched:
        return prefix if not any(_touches(entry.broker, prefix) for entry in layer.entries) else None
    cover = _cover(touched, prefix)
    if cover is None:
        return None
    moved = cover.broker.prefix + prefix[len(cover.client.prefix) :]
    if any(not _agrees(cover, entry) for entry in touched if entry is not cover):
        return None
    if any(_touches(entry.broker, moved) and not _agrees(cover, entry) for entry in layer.entries):
        return None
    if _holds_internal(layer, prefix) or _holds_internal(layer, moved):
        return None
    return None if _leaves_one_out(layer, prefix, moved) else moved


def prefix_backward(layer: Layer, prefix: bytes) -> bytes | None:
    """Return the client-side prefix that `prefix_forward` maps to this broker-side prefix, or None."""
    candidates = [
        entry.client.prefix + prefix[len(entry.broker.prefix) :]
        for entry in layer.globs
        if entry.broker.suffix == b"" == entry.client.suffix and prefix.startswith(entry.broker.prefix)
    ]
    return next((client for client in (*candidates, prefix) if prefix_forward(layer, client) == prefix), None)


def _touches(pattern: NamePattern, prefix: bytes) -> bool:
    """Return True if some name matches the pattern and begins with the prefix."""
    if pattern.suffix is None:
        return pattern.prefix.startswith(prefix)
    return pattern.prefix.startswith(prefix) or prefix.startswith(pattern.prefix)


def _cover(touched: list[RenameEntry], prefix: bytes) -> RenameEntry | None:
    """Return the trailing-star glob with the longest client-side prefix that matches every name with this prefix."""
    covers = [
        entry
        for entry in touched
        if entry.client.suffix == b"" == entry.broker.suffix and prefix.startswith(entry.client.prefix)
    ]
    return max(covers, key=lambda entry: len(entry.client.prefix), default=None)


def _agrees(cover: RenameEntry, entry: RenameEntry) -> bool:
    """Return True if an entry maps its names as the cover would."""
    short, long = sorted((cover, entry), key=lambda one: len(one.client.prefix))
    if not long.client.prefix.startswith(short.client.prefix):
        return False
    if short.client.suffix != b"" or short.broker.suffix != b"" or long.client.suffix != long.broker.suffix:
        return False
    return long.broker.prefix == short.broker.prefix + long.client.prefix[len(short.client.prefix) :]


def _holds_internal(layer: Layer, prefix: bytes) -> bool:
    return any(name.startswith(prefix) for name in layer.space.internal)


def _leaves_one_out(layer: Layer, prefix: bytes, moved: bytes) -> bool:
    """Return True if a name has one of the prefixes but keeps its name, since its other spelling is illegal."""
    back = (layer.backward(moved + one[len(prefix) :]) for one in NO_NAMES if one.startswith(prefix))
    forth = (layer.forward(prefix + one[len(moved) :]) for one in NO_NAMES if one.startswith(moved))
    return any(name is not None and not name.startswith(prefix) for name in back) or any(
        name is not None and not name.startswith(moved) for name in forth
    )


@dataclass(frozen=True, slots=True)
class NameMaps:
    """Name maps of one connection, by namespace; None: names pass unchanged."""

    topics: NameMap | None = None
    groups: NameMap | None = None
    transactional_ids: NameMap | None = None

    @classmethod
    def of(cls, layers: Iterable[tuple[Namespace, AnyLayer]]) -> NameMaps | None:
        """Return the maps of the layers of all name rules, in file order; None without layers."""
        by_space: dict[Namespace, list[AnyLayer]] = {}
        for space, layer in layers:
            by_space.setdefault(space, []).append(layer)
        maps = [NameMap(by_space[space], space) if space in by_space else None for space in NAMESPACES]
        return cls(*maps) if by_space else None

    def get(self, space: Namespace) -> NameMap | None:
        """Return the map of one namespace, None if no rule is about it."""
        return {TOPIC: self.topics, GROUP: self.groups, TRANSACTIONAL_ID: self.transactional_ids}[space]

    @property
    def maps(self) -> list[NameMap]:
        return [one for one in (self.topics, self.groups, self.transactional_ids) if one is not None]

    @property
    def isolates(self) -> bool:
        """Return True if names of others are to be out of reach in any namespace."""
        return any(one.isolates for one in self.maps)
