"""`GET /api/captures/{name}/file`: the file of a capture that is over, as it stands in the folder.

Strategy. The file is opened once, as a regular file that is no link, and sent piece by piece from a thread, so that a
slow disk holds nobody else. A reader who does not read holds one descriptor and one piece of it.
"""

from __future__ import annotations

import os
from functools import partial
from urllib.parse import quote

import trio
from starlette.responses import Response
from starlette.types import Send

from kproxy.base.named_file import check_kind, reason
from kproxy.base.system.files import NO_LINK, UNKNOWN

from .backend import Backend
from .capture_store import CaptureShown
from .guard import BYTES
from .guarded_stream import GuardedStream
from .operation import Operation, OperationCall
from .problem import Problem

PIECE = 256 << 10
"""Bytes that are read at once."""


class FileResponse(GuardedStream):
    """Response with the first `size` bytes of an open file, which it closes when it was sent, or by `close` when it is
    not sent at all. `name` is what a browser saves it as."""

    def __init__(self, backend: Backend, number: int, size: int, name: str) -> None:
        self.number, self.size = number, size
        headers = {
            "Content-Length": str(size),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "X-Content-Type-Options": "nosniff",
        }
        super().__init__(backend, BYTES, headers)

    async def stream_response(self, send: Send) -> None:
        """Send the bytes. If the file has become shorter, the connection ends before the announced length."""
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
        """Let go of the file and of its room."""
        os.close(self.number)


async def download_capture(backend: Backend, call: OperationCall) -> Response:
    """Answer with the file. Raises Problem while it is written, and when it cannot be read."""
    shown = await backend.captures.show(call.path["name"])
    if shown.state in ("running", "ending"):
        raise Problem(409, "capture_runs", f'the capture "{shown.name}" is {shown.state}: stop it first')
    if not backend.view.records and shown.payload not in ("none", "sketch"):
        raise Problem(403, "records_hidden", "the config has `view: {records: false}`, and the file has records")
    try:
        number, size = await trio.to_thread.run_sync(partial(opened, shown.file))
    except OSError as error:
        raise Problem(409, "capture_failed", f"{shown.file} cannot be read: {reason(error)}") from None
    return FileResponse(backend, number, size, shown.name)


def opened(path: str) -> tuple[int, int]:
    """Open a regular file that is no link; return its descriptor and its size. Raises OSError."""
    number = os.open(path, os.O_RDONLY | UNKNOWN | NO_LINK)
    try:
        found = os.fstat(number)
        check_kind(found.st_mode)
    except OSError:
        os.close(number)
        raise
    return number, found.st_size


OPERATIONS = (
    Operation("GET", "/api/captures/{name}/file", "download_capture", "The file of a capture that is over.",
              download_capture, CaptureShown, media=BYTES,
              refusals=("no_such_capture", "capture_runs", "capture_failed", "records_hidden")),

)  # fmt: skip
