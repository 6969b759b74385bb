"""When the cyclic garbage collector looks: hardly during the start, and never for long at what there is already.

Importing and reading rules make objects by the hundred thousand, nearly all of them for good. Collections find nothing
there and took a sixth of the time to start; later ones need not look at rules and tables at all.

While kproxy serves, a collection stops everybody for as long as there are objects to look at: the values of a few
frames of megabytes are millions, which took a second. So what a full collection has found alive is set aside (frozen),
and the next one looks only at what was made since. Nearly everything is freed by its reference count, frozen or not.
Cycles that outlive a collection are found by `sweep`, every ten minutes if there is little to look at, else when that
has doubled.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

FEW = 100_000
"""Objects made, less those gone, from one collection to the next: some ten collections in all of a start."""

OLDEST = 2
"""The generation whose collection is a full one."""
SWEEP_EVERY = 600.0
"""Seconds from one look at everything to the next."""
SWEPT_AT_ONCE = 150_000
"""Objects that are looked at by `sweep`: some 40 ms. Thousands of connections have more."""
GROWN = 2
"""There being more, they are looked at when there are so many times as many as the last time."""

_USUAL = gc.get_threshold()


class State:
    """`alive`: objects that the start made, or that the last sweep has left."""

    alive = 0


def spare() -> None:
    """From now on there are few collections, until `settle`."""
    gc.set_threshold(FEW)


def settle() -> None:
    """What there is stays for good, also the little that is garbage by now; the rest is collected as usual, but never
    the same twice. Nothing is done where nobody has spared before: it is not kproxy's own process."""
    if gc.get_threshold()[0] == FEW:
        gc.freeze()
        State.alive = gc.get_freeze_count()
        gc.callbacks.append(set_aside)
        gc.set_threshold(*_USUAL)


def set_aside(phase: str, info: Mapping[str, int]) -> None:
    """Have the next full collection look only at what is made from now on; called around each collection."""
    if phase == "stop" and info["generation"] == OLDEST:
        gc.freeze()


def sweep() -> bool:
    """Look for cycles among all that was set aside, unless that would take long for little; returns whether it did."""
    if set_aside not in gc.callbacks or SWEPT_AT_ONCE < gc.get_freeze_count() < GROWN * State.alive:
        return False
    gc.unfreeze()
    gc.collect()
    State.alive = gc.get_freeze_count()  # `set_aside` has been called
    return True
