"""Schedule of the cyclic garbage collector: rare during the start, and only short runs later.

Importing and reading rules make objects by the hundred thousand, and nearly all of them stay. Collections free nothing
then and took a sixth of the time to start; later ones need not look at rules and tables at all.

While kproxy serves, a collection stops all connections for as long as it has objects to look at: the values of a few
frames of megabytes are millions, which took a second. So objects that survive a full collection are frozen, and the
next one looks only at newer objects. Nearly every object is freed by its reference count, frozen or not. `sweep` finds
cycles that survive a collection: every ten minutes while the frozen objects are few, otherwise when their number has
doubled.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

FEW = 100_000
"""Objects made, less those freed, from one collection to the next: a start then has some ten collections."""

OLDEST = 2
"""Number of the oldest generation; collecting it is a full collection."""
SWEEP_EVERY = 600.0
"""Seconds between two looks at all objects."""
SWEPT_AT_ONCE = 150_000
"""Objects that `sweep` looks at in every run, which takes some 40 ms. Thousands of connections have more."""
GROWN = 2
"""Growth factor since the last sweep at which `sweep` looks at more than SWEPT_AT_ONCE objects."""

_USUAL = gc.get_threshold()


class Heap:
    """Heap of this process: `alive` counts the objects that the start made, or that the last sweep left."""

    alive = 0


def postpone() -> None:
    """Make collections rare until `freeze` is called."""
    gc.set_threshold(FEW)


def freeze() -> None:
    """Freeze all objects that exist, and collect newer ones as usual, each at most once.

    The little garbage among them stays until the first sweep. Does nothing unless `postpone` was called before:
    otherwise this process is not kproxy's own.
    """
    if gc.get_threshold()[0] == FEW:
        gc.freeze()
        Heap.alive = gc.get_freeze_count()
        gc.callbacks.append(set_aside)
        gc.set_threshold(*_USUAL)


def set_aside(phase: str, info: Mapping[str, int]) -> None:
    """Freeze surviving objects after a full collection, so that the next one looks only at newer ones; called around
    each collection."""
    if phase == "stop" and info["generation"] == OLDEST:
        gc.freeze()


def sweep() -> bool:
    """Look for cycles in all frozen objects. Return False if it was skipped, because it would take long and free
    little."""
    if set_aside not in gc.callbacks or SWEPT_AT_ONCE < gc.get_freeze_count() < GROWN * Heap.alive:
        return False
    gc.unfreeze()
    gc.collect()
    Heap.alive = gc.get_freeze_count()  # `set_aside` has been called
    return True
