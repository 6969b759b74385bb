"""Yield points of long work.

Strategy. Work on one frame is as long as the frame: a hundred thousand names take a second. Loops over the content of a
frame call `breathe` every few dozen elements; loops over frames call `rest` for each frame. Without a hook these do
nothing. The driver's hook reads the clock and lets other tasks run if they have waited long enough
(`runtime/io/scheduler.py`). After a yield, only the connection's own state is unchanged. `whole` prevents yields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from gc import get_referents, is_tracked
from heapq import merge
from sys import getrefcount
from typing import Any, TypeVar

LISTS: frozenset[type] = frozenset((list, tuple, dict, set, frozenset))
"""Types that `isinstance` need not be asked about, which takes longer."""
BreathHook = Callable[[], None]
Apart = Callable[[Callable[[], Any]], Any]
Item = TypeVar("Item")

FEW = 32
"""Elements without elements of their own that are gone through between two calls of `breathe`."""
LONG = 1 << 14
"""Bytes of a message above which its objects are freed in pieces."""
MOST_AT_ONCE = 4096
"""Small things that are freed in one go: half a millisecond."""
EVERY = 32
"""Calls of `breathe` for one of the hook, which is dearer: it looks at the clock."""


class BreathState:
    """State of breathing in this process: how many calls of `breathe` are left before the hook is called; how many
    blocks of `whole` are open."""

    left = EVERY
    hook: BreathHook | None = None
    apart: Apart | None = None
    guard: Callable[[int], None] | None = None
    whole = 0
    kept: list[Any] | None = None
    holding: frozenset[type] = frozenset((dict, list, tuple, set, frozenset))


def breathe(state: type[BreathState] = BreathState) -> None:
    """Count a few dozen elements that have been gone through, and call the hook when it is due."""
    state.left -= 1
    if state.left < 0:
        state.left = EVERY
        rest()


def rest() -> None:
    """Let others run, if a hook is set: something was done that may have taken a millisecond, or will."""
    if BreathState.hook is not None and not BreathState.whole:
        kept, BreathState.kept = BreathState.kept, None  # the hook runs others, whose things are theirs to keep
        try:
            BreathState.hook()
        finally:
            BreathState.kept = kept


def steps(count: int) -> Iterable[int]:
    """Return `range(count)` with breath in between; for loops over elements without elements of their own."""
    return range(count) if count < FEW else _steps(count)


def _steps(count: int) -> Iterator[int]:
    for start in range(0, count, FEW):
        breathe()
        yield from range(start, min(start + FEW, count))


def each(items: Iterable[Item]) -> Iterable[Item]:
    """Return `items` with breath in between; as they are if they are few."""
    if type(items) in LISTS or isinstance(items, Collection):
        return items if len(items) < FEW else _each(items)  # type: ignore[arg-type]  # they have a length
    return _each(items)


def _each(items: Iterable[Item]) -> Iterator[Item]:
    left = FEW
    for item in items:
        left -= 1
        if not left:
            left = FEW
            breathe()
        yield item


def apart(work: Callable[[], Item]) -> Item:
    """Call `work`, if need be in a thread while others run: it is one call that lets go of the interpreter, and may
    take long."""
    if BreathState.apart is None or BreathState.whole:
        return work()
    kept, BreathState.kept = BreathState.kept, None
    try:
        result: Item = BreathState.apart(work)
    finally:
        BreathState.kept = kept
    return result


def holds_many(kind: type[Item]) -> type[Item]:
    BreathState.holding |= {kind}
    return kind


def keep(thing: Item) -> Item:
    """Keep `thing` until the end of the current work, so that it is freed in pieces if nothing else refers to it."""
    if BreathState.kept is not None:
        BreathState.kept.append(thing)
    return thing


def freeing(size: int, work: Callable[[], Item], *, part: bool = False) -> Item:
    """Call `work`, which handles about `size` bytes. Objects passed to `keep` are freed in pieces afterwards.

    Freeing a list of a hundred thousand elements at once takes as long as making them. `part`: free them directly after
    this work, not after the enclosing one.
    """
    outer = BreathState.kept
    if size < LONG or BreathState.hook is None or (outer is not None and not part):
        return work()
    kept: list[Any] = []
    BreathState.kept = kept
    try:
        result = work()
    finally:
        BreathState.kept = outer
    free(kept)
    return result


def free(things: list[Any]) -> None:
    """Free objects without other references, containers before their content."""
    left, holding = FEW, BreathState.holding
    while things:
        thing = things.pop()
        if type(thing) in holding and is_tracked(thing) and getrefcount(thing) == 2:
            things += get_referents(thing)
        left -= 1
        if not left:
            left = FEW
            thing = None
            breathe()


def ordered(items: Iterable[Item], key: Callable[[Item], Any] | None = None) -> Iterable[Item]:
    """Return `items` sorted, with breath in between; many of them piece by piece, and the pieces merged."""
    things = list(items)
    if len(things) <= MOST_AT_ONCE or BreathState.hook is None:
        return sorted(things, key=key)  # type: ignore[arg-type,type-var]  # whoever calls knows that they can be
    pieces = []
    for start in range(0, len(things), MOST_AT_ONCE):
        pieces.append(sorted(things[start : start + MOST_AT_ONCE], key=key))  # type: ignore[arg-type,type-var]
        rest()
    return _each(merge(*pieces, key=key))  # type: ignore[arg-type]


def drop(items: list[Any]) -> None:
    """Free a list of small objects, some thousands at a time."""
    while items:
        del items[-MOST_AT_ONCE:]
        rest()


class Spread(list[Item]):
    """List with yield points in its iteration."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Item]:
        return _each(super().__iter__())


class SpreadTuple(tuple[Item, ...]):
    """Tuple with yield points in its iteration."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Item]:
        return _each(super().__iter__())


BreathState.holding |= {Spread, SpreadTuple}


def spread(items: list[Item]) -> list[Item]:
    """Return `items` for one who goes through them; a long list is another one then."""
    return items if len(items) < FEW or BreathState.hook is None else Spread(items)


def spread_tuple(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return `items` for one who goes through them; a long tuple is another one then."""
    return items if len(items) < FEW or BreathState.hook is None else SpreadTuple(items)


@contextmanager
def whole() -> Iterator[None]:
    """Run the block without yields. It must be short for any input."""
    BreathState.whole += 1
    try:
        yield
    finally:
        BreathState.whole -= 1


@contextmanager
def to_the_end() -> Iterator[None]:
    """Run the block to its end even if its connection closes during a yield."""
    if BreathState.guard is not None:
        BreathState.guard(1)
    try:
        yield
    finally:
        if BreathState.guard is not None:
            BreathState.guard(-1)


def use(
    hook: BreathHook | None, apart: Apart | None = None, guard: Callable[[int], None] | None = None
) -> BreathHook | None:
    """Install the driver's hooks: `hook` at yield points, `apart` for work in a thread, `guard` at the begin (1) and
    end (-1) of `to_the_end`. Returns the previous hook."""
    before, BreathState.hook, BreathState.apart, BreathState.guard = BreathState.hook, hook, apart, guard
    return before


__all__ = [
    "FEW", "apart", "breathe", "drop", "each", "free", "freeing", "holds_many", "keep", "ordered", "rest", "spread",
    "spread_tuple", "steps", "to_the_end", "use", "whole",
]  # fmt: skip
