"""Yield points of long work.

Work on one frame is as long as the frame: a hundred thousand names take a second. Loops over the content of a frame
call `yield_point` every few dozen elements; loops over frames call `yield_now` for each frame. Without a hook both do
nothing. The driver's hook reads the clock and lets other tasks run if they have waited long enough
(`runtime/io/scheduler.py`). After a yield, only the connection's own state is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from gc import get_referents, is_tracked
from heapq import merge
from sys import getrefcount
from typing import Any, TypeVar

LISTS: frozenset[type] = frozenset((list, tuple, dict, set, frozenset))
"""Types that need no `isinstance`, which takes longer."""
YieldHook = Callable[[], None]
ThreadRunner = Callable[[Callable[[], Any]], Any]
Item = TypeVar("Item")

FEW = 32
"""Flat elements between two calls of `yield_point`."""
LONG = 1 << 14
"""Bytes of a message above which its objects are freed in pieces."""
MOST_AT_ONCE = 4096
"""Small things that are freed in one go: half a millisecond."""
EVERY = 32
"""Calls of `yield_point` per call of the hook, which reads the clock."""


def references_of_local() -> int:
    """Return what `getrefcount` counts for an object of one variable: 2, from Python 3.14 on 1."""
    thing: list[Any] = []
    return getrefcount(thing)


UNSHARED = references_of_local()


class YieldState:
    """Hooks of this process; calls of `yield_point` before the next call of the hook."""

    left = EVERY
    hook: YieldHook | None = None
    thread_runner: ThreadRunner | None = None
    guard: Callable[[int], None] | None = None
    holding: frozenset[type] = frozenset((dict, list, tuple, set, frozenset))


DEFERRED: ContextVar[list[Any] | None] = ContextVar("DEFERRED", default=None)
"""Objects that `free_after` will free; None outside of it. Threads yield, too, and have their own context."""


def yield_point(state: type[YieldState] = YieldState) -> None:
    """Count a few dozen elements, and call the hook when it is due."""
    state.left -= 1
    if state.left < 0:
        state.left = EVERY
        yield_now()


def yield_now() -> None:
    """Call the hook, if one is set, before or after work of about a millisecond."""
    if YieldState.hook is not None:
        outer = DEFERRED.set(None)  # the hook runs other work, which keeps its own objects
        try:
            YieldState.hook()
        finally:
            DEFERRED.reset(outer)


def yielding_range(count: int) -> Iterable[int]:
    """Return `range(count)` with yield points, for loops over flat elements."""
    return range(count) if count < FEW else _steps(count)


def _steps(count: int) -> Iterator[int]:
    for start in range(0, count, FEW):
        yield_point()
        yield from range(start, min(start + FEW, count))


def yielding(items: Iterable[Item]) -> Iterable[Item]:
    """Return `items` with yield points; unchanged if they are few."""
    if type(items) in LISTS or isinstance(items, Collection):
        return items if len(items) < FEW else _each(items)  # type: ignore[arg-type]  # they have a length
    return _each(items)


def _each(items: Iterable[Item]) -> Iterator[Item]:
    left = FEW
    for item in items:
        left -= 1
        if not left:
            left = FEW
            yield_point()
        yield item


def run_in_thread(work: Callable[[], Item]) -> Item:
    """Call `work`, which releases the GIL and may take long; in a thread if the driver has threads."""
    if YieldState.thread_runner is None:
        return work()
    outer = DEFERRED.set(None)  # the thread runs in a copy of this context
    try:
        result: Item = YieldState.thread_runner(work)
    finally:
        DEFERRED.reset(outer)
    return result


def free_by_parts(kind: type[Item]) -> type[Item]:
    YieldState.holding |= {kind}
    return kind


def defer_free(thing: Item) -> Item:
    """Keep `thing` until the current work ends. It is freed in pieces then, if nothing else refers to it."""
    kept = DEFERRED.get()
    if kept is not None:
        kept.append(thing)
    return thing


def free_after(size: int, work: Callable[[], Item], *, part: bool = False) -> Item:
    """Call `work`, which handles about `size` bytes. Objects passed to `defer_free` are freed in pieces afterwards.

    Freeing a list of a hundred thousand elements at once takes as long as making them. `part`: free them directly after
    this work, not after the enclosing one.
    """
    if size < LONG or YieldState.hook is None or (DEFERRED.get() is not None and not part):
        return work()
    kept: list[Any] = []
    outer = DEFERRED.set(kept)
    try:
        result = work()
    finally:
        DEFERRED.reset(outer)
    free_yielding(kept)
    return result


def free_yielding(things: list[Any]) -> None:
    """Free objects without other references, containers before their content."""
    left, holding = FEW, YieldState.holding
    while things:
        thing = things.pop()
        if type(thing) in holding and is_tracked(thing) and getrefcount(thing) == UNSHARED:
            things += get_referents(thing)
        left -= 1
        if not left:
            left = FEW
            thing = None
            yield_point()


def yielding_sort(items: Iterable[Item], key: Callable[[Item], Any] | None = None) -> Iterable[Item]:
    """Return `items` sorted. Many items are sorted in pieces, which are merged."""
    things = list(items)
    if len(things) <= MOST_AT_ONCE or YieldState.hook is None:
        return sorted(things, key=key)  # type: ignore[arg-type,type-var]  # whoever calls knows that they can be
    pieces = []
    for start in range(0, len(things), MOST_AT_ONCE):
        pieces.append(sorted(things[start : start + MOST_AT_ONCE], key=key))  # type: ignore[arg-type,type-var]
        yield_now()
    return _each(merge(*pieces, key=key))  # type: ignore[arg-type]


def free_list(items: list[Any]) -> None:
    """Free a list of small objects, some thousands at a time."""
    while items:
        del items[-MOST_AT_ONCE:]
        yield_now()


class YieldingList(list[Item]):
    """List with yield points in its iteration."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Item]:
        return _each(super().__iter__())


class YieldingTuple(tuple[Item, ...]):
    """Tuple with yield points in its iteration."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Item]:
        return _each(super().__iter__())


YieldState.holding |= {YieldingList, YieldingTuple}


def yielding_list(items: list[Item]) -> list[Item]:
    """Return `items`; a long list as a copy with yield points in its iteration."""
    return items if len(items) < FEW or YieldState.hook is None else YieldingList(items)


def yielding_tuple(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return `items`; a long tuple as a copy with yield points in its iteration."""
    return items if len(items) < FEW or YieldState.hook is None else YieldingTuple(items)


@contextmanager
def run_to_end() -> Iterator[None]:
    """Run the block to its end even if its connection closes during a yield."""
    if YieldState.guard is not None:
        YieldState.guard(1)
    try:
        yield
    finally:
        if YieldState.guard is not None:
            YieldState.guard(-1)


def install_hooks(
    hook: YieldHook | None, thread_runner: ThreadRunner | None = None, guard: Callable[[int], None] | None = None
) -> YieldHook | None:
    """Install the driver's hooks: `hook` at yield points, `thread_runner` for work in a thread, `guard` at the begin
    (1) and end (-1) of `run_to_end`. Returns the previous hook."""
    before, YieldState.hook, YieldState.thread_runner, YieldState.guard = YieldState.hook, hook, thread_runner, guard
    return before


__all__ = [
    "FEW", "defer_free", "free_after", "free_by_parts", "free_list", "free_yielding", "install_hooks",
    "run_in_thread", "run_to_end", "yield_now", "yield_point", "yielding", "yielding_list", "yielding_range",
    "yielding_sort", "yielding_tuple",
]  # fmt: skip
