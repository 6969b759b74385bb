"""Operations on sources: captures of kproxy, tcpdump or dumpcap that are opened in the view.

A thread writes the bytes into an unnamed file as they arrive, so a slow disk does not block the loop. A process
(`kproxy.record.live_view.reading`) reads it into an unnamed spool, one at a time. The capture is not kept. Both files
disappear when their descriptors are closed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import aclosing, suppress
from time import monotonic
from typing import IO, TYPE_CHECKING

import msgspec
import trio
from pydantic import Field
from starlette.requests import ClientDisconnect

from kproxy.base.named_file import reason
from kproxy.base.system import HAS_LIMITS
from kproxy.record.live_view.reading import OpenedCapture, OpenedCaptures, ReadingResult, Spool, read_places

from .kept import no_such_source
from .limits import CLOSE, too_large
from .models import Query, Shown, iso_time
from .operation import Operation, OperationCall, ReceiveBody
from .problem import Problem

if TYPE_CHECKING:
    from .backend import Backend

LONGEST = 256 << 20  # Bytes of a file
PIECE = 1 << 20  # Bytes that are gathered before a thread writes them
LONGEST_SILENCE = 30.0  # Timeout in seconds between two pieces of a file
LONGEST_UPLOAD = 1800.0  # Seconds for a whole file: 256 MiB over a line of 1.2 Mbit/s
LOOK = 60.0  # Seconds between two checks for expired sources
COMMAND = (sys.executable, "-P", "-m", "kproxy.record.live_view.reading")
FILE_READERS = trio.CapacityLimiter(1)  # Files are read one at a time


class UploadQuery(Query):
    """Name of a file that is opened."""

    name: str = Field(default="capture", min_length=1, max_length=255, description="display name of the file")


class SourceShown(Shown):
    """Capture that is open in the view."""

    source: str = Field(description="its id, for `?source=`")
    name: str
    size: int = Field(description="bytes of the file")
    exchanges: int
    written_by: str = Field(description="program that wrote it, from its header; empty: unknown")
    counts: dict[str, int | float | None] = Field(description="statistics: packets, connections, gaps, …")
    missing: list[str] = Field(description="in words, what is not in it or could not be read")
    since: str = Field(description="when it was opened, ISO 8601")
    ttl_left: float | None = Field(description="idle timeout in seconds; null: none")


class SourcesShown(Shown):
    """List captures that are open in the view."""

    sources: list[SourceShown]
    most: int = Field(description="that may be open at a time")
    live: bool = Field(description="there is also what passes; false for `kproxy view --web`, which has files only")
    may_open: bool = Field(description="the token allows opening and closing files")


def show_source(source: OpenedCapture, *, stays: bool = False) -> SourceShown:
    result = source.result
    return SourceShown(
        source=source.id,
        name=source.name,
        size=source.size,
        exchanges=result.exchanges,
        written_by=result.written_by,
        counts=result.counts,
        missing=result.missing,
        since=iso_time(source.opened),
        ttl_left=None if stays else round(source.left, 3),
    )


async def list_sources(backend: Backend, call: OperationCall) -> SourcesShown:
    sources = backend.sources
    sources.expire()
    shown = [show_source(one, stays=sources.stay) for one in sources.by_id.values()]
    return SourcesShown(sources=shown, most=sources.most, live=not sources.stay, may_open=call.may_write)


async def get_source(backend: Backend, call: OperationCall) -> SourceShown:
    return show_source(source_of(backend, call.path["id"]), stays=backend.sources.stay)


async def open_source(backend: Backend, call: OperationCall) -> SourceShown:
    assert call.receive is not None, "the operation has a body of bytes"
    sources = backend.sources
    if sources.full:
        raise Problem(429, "too_many_sources", f"expected at most {sources.most} open files, got one more: close one",
                      headers=CLOSE)  # fmt: skip
    sources.opening += 1
    try:
        with await trio.to_thread.run_sync(nameless) as file:
            size = await received(call.receive, file)
            call.check()
            source = await opened(sources, file, call.query.name, size)
    except OSError as error:
        raise Problem(409, "source_failed", f"the file cannot be kept: {reason(error)}", headers=CLOSE) from None
    finally:
        sources.opening -= 1
    schedule_expiry(backend)
    backend.log.info("capture opened", source=source.id, exchanges=source.result.exchanges, bytes=size)
    return show_source(source, stays=sources.stay)


def schedule_expiry(backend: Backend) -> None:
    """Schedule one check for expired sources while any are open."""
    sources, reactor = backend.sources, backend.keeper.reactor

    def look() -> None:
        sources.expire()
        if sources.by_id:
            reactor.call_at(monotonic() + LOOK, look)
        else:
            sources.looks = False

    if not sources.looks and not sources.stay:
        sources.looks = True
        reactor.call_at(monotonic() + LOOK, look)


async def close_source(backend: Backend, call: OperationCall) -> SourceShown:
    source = source_of(backend, call.path["id"])
    backend.sources.remove(source)
    return show_source(source)


def source_of(backend: Backend, identifier: str) -> OpenedCapture:
    """Return the source with this id, and restart its idle timeout. Raises Problem."""
    source = backend.sources.find(identifier)
    if source is None:
        raise no_such_source(identifier)
    return source


def nameless() -> IO[bytes]:
    """Return a new unnamed file in the temporary folder. Raises OSError."""
    return tempfile.TemporaryFile(prefix="kproxy-")


async def received(receive: ReceiveBody, file: IO[bytes]) -> int:
    """Write a body into a file as it arrives; return its size. Raises Problem, OSError."""
    size, waiting = 0, bytearray()
    try:
        with trio.move_on_after(LONGEST_UPLOAD) as whole, trio.move_on_after(LONGEST_SILENCE) as silence:
            async with aclosing(receive()) as pieces:
                async for piece in pieces:
                    silence.deadline = trio.current_time() + LONGEST_SILENCE
                    size += len(piece)
                    if size > LONGEST:
                        raise too_large(size, LONGEST)
                    waiting += piece
                    if len(waiting) >= PIECE:
                        await trio.to_thread.run_sync(file.write, bytes(waiting))
                        waiting.clear()
    except ClientDisconnect:
        raise Problem(408, "too_slow", f"the connection ended after {size} bytes of the file") from None
    if whole.cancelled_caught or silence.cancelled_caught:
        raise Problem(408, "too_slow", f"expected the rest of the file in time, got {size} bytes", headers=CLOSE)
    await trio.to_thread.run_sync(file.write, bytes(waiting))
    await trio.to_thread.run_sync(file.flush)
    return size


async def opened(sources: OpenedCaptures, file: IO[bytes], name: str, size: int) -> OpenedCapture:
    """Read a capture, and add it to the sources. Raises Problem, OSError."""
    if not HAS_LIMITS:
        text = "a capture is read by a process with limits, which Windows does not give: open it on Linux or macOS"
        raise Problem(422, "no_capture", text)
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    spool = await trio.to_thread.run_sync(nameless)
    number = os.dup(spool.fileno())
    spool.close()
    try:
        async with FILE_READERS:
            result = await read_by_process(file, number)
        if result.problem:
            status, code = (409, "source_failed") if result.no_room else (422, "no_capture")
            raise Problem(status, code, f"{name}: {result.problem}")
        places = await trio.to_thread.run_sync(read_places, number, result)
    except BaseException:
        os.close(number)
        raise
    return sources.add(name, size, result, Spool(number, places, result.topics))


async def read_by_process(file: IO[bytes], spool: int) -> ReadingResult:
    """Have a process read the file into a spool, and return its report. Raises Problem, OSError."""
    process = subprocess.Popen(  # noqa: ASYNC220 - not in a thread, since it ends with the one that has started it
        [*COMMAND, f"parent={os.getpid()}", f"spool={spool}"], stdin=file, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, pass_fds=(spool,), start_new_session=True,
    )  # fmt: skip
    try:
        said, error = await trio.to_thread.run_sync(process.communicate, abandon_on_cancel=True)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    if process.returncode:
        why = error.decode(errors="replace").strip().rpartition("\n")[2][-500:] or f"exit code {process.returncode}"
        raise Problem(422, "no_capture", f"the file cannot be read: {why}")
    return msgspec.json.decode(said, type=ReadingResult)


OPERATIONS = (
    Operation("GET", "/api/sources", "list_sources", "List captures that are open in the view.",
              list_sources, SourcesShown),
    Operation("POST", "/api/sources", "open_source", "Open the capture in the body in the view.",
              open_source, SourceShown, UploadQuery, "bytes", 201,
              ("view_off", "too_large", "too_many_sources", "source_failed", "no_capture"), longest=LONGEST),
    Operation("GET", "/api/sources/{id}", "get_source", "Return one opened capture.", get_source, SourceShown,
              refusals=("no_such_source",)),
    Operation("DELETE", "/api/sources/{id}", "close_source", "Close an opened capture and discard its exchanges.",
              close_source, SourceShown, refusals=("no_such_source",)),
)  # fmt: skip
