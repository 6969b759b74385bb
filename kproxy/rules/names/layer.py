"""Namespaces (topics, groups, transactional ids) and layers: partial one-to-one maps of names. Names are bytes.

Topic names have a small alphabet, so a name outside of it cannot exist on a broker. Group ids and transactional ids are
any text, so a name that must not be reached gets a prefix that kproxy reserves.

`forward` and `backward` are inverse wherever both return a name. None: no name on the other side, such as a client name
that a rename gives to another name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

INTERNAL = frozenset({b"__consumer_offsets", b"__transaction_state", b"__share_group_state", b"__cluster_metadata"})
"""Topics of brokers (`Topic.java`, and KRaft's log). Clients know exactly these names."""
MAX_TOPIC_NAME = 249
"""Bytes in a topic name (`Topic.java`, MAX_NAME_LENGTH): a file name with partition and suffix must fit in 255."""
MAX_NAME = 32767
"""Bytes in any other name: the longest string of the protocol."""

_TOPIC = re.compile(rb"[a-zA-Z0-9._-]+")
_NOT_TOPIC = re.compile(r"[^a-zA-Z0-9._*-]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True, eq=False)
class Namespace:
    """Kind of names, such as topics. noun: for messages. plural: for counters (`groups_hidden`). changed: counter of
    changed names. escape: prefix of names that must not be reached."""

    noun: str
    plural: str
    changed: str
    escape: bytes
    longest: int
    internal: frozenset[bytes] = frozenset()
    alphabet: re.Pattern[bytes] | None = None

    @property
    def hidden(self) -> str:
        return f"{self.plural}_hidden"

    @property
    def unreachable(self) -> str:
        """Return the counter of names that a client may not use."""
        return f"{self.plural}_unreachable"

    def is_legal(self, name: bytes) -> bool:
        """Return True if renames may touch this name: it can exist, and is not internal. Any length, because a result
        that is too long must still lead back to the name that the client asked for."""
        return self.can_exist(name) and name not in self.internal

    def can_exist(self, name: bytes) -> bool:
        """Return True if something can be called so, internal or not."""
        if self.alphabet is None:
            return name != b"" and not name.startswith(self.escape)
        return name not in (b".", b"..") and self.alphabet.fullmatch(name) is not None

    def takes_prefix(self, name: bytes) -> bool:
        """Return True if a tenant's prefix applies. Brokers accept an empty group id: simple consumers store offsets
        there."""
        if self.alphabet is None:
            return name != b"" or self is GROUP
        return self.can_exist(name)

    def problem(self, text: str) -> str | None:
        """Return the reason why this is not a name or glob for a rule, or None. It continues "the name …"."""
        if not text:
            return "is empty"
        if self.alphabet is not None and (illegal := _NOT_TOPIC.search(text)) is not None:
            return f'"{text}" holds "{illegal[0]}", topic names have only a-z A-Z 0-9 . _ -'
        if _CONTROL.search(text) is not None:
            return f"{text!r} holds a control character"
        if text.count("*") > 1:
            return f'"{text}" has {text.count("*")} *, at most one is allowed'
        if self.alphabet is not None and text in (".", ".."):
            return f'"{text}" is no topic name'
        if text.encode().startswith(self.escape):
            return f'"{text}" begins with "{self.escape.decode()}", which kproxy keeps for itself'
        if len(text.encode().replace(b"*", b"")) > self.longest:
            return f"has {len(text)} characters, {self.noun}s have at most {self.longest}"
        if text.encode() in self.internal:
            return f'"{text}" is an internal topic, which is never renamed'
        return None


TOPIC = Namespace("topic name", "topics", "topic_names", b"!", MAX_TOPIC_NAME, INTERNAL, _TOPIC)
"""`!` is not legal in topic names: no broker can have such a topic, nor make one."""
GROUP = Namespace("group id", "groups", "group_ids", b"!unreachable:", MAX_NAME)
TRANSACTIONAL_ID = Namespace("transactional id", "transactional_ids", "transactional_ids", b"!unreachable:", MAX_NAME)
NAMESPACES = (TOPIC, GROUP, TRANSACTIONAL_ID)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NamePattern:
    """Exact name (`suffix` None), or the text before and after one `*`, which may match nothing."""

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
        """Return the bytes that `*` matches."""
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
