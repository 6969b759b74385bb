"""Base classes of kinds that rename, and checks of their maps. All errors are reported at once.

Each line is checked alone (legal names, stars) and against the others. If two client names map to one broker name, the
map has no inverse.

Only lines with broker-side patterns that can share names are compared: one prefix starts with the other, and one suffix
ends with the other. They are found in sorted prefixes and suffixes, so thousands of independent lines cost one lookup
each. A map in which nearly all overlap is rejected after a bounded number of comparisons.

If two globs meet, they meet in one of finitely many shapes: the longer prefix, a byte that no pattern contains, and the
longer suffix; or a name so short that prefix and suffix overlap. Each shape is tried.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

from kproxy.rules.names.composed import AnyLayer
from kproxy.rules.names.layer import TOPIC, Layer, NamePattern, Namespace, RenameEntry
from kproxy.rules.values.model import KEY, Wrong

from .rule import Rule

_ANYTHING = b"\x00\x00"
MOST_OVERLAPS = 50_000
"""Pairs of lines in one map that have names in common: some three seconds. Of globs in use each overlaps a few."""
LOOK_UP = 0.02
"""Cost of a look-up that finds no pair, as a part of the cost of a pair."""
LONGEST_GLOB = 1000
"""Characters of a glob; topic names have at most 249."""


def check_renames(names: Mapping[object, object], space: Namespace = TOPIC) -> Iterator[Wrong]:
    """Yield the errors in a map from client-side to broker-side names, with paths below the map. The model checks
    types."""
    entries = []
    for key, value in names.items():
        if not isinstance(key, str) or not isinstance(value, str):
            continue
        wrong = list(_check_line(key, value, space))
        yield from wrong
        if not wrong:
            entries.append(RenameEntry.parse(key, value))
    yield from _Inverse(Layer(entries, space)).check()


def _check_line(key: str, value: str, space: Namespace) -> Iterator[Wrong]:
    client, broker = space.problem(key), space.problem(value)
    if client is not None:
        yield (key, KEY), f"the client-side name {client}"
    if broker is not None:
        yield (key,), f"the broker-side name {broker}"
    if "*" in key and max(len(key), len(value)) > LONGEST_GLOB:
        yield (key, KEY), f"expected a glob of at most {LONGEST_GLOB} characters, got {max(len(key), len(value))}"
    elif client is None and broker is None and key.count("*") != value.count("*"):
        have = f"{_stars(key)} on the client side and {_stars(value)} on the broker side"
        yield (key,), f"{have}, both sides need the same"


def _stars(name: str) -> str:
    return "a *" if "*" in name else "no *"


class _Inverse:
    """Comparison of all lines of one map with each other. A line is reported once, whatever it clashes with."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.numbers = {id(entry): number for number, entry in enumerate(layer.entries)}
        self.told: set[int] = set()
        self.overlaps = 0.0

    def check(self) -> Iterator[Wrong]:
        exact: dict[bytes, RenameEntry] = {}
        for entry in self.layer.entries:
            if not entry.is_glob:
                other = exact.setdefault(entry.broker.prefix, entry)
                if other is not entry:
                    names = other.client.prefix, entry.client.prefix, entry.broker.prefix
                    yield from self.clash(other, entry, names)
        alone: dict[NamePattern, RenameEntry] = {}
        doubles: list[RenameEntry] = []  # lines without a clash with the line of the same pattern
        for glob in self.layer.globs:
            other = alone.setdefault(glob.broker, glob)
            if other is not glob:
                yield from self.meet(other, glob)
                doubles += [glob] if id(glob) not in self.told else []
        rest = ((first, second) for second in doubles for first in self.layer.entries if first is not second)
        for first, second in chain(self.pairs(alone, exact), rest):
            self.overlaps += 1
            if self.overlaps > MOST_OVERLAPS:
                message = f"more than {MOST_OVERLAPS} pairs of these names overlap on the brokers, which is too many to"
                yield (), f"{message} see whether all of them can be undone; write fewer, wider globs"
                return
            yield from self.meet(first, second)

    def pairs(
        self, globs: Mapping[NamePattern, RenameEntry], exact: Mapping[bytes, RenameEntry]
    ) -> Iterator[tuple[RenameEntry, RenameEntry]]:
        """Yield each pair of lines with broker-side patterns that may share names."""
        by_prefix: dict[bytes, _Suffixes] = {}
        for pattern, glob in globs.items():
            by_prefix.setdefault(pattern.prefix, _Suffixes()).add(glob)
        lengths = sorted({len(prefix) for prefix in by_prefix})
        for name, entry in exact.items():
            for length in _up_to(lengths, len(name)):
                if (there := by_prefix.get(name[:length])) is not None:
                    self.overlaps += LOOK_UP * len(there.lengths)
                    yield from ((glob, entry) for glob in there.ending(name[length:]))
        for pattern, glob in globs.items():
            prefix, suffix = pattern.prefix, pattern.suffix or b""
            for length in _up_to(lengths, len(prefix)):
                if (there := by_prefix.get(prefix[:length])) is not None:
                    self.overlaps += LOOK_UP * len(there.lengths)
                    for other in (*there.ending(suffix), *there.longer(suffix)):
                        if length < len(prefix) or self.numbers[id(other)] < self.numbers[id(glob)]:
                            yield other, glob

    def meet(self, one: RenameEntry, two: RenameEntry) -> Iterator[Wrong]:
        """Yield a clash if some broker-side name is reached through both entries from different client names."""
        if self.numbers[id(one)] > self.numbers[id(two)]:
            one, two = two, one
        if id(two) not in self.told:
            names = _meeting(self.layer, one, two)
            if names is not None:
                yield from self.clash(one, two, names)

    def clash(self, one: RenameEntry, two: RenameEntry, names: tuple[bytes, bytes, bytes]) -> Iterator[Wrong]:
        """Yield the error once, at the entry that is later in the file."""
        if id(two) not in self.told:
            self.told.add(id(two))
            first, second, broker = (f'"{name.replace(_ANYTHING, "…".encode()).decode()}"' for name in names)
            yield (
                (two.key,),
                f"{first} and {second} would both be {broker} on the brokers, this cannot be undone in answers",
            )


class _Suffixes:
    """Globs with the same broker-side prefix, by suffix."""

    def __init__(self) -> None:
        self.by_suffix: dict[bytes, RenameEntry] = {}

    def add(self, glob: RenameEntry) -> None:
        self.by_suffix[glob.broker.suffix or b""] = glob

    @cached_property
    def lengths(self) -> list[int]:
        return sorted({len(suffix) for suffix in self.by_suffix})

    @cached_property
    def backwards(self) -> list[tuple[bytes, RenameEntry]]:
        return sorted(((suffix[::-1], entry) for suffix, entry in self.by_suffix.items()), key=_first)

    def ending(self, text: bytes) -> Iterator[RenameEntry]:
        """Yield the globs with a suffix that ends the text."""
        for length in _up_to(self.lengths, len(text)):
            if (found := self.by_suffix.get(text[len(text) - length :])) is not None:
                yield found

    def longer(self, suffix: bytes) -> Iterator[RenameEntry]:
        """Yield the globs with a longer suffix that ends with this one."""
        begin = suffix[::-1]
        for at in range(bisect_left(self.backwards, begin, key=_first), len(self.backwards)):
            text, entry = self.backwards[at]
            if not text.startswith(begin):
                return
            if len(text) > len(begin):
                yield entry


def _first(pair: tuple[bytes, RenameEntry]) -> bytes:
    return pair[0]


def _up_to(lengths: Sequence[int], longest: int) -> Iterator[int]:
    for length in lengths:
        if length > longest:
            return
        yield length


def _meeting(layer: Layer, one: RenameEntry, two: RenameEntry) -> tuple[bytes, bytes, bytes] | None:
    """Return two client names and the broker-side name that both map to, or None."""
    names = [two.broker.prefix] if not two.is_glob else [one.broker.prefix] if not one.is_glob else None
    for name in _common_names(one.broker, two.broker) if names is None else names:
        if not (one.broker.matches(name) and two.broker.matches(name)):
            continue
        first, second = one.to_client(name), two.to_client(name)
        if first != second and _decides(layer, one, first) and _decides(layer, two, second):
            return first, second, name
    return None


def _decides(layer: Layer, entry: RenameEntry, client: bytes) -> bool:
    return layer.winner(client) is entry and layer.space.is_legal(client.replace(_ANYTHING, b"x"))


def _common_names(one: NamePattern, two: NamePattern) -> list[bytes]:
    """Return names that represent all common names of two globs."""
    if not (one.prefix.startswith(two.prefix) or two.prefix.startswith(one.prefix)):
        return []
    prefix = max(one.prefix, two.prefix, key=len)
    suffix = max(one.suffix or b"", two.suffix or b"", key=len)
    names = [prefix + _ANYTHING + suffix]
    overlaps = range(min(len(prefix), len(suffix)) + 1)
    return names + [prefix + suffix[length:] for length in overlaps if prefix.endswith(suffix[:length])]


class NameRule(Rule):
    """Rule that puts a layer between client-side and broker-side names of one namespace or more. Override `layers`."""

    def layers(self) -> Iterator[tuple[Namespace, AnyLayer]]:
        """Yield the layers with their namespaces, at most one for each."""
        raise NotImplementedError


class RenameRule(NameRule):
    """Rule with a field that maps client-side to broker-side names of one namespace."""

    space: ClassVar[Namespace]
    field: ClassVar[str]

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Refuse wrong names, and a map that cannot be undone."""
        names = raw.get(cls.field)
        if isinstance(names, dict):
            for where, message in check_renames(names, cls.space):
                yield (cls.field, *where), message

    def layer(self) -> Layer:
        """Return the map, indexed in both directions."""
        return Layer.of(getattr(self, self.field), self.space)

    def layers(self) -> Iterator[tuple[Namespace, AnyLayer]]:
        yield self.space, self.layer()
