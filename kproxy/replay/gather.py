"""One answer made of those of several brokers, when a request had to be cut into parts."""

from __future__ import annotations

from typing import Any

from kproxy.errors import DecodeError
from kproxy.wire import Message, decode_response, encode
from kproxy.wire.shapes import Level, shape

from .links import Then


class Gather:
    """Collects the answers to `count` parts of a request, and hands on one frame, or None if a part has no answer."""

    def __init__(self, request: Message, count: int, then: Then) -> None:
        self.request, self.count, self.then = request, count, then
        self.frames: list[bytes] = []

    def part(self, frame: bytes | None, now: float) -> None:
        """The answer to one part."""
        if self.count <= 0:
            return
        if frame is None:
            self.count = 0
            self.then(None, now)
            return
        self.frames.append(frame)
        if len(self.frames) == self.count:
            self.count = 0
            self.then(together(self.request, self.frames), now)


def together(request: Message, frames: list[bytes]) -> bytes:
    """The frames as one; the first as it is if one of them cannot be read."""
    form = shape(request.api.key, request.version)
    try:
        first, *others = (decode_response(one, request.api.key, request.version, trailing=True) for one in frames)
    except DecodeError:
        return frames[0]
    for other in others:
        if form.code is not None and not first.body[form.code]:
            first.body[form.code] = other.body[form.code]
        add(form.response, first.body, other.body)
    return encode(first)


def add(levels: tuple[Level, ...], one: dict[str, Any], two: dict[str, Any]) -> None:
    """The elements of `two` into `one`, those with the same keys into each other."""
    level = levels[0]
    known = {tuple(level.roles(element).values()): element for element in one[level.array]}
    for element in level.elements(two):
        same = known.get(tuple(level.roles(element).values()))
        if same is None:
            one[level.array].append(element)
        elif len(levels) > 1:
            add(levels[1:], same, element)
