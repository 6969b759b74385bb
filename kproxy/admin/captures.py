"""Operations on captures: files of what passes, made while kproxy runs."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal

import trio
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from kproxy.capture.policy import HEAD, Policy
from kproxy.errors import FilterError
from kproxy.rules.document.units import parse_size
from kproxy.sinks.capture_file import CaptureLimits
from kproxy.sinks.captures import STOP_TIMEOUT, CaptureRefused, Captures, NoSuchCapture, StartedCapture

from .backend import Backend
from .models import Shown
from .operation import Operation, OperationCall
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
    payload: Literal["none", "head", "full"] = Field(
        default="head", description="of each frame: none, its header only; head, its beginning; full, all of it"
    )
    head: int = Field(default=HEAD, ge=16, le=65_536, description="bytes of each frame that `head` keeps")
    side: Literal["client", "broker", "both"] = Field(
        default="both",
        description="client: what clients send and get; broker: what passes at brokers where that is something else",
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
    payload: Literal["none", "head", "full"]
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


async def list_captures(backend: Backend, call: OperationCall) -> CapturesShown:
    captures = backend.captures
    if captures is None:
        return CapturesShown(folder=None, captures=[])
    folder = None if captures.folder is None else str(captures.folder)
    return CapturesShown(folder=folder, captures=[show_capture(one) for one in captures.by_name.values()])


async def get_capture(backend: Backend, call: OperationCall) -> CaptureShown:
    return show_capture(find(backend, call))


async def start_capture(backend: Backend, call: OperationCall) -> CaptureShown:
    query = call.query
    try:
        capture = made_by(backend).start(
            query.file,
            wanted=query.filter,
            policy=Policy(query.payload, query.head),
            limits=CaptureLimits(query.max_size, query.max_seconds, query.max_exchanges),
            side=query.side,
        )
    except (CaptureRefused, FilterError) as error:
        raise not_started(error) from None
    backend.log.info(
        "capture started", file=str(capture.file.path), payload=query.payload, filter=str(capture.sink.wanted)
    )
    return show_capture(capture)


async def stop_capture(backend: Backend, call: OperationCall) -> CaptureShown:
    """Answer when the file is whole, or still being written after some seconds."""
    name = find(backend, call).name
    capture = made_by(backend).stop(name)
    await trio.to_thread.run_sync(partial(capture.file.join, STOP_TIMEOUT))
    written = capture.file.written
    backend.log.info("capture stopped", file=str(capture.file.path), exchanges=written.exchanges,
                     dropped=capture.file.dropped)  # fmt: skip
    return show_capture(capture)


def not_started(error: CaptureRefused | FilterError) -> Problem:
    """Return the problem of a capture that cannot start."""
    if isinstance(error, FilterError):
        return Problem(422, "invalid_query", f"filter: {error}")
    return Problem(422 if error.code == "invalid_query" else 409, error.code, str(error))


def made_by(backend: Backend) -> Captures:
    """Return the captures of this process. Raises Problem where there are none."""
    if backend.captures is None:
        raise Problem(409, "no_captures", "no captures are made here, `captures: FOLDER` in the config allows them")
    return backend.captures


def find(backend: Backend, call: OperationCall) -> StartedCapture:
    """Return the capture that the path names. Raises Problem."""
    name = call.path["name"]
    try:
        if backend.captures is not None:
            return backend.captures[name]
    except NoSuchCapture:
        pass
    raise Problem(404, "no_such_capture", f'there is no capture "{name}"')


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
        since=datetime.fromtimestamp(capture.since, UTC).isoformat(timespec="milliseconds"),
        seconds=round(file.seconds, 3),
        exchanges=written.exchanges,
        broker_exchanges=written.broker_exchanges,
        connections=written.connections,
        size=written.size,
        dropped=file.dropped,
        unknown=capture.sink.wanted.unknown,
    )  # fmt: skip


NAMED = ("no_such_capture",)

OPERATIONS = (
    Operation("GET", "/api/captures", "list_captures", "All captures.", list_captures, CapturesShown),
    Operation("POST", "/api/captures", "start_capture", "Start to record what passes, in a file of pcapng.",
              start_capture, CaptureShown, CaptureQuery, status=201,
              refusals=("no_captures", "capture_exists", "too_many_captures", "capture_failed")),
    Operation("GET", "/api/captures/{name}", "get_capture", "One capture.", get_capture, CaptureShown, refusals=NAMED),
    Operation("DELETE", "/api/captures/{name}", "stop_capture", "Stop a capture; its file stays.",
              stop_capture, CaptureShown, refusals=(*NAMED, "no_captures")),
)  # fmt: skip
