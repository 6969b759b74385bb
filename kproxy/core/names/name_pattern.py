"""A regular expression that matches given topic names and nothing else.

Strategy: plain alternatives, as long as they fit into a Kafka string. Above that, names that begin alike share their
beginning (nested groups), which takes thousands of numbered names to a few kilobytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter

from kproxy.wire.breath import breathe, each, ordered
from kproxy.wire.primitives import MAX_STRING

NOTHING = b"^$"
"""Matches no topic, because no topic has an empty name, and is legal."""


def quoted(name: bytes) -> bytes:
    """Return the name as part of a pattern. Of the characters in topic names only `.` is special there."""
    return name.replace(b".", rb"\.")


def pattern_of(names: Iterable[bytes]) -> bytes:
    """Return the pattern, the same for the same set of names. It may still be longer than a string can be."""
    names = list(ordered(set(names)))
    if not names:
        return NOTHING
    plain = b"^(?:" + b"|".join([quoted(name) for name in each(names)]) + b")$"
    return plain if len(plain) <= MAX_STRING else b"^(?:" + b"|".join(branches(names, 0, len(names), 0)) + b")$"


def branches(names: list[bytes], first: int, end: int, at: int) -> list[bytes]:
    """Return the alternatives for the bytes behind the first `at`, which they share, of names[first:end], which are in
    order. A name has at most 249 bytes, and a level of recursion takes one."""
    found = []
    if len(names[first]) == at:
        found.append(b"")
        first += 1
    while first < end:
        breathe()
        name = names[first]
        stop = bisect_right(names, name[at], first, end, key=itemgetter(at))
        stem = name[at : shared(name, names[stop - 1], at)]
        rest = branches(names, first, stop, at + len(stem))
        tail = b"" if rest == [b""] else b"(?:" + b"|".join(rest) + b")"
        found.append(quoted(stem) + tail)
        first = stop
    return found


def shared(one: bytes, other: bytes, at: int) -> int:
    """Return how many bytes two names share that share the first `at`."""
    end = min(len(one), len(other))
    while at < end and one[at] == other[at]:
        at += 1
    return at
