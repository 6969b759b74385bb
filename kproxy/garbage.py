"""When the cyclic garbage collector looks: hardly during the start, and never again at what the start made.

Importing and reading rules make objects by the hundred thousand, nearly all of them for good. Collections find nothing
there and took a sixth of the time to start; later ones need not look at rules and tables at all.
"""

from __future__ import annotations

import gc

FEW = 100_000
"""Objects made, less those gone, from one collection to the next: some ten collections in all of a start."""

_USUAL = gc.get_threshold()


def spare() -> None:
    """From now on there are few collections, until `settle`."""
    gc.set_threshold(FEW)


def settle() -> None:
    """What there is stays for good, also the little that is garbage by now; the rest is collected as usual. Nothing is
    done where nobody has spared before: it is not kproxy's own process."""
    if gc.get_threshold()[0] == FEW:
        gc.freeze()
        gc.set_threshold(*_USUAL)
