"""Cache of templates: all are bounded alike, and learning in vain is given up alike."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, Generic, TypeVar

from kproxy.protocol.primitives import Buffer

from .batch_place import BatchPlace

Template = TypeVar("Template")

MOST_LEARNT = 200
"""Templates of requests of one API, and of responses to one of these. More partitions on one connection are rare."""
PATIENCE = 16
"""Failures in a row after which learning is tried only once in as many frames."""


def make_room(known: dict[Any, Any], *others: Any) -> None:
    """Forget everything in `known`, and in what belongs to it, if it has as many templates as it may have."""
    if len(known) >= MOST_LEARNT:
        for each in (known, *others):
            each.clear()


class Learner:
    """Judge of whether frames of one kind are worth learning. `misses`: how often in a row learning failed."""

    __slots__ = ("misses",)

    def __init__(self) -> None:
        self.misses = 0.0

    def worth_learning(self) -> bool:
        """Count a failure, and return True if learning is worth another try: to learn costs more than to read."""
        self.misses = max(self.misses, 0.0) + 1
        return self.misses <= PATIENCE or not int(self.misses) % PATIENCE


class TemplateCache(Learner, Generic[Template]):
    """Templates of one kind of frames on one connection, by the bytes that stay the same in them.

    `known`: by their prefix, or by the place of the record batch and all that stays. `lengths`: of those keys that are
    prefixes. `places`: where record batches stood, each with the `struct` that reads such a frame.
    """

    __slots__ = ("known", "lengths", "places")

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, Template] = {}
        self.lengths: list[int] = []
        self.places: dict[BatchPlace, Struct] = {}

    def remember(
        self, key: Any, template: Template, place: BatchPlace | None = None, form: Struct | None = None
    ) -> None:
        """Add a template under a key that is no prefix. `place`: of its record batch; `form`: reads such frames."""
        make_room(self.known, self.lengths, self.places)
        self.known[key] = template
        if place is not None and form is not None:
            self.places[place] = form

    def remember_prefix(self, prefix: bytes, template: Template) -> None:
        """Add a template of frames that go on with `prefix` behind their header's fixed fields."""
        self.remember(prefix, template)
        if len(prefix) not in self.lengths:
            self.lengths.append(len(prefix))

    def with_prefix(self, buf: Buffer, start: int, n: int) -> Iterator[Template]:
        """Yield the templates whose prefix is what stands at `start`, as far as it is before `n`."""
        for length in self.lengths:
            template = self.known.get(bytes(buf[start : min(start + length, n)]))
            if template is not None:
                yield template

    def batches(self, buf: Buffer, pos: int, size: int, n: int) -> Iterator[tuple[BatchPlace, tuple[Any, ...]]]:
        """Yield (place, fields of its `struct`) for each place of a batch that fits into the frame at `pos`."""
        for place, form in self.places.items():
            if size + 4 >= form.size and pos + form.size <= n:
                yield place, form.unpack_from(buf, pos)
