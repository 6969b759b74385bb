"""Recorded answers, found by what was asked.

    script.exact(request)     the answer to a request that says the same
    script.alike(request)     the answer to one about the same group, transaction or member, or at least of the same API

Strategy. Answers to the same question are given in the recorded order, each once; when they are used up, the last one
without an error is given again, since clients ask as often as time passes: heartbeats, metadata, coordinators. "The
same" leaves out what the table of comparison leaves out (normal.yaml) but for members and producers, which are the
recorded ones since clients were told these; records count by their contents.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kproxy.errors import RecordsError
from kproxy.rules.entity import places
from kproxy.wire import Message
from kproxy.wire.layout import Slot, Struct
from kproxy.wire.shapes import shape

from .normal import Normal
from .reading import digest_of, readable
from .recording import Exchange, Recording
from .structs import codes, layout_of

SAME = Normal(compare=("members", "producers"))


@dataclass(slots=True)
class Queue:
    """Recorded exchanges that answer one question, and how many of them have been given."""

    exchanges: list[Exchange] = field(default_factory=list)
    given: int = 0

    def next(self) -> Message | None:
        """The next answer; the last good one again when all have been given."""
        if self.given < len(self.exchanges):
            self.given += 1
            return self.exchanges[self.given - 1].response
        good = (one for one in reversed(self.exchanges) if one.response is not None and not codes(one.response))
        last = next(good, self.exchanges[-1])
        return last.response


class Script:
    """All answers of a recording."""

    def __init__(self, recording: Recording) -> None:
        self.names = recording.names
        self.by_body: dict[Hashable, Queue] = {}
        self.by_keys: dict[Hashable, Queue] = {}
        for one in recording.exchanges:
            if one.request is None or one.response is None:
                continue
            self.by_body.setdefault(self.body_key(one.request), Queue()).exchanges.append(one)
            for key in self.keys(one.request):
                self.by_keys.setdefault(key, Queue()).exchanges.append(one)

    def exact(self, request: Message) -> Message | None:
        """The answer to a request of this version that says the same; None if there was none."""
        queue = self.by_body.get(self.body_key(request))
        return queue.next() if queue is not None else None

    def alike(self, request: Message) -> Message | None:
        """The answer to a request, of any version, about the same; None if the API was never asked."""
        queues = (self.by_keys.get(key) for key in self.keys(request))
        queue = next((one for one in queues if one is not None), None)
        return queue.next() if queue is not None else None

    def body_key(self, request: Message) -> Hashable:
        """What a request says, as far as it counts."""
        return request.api.key, request.version, self.frozen(request.api.name, layout_of(request), request.body)

    def keys(self, request: Message) -> list[Hashable]:
        """What it is about, the closest first: with the member, without it, the API alone."""
        form = shape(request.api.key, request.version)
        roles, _ = next(places(form, request.body), ({}, ()))
        top = {role: roles[role] for role, _ in form.top if role in roles}
        key, group = request.api.key, {role: value for role, value in top.items() if role != "member"}
        found: list[Hashable] = [(key, frozenset(top.items()))]
        if group != top:
            found.append((key, frozenset(group.items())))
        if top:
            found.append((key, frozenset()))
        return found

    def frozen(self, api: str, struct: Struct, value: dict[str, Any]) -> Hashable:
        return tuple(
            (slot.name, self.frozen_slot(api, slot, value.get(slot.name)))
            for slot in (*struct.slots, *struct.tagged)
            if not SAME.leaves_out(api, slot)
        )

    def frozen_slot(self, api: str, slot: Slot, value: Any) -> Hashable:
        if value is None:
            return None
        if slot.array:
            return tuple(self.frozen_one(api, slot, one) for one in value)
        return self.frozen_one(api, slot, value)

    def frozen_one(self, api: str, slot: Slot, value: Any) -> Hashable:
        if slot.struct is not None:
            return self.frozen(api, slot.struct, value)
        if slot.type == "records":
            return contents(value)
        if isinstance(value, UUID):
            return self.names.get(value, str(value))
        return bytes(value) if isinstance(value, memoryview | bytearray) else value


def contents(records: Any) -> Hashable:
    """What is in a records field: keys, values and headers."""
    try:
        return tuple(digest_of(record, offsets=False) for record in readable(records))
    except RecordsError:
        return bytes(records)
