"""Captures over all workers: one file for each, which the supervisor begins and ends, and all workers write into.

Strategy. The supervisor asks now and then how far they are. When one of them has come to a limit, all are stopped; a
worker that begins later writes along from then on. What one that has ended had said last stays in the sums; the number
of exchanges, and the size, are in the table that all share, and exact.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from time import monotonic, time
from typing import Any, Literal, cast

import trio

from kproxy.admin.captures import CaptureShown
from kproxy.admin.problem import Problem
from kproxy.capture.policy import Policy
from kproxy.capture.writer import CaptureWriter, ToWallTime
from kproxy.net.workers.broadcast import Recipients
from kproxy.net.workers.channel import Channel, Unanswered
from kproxy.net.workers.shared_table import SharedTable
from kproxy.sinks.capture_file import PERMISSIONS, CaptureLimits
from kproxy.sinks.captures import MOST_REMEMBERED, SUFFIX, NoSuchCapture, make_folder, not_written, usable
from kproxy.sinks.shared_file import BlockFile, Totals
from kproxy.watch.filter.filter import Filter

from .messages import JoinCapture, Operate

LOOK = 0.5
"""Seconds between two looks at captures that run."""
PATIENCE = 10.0
"""Seconds for an answer: one that stops writes what waits, for five seconds at most."""
SUMS = ("broker_exchanges", "connections", "dropped", "unknown")


@dataclass(eq=False)
class PoolCapture:
    """Capture over all workers. `parts`: what the process behind each channel has said last."""

    path: Path
    wanted: Filter
    policy: Policy
    limits: CaptureLimits
    join: JoinCapture
    totals: Totals
    writer: CaptureWriter
    file: BlockFile
    since: float = field(default_factory=time)
    began: float = field(default_factory=monotonic)
    parts: dict[Channel, dict[str, Any]] = field(default_factory=dict)
    changing: trio.Lock = field(default_factory=trio.Lock)
    stopped: Any = ""
    error: str = ""
    ended: float | None = None

    def sum(self, name: str) -> int:
        return sum(part.get(name, 0) for part in self.parts.values())

    def shown(self) -> CaptureShown:
        """Return the capture as the API shows one."""
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
            payload=self.policy.payload,
            side=self.join.side,
            since=datetime.fromtimestamp(self.since, UTC).isoformat(timespec="milliseconds"),
            seconds=round((monotonic() if self.ended is None else self.ended) - self.began, 3),
            exchanges=exchanges,
            size=size,
            **{name: self.sum(name) for name in SUMS},
        )


class PoolCaptures:
    """Captures over all workers. `folder` None: there are none. `wall` makes the clock of a capture, see
    `sinks.captures`."""

    def __init__(
        self,
        folder: str | Path | None,
        pool: Recipients,
        table: SharedTable,
        wall: Callable[[], ToWallTime],
        instance: str,
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        self.pool, self.table, self.wall, self.instance = pool, table, wall, instance
        self.by_name: dict[str, PoolCapture] = {}

    async def start(self, query: Any) -> PoolCapture:
        """Start a capture; `query` is as the API has it. Raises CaptureRefused, FilterError, and Problem when a worker
        cannot write."""
        running = sum(not one.stopped for one in self.by_name.values())
        name = usable(self.folder, query.file, running)
        assert self.folder is not None, "looked at"
        wanted = Filter(query.filter)
        path = self.folder / name
        try:
            make_folder(self.folder)
            made = self._make(path, wanted, query)
        except OSError as error:
            raise not_written(path, error) from None
        self.by_name.pop(name, None)
        self.by_name[name] = made
        self._forget()
        await self._look(made)
        if made.stopped == "failed":
            raise Problem(409, "capture_failed", f"{path} cannot be written: {made.error}")
        return made

    def _make(self, path: Path, wanted: Filter, query: Any) -> PoolCapture:
        """Make a capture with its file begun. Raises OSError."""
        policy = Policy(query.payload, query.head)
        limits = CaptureLimits(query.max_size, query.max_seconds, query.max_exchanges)
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        file = BlockFile(os.open(path, how, PERMISSIONS))
        about = {"instance": self.instance or None, "filter": str(wanted) if wanted else None, "side": query.side}
        writer = CaptureWriter(cast("Any", file), policy, wall=self.wall(), about=about)
        file.flush()
        owner = blake2b(f"capture {path} {monotonic()!r}".encode(), digest_size=8).digest()
        totals = Totals(self.table.cells(owner, None), monotonic)
        totals.grow(writer.written.size)
        join = JoinCapture(str(path), owner, query.filter, query.payload, query.head, query.side, limits.size,
                           limits.seconds, limits.exchanges)  # fmt: skip
        return PoolCapture(path, wanted, policy, limits, join, totals, writer, file)

    async def stop(self, one: PoolCapture, why: str = "asked") -> None:
        """Stop a capture; return when its file is whole."""
        async with one.changing:
            if not one.stopped:
                one.stopped = why
            await self._ask(one, "stop_capture")
            self._end(one)

    def close(self) -> None:
        """Finish all files: workers have ended, and with them what they wrote."""
        for one in self.by_name.values():
            one.stopped = one.stopped or "proxy_ended"
            self._end(one)

    async def follow(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See to it that all workers go on, or end, together, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(LOOK)
            for one in list(self.by_name.values()):
                if not one.stopped:
                    await self._look(one)

    def __getitem__(self, name: str) -> PoolCapture:
        """Return a capture by its name, with or without `.pcapng`. Raises NoSuchCapture."""
        found = self.by_name.get(name) or self.by_name.get(name + SUFFIX)
        if found is None:
            raise NoSuchCapture(f'there is no capture "{name}"')
        return found

    async def look(self) -> None:
        """Have the newest numbers of those that run."""
        for one in list(self.by_name.values()):
            if not one.stopped:
                await self._look(one)

    async def _look(self, one: PoolCapture) -> None:
        """Have all workers write into it, and find out whether one of them has come to an end."""
        async with one.changing:
            for worker in self.pool.workers:
                channel = worker.channel
                if one.stopped or not worker.ready or channel is None or channel in one.parts:
                    continue
                one.parts[channel] = {}
                try:
                    await channel.ask(one.join, PATIENCE)
                except Unanswered as error:
                    if not channel.closed:
                        one.stopped, one.error = "failed", f"worker {worker.index}: {error}"
            await self._ask(one, "get_capture")
            for part in one.parts.values():
                if part.get("stopped") and not one.stopped:
                    one.stopped = part["stopped"]
                    one.error = part["error"] or ""
            if not one.stopped and monotonic() - one.began >= one.limits.seconds:
                one.stopped = "max_seconds"
        if one.stopped:
            await self.stop(one)

    async def _ask(self, one: PoolCapture, name: str) -> None:
        async def ask(channel: Channel) -> None:
            try:
                said = await channel.ask(Operate(name, {"name": one.path.name}, {}), PATIENCE)
            except Unanswered:
                return  # what it said last counts
            if said.shown is not None:
                one.parts[channel] = said.shown

        async with trio.open_nursery() as nursery:
            for channel in list(one.parts):
                if not channel.closed:
                    nursery.start_soon(ask, channel)

    def _end(self, one: PoolCapture) -> None:
        """Write the last block, with what all have written."""
        if one.ended is not None:
            return
        one.ended = monotonic()
        size, exchanges = one.totals.grow(0)
        written = one.writer.written
        written.exchanges, written.broker_exchanges = exchanges, one.sum("broker_exchanges")
        written.connections = one.sum("connections")
        written.size = size
        try:
            with one.file:
                one.writer.finish(one.ended, one.stopped, one.sum("dropped"))
        except OSError as error:
            one.stopped, one.error = "failed", (error.strerror or str(error)).lower()
        self.table.forget(one.join.owner)

    def _forget(self) -> None:
        over = [name for name, one in self.by_name.items() if one.stopped]
        for name in over[: max(0, len(over) - MOST_REMEMBERED)]:
            del self.by_name[name]
