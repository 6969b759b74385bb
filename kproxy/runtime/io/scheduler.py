"""Suspends long callbacks, and resumes them in turns.

Callbacks run inside a `Fiber`, a greenlet. The reactor's loop is a turn that calls one callback after another. A single
call from outside is a turn too. At each point where work may be suspended (`base/cooperative.py`) the turn checks the
clock. If the callback has used its time, the turn stops with its whole stack. A new turn continues the loop, so short
callbacks have no extra cost. `Fibers` resumes suspended turns, one slice at a time, after all ready sockets.
`fair_queue.py` defines the order.

Only the work of a `WorkOwner` can be suspended. The owner is frozen until the work resumes: no other callback of it may
run. All of it runs in one thread. Code that does not call `yield_point` is never interrupted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextvars import copy_context
from functools import partial
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import trio
from greenlet import GreenletExit, getcurrent, greenlet

from .fair_queue import Admission

if TYPE_CHECKING:
    from kproxy.runtime.connection import Connection

    from .reactor import Reactor

    WorkOwner: TypeAlias = "Connection | TaskWork"

SLICE = 0.005
"""Seconds that a new or resumed callback may take before others run; CPU seconds for a task."""
PAUSE = 0.0005
"""Seconds that a task sleeps between two slices. The reactor polls its sockets when no trio task can run."""
FEW = 16
"""Tasks that start or end in one step, out of thousands: a few milliseconds."""
BATCH_TIME = 0.020
"""Seconds after which longer callbacks of the same poll are suspended, so that their times do not add up."""
BUFFER = bytearray(262144)
"""Buffer of all reads. Data is sent or copied before the next read. Larger than 256 KiB made bulk no faster."""
GROWTH = 4096
"""Bytes by which data may grow in place; a suspended turn saves this many after its last read."""


T = TypeVar("T")


class Fiber(greenlet):
    """Stack for callbacks. `owner`: owner of the single call, or of the suspended callback."""

    def __init__(self, reactor: Reactor, run: Callable[[], Any], owner: WorkOwner | None = None) -> None:
        super().__init__(run)
        self.gr_context = copy_context()
        self.reactor, self.owner = reactor, owner
        self.begun = 0.0
        self.address = ""  # of its owner or side, once suspended
        self.level, self.slices = -1, 0  # see fair_queue.py
        self.at: tuple[int, ...] = ()  # (poll, callback) that is being timed
        self.waited = False
        self.side: object = None  # side of the callback, once suspended: its last read is in the buffer
        self.guarded = 0  # blocks that must finish
        self.given_up = False

    def maybe_preempt(self) -> None:
        """Suspend the running callback if it has used its time."""
        if self.given_up:
            return
        now, reactor = monotonic(), self.reactor
        if not self.waited:
            if reactor.batch != reactor.turns:
                reactor.batch, reactor.batch_begun = reactor.turns, now
            at = (reactor.turns, id(reactor.current))  # not a reference, which would outlive the connection
            if self.at != at:
                self.at, self.begun = at, now
            if now - reactor.batch_begun > BATCH_TIME:
                self.begun = 0.0
        if now - self.begun < SLICE:
            return
        owner = self.owner or owner_of(reactor.current)
        if owner is not None:
            self.suspend(owner, self.wait)

    def wait(self) -> None:
        assert self.owner is not None
        self.reactor.aside.wait(self.owner, self)

    def apart(self, work: Callable[[], Any]) -> Any:
        """Run the work in a thread, and suspend until it is done."""
        owner, add = self.owner or owner_of(self.reactor.current), self.reactor.aside.add_work
        if owner is None or add is None or self.given_up:
            return work()
        errand = Task(self, work)
        self.suspend(owner, lambda: add(self.address, errand, errand.run))
        if self.given_up:
            return work()
        if errand.error is not None:
            raise errand.error
        return errand.result

    def suspend(self, owner: WorkOwner, wait: Callable[[], None]) -> None:
        """Suspend until this turn is resumed. `wait` schedules that."""
        reactor = self.reactor
        if self.owner is None:  # the turn is the reactor's loop
            self.owner, self.side = owner, getattr(reactor.current, "__self__", None)
        read = bytes(memoryview(BUFFER)[: getattr(self.side, "reading", -GROWTH) + GROWTH])
        if not self.waited:
            self.waited, self.address = True, getattr(self.side, "address", "") or owner.address
        if reactor.loop is self:
            reactor.hand_over()
        owner.freeze(self)
        wait()
        assert self.parent is not None
        self.parent.switch()
        BUFFER[: len(read)] = read
        self.begun = monotonic()
        owner.thaw()

    def give_up(self) -> None:
        """Abort the suspended callback for good, once its guarded blocks have finished."""
        if not self.dead:
            self.parent = getcurrent()
            if self.guarded:
                self.given_up = True
                before = bytes(BUFFER)  # data of the current turn; the aborted one overwrites it
                self.switch()
                BUFFER[:] = before
            else:
                self.throw()
            self.reactor.aside.left(self)

    def guard(self, more: int) -> None:
        self.guarded += more
        if self.given_up and not self.guarded:
            raise GreenletExit


class Task:
    """Work that a thread does for a turn. The turn receives its exceptions; `crashed` does not."""

    def __init__(self, turn: Fiber, work: Callable[[], Any]) -> None:
        self.turn, self.work = turn, work
        self.result: Any = None
        self.error: Exception | None = None

    @property
    def closed(self) -> bool:
        return bool(self.turn.dead)

    def run(self) -> None:
        """Do the work in the thread, and store the result or exception."""
        try:
            self.result = self.work()
        except Exception as error:  # noqa: BLE001  # `apart` raises it
            self.error = error

    def computed(self, result: object) -> None:
        """Queue the turn again: the work is done."""
        self.turn.wait()

    def crashed(self, error: Exception) -> None:
        """Do nothing: `run` stores the exception."""


class TaskWork:
    """Work of a task, in a turn of its own. `turn` is set as long as it is suspended."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.turn: Fiber | None = None

    def freeze(self, turn: Fiber) -> None:
        self.turn = turn

    def thaw(self) -> None:
        self.turn = None

    def over(self) -> None:
        """Do nothing: the work itself notifies the task."""

    def crashed(self, error: Exception) -> None:
        """Do nothing: the task receives the exception of the work."""


class Fibers:
    """Suspended turns of one reactor."""

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self.order: Admission = Admission()
        self.add_work: Callable[[str, Task, Callable[[], None]], None] | None = None  # queues work for a thread
        self.stops = 0
        """Number of suspensions."""
        self.planned = False

    def wait(self, owner: WorkOwner, turn: Fiber) -> None:
        self.stops += 1
        self.order.add(turn)
        self.plan()

    def plan(self) -> None:
        if not self.planned:
            self.planned = True
            self.reactor.soon(self.resume)

    def resume(self) -> None:
        self.planned = False
        turn = self.order.next()
        if turn is None:
            return
        self.plan()
        owner = turn.owner
        assert owner is not None
        turn.parent = getcurrent()
        try:
            turn.switch()
        except Exception as error:
            self.reactor.log.error("a callback raised", callback=repr(turn), exc_info=error)
            owner.crashed(error)
        if turn.dead:
            self.left(turn)
            owner.over()

    def left(self, turn: Fiber) -> None:
        self.order.release(turn)
        self.plan()

    def enter(self, owner: WorkOwner, call: Callable[..., Any], *args: Any, **named: Any) -> None:
        """Run `call` as a separate turn, unless the current turn has the same owner. It may be suspended on return."""
        current = getcurrent()
        if isinstance(current, Fiber) and (current.owner or owner_of(self.reactor.current)) is owner:
            call(*args, **named)
        else:
            Fiber(self.reactor, partial(call, *args, **named), owner).switch()

    def close(self) -> None:
        for turn in self.order.all():
            turn.give_up()


def owner_of(callback: object) -> WorkOwner | None:
    """Return the owner of the callback, or None if it cannot be suspended."""
    there = getattr(callback, "__self__", None)
    owner: WorkOwner | None = getattr(there, "turns_of", None)
    return owner


def apart(work: Callable[[], Any]) -> Any:
    """Run long work in a thread if the caller is a turn, otherwise directly: a hook of `base.cooperative`."""
    current = getcurrent()
    return current.apart(work) if type(current) is Fiber else work()


def guard(more: int) -> None:
    """Count guarded blocks of the current turn: a hook of `base.cooperative`."""
    current = getcurrent()
    if type(current) is Fiber:
        current.guard(more)


def maybe_preempt() -> None:
    """Let the current turn check the clock: a hook of `base.cooperative`."""
    current = getcurrent()
    if type(current) is Fiber:
        current.maybe_preempt()


def work_through(loop: Reactor, steps: Iterator[object], done: Callable[[], object] = lambda: None) -> None:
    """Run short steps of long work in slices. Callbacks and tasks run between the slices. Then call `done`, also if a
    step raises, so that a periodic watch can plan its next run."""
    until = thread_time() + SLICE
    try:
        for _ in steps:
            if thread_time() > until:
                loop.soon(lambda: work_through(loop, steps, done))
                return
    except Exception:
        done()
        raise
    done()


async def in_turns(steps: Iterable[object]) -> None:
    """Run the steps of long work, and let other tasks run between them. Each step must be short."""
    until = thread_time() + SLICE
    for _ in steps:
        if thread_time() > until:
            await trio.sleep(PAUSE)
            until = thread_time() + SLICE


async def a_few_at_a_time(steps: Iterable[object]) -> None:
    """Run steps that each start or end a task, `FEW` at a time. The step is short, but trio runs all runnable tasks in
    one pass, and their work takes time."""
    for number, _ in enumerate(steps, 1):
        if not number % FEW:
            await trio.sleep(PAUSE)


async def in_a_turn(reactor: Reactor, address: str, work: Callable[[], T]) -> T:
    """Run long work that calls `yield_point`, with the CPU share of this address. Returns or raises as the work does.
    The work is suspended like that of connections. In a thread, the loop would wait for the GIL at each of its
    system calls."""
    if not reactor.driver:  # the reactor is not running
        return work()
    owner, done = TaskWork(address), trio.Event()
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001  # raised to the caller
            errors.append(error)
        reactor.notify(done)

    reactor.aside.enter(owner, run)
    try:
        await done.wait()
    except trio.Cancelled:
        if owner.turn is not None:
            owner.turn.give_up()
        raise
    if errors:
        raise errors[0]
    return results[0]


class Background:
    """Task that can be stopped. `spawn` starts a function in a nursery; `run` is the function of the task."""

    def __init__(self, spawn: Callable[..., object], run: Callable[[], Awaitable[object]]) -> None:
        self.scope = trio.CancelScope()
        spawn(self._run, run)

    async def _run(self, run: Callable[[], Awaitable[object]], *given: Any) -> None:
        with self.scope:
            await run()

    def stop(self) -> None:
        """Stop the task at its next checkpoint."""
        self.scope.cancel()
