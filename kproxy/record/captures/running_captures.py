"""The captures of a running proxy, by name, below one folder, and the sink of each.

Calls come from the loop's thread. A capture that ends by itself reports that in its own thread. `soon` runs in the
loop, which detaches its sink.

A sink evaluates its filter for the client-side exchange. A broker-side exchange finds its counterpart as in a capture
that is read (`record/captures/pairs.py`). It is written only if its bytes differ from the client side's. Requests of
kproxy's own have no counterpart: they are written at the end of their connection, if the filter matches them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

from kproxy.base.errors import InputError
from kproxy.record.exchange import Depth, Frame, ObservedExchange, Who
from kproxy.record.fanout import Fanout
from kproxy.record.filters import Filter
from kproxy.rules.filter.fields import View

from .capture_file import CaptureFile, CaptureLimits, CapturePart
from .pairs import SideMatcher, kept_bytes
from .policy import CaptureSide, Policy
from .writer import CaptureEndpoint, ToWallTime

KAFKA_PORT = 9092


class Unwanted(Enum):
    """Mark of an exchange that a capture's filter does not hold for, and so for none of its sides."""

    UNWANTED = 0


UNWANTED = Unwanted.UNWANTED


@dataclass(slots=True)
class WatchedConnection:
    """Connection that a capture watches. `opened`: None if it is older than the capture. `recorded`: it is in the
    file."""

    server: CaptureEndpoint
    opened: float | None
    recorded: bool = False


class CaptureSink:
    """Sink of one capture.

    `server`: the address at kproxy that a client is connected to. `view`: an exchange as filters see it.
    """

    def __init__(
        self, file: CaptureFile, policy: Policy, wanted: Filter, side: CaptureSide,
        server: Callable[[Who], CaptureEndpoint], view: Callable[[ObservedExchange], View],
    ) -> None:  # fmt: skip
        self.file, self.policy, self.wanted, self.side = file, policy, wanted, side
        self.server, self.view = server, view
        self.watched: dict[int, WatchedConnection] = {}
        self.matcher = SideMatcher[ObservedExchange | Unwanted, ObservedExchange](math.inf)

    @property
    def broker_side(self) -> bool:
        return self.side != "client"

    def depth(self, key: int, version: int) -> Depth:
        """Return SKETCH or more for exchanges that the filter can match, COUNT for all others."""
        if not self.wanted.possible(key, version):
            return Depth.COUNT
        return max(Depth.SKETCH, self.policy.depth, self.wanted.depth(key, version))

    def opened(self, who: Who, now: float) -> None:
        # A connection that is older than the capture begins in it with its first request.
        self.watched[who.number] = WatchedConnection(self.server(who), now if now >= self.file.began else None)

    def take(self, seen: ObservedExchange) -> None:
        if self.file.stopped:
            return
        watched = self._watched(seen.who)
        meant = self._meant(seen)
        if meant and self.side != "broker":
            watched.recorded = True
            self.file.exchange(seen, watched.server, watched.opened, behind=False)
        if self.broker_side and not seen.answered_by_rule:
            self._write_pairs(self.matcher.front(seen, seen if meant else UNWANTED, kept_bytes(seen) if meant else 0))

    def take_behind(self, seen: ObservedExchange) -> None:
        if not self.file.stopped and self.broker_side:
            settled = self.matcher.behind(seen, seen, kept_bytes(seen))
            if settled:
                self._write_pairs(settled)

    def closed(self, who: Who, now: float) -> None:
        self._write_pairs(self.matcher.end(who.number))
        watched = self.watched.pop(who.number, None)
        if watched is not None and watched.recorded:
            self.file.closed(who, now)

    def _write_pairs(self, pairs: Iterable[tuple[ObservedExchange | Unwanted | None, ObservedExchange | None]]) -> None:
        """Write what passed at the broker: where it is another than its counterpart, if that is meant; and what has
        none, if the filter holds for it."""
        for front, behind in pairs:
            if behind is None or front is UNWANTED:
                continue
            if self._meant(behind) if front is None else differ(front, behind):
                self._write_behind(behind)

    def _watched(self, who: Who) -> WatchedConnection:
        """Return the record of a connection, made here if the connection was watched before the capture began."""
        watched = self.watched.get(who.number)
        if watched is None:
            watched = self.watched[who.number] = WatchedConnection(self.server(who), None)
        return watched

    def _meant(self, seen: ObservedExchange) -> bool:
        return not self.wanted or self.wanted.holds(self.view(seen))

    def _write_behind(self, seen: ObservedExchange) -> None:
        watched = self._watched(seen.who)
        watched.recorded = True
        self.file.exchange(seen, host_port(seen.who.broker), watched.opened, behind=True)


def differ(front: ObservedExchange, behind: ObservedExchange) -> bool:
    """Return True if the broker got, or sent, other bytes than the client."""
    return frames_differ(front.request, behind.request) or frames_differ(front.response, behind.response)


def frames_differ(front: Frame | None, behind: Frame | None) -> bool:
    if front is None or behind is None:
        return front is not behind
    return front.size != behind.size or front.data != behind.data


def host_port(address: str | None) -> CaptureEndpoint:
    """Split `host:port` or `[v6]:port`; an address without a port gets Kafka's."""
    host, _, port = (address or "unknown").rpartition(":")
    if not port.isdecimal():
        return (address or "unknown").strip("[]"), KAFKA_PORT
    return host.strip("[]"), int(port)


SUFFIX = ".pcapng"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
"""A file name without a folder, so that nothing outside of the folder can be meant."""
NAMES = 'letters, digits, "_", "-" and ".", but no "." at the beginning, at most 200, make the name of a capture'
MOST_RUNNING = 16
"""At a time; each has a thread and a queue of its own."""
STOP_TIMEOUT = 5.0
"""Seconds for waiting exchanges to be written when a capture is stopped."""


class CaptureRefused(InputError):
    """Error for a capture that cannot be started.

    `code`: invalid_query, capture_exists, capture_failed, no_captures, too_many_captures.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class NoSuchCapture(InputError):
    """Error for a capture's name that is not known."""


@dataclass(slots=True)
class StartedCapture:
    """Part of this process in a capture, still running or over."""

    sink: CaptureSink
    file: CaptureFile
    topics: bool
    """kproxy records the topics in it by requests of its own."""


class Captures:
    """Parts of one process in captures that were not stopped yet, by the name of the file.

    `soon` calls a function in the loop, from any thread. `server`: the address at kproxy that a client is connected to.
    `view`: an exchange as filters see it. `wall` makes the clock of a capture when it begins, since the system's clock
    may have been set after the process began. `begun` and `ending` are called in the loop when a capture has begun, and
    after its last exchange; `ending` must have `CaptureFile.done` called.
    """

    def __init__(
        self, fanout: Fanout, *, server: Callable[[Who], CaptureEndpoint], wall: Callable[[], ToWallTime],
        soon: Callable[[Callable[[], None]], object], view: Callable[[ObservedExchange], View],
    ) -> None:  # fmt: skip
        self.begun: Callable[[StartedCapture], Awaitable[None]] | None = None
        self.ending: Callable[[StartedCapture], None] | None = None
        self.last: Callable[[list[StartedCapture]], Awaitable[None]] | None = None
        self.fanout, self.server, self.wall, self.soon, self.view = fanout, server, wall, soon, view
        self.by_name: dict[str, StartedCapture] = {}

    def join(
        self, path: Path, part: CapturePart, *, wanted: str, policy: Policy, limits: CaptureLimits, side: CaptureSide,
        topics: bool,
    ) -> StartedCapture:  # fmt: skip
        """Start to write into a capture that the supervisor has begun. Raises CaptureRefused."""
        meant, name = Filter(wanted), path.name
        ending = None if self.ending is None else lambda: self._in_loop(self._end, name)
        over = partial(self._in_loop, self._detach, name)
        try:
            # its thread has the loop call `_detach` and `_end`
            file = CaptureFile(path, policy, limits, self.wall(), over, part, ending)
        except OSError as error:
            raise CaptureRefused("capture_failed", (error.strerror or str(error)).lower()) from None
        sink = CaptureSink(file, policy, meant, side, self.server, self.view)
        capture = self.by_name[name] = StartedCapture(sink, file, topics and side == "both")
        self.fanout.add(capture.sink)
        return capture

    async def record_topics(self, capture: StartedCapture) -> None:
        """Record the topics at the start of a capture, as far as that takes little time."""
        if self.begun is not None and capture.topics:
            await self.begun(capture)

    def __getitem__(self, name: str) -> StartedCapture:
        """Raises NoSuchCapture."""
        if name not in self.by_name:
            raise NoSuchCapture(f'unknown capture "{name}"')
        return self.by_name[name]

    def close(self) -> None:
        """Stop all captures when the proxy ends, and write what waits. Blocks for at most STOP_TIMEOUT each."""
        captures = list(self.by_name.values())  # the loop removes captures that it stops during this call
        for capture in captures:
            if not capture.file.stopped:
                self.fanout.remove(capture.sink)
                capture.file.stop("proxy_ended")
        for capture in captures:
            capture.file.join(STOP_TIMEOUT)

    async def record_last_topics(self) -> None:
        running = [one for one in self.by_name.values() if one.topics and not (one.file.stopped or one.file.leaving)]
        if self.last is not None and running:
            await self.last(running)

    def _in_loop(self, call: Callable[[str], None], name: str) -> None:
        """Have the loop call a method with the capture's name; called in the capture's thread."""
        try:
            self.soon(lambda: call(name))
        except RuntimeError:  # the loop has ended before
            return

    def _end(self, name: str) -> None:
        capture = self.by_name.get(name)
        if capture is not None and self.ending is not None:
            self.ending(capture)

    def _detach(self, name: str) -> None:
        capture = self.by_name.get(name)
        if capture is not None and capture.file.stopped:
            self.fanout.remove(capture.sink)


def usable(folder: Path | None, name: str, running: int) -> str:
    """Return the file name of a capture that may be started while `running` others run. Raises CaptureRefused."""
    if folder is None:
        raise CaptureRefused("no_captures", "no captures are made here, `captures: FOLDER` in the config allows them")
    if not NAME.fullmatch(name):
        raise CaptureRefused("invalid_query", f"file: {NAMES}, got {len(name)}: {shown(name)}")
    if running >= MOST_RUNNING:
        raise CaptureRefused("too_many_captures", f"{running} captures are running, at most {MOST_RUNNING} may")
    return name if name.endswith(SUFFIX) else name + SUFFIX


def make_folder(folder: Path) -> None:
    """Create the captures' folder if it is missing. Raises OSError."""
    if not folder.is_dir():
        folder.mkdir(parents=True)


def not_written(path: Path, error: OSError) -> CaptureRefused:
    """Return the error for a capture file that cannot be created."""
    if isinstance(error, FileExistsError):
        if not path.parent.is_dir():
            return CaptureRefused("capture_failed", f"{path.parent} is no folder")
        return CaptureRefused("capture_exists", f"{path} is there already, and is not overwritten")
    why = (error.strerror or str(error)).lower()
    return CaptureRefused("capture_failed", f"{path} cannot be written: {why}")


def shown(name: str) -> str:
    """Return a name as text for a message, shortened if it is long."""
    return repr(name if len(name) <= 60 else f"{name[:59]}…")
