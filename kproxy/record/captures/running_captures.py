"""The captures of a running proxy: started, stopped and listed by name, below one folder.

Calls come from the loop's thread. A capture that ends by itself says so in its own thread; `soon` brings that to the
loop, where its sink is taken off.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import time
from typing import Any

from kproxy.base.errors import InputError
from kproxy.record.exchange import ObservedExchange, Who
from kproxy.record.fanout import Fanout
from kproxy.record.filter.filter import Filter
from kproxy.rules.filter.fields import View

from .capture_file import CaptureFile, CaptureLimits, CapturePart, StopReason
from .capture_sink import CaptureSink
from .policy import CaptureSide, Policy
from .writer import CaptureEndpoint, ToWallTime

SUFFIX = ".pcapng"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
"""A file name without a folder, so that nothing outside of the folder can be meant."""
NAMES = 'letters, digits, "_", "-" and ".", but no "." at the beginning, at most 200, make the name of a capture'
MOST_RUNNING = 16
"""At a time; each has a thread and a queue of its own."""
MOST_REMEMBERED = 100
"""Captures that are over and still listed."""
HEADS, USUAL = Policy(), CaptureLimits()
STOP_TIMEOUT = 5.0
"""Seconds for what still waits to be written, when one is stopped."""


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
    """Capture that was started in this process, still running or over."""

    name: str
    sink: CaptureSink
    file: CaptureFile
    limits: CaptureLimits
    topics: bool
    """kproxy records the topics in it by requests of its own."""
    since: float = field(default_factory=time)
    """Time of the start, in seconds since 1970."""


class Captures:
    """Captures of one process, by name.

    `folder` None: captures are not allowed. `soon` calls a function in the loop, from any thread. `server`: the address
    at kproxy that a client is connected to. `view`: an exchange as filters see it. `wall` makes the clock of a capture
    when it begins, since the system's clock may have been set after the process began. `topics`: the default for the
    topics of a capture. `begun` and `ending` are called in the loop when a capture has begun, and after its last
    exchange; `ending` must have `CaptureFile.done` called.
    """

    def __init__(
        self, folder: str | Path | None, fanout: Fanout, *, server: Callable[[Who], CaptureEndpoint],
        wall: Callable[[], ToWallTime], soon: Callable[[Callable[[], None]], object],
        view: Callable[[ObservedExchange], View], instance: str = "",
    ) -> None:  # fmt: skip
        self.topics = True
        self.begun: Callable[[StartedCapture], Awaitable[None]] | None = None
        self.ending: Callable[[StartedCapture], None] | None = None
        self.last: Callable[[list[StartedCapture]], Awaitable[None]] | None = None
        self.folder = None if folder is None else Path(folder)
        self.fanout, self.server, self.wall, self.soon, self.view = fanout, server, wall, soon, view
        self.instance = instance
        self.by_name: dict[str, StartedCapture] = {}

    def start(
        self,
        name: str,
        *,
        wanted: str = "",
        policy: Policy = HEADS,
        limits: CaptureLimits = USUAL,
        side: CaptureSide = "both",
        topics: bool | None = None,
    ) -> StartedCapture:
        """Start a capture. Raises CaptureRefused, and FilterError for `wanted`."""
        topics = self.topics if topics is None else topics
        name = usable(self.folder, name, sum(not one.file.stopped for one in self.by_name.values()))
        meant = Filter(wanted)
        capture = self._make(name, meant, policy, limits, side, topics)
        self.by_name.pop(name, None)
        self.by_name[name] = capture
        self._forget()
        self.fanout.add(capture.sink)
        return capture

    def join(
        self, path: Path, part: CapturePart, *, wanted: str, policy: Policy, limits: CaptureLimits, side: CaptureSide,
        topics: bool,
    ) -> StartedCapture:  # fmt: skip
        """Start to write into a capture that another process has begun. Raises CaptureRefused."""
        meant, name = Filter(wanted), path.name
        try:
            file = self._file(path, policy, limits, {}, part)
        except OSError as error:
            raise not_written(path, error) from None
        sink = CaptureSink(file, policy, meant, side, self.server, self.view)
        capture = StartedCapture(name, sink, file, limits, topics and side == "both")
        self.by_name[name] = capture
        self._forget()
        self.fanout.add(capture.sink)
        return capture

    def _make(
        self, name: str, wanted: Filter, policy: Policy, limits: CaptureLimits, side: CaptureSide, topics: bool
    ) -> StartedCapture:
        assert self.folder is not None, "start has looked"
        path = self.folder / name
        about = {"instance": self.instance or None, "filter": str(wanted) if wanted else None, "side": side}
        try:
            make_folder(self.folder)
            file = self._file(path, policy, limits, about)
        except OSError as error:
            raise not_written(path, error) from None
        sink = CaptureSink(file, policy, wanted, side, self.server, self.view)
        return StartedCapture(name, sink, file, limits, topics and side == "both")

    def _file(
        self, path: Path, policy: Policy, limits: CaptureLimits, about: dict[str, Any], part: CapturePart | None = None
    ) -> CaptureFile:
        """Begin the file of a capture. Its thread has the loop call `_detach` and `_end`. Raises OSError."""
        ending = None if self.ending is None else lambda: self._in_loop(self._end, path.name)
        over = partial(self._in_loop, self._detach, path.name)
        return CaptureFile(path, policy, limits, self.wall(), over, about, part, ending)

    async def record_topics(self, capture: StartedCapture) -> None:
        """Record the topics at the start of a capture, as far as that takes little time."""
        if self.begun is not None and capture.topics:
            await self.begun(capture)

    def stop(self, name: str, why: StopReason = "asked") -> StartedCapture:
        """Stop a capture; what waits is still written. Raises NoSuchCapture."""
        capture = self[name]
        self.fanout.remove(capture.sink)
        if not capture.file.stopped:
            capture.file.stop(why)
        return capture

    def __getitem__(self, name: str) -> StartedCapture:
        """Return the capture of this name, with or without `.pcapng`. Raises NoSuchCapture."""
        capture = self.by_name.get(name) or self.by_name.get(name + SUFFIX)
        if capture is None:
            raise NoSuchCapture(f'there is no capture "{name}"')
        return capture

    def close(self) -> None:
        """Stop all captures when the proxy ends, and write what waits. Blocks for at most STOP_TIMEOUT each."""
        for capture in self.by_name.values():
            if not capture.file.stopped:
                self.fanout.remove(capture.sink)
                capture.file.stop("proxy_ended")
        for capture in self.by_name.values():
            capture.file.join(STOP_TIMEOUT)

    async def record_last_topics(self) -> None:
        """Record the topics of all captures that end with the proxy."""
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

    def _forget(self) -> None:
        over = [name for name, one in self.by_name.items() if one.file.stopped]
        for name in over[: max(0, len(over) - MOST_REMEMBERED)]:
            del self.by_name[name]


def usable(folder: Path | None, name: str, running: int) -> str:
    """Return the file name of a capture that may be started while `running` others run. Raises CaptureRefused."""
    if folder is None:
        raise CaptureRefused("no_captures", "no captures are made here, `captures: FOLDER` in the config allows them")
    if not NAME.fullmatch(name):
        raise CaptureRefused("invalid_query", f"file: {NAMES}, found {len(name)}: {shown(name)}")
    if running >= MOST_RUNNING:
        raise CaptureRefused("too_many_captures", f"{running} captures are running, at most {MOST_RUNNING} may")
    return name if name.endswith(SUFFIX) else name + SUFFIX


def make_folder(folder: Path) -> None:
    """Create the captures' folder if it is missing. Raises OSError."""
    if not folder.is_dir():
        folder.mkdir(parents=True)


def not_written(path: Path, error: OSError) -> CaptureRefused:
    """Return the refusal that says why a capture's file cannot be made."""
    if isinstance(error, FileExistsError):
        if not path.parent.is_dir():
            return CaptureRefused("capture_failed", f"{path.parent} is no folder")
        return CaptureRefused("capture_exists", f"{path} is there already, and is not overwritten")
    why = (error.strerror or str(error)).lower()
    return CaptureRefused("capture_failed", f"{path} cannot be written: {why}")


def shown(name: str) -> str:
    """Return a name as text for a message, shortened if it is long."""
    return repr(name if len(name) <= 60 else f"{name[:59]}…")
