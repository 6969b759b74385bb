"""Operations on captures, and their models.

A download opens the file once, as a regular file, without following a link. A thread reads it in pieces, so a slow disk
does not block the event loop. A slow client holds one descriptor and one piece.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

import trio
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from starlette.responses import Response
from starlette.types import Send

from kproxy.base.errors import FilterError
from kproxy.base.named_file import check_kind, reason
from kproxy.base.system import NO_LINK, UNKNOWN
from kproxy.record.captures.policy import HEAD
from kproxy.record.captures.running_captures import CaptureRefused
from kproxy.record.live_view.masks import ViewerMasks
from kproxy.rules.values.quantities import parse_size

from .guard import BYTES
from .models import Query, Shown, Timeout
from .operation import Operation, OperationCall
from .problem import Problem
from .responses import GuardedStream

if TYPE_CHECKING:
    from .backend import Backend

LEAST_SIZE = 16_384  # Bytes; below that not even one exchange may fit
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
        description="client: the client side; broker: the broker side, where it differs",
    )
    topics: bool | None = Field(
        default=None,
        description="record ids, leader epochs and configs of topics at the start and the end by requests of kproxy's "
        "own (default: `capture_topics` of the config); with `side=both` only",
    )
    max_size: FileSize = Field(default=1 << 30, description="maximum size of the file, such as 100MB")
    max_seconds: Annotated[Timeout, AfterValidator(_some)] = Field(
        default=3600.0, description="maximum duration, such as 10m"
    )
    max_exchanges: int | None = Field(default=None, ge=1, description="maximum number of exchanges")


class CaptureShown(Shown):
    """A capture and what is in its file."""

    name: str
    file: str = Field(description="where the proxy has it")
    state: Literal["running", "ending", "stopped", "failed"] = Field(
        description="ending: queued exchanges are being written"
    )
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
    dropped: int = Field(description="exchanges dropped because the disk was too slow")
    unknown: int = Field(description="exchanges that the filter could not judge, and that are missing")


class CapturesShown(Shown):
    """Captures since the start, oldest first; of those that are over, the last hundred."""

    folder: str | None = Field(description="null: the config names none, and none can be made")
    captures: list[CaptureShown]


def no_such_capture(name: str) -> Problem:
    return Problem(404, "no_such_capture", f'unknown capture "{name}"')


PIECE = 256 << 10  # Bytes that are read at once


class FileResponse(GuardedStream):
    """Response with the first `size` bytes of an open file, which it closes when it was sent, or by `close` when it is
    not sent at all. `name` is what a browser saves it as."""

    def __init__(self, backend: Backend, number: int, size: int, name: str) -> None:
        self.number, self.size = number, size
        headers = {
            "Content-Length": str(size),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        }
        super().__init__(backend, BYTES, headers)

    async def stream_response(self, send: Send) -> None:
        """Send the bytes. If the file was truncated, the connection ends before the announced length."""
        # Not a generator: one that is cancelled between two pieces is collected late, with a ResourceWarning.
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            at = 0
            while at < self.size:
                piece = await trio.to_thread.run_sync(os.read, self.number, min(PIECE, self.size - at))
                if not piece:
                    raise OSError("the file has become shorter while it was sent")
                at += len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.close()

    def close(self) -> None:
        os.close(self.number)


async def download_capture(backend: Backend, call: OperationCall) -> Response:
    """Raises Problem while the capture runs, and if its file cannot be read."""
    shown = await backend.captures.show(call.path["name"])
    if shown.state in ("running", "ending"):
        raise Problem(409, "capture_runs", f'the capture "{shown.name}" is {shown.state}: stop it first')
    has_records = shown.payload not in ("none", "sketch")
    if has_records and not backend.view.records:
        raise Problem(403, "records_hidden", "the config has `view: {records: false}`, and the file has records")
    if (
        not call.may_write
        and shown.payload not in ("none", "sketch")
        and ViewerMasks(lambda: backend.keeper.store.rule_set)
    ):
        raise Problem(403, "records_hidden", "a rule masks records, and the file has the originals: use the full token")
    try:
        number, size = await trio.to_thread.run_sync(partial(opened, shown.file))
    except OSError as error:
        raise Problem(409, "capture_failed", f"{shown.file} cannot be read: {reason(error)}") from None
    return FileResponse(backend, number, size, shown.name)


def opened(path: str) -> tuple[int, int]:
    """Open a regular file without following a link; return its descriptor and size. Raises OSError."""
    number = os.open(path, os.O_RDONLY | UNKNOWN | NO_LINK)
    try:
        found = os.fstat(number)
        check_kind(found.st_mode)
    except OSError:
        os.close(number)
        raise
    return number, found.st_size


async def list_captures(backend: Backend, call: OperationCall) -> CapturesShown:
    captures = backend.captures
    folder = None if captures.folder is None else str(captures.folder)
    return CapturesShown(folder=folder, captures=await captures.show_all())


async def get_capture(backend: Backend, call: OperationCall) -> CaptureShown:
    return await backend.captures.show(call.path["name"])


async def start_capture(backend: Backend, call: OperationCall) -> CaptureShown:
    try:
        shown = await backend.captures.start(call.query)
    except (CaptureRefused, FilterError) as error:
        raise not_started(error) from None
    backend.log.info("capture started", file=shown.file, payload=shown.payload, filter=shown.filter)
    return shown


async def stop_capture(backend: Backend, call: OperationCall) -> CaptureShown:
    """Respond once the file is complete, or after some seconds."""
    shown = await backend.captures.stop(call.path["name"])
    backend.log.info("capture stopped", file=shown.file, exchanges=shown.exchanges, dropped=shown.dropped)
    return shown


def not_started(error: CaptureRefused | FilterError) -> Problem:
    if isinstance(error, FilterError):
        return Problem(422, "invalid_query", f"filter: {error}")
    return Problem(422 if error.code == "invalid_query" else 409, error.code, str(error))


OPERATIONS = (
    Operation("GET", "/api/captures", "list_captures", "List running captures and the last hundred ended ones.",
              list_captures, CapturesShown),
    Operation("POST", "/api/captures", "start_capture", "Start a capture in a pcapng file.",
              start_capture, CaptureShown, CaptureQuery, status=201,
              refusals=("no_captures", "capture_exists", "too_many_captures", "capture_failed")),
    Operation("GET", "/api/captures/{name}", "get_capture", "Return one capture.", get_capture,
              CaptureShown, refusals=("no_such_capture",)),
    Operation("DELETE", "/api/captures/{name}", "stop_capture", "Stop a capture and keep its file.",
              stop_capture, CaptureShown, refusals=("no_such_capture", "no_captures")),
    Operation("GET", "/api/captures/{name}/file", "download_capture", "Return the file of a finished capture.",
              download_capture, CaptureShown, media=BYTES,
              refusals=("no_such_capture", "capture_runs", "capture_failed", "records_hidden")),
)  # fmt: skip
