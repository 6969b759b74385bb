"""Callbacks that take too long are put aside in the middle, and go on in turn with others.

Strategy. Callbacks run inside a `Turn`, a greenlet: one that goes from callback to callback (the loop of the reactor),
or one for a single call from outside. Where work may be put aside (`protocol/breath.py`) the turn looks at the clock.
If its callback has had its time the turn stops there, with its whole stack, and hands over: a new one goes on with the
loop, so nothing is paid by callbacks that end in time. What has stopped is resumed for one slice a time by `Turns`,
after all sockets that were ready have been served, in the order that fair_queue.py says.

Whose work it is must be a `WorkOwner`: it is `frozen` while it waits, and nothing else of it may run. All in here
is one thread; code that does not call into `breath` is never interrupted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextvars import copy_context
from functools import partial
from time import monotonic, thread_time
from typing import Any, Protocol, TypeVar

import trio
from greenlet import GreenletExit, getcurrent, greenlet
from structlog.typing import FilteringBoundLogger

from .fair_queue import Order

SLICE = 0.005
"""Seconds that a callback, or one that goes on, may take before others have their turn; CPU seconds of a task."""
PAUSE = 0.0005
"""Seconds that a task sleeps between two slices: the reactor polls its sockets when no trio task can run."""
FEW = 16
"""Tasks that begin or end at once where there may be thousands: a few milliseconds."""
BATCH_TIME = 0.020
"""Seconds after which those callbacks of one poll that are not short have to wait, so that they do not add up."""
BUFFER = bytearray(262144)
"""Every read lands here, and is sent or copied before the next one. 256 KiB: larger ones made bulk no faster."""
GROWTH = 4096
"""Bytes by which what was read may grow in place: so many more are kept for a turn that stops."""


T = TypeVar("T")


class WorkOwner(Protocol):
    """Owner of work that can be put aside."""

    @property
    def address(self) -> str:
        """Return the name of the share of CPU that the work uses, such as a client network."""

    def freeze(self, turn: Turn) -> None: ...
    def thaw(self) -> None: ...
    def over(self) -> None: ...
    def crashed(self, error: Exception) -> None: ...


class SoonLoop(Protocol):
    """Reactor, as far as it calls something a little later."""

    def soon(self, call: Callable[[], None]) -> None: ...


class TurnLoop(Protocol):
    """Reactor, as far as the turns on which its callbacks run use it."""

    turns: int
    batch: int
    batch_begun: float
    loop: Turn | None
    current: Callable[..., object] | None

    @property
    def log(self) -> FilteringBoundLogger: ...
    @property
    def aside(self) -> Turns: ...
    def soon(self, call: Callable[[], None]) -> None: ...
    def hand_over(self) -> None: ...


class Turn(greenlet):
    """Stack on which callbacks run. `owner`: whose single call it is, or whose callback was put aside."""

    def __init__(self, reactor: TurnLoop, run: Callable[[], Any], owner: WorkOwner | None = None) -> None:
        super().__init__(run)
        self.gr_context = copy_context()
        self.reactor, self.owner = reactor, owner
        self.begun = 0.0
        self.address = ""  # of its owner or side, once it has stopped
        self.level, self.slices = -1, 0  # see fair_queue.py
        self.at: tuple[int, ...] = ()  # the callback whose time is measured
        self.waited = False
        self.side: object = None  # whose callback it is, once it has stopped: its last read lies in the buffer
        self.guarded = 0  # blocks that are to be gone through to their end
        self.given_up = False

    def look(self) -> None:
        """Put the callback at hand aside if it has had its time."""
        if self.given_up:
            return
        now, reactor = monotonic(), self.reactor
        if not self.waited:
            if reactor.batch != reactor.turns:
                reactor.batch, reactor.batch_begun = reactor.turns, now
            at = (reactor.turns, id(reactor.current))  # no reference: it would outlive its connection
            if self.at != at:
                self.at, self.begun = at, now
            if now - reactor.batch_begun > BATCH_TIME:
                self.begun = 0.0
        if now - self.begun < SLICE:
            return
        owner = self.owner or owner_of(reactor.current)
        if owner is not None:
            self.stop(owner, self.wait)

    def wait(self) -> None:
        assert self.owner is not None
        self.reactor.aside.wait(self.owner, self)

    def apart(self, work: Callable[[], Any]) -> Any:
        """Have a thread do the work, and wait for it."""
        owner, add = self.owner or owner_of(self.reactor.current), self.reactor.aside.add_work
        if owner is None or add is None or self.given_up:
            return work()
        errand = Errand(self, work)
        self.stop(owner, lambda: add(self.address, errand, errand.run))
        if self.given_up:
            return work()
        if errand.error is not None:
            raise errand.error
        return errand.result

    def stop(self, owner: WorkOwner, wait: Callable[[], None]) -> None:
        """Wait until it is this one's turn again; `wait` sees to that."""
        reactor = self.reactor
        if self.owner is None:  # the reactor's own loop
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
        """Leave the callback that was put aside, for good, as soon as what it must finish is through."""
        if not self.dead:
            self.parent = getcurrent()
            if self.guarded:
                self.given_up = True
                before = bytes(BUFFER)  # what the turn at hand has read; this one puts its own there
                self.switch()
                BUFFER[:] = before
            else:
                self.throw()
            self.reactor.aside.left(self)

    def guard(self, more: int) -> None:
        self.guarded += more
        if self.given_up and not self.guarded:
            raise GreenletExit


class Errand:
    """Work that a thread does for a turn; `crashed` is not for what it raises, which the turn gets."""

    def __init__(self, turn: Turn, work: Callable[[], Any]) -> None:
        self.turn, self.work = turn, work
        self.result: Any = None
        self.error: Exception | None = None

    @property
    def closed(self) -> bool:
        return bool(self.turn.dead)

    def run(self) -> None:
        """Do the work, in the thread, and keep its outcome."""
        try:
            self.result = self.work()
        except Exception as error:  # noqa: BLE001  # it is raised where the work was asked for
            self.error = error

    def computed(self, result: object) -> None:
        """Put the turn in line again: the work is done."""
        self.turn.wait()

    def crashed(self, error: Exception) -> None:
        """Do nothing: `run` keeps what it raises."""


class TaskWork:
    """Work of a task that runs as a turn of its own. `turn`: while it is put aside."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.turn: Turn | None = None

    def freeze(self, turn: Turn) -> None:
        self.turn = turn

    def thaw(self) -> None:
        self.turn = None

    def over(self) -> None:
        """Do nothing: the task is told by its own work."""

    def crashed(self, error: Exception) -> None:
        """Do nothing: what the work raises is for its task."""


class TaskReactor(TurnLoop, Protocol):
    """Reactor, as far as tasks have turns of it. `driver`: empty until it runs."""

    driver: str

    def notify(self, event: trio.Event) -> None: ...


class Turns:
    """Turns of one reactor that wait to go on."""

    def __init__(self, reactor: TurnLoop) -> None:
        self.reactor = reactor
        self.order: Order[Turn] = Order()
        self.add_work: Callable[[str, Errand, Callable[[], None]], None] | None = None  # gives work to a thread
        self.stops = 0
        """How often work was put aside."""
        self.planned = False

    def wait(self, owner: WorkOwner, turn: Turn) -> None:
        self.stops += 1
        self.order.add(turn)
        self.plan()

    def plan(self) -> None:
        if not self.planned:
            self.planned = True
            self.reactor.soon(self.resume)

    def resume(self) -> None:
        """Let the next turn go on, for one slice."""
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

    def left(self, turn: Turn) -> None:
        self.order.leave(turn)
        self.plan()

    def enter(self, owner: WorkOwner, call: Callable[..., Any], *args: Any, **named: Any) -> None:
        """Call it as a turn of its own, if it does not come from a turn of this owner. It may not be over on return."""
        current = getcurrent()
        if isinstance(current, Turn) and (current.owner or owner_of(self.reactor.current)) is owner:
            call(*args, **named)
        else:
            Turn(self.reactor, partial(call, *args, **named), owner).switch()

    def close(self) -> None:
        """End all turns that wait: none goes on any more."""
        for turn in self.order.all():
            turn.give_up()


def owner_of(callback: object) -> WorkOwner | None:
    """Return the owner of the callback, if it can be put aside."""
    there = getattr(callback, "__self__", None)
    owner: WorkOwner | None = getattr(there, "turns_of", None)
    return owner


def apart(work: Callable[[], Any]) -> Any:
    """Do long work in a thread, where a turn can wait for it: a hook of `protocol.breath`."""
    current = getcurrent()
    return current.apart(work) if type(current) is Turn else work()


def guard(more: int) -> None:
    """Count blocks that are to be finished, for the turn at hand: a hook of `protocol.breath`."""
    current = getcurrent()
    if type(current) is Turn:
        current.guard(more)


def look() -> None:
    """Let the turn at hand look at the clock: a hook of `protocol.breath`."""
    current = getcurrent()
    if type(current) is Turn:
        current.look()


def work_through(loop: SoonLoop, steps: Iterator[object], done: Callable[[], object] = lambda: None) -> None:
    """Run short steps of long work in slices, between which callbacks and tasks run. Then call `done`, also if a step
    raises: a watch that plans its next run there goes on."""
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
    """Go through the steps of long work, each of which is short, and let other tasks run now and then."""
    until = thread_time() + SLICE
    for _ in steps:
        if thread_time() > until:
            await trio.sleep(PAUSE)
            until = thread_time() + SLICE


async def a_few_at_a_time(steps: Iterable[object]) -> None:
    """Go through steps each of which has a task begin or end. That takes little; what the task does then takes its
    time, and trio has all that can run do it in one go."""
    for number, _ in enumerate(steps, 1):
        if not number % FEW:
            await trio.sleep(PAUSE)


async def in_a_turn(reactor: TaskReactor, address: str, work: Callable[[], T]) -> T:
    """Do long work that breathes, for whoever is at this address, and return or raise what it does: it is put aside
    like that of connections. A thread would have the loop wait for the interpreter at each of its system calls."""
    if not reactor.driver:  # it serves nobody
        return work()
    owner, done = TaskWork(address), trio.Event()
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001  # it is the caller's
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
    """Task that can be stopped. `spawn` starts a function in some nursery, `run` is what the task does."""

    def __init__(self, spawn: Callable[..., object], run: Callable[[], Awaitable[object]]) -> None:
        self.scope = trio.CancelScope()
        spawn(self._run, run)

    async def _run(self, run: Callable[[], Awaitable[object]], *given: Any) -> None:
        with self.scope:
            await run()

    def stop(self) -> None:
        """Stop the task, at the next point where it waits."""
        self.scope.cancel()
