"""Differences between two frames that say nearly the same: what the client sent, and what the broker got."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kproxy.protocol.breath import each

StepSpan = tuple[int, int]
"""First byte and the one behind the last."""
MOST_CHANGES = 1000
"""Fields that are told as changed; who changes more of them has made another frame."""


def changes(
    client: Iterable[list[Any]], broker: Iterable[list[Any]], ours_data: bytes = b"", theirs_data: bytes = b""
) -> list[dict[str, Any]]:
    """Return the fields whose values differ between the steps of two frames, or that only one has, in the order of
    their paths: each with its place in both frames, None where it is not there. With the bytes of both frames values
    that are bytes are compared by these, else by their length."""
    ours, theirs = values(client, ours_data), values(broker, theirs_data)
    found: list[dict[str, Any]] = []
    for path in each((*ours, *(path for path in theirs if path not in ours))):
        mine, other = ours.get(path), theirs.get(path)
        if mine is None or other is None or mine[1] != other[1]:
            found.append({"path": path, "client": mine and list(mine[0]), "broker": other and list(other[0])})
            if len(found) == MOST_CHANGES:
                break
    return found


def values(steps: Iterable[list[Any]], data: bytes = b"") -> dict[str, tuple[StepSpan, Any]]:
    """Return place and value of each step that has one of its own, by path; names above fields have none."""
    return {
        step[3] if step[4] == "value" else f"{step[3]} ({step[4]})": ((step[0], step[1]), value_in(step, data))
        for step in each(steps)
    }


def value_in(step: list[Any], data: bytes) -> Any:
    """Return the value of a step; of bytes in the frame these bytes themselves, with their length before them."""
    value = step[6]
    if not isinstance(value, dict) or "bytes" not in value or "packed" in value:
        return value
    return value, data[step[0] : step[1]]
