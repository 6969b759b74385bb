"""Captures of a proxy as the admin API starts, shows and stops them: their models, and those of this process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Protocol

import trio
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from kproxy.record.captures.capture_file import CaptureLimits
from kproxy.record.captures.policy import HEAD, Policy
from kproxy.record.captures.running_captures import STOP_TIMEOUT, Captures, NoSuchCapture, StartedCapture, usable
from kproxy.rules.values.quantities import parse_size

from .models import Shown, iso_time
from .problem import Problem
from .queries import Query, Timeout

LEAST_SIZE = 16_384
"""Bytes; below that not even one exchange may fit."""
AS_TEXT = WithJsonSchema({"type": ["string", "integer"], "examples": ["100MB", 1000000]})


def _size(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdecimal() else parse_size(value)


def _some(value: float) -> float:
    if not value:
        raise ValueError("a capture takes longer than that")
    return value


FileSize = Annotated[int, BeforeValidator(_size), Field(ge=LEAST_SIZE), AS_TEXT]


class CaptureQuery(Query):
    """Capture to start: its filter, its file and its limits."""

    file: str = Field(description="name in the folder `captures` of the config, without a folder of its own")
    filter: str = Field(default="", description="in the filter language, such as `~k produce ~t orders`; empty: all")
    payload: Literal["none", "head", "sketch", "full"] = Field(
        default="head",
        description="of each frame: none, its header only; head, its beginning; sketch, all but what is inside of "
        "record batches; full, all of it",
    )
    head: int = Field(default=HEAD, ge=16, le=65_536, description="bytes of each frame that `head` keeps")
    side: Literal["client", "broker", "both"] = Field(
        default="both",
        description="client: what clients send and get; broker: what passes at brokers where that is something else",
    )
    topics: bool | None = Field(
        default=None,
        description="record ids, leader epochs and configs of topics at the start and the end by requests of kproxy's "
        "own (default: `capture_topics` of the config); with `side=both` only",
    )
    max_size: FileSize = Field(default=1 << 30, description="bytes of the file at which it ends, such as 100MB")
    max_seconds: Annotated[Timeout, AfterValidator(_some)] = Field(
        default=3600.0, description="time after which it ends, such as 10m"
    )
    max_exchanges: int | None = Field(default=None, ge=1, description="exchanges after which it ends")


class CaptureShown(Shown):
    """A capture and what is in its file."""

    name: str
    file: str = Field(description="where the proxy has it")
    state: Literal["running", "ending", "stopped", "failed"] = Field(description="ending: what waits is being written")
    stopped: str = Field(
        description="asked, max_size, max_seconds, max_exchanges, proxy_ended, failed; empty while it runs"
    )
    error: str | None = Field(description="why the file could not be written")
    filter: str = Field(description="in its long form; empty: all")
    payload: Literal["none", "head", "sketch", "full"]
    side: Literal["client", "broker", "both"]
    since: str = Field(description="ISO 8601")
    seconds: float = Field(description="how long it has been, or was, at work")
    exchanges: int = Field(description="written as clients saw them")
    broker_exchanges: int = Field(description="written as brokers saw them, which was something else")
    connections: int
    size: int = Field(description="bytes of the file")
    dropped: int = Field(description="exchanges that are missing, because there was no time to write them")
    unknown: int = Field(description="exchanges that the filter could not judge, and that are missing")


class CapturesShown(Shown):
    """Captures since the start, oldest first; of those that are over, the last hundred."""

    folder: str | None = Field(description="null: the config names none, and none can be made")
    captures: list[CaptureShown]


class CaptureStore(Protocol):
    """Captures of a proxy, in one process or in several. `folder` None: none can be made."""

    @property
    def folder(self) -> Path | None: ...

    async def show_all(self) -> list[CaptureShown]:
        """Return all captures since the start, oldest first."""

    async def show(self, name: str) -> CaptureShown:
        """Return the capture of this name, with or without `.pcapng`. Raises Problem."""

    async def start(self, query: CaptureQuery) -> CaptureShown:
        """Start a capture. Raises CaptureRefused, FilterError and Problem."""

    async def stop(self, name: str) -> CaptureShown:
        """Stop a capture; return when its file is whole. Raises Problem."""


class ProcessCaptures:
    """Captures of this process; None where the config allows none."""

    def __init__(self, captures: Captures | None) -> None:
        self.captures = captures

    @property
    def folder(self) -> Path | None:
        return None if self.captures is None else self.captures.folder

    async def show_all(self) -> list[CaptureShown]:
        return [] if self.captures is None else [show_capture(each) for each in self.captures.by_name.values()]

    async def show(self, name: str) -> CaptureShown:
        return show_capture(self.find(name))

    async def start(self, query: CaptureQuery) -> CaptureShown:
        if self.captures is None:
            usable(None, query.file, 0)
        assert self.captures is not None, "refused otherwise"
        capture = self.captures.start(
            query.file,
            wanted=query.filter,
            policy=Policy(query.payload, query.head),
            limits=CaptureLimits(query.max_size, query.max_seconds, query.max_exchanges),
            side=query.side,
            topics=query.topics,
        )
        await self.captures.record_topics(capture)
        return show_capture(capture)

    async def stop(self, name: str) -> CaptureShown:
        """Stop a capture; return when its file is whole, or still being written after some seconds."""
        capture = self.find(name)
        assert self.captures is not None, "it has this one"
        self.captures.stop(capture.name)
        await trio.to_thread.run_sync(partial(capture.file.join, STOP_TIMEOUT))
        return show_capture(capture)

    def find(self, name: str) -> StartedCapture:
        """Return the capture of this name. Raises Problem."""
        try:
            if self.captures is not None:
                return self.captures[name]
        except NoSuchCapture:
            pass
        raise no_such_capture(name)


def no_such_capture(name: str) -> Problem:
    return Problem(404, "no_such_capture", f'there is no capture "{name}"')


def show_capture(capture: StartedCapture) -> CaptureShown:
    file, written = capture.file, capture.file.written
    return CaptureShown(
        name=capture.name,
        file=str(file.path),
        state="failed" if file.stopped == "failed" else "stopped" if file.ended is not None
        else "ending" if file.stopped or file.leaving else "running",
        stopped=file.stopped,
        error=file.error or None,
        filter=str(capture.sink.wanted) if capture.sink.wanted else "",
        payload=capture.sink.policy.payload,
        side=capture.sink.side,
        since=iso_time(capture.since),
        seconds=round(file.seconds, 3),
        exchanges=written.exchanges,
        broker_exchanges=written.broker_exchanges,
        connections=written.connections,
        size=written.size,
        dropped=file.dropped,
        unknown=capture.sink.wanted.unknown,
    )  # fmt: skip
