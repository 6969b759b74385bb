"""Bytes of a held frame as they may be shown: without credentials, with a step for each thing that stands in them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Literal
from uuid import UUID

from kproxy.errors import DecodeError
from kproxy.observe.credentials import header_end, take_out
from kproxy.wire.codec.trace import TraceStep, trace
from kproxy.wire.table import layout, schema

from .held_models import HeldBytesShown

MOST_DATA = 1 << 20
"""Bytes of a frame that are shown."""
MOST_STEPS = 2000
LONGEST_VALUE = 1 << 16
"""Characters of a value."""


def show_bytes(
    frame: bytes, side: Literal["client", "broker"], key: int, version: int, direction: str
) -> HeldBytesShown:
    """Show a whole frame, which is without its size."""
    data, withheld = take_out(frame, key, version, direction)
    whole = len(data) == len(frame) and len(data) <= MOST_DATA
    steps, unread = steps_of(data, key, version, direction) if len(data) == len(frame) else ([], "")
    shown = data[:MOST_DATA]
    return HeldBytesShown(
        side=side, bytes=len(frame) + 4, kept=len(shown), form="whole" if whole else "head", withheld=withheld,
        data=b64encode(shown).decode(), steps=steps, unread=unread,
    )  # fmt: skip


def steps_of(data: bytes, key: int, version: int, direction: str) -> tuple[list[list[Any]], str]:
    """Return the first steps through the body of a frame, and why there are no more if it cannot be read."""
    if key not in schema.paths() or version not in schema.load(key).versions:
        return [], "this version is not known"
    steps: list[list[Any]] = []
    try:
        for step in trace(layout.body(key, version, direction), data, header_end(data, key, version, direction)):
            if len(steps) == MOST_STEPS:
                break
            steps.append(shown_step(step))
    except DecodeError as error:
        return steps, str(error)
    return steps, ""


def shown_step(step: TraceStep) -> list[Any]:
    """Return start, end, depth, path, what, type, value of one step."""
    kind = "" if step.slot is None else step.slot.type.upper()
    kind = f"COMPACT_{kind}" if step.slot is not None and step.slot.compact else kind
    return [step.start, step.end, step.path.count(".") + step.path.count("["), step.path, step.what, kind,
            plain(step.value)]  # fmt: skip


def plain(value: Any) -> Any:
    """Return a value as JSON has it: bytes and ids as they can be set again."""
    if isinstance(value, bytes | bytearray | memoryview):
        return f"hex:{bytes(value[: LONGEST_VALUE // 2]).hex()}"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, str):
        return value[:LONGEST_VALUE].encode("utf-8", "backslashreplace").decode()
    return value if value is None or isinstance(value, bool | int | float) else str(value)
