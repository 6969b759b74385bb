"""Captures over all workers: one file for each capture, which the supervisor begins and ends, and all workers write
into. A process without workers is a pool with one local worker.

Strategy. The supervisor polls their progress. When a worker reaches a limit, all are stopped; a worker that starts
later joins the capture. The last report of a worker that has ended stays in the sums; the number of exchanges and the
size are in the shared table, and exact.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import msgspec
import trio

from kproxy.admin.captures import CaptureQuery, CaptureShown, no_such_capture
from kproxy.admin.problem import Problem
from kproxy.base.system import BINARY
from kproxy.record.captures.capture_file import PERMISSIONS, BlockFile, CaptureLimits, CapturePart, StopReason, Totals
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.running_captures import (
    STOP_TIMEOUT,
    SUFFIX,
    Captures,
    make_folder,
    not_written,
    usable,
)
from kproxy.record.captures.writer import CaptureWriter, ToWallTime
from kproxy.record.filters import Filter
from kproxy.runtime.io.channel import Channel, Method, Unanswered, remote

from .messages import JoinCapture

if TYPE_CHECKING:
    from .shared_table import SharedTable
    from .worker_pool import WorkerPool

P = ParamSpec("P")
R = TypeVar("R")

POLL_EVERY = 0.5
"""Seconds between two polls of running captures."""
MOST_REMEMBERED = 100
"""Captures that are over and still listed."""
NAMES = 1000
"""Hosts without an address that one worker may name in a capture: brokers, in most cases."""


class PartReport(msgspec.Struct, frozen=True):
    """State of one process in a capture. `stopped`: why it has stopped, empty while it writes. `error`: for `failed`.
    `unknown`: exchanges without a result of the filter."""

    broker_exchanges: int
    connections: int
    dropped: int
    unknown: int
    stopped: StopReason
    error: str


SUMS = ("broker_exchanges", "connections", "dropped", "unknown")


class WorkerCaptures:
    """Captures of the worker with this number. `table`: the table shared by all workers."""

    def __init__(self, captures: Captures | None, index: int, table: SharedTable | LocalTable) -> None:
        self.captures, self.index, self.table = captures, index, table

    @remote()
    async def join(self, join: JoinCapture) -> None:
        """Write into the supervisor's capture; the first worker records the topics. Raises CaptureRefused."""
        assert self.captures is not None, "the config has a folder for them"
        totals = Totals(self.table.cells(join.owner, None), monotonic)
        capture = self.captures.join(
            Path(join.path),
            CapturePart(totals, self.index * NAMES),
            wanted=join.filter,
            policy=Policy(join.payload, join.head),
            limits=CaptureLimits(join.size, join.seconds, join.exchanges),
            side=join.side,
            topics=join.topics and not self.index,
        )
        await self.captures.record_topics(capture)

    @remote()
    async def show(self, name: str) -> PartReport:
        assert self.captures is not None, "it has joined"
        capture = self.captures[name]
        file, written = capture.file, capture.file.written
        return PartReport(written.broker_exchanges, written.connections, file.dropped, capture.sink.wanted.unknown,
                          file.stopped, file.error)  # fmt: skip

    @remote()
    async def stop(self, name: str) -> PartReport:
        """Stop writing; return once this process has written all, or after STOP_TIMEOUT."""
        assert self.captures is not None, "it has joined"
        capture = self.captures[name]
        self.captures.fanout.remove(capture.sink)
        if not capture.file.stopped:
            capture.file.stop()
        complete = await trio.to_thread.run_sync(capture.file.join, STOP_TIMEOUT)
        report = await self.show(name)
        if complete:  # otherwise `Captures.close` waits for its thread
            del self.captures.by_name[name]
        return report


class LocalPool:
    """This process as a pool with one worker, which is called without a channel."""

    index, ready, closed = 0, True, False

    def __init__(self, served: WorkerCaptures) -> None:
        self.served, self.channel, self.workers = served, self, [self]

    async def call(self, method: Method[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a method of the served object. Raises Unanswered for all its errors, as a channel does."""
        try:
            return await method(self.served, *args, **kwargs)
        except Exception as error:  # otherwise an error in `follow` would end the proxy
            raise Unanswered(str(error) or type(error).__name__) from error


class LocalTable:
    """Table of numbers for one process: its keys are few."""

    def __init__(self) -> None:
        self.by_owner: dict[bytes, LocalCells] = {}

    def cells(self, owner: bytes, what: str | None) -> LocalCells:
        return self.by_owner.setdefault(owner, LocalCells())

    def forget(self, owners: Iterable[bytes]) -> None:
        for owner in owners:
            self.by_owner.pop(owner, None)


class LocalCells:
    """Numbers of one key, shared by the threads of this process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.numbers: tuple[float, ...] = (0.0, 0.0)

    def take(self, now: float) -> tuple[float, ...]:
        self.lock.acquire()
        return self.numbers

    def put(self, *numbers: float, until: float | None = None) -> None:
        self.numbers = numbers or self.numbers
        self.lock.release()


@dataclass(eq=False)
class PoolCapture:
    """Capture over all workers. `parts`: the last report from each channel."""

    path: Path
    wanted: Filter
    join: JoinCapture
    totals: Totals
    writer: CaptureWriter
    file: BlockFile
    since: float = field(default_factory=time)
    began: float = field(default_factory=monotonic)
    parts: dict[Channel | LocalPool, PartReport | None] = field(default_factory=dict)
    changing: trio.Lock = field(default_factory=trio.Lock)
    stopped: Any = ""
    error: str = ""
    ended: float | None = None
    joining: bool = False  # a worker begins its part, and records topics for up to 2 s

    def sum(self, name: str) -> int:
        return sum(getattr(part, name) for part in self.parts.values() if part is not None)

    def shown(self) -> CaptureShown:
        written = self.writer.written
        size, exchanges = self.totals.grow(0) if self.ended is None else (written.size, written.exchanges)
        state: Literal["running", "ending", "stopped", "failed"] = "running"
        if self.stopped:
            state = "failed" if self.stopped == "failed" else "ending" if self.ended is None else "stopped"
        return CaptureShown(
            name=self.path.name,
            file=str(self.path),
            state=state,
            stopped=self.stopped,
            error=self.error or None,
            filter=str(self.wanted) if self.wanted else "",
            payload=self.join.payload,
            side=self.join.side,
            since=datetime.fromtimestamp(self.since, UTC).isoformat(timespec="milliseconds"),
            seconds=round((monotonic() if self.ended is None else self.ended) - self.began, 3),
            exchanges=exchanges,
            size=size,
            **{name: self.sum(name) for name in SUMS},
        )


class PoolCaptures:
    """Captures over all workers. `folder` None: captures are disabled. `wall` makes the clock of a capture; `topics` is
    the default for its topics."""

    def __init__(
        self,
        folder: str | Path | None,
        pool: WorkerPool | LocalPool,
        table: SharedTable | LocalTable,
        wall: Callable[[], ToWallTime],
        instance: str,
        *,
        topics: bool = True,
    ) -> None:
        self.topics = topics
        self.folder = None if folder is None else Path(folder)
        self.pool, self.table, self.wall, self.instance = pool, table, wall, instance
        self.by_name: dict[str, PoolCapture] = {}

    async def start(self, query: CaptureQuery) -> CaptureShown:
        """Start a capture. Raises CaptureRefused, FilterError, and Problem when a worker cannot write."""
        running = sum(not one.stopped for one in self.by_name.values())
        name = usable(self.folder, query.file, running)
        assert self.folder is not None, "looked at"
        wanted = Filter(query.filter)
        path = self.folder / name
        try:
            make_folder(self.folder)
            capture = self._make(path, wanted, query)
        except OSError as error:
            raise not_written(path, error) from None
        self.by_name.pop(name, None)
        self.by_name[name] = capture
        self._forget()
        await self._poll(capture)
        if capture.stopped == "failed":
            raise Problem(409, "capture_failed", f"{path} cannot be written: {capture.error}")
        return capture.shown()

    def _make(self, path: Path, wanted: Filter, query: CaptureQuery) -> PoolCapture:
        """Make a capture with its file begun. Raises OSError."""
        policy = Policy(query.payload, query.head)
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | BINARY
        file = BlockFile(os.open(path, how, PERMISSIONS))
        about = {"instance": self.instance or None, "filter": str(wanted) if wanted else None, "side": query.side}
        writer = CaptureWriter(file, policy, wall=self.wall(), about=about)
        file.flush()
        owner = blake2b(f"capture {path} {monotonic()!r}".encode(), digest_size=8).digest()
        totals = Totals(self.table.cells(owner, None), monotonic)
        totals.grow(writer.written.size)
        join = JoinCapture(str(path), owner, query.filter, query.payload, query.head, query.side, query.max_size,
                           query.max_seconds, query.max_exchanges,
                           self.topics if query.topics is None else query.topics)  # fmt: skip
        return PoolCapture(path, wanted, join, totals, writer, file)

    async def show_all(self) -> list[CaptureShown]:
        await self._poll_all()
        return [capture.shown() for capture in self.by_name.values()]

    async def show(self, name: str) -> CaptureShown:
        await self._poll_all()
        return self._find(name).shown()

    async def stop(self, name: str) -> CaptureShown:
        capture = self._find(name)
        await self._stop(capture)
        return capture.shown()

    async def _stop(self, capture: PoolCapture, why: str = "asked") -> None:
        """Stop a capture; return when its file is complete."""
        async with capture.changing:
            if not capture.stopped:
                capture.stopped = why
            await self._report(capture, WorkerCaptures.stop)
            await trio.to_thread.run_sync(self._end, capture)

    async def report_last(self) -> None:
        """Read the final counts of the local worker, after its parts are complete and before `close`."""
        for capture in list(self.by_name.values()):
            if capture.ended is None:
                await self._report(capture, WorkerCaptures.show)

    def close(self) -> None:
        """Finish all files, after the workers have ended."""
        for capture in self.by_name.values():
            capture.stopped = capture.stopped or "proxy_ended"
            self._end(capture)

    async def follow(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Make all workers continue or end together, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(POLL_EVERY)
            await self._poll_all()

    def _find(self, name: str) -> PoolCapture:
        """Return a capture by its name, with or without `.pcapng`. Raises Problem."""
        capture = self.by_name.get(name) or self.by_name.get(name + SUFFIX)
        if capture is None:
            raise no_such_capture(name)
        return capture

    async def _poll_all(self) -> None:
        for capture in list(self.by_name.values()):
            if not capture.stopped and not capture.joining:
                await self._poll(capture)

    async def _poll(self, capture: PoolCapture) -> None:
        """Have all workers write into it, and detect whether one of them has stopped."""
        async with capture.changing:
            for worker in self.pool.workers:
                channel = worker.channel
                if capture.stopped or not worker.ready or channel is None or channel in capture.parts:
                    continue
                capture.parts[channel], capture.joining = None, True
                try:
                    await channel.call(WorkerCaptures.join, capture.join)
                except Unanswered as error:
                    if not channel.closed:
                        place = f"worker {worker.index}: " if len(self.pool.workers) > 1 else ""
                        capture.stopped, capture.error = "failed", f"{place}{error}"
                finally:
                    capture.joining = False
            await self._report(capture, WorkerCaptures.show)
            for part in capture.parts.values():
                if part is not None and part.stopped and not capture.stopped:
                    capture.stopped, capture.error = part.stopped, part.error
            if not capture.stopped and monotonic() - capture.began >= capture.join.seconds:
                capture.stopped = "max_seconds"
        if capture.stopped:
            await self._stop(capture)

    async def _report(
        self, capture: PoolCapture, method: Callable[[WorkerCaptures, str], Awaitable[PartReport]]
    ) -> None:
        """Replace the workers' reports by the results of this method. The last report of a worker that fails counts."""

        async def ask(channel: Channel | LocalPool) -> None:
            with suppress(Unanswered):
                capture.parts[channel] = await channel.call(method, capture.path.name)

        async with trio.open_nursery() as nursery:
            for channel in list(capture.parts):
                if not channel.closed:
                    nursery.start_soon(ask, channel)

    def _end(self, capture: PoolCapture) -> None:
        """Write the last block, with the totals of all workers, unless a worker could not write."""
        if capture.ended is not None:
            return
        capture.ended = monotonic()
        broken = [part for part in capture.parts.values() if part is not None and part.stopped == "failed"]
        if broken:
            capture.stopped, capture.error = "failed", broken[0].error
        size, exchanges = capture.totals.grow(0)
        written = capture.writer.written
        written.exchanges, written.broker_exchanges = exchanges, capture.sum("broker_exchanges")
        written.connections = capture.sum("connections")
        written.size = size
        try:
            with capture.file:
                if not broken:  # a block after a block that was cut would damage the file for readers
                    capture.writer.finish(
                        capture.ended, capture.stopped, capture.sum("dropped"), writers=len(capture.parts)
                    )
        except OSError as error:
            capture.stopped, capture.error = "failed", (error.strerror or str(error)).lower()
        self.table.forget({capture.join.owner})

    def _forget(self) -> None:
        over = [name for name, one in self.by_name.items() if one.stopped]
        for name in over[: max(0, len(over) - MOST_REMEMBERED)]:
            del self.by_name[name]
