"""Operations on captures: files of what passes, made while kproxy runs."""

from __future__ import annotations

from kproxy.errors import FilterError
from kproxy.sinks.captures import CaptureRefused

from .backend import Backend
from .capture_store import CaptureQuery, CaptureShown, CapturesShown
from .operation import Operation, OperationCall
from .problem import Problem


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
    """Answer when the file is whole, or still being written after some seconds."""
    shown = await backend.captures.stop(call.path["name"])
    backend.log.info("capture stopped", file=shown.file, exchanges=shown.exchanges, dropped=shown.dropped)
    return shown


def not_started(error: CaptureRefused | FilterError) -> Problem:
    """Return the problem of a capture that cannot start."""
    if isinstance(error, FilterError):
        return Problem(422, "invalid_query", f"filter: {error}")
    return Problem(422 if error.code == "invalid_query" else 409, error.code, str(error))


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
