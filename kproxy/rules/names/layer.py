"""Layers of name rules: partial one-to-one maps between client-side and broker-side names of one namespace.

Strategy: `forward` and `backward` are each other's inverse wherever both give a name. None means that there is no name
on the other side: a client name that a rename gives to another one (unreachable), or a broker-side name whose
client-side spelling a rename has taken (hidden). Names that are not legal, and Kafka's internal topics, pass a rename
as they are. That no two client names meet on one broker name is checked when rules load
(`rules/kinds/base/name_rule.py`); this file relies on it. Of a rename's lines the longest literal prefix wins, then the
longest suffix; an exact name beats both.

Under a prefix rule, what clients call x is called prefix + x on the brokers, and nothing else is there for them. Every
client-side name has its own broker-side one, so none is unreachable; broker-side names without the prefix, the internal
topics among them, are hidden. Text that is no name (a topic `a b`, an empty transactional id) passes in both
directions: brokers refuse it, and the answer shows the client its own word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from .namespace import TOPIC, Namespace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NamePattern:
    """Pattern of names: an exact name (`suffix` None), or what stands before and after the one `*`, which may stand for
    nothing."""

    prefix: bytes
    suffix: bytes | None = None

    @classmethod
    def parse(cls, text: str) -> NamePattern:
        prefix, star, suffix = text.encode().partition(b"*")
        return cls(prefix, suffix if star else None)

    @property
    def literals(self) -> int:
        return len(self.prefix) + len(self.suffix or b"")

    def matches(self, name: bytes) -> bool:
        if self.suffix is None:
            return name == self.prefix
        return len(name) >= self.literals and name.startswith(self.prefix) and name.endswith(self.suffix)

    def middle(self, name: bytes) -> bytes:
        """Return the bytes that the `*` stands for in a name that matches."""
        return name[len(self.prefix) : len(name) - len(self.suffix or b"")]

    def fill(self, middle: bytes) -> bytes:
        return self.prefix if self.suffix is None else self.prefix + middle + self.suffix


@dataclass(frozen=True, slots=True)
class RenameEntry:
    """Line of a rename; both patterns have a star or neither has."""

    client: NamePattern
    broker: NamePattern
    key: str
    value: str

    @classmethod
    def parse(cls, key: str, value: str) -> RenameEntry:
        return cls(NamePattern.parse(key), NamePattern.parse(value), key, value)

    @property
    def is_glob(self) -> bool:
        return self.client.suffix is not None

    def to_broker(self, name: bytes) -> bytes:
        return self.broker.fill(self.client.middle(name))

    def to_client(self, name: bytes) -> bytes:
        return self.client.fill(self.broker.middle(name))


class Layer:
    """Layer of one rename rule: its entries, indexed both ways."""

    def __init__(self, entries: Iterable[RenameEntry], space: Namespace = TOPIC) -> None:
        self.space = space
        self.entries = tuple(entries)
        self.globs = tuple(entry for entry in self.entries if entry.is_glob)
        self._exact = {entry.client.prefix: entry for entry in self.entries if not entry.is_glob}
        self._exact_back = {entry.broker.prefix: entry for entry in self._exact.values()}
        self._by_client = ByPrefix((entry.client, entry) for entry in self.globs)
        self._by_broker = ByPrefix((entry.broker, entry) for entry in self.globs)

    @classmethod
    def of(cls, names: Mapping[str, str], space: Namespace = TOPIC) -> Layer:
        return cls((RenameEntry.parse(key, value) for key, value in names.items()), space)

    def winner(self, client: bytes) -> RenameEntry | None:
        """Return the entry that decides about a client-side name, None if none does."""
        return self._exact.get(client) or next(self._by_client.matching(client), None)

    def source(self, broker: bytes) -> bytes | None:
        """Return the client-side name that an entry maps to this broker-side one, None if none does."""
        if (exact := self._exact_back.get(broker)) is not None:
            return exact.client.prefix
        for entry in self._by_broker.matching(broker):
            client = entry.to_client(broker)
            if self.space.is_legal(client) and self.winner(client) is entry:
                return client
        return None

    def forward(self, client: bytes) -> bytes | None:
        """Return the broker-side name; None when a client may not reach anything by this name."""
        if not self.space.is_legal(client):
            return client
        entry = self.winner(client)
        if entry is None:
            return client if self.source(client) is None else None
        broker = entry.to_broker(client)
        return broker if self.space.is_legal(broker) else None

    def backward(self, broker: bytes) -> bytes | None:
        """Return the client-side name; None when it is hidden from clients."""
        if not self.space.is_legal(broker):
            return broker
        client = self.source(broker)
        if client is not None:
            return client
        return broker if self.winner(broker) is None else None


FEW = 8
"""Globs with the same prefix that are tried one after the other; more of them are found by their suffixes."""


class ByPrefix(Generic[T]):
    """Table of globs, found by looking up the prefixes of a name, longest first, with whatever belongs to each."""

    def __init__(self, pairs: Iterable[tuple[NamePattern, T]]) -> None:
        table: dict[bytes, list[tuple[NamePattern, T]]] = {}
        for pattern, entry in pairs:
            table.setdefault(pattern.prefix, []).append((pattern, entry))
        for same in table.values():
            same.sort(key=lambda pair: -pair[0].literals)
        self._table = {prefix: same for prefix, same in table.items() if len(same) <= FEW}
        self._crowded = {prefix: BySuffix(same) for prefix, same in table.items() if len(same) > FEW}
        self._lengths = sorted({len(prefix) for prefix in table}, reverse=True)

    def matching(self, name: bytes) -> Iterator[T]:
        for length in self._lengths:
            for pattern, entry in self._table.get(name[:length], ()):
                if pattern.matches(name):
                    yield entry
            if self._crowded and (crowd := self._crowded.get(name[:length])) is not None:
                yield from crowd.matching(name)


class BySuffix(Generic[T]):
    """Table of many globs with the same prefix, found by looking up the suffixes of a name, longest first."""

    def __init__(self, pairs: Iterable[tuple[NamePattern, T]]) -> None:
        self._table: dict[bytes, list[tuple[NamePattern, T]]] = {}
        for pattern, entry in pairs:
            self._table.setdefault(pattern.suffix or b"", []).append((pattern, entry))
        self._lengths = sorted({len(suffix) for suffix in self._table}, reverse=True)

    def matching(self, name: bytes) -> Iterator[T]:
        for length in self._lengths:
            for pattern, entry in self._table.get(name[len(name) - length :] if length <= len(name) else b"", ()):
                if pattern.matches(name):
                    yield entry


@dataclass(frozen=True, slots=True)
class PrefixLayer:
    """Layer of one prefix rule, with the methods of a rename's `Layer`."""

    space: Namespace
    prefix: bytes

    def forward(self, client: bytes) -> bytes:
        return self.prefix + client if self.space.takes_prefix(client) else client

    def backward(self, broker: bytes) -> bytes | None:
        if not self.space.takes_prefix(broker):
            return broker
        if not broker.startswith(self.prefix):
            return None
        client = broker[len(self.prefix) :]
        return client if self.space.takes_prefix(client) else None

    def prefix_forward(self, prefix: bytes) -> bytes:
        """Return the prefix of an ACL, or of a pattern, on the broker side."""
        return self.prefix + prefix

    def prefix_backward(self, prefix: bytes) -> bytes | None:
        """Return the client-side prefix; None when it covers more than this tenant."""
        return prefix[len(self.prefix) :] if prefix.startswith(self.prefix) else None
