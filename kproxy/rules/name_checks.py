"""What is wrong with the map of a rename rule, all of it at once.

Every line by itself (legal names, stars) and the lines against each other: a map in which two client names lead
to one broker name has no inverse, and a client would be shown one thing as the other.

Strategy for two globs: if they meet anywhere, they meet in one of finitely many shapes. Either the longer prefix,
something, the longer suffix, where "something" is a byte that no pattern holds (any other choice could only
bring in more specific entries); or a name so short that prefix and suffix overlap. Each is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from kproxy.rules.explain import KEY, Wrong
from kproxy.rules.name_layer import Entry, Layer, Pattern
from kproxy.rules.namespace import TOPIC, Namespace

_ANYTHING = b"\x00\x00"


def check_renames(names: Mapping[object, object], space: Namespace = TOPIC) -> Iterator[Wrong]:
    """Mistakes in a map of client-side to broker-side names; paths are below the map. Values that are no text are
    left to the model."""
    entries = []
    for key, value in names.items():
        if not isinstance(key, str) or not isinstance(value, str):
            continue
        wrong = list(_check_line(key, value, space))
        yield from wrong
        if not wrong:
            entries.append(Entry.parse(key, value))
    yield from _check_inverse(Layer(entries, space))


def _check_line(key: str, value: str, space: Namespace) -> Iterator[Wrong]:
    client, broker = space.problem(key), space.problem(value)
    if client is not None:
        yield (key, KEY), f"the client-side name {client}"
    if broker is not None:
        yield (key,), f"the broker-side name {broker}"
    if client is None and broker is None and key.count("*") != value.count("*"):
        have = f"{_stars(key)} on the client side and {_stars(value)} on the broker side"
        yield (key,), f"{have}, both sides need the same"


def _stars(name: str) -> str:
    return "a *" if "*" in name else "no *"


def _check_inverse(layer: Layer) -> Iterator[Wrong]:
    exact: dict[bytes, Entry] = {}
    for entry in layer.entries:
        if entry.is_glob:
            continue
        other = exact.setdefault(entry.broker.prefix, entry)
        if other is not entry:
            yield _clash(layer, other, entry, (other.client.prefix, entry.client.prefix, entry.broker.prefix))
        for glob in layer.globs:
            yield from _meet(layer, glob, entry, [entry.broker.prefix])
    for one, two in combinations(layer.globs, 2):
        yield from _meet(layer, one, two, _common_names(one.broker, two.broker))


def _meet(layer: Layer, one: Entry, two: Entry, names: list[bytes]) -> Iterator[Wrong]:
    """A clash if one of these broker-side names is reached through both entries from different client names."""
    for name in names:
        if not (one.broker.matches(name) and two.broker.matches(name)):
            continue
        first, second = one.to_client(name), two.to_client(name)
        if first != second and _decides(layer, one, first) and _decides(layer, two, second):
            yield _clash(layer, one, two, (first, second, name))
            return


def _decides(layer: Layer, entry: Entry, client: bytes) -> bool:
    return layer.winner(client) is entry and layer.space.is_legal(client.replace(_ANYTHING, b"x"))


def _common_names(one: Pattern, two: Pattern) -> list[bytes]:
    """Names that stand for all that two globs have in common."""
    if not (one.prefix.startswith(two.prefix) or two.prefix.startswith(one.prefix)):
        return []
    prefix = max(one.prefix, two.prefix, key=len)
    suffix = max(one.suffix or b"", two.suffix or b"", key=len)
    names = [prefix + _ANYTHING + suffix]
    overlaps = range(min(len(prefix), len(suffix)) + 1)
    return names + [prefix + suffix[length:] for length in overlaps if prefix.endswith(suffix[:length])]


def _clash(layer: Layer, one: Entry, two: Entry, names: tuple[bytes, bytes, bytes]) -> Wrong:
    """At the entry that stands later in the file."""
    if layer.entries.index(one) > layer.entries.index(two):
        one, two, names = two, one, (names[1], names[0], names[2])
    first, second, broker = (f'"{name.replace(_ANYTHING, "…".encode()).decode()}"' for name in names)
    return (two.key,), f"{first} and {second} would both be {broker} on the brokers, this cannot be undone in answers"
