"""A regular expression that matches given topic names and nothing else.

Strategy: plain alternatives, as long as they fit into a Kafka string. Above that, names that begin alike share their
beginning (a trie written as nested groups), which takes thousands of numbered names to a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from kproxy.wire.primitives import MAX_STRING

NOTHING = b"^$"
"""Matches no topic, because no topic has an empty name, and is legal."""
Trie = dict[int, "Trie"]
END = -1


def quoted(name: bytes) -> bytes:
    """Topic names have letters, digits, `_`, `-` and `.`; only the last means something else in a pattern."""
    return name.replace(b".", rb"\.")


def pattern_of(names: Iterable[bytes]) -> bytes:
    """The pattern, the same for the same set of names. It may still be longer than a string can be."""
    ordered = sorted(names)
    if not ordered:
        return NOTHING
    plain = b"^(?:" + b"|".join(quoted(name) for name in ordered) + b")$"
    return plain if len(plain) <= MAX_STRING else b"^(?:" + b"|".join(branches(trie_of(ordered))) + b")$"


def trie_of(names: Iterable[bytes]) -> Trie:
    root: Trie = {}
    for name in names:
        node = root
        for byte in name:
            node = node.setdefault(byte, {})
        node[END] = {}
    return root


def branches(node: Trie) -> list[bytes]:
    """The alternatives at a node of the trie. A name has at most 249 bytes, and a level of recursion takes one."""
    found = []
    for byte, child in node.items():
        stem = b"" if byte == END else bytes((byte,))
        while len(child) == 1 and END not in child:
            ((byte, child),) = child.items()
            stem += bytes((byte,))
        rest = branches(child) if child else []
        tail = b"" if rest in ([], [b""]) else b"(?:" + b"|".join(rest) + b")"
        found.append(quoted(stem) + tail)
    return found
