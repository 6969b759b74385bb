"""Prefixes (of ACLs and of patterns) through one rename rule.

A prefix may be mapped only if *all* names that begin with it, and only those, begin with the result on the other
side. Strategy: collect the entries that touch the prefix. With none the prefix stays; with one trailing-star glob
that covers it (others may only say the same thing about a part of it) it moves along; all else straddles. A doubt is
answered with None, which refuses the ACL; a wrong yes would grant access to what is not the client's.
"""

from __future__ import annotations

from .layer import Layer, NamePattern, RenameEntry

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
    """Return the client-side prefix that `prefix_forward` maps to this broker-side one; None when there is none."""
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
    """Return True if a name has one of the prefixes, and keeps its own name since its other spelling is none."""
    back = (layer.backward(moved + one[len(prefix) :]) for one in NO_NAMES if one.startswith(prefix))
    forth = (layer.forward(prefix + one[len(moved) :]) for one in NO_NAMES if one.startswith(moved))
    return any(name is not None and not name.startswith(prefix) for name in back) or any(
        name is not None and not name.startswith(moved) for name in forth
    )
