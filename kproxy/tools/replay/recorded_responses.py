"""Recorded responses, found by what was asked.

    responses.exact(request)     the response to a request that says the same
    responses.alike(request)     the response to one about the same group, transaction or member, or of the same API

Strategy. Responses to the same question are given in the recorded order, each once; when they are used up, the last one
without an error is given again, since clients ask as often as time passes: heartbeats, metadata, coordinators. "The
same" leaves out what the table of comparison leaves out (ignored_fields.yaml) but for members and producers, which are
the recorded ones since clients were told these; records count by their contents.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kproxy.base.errors import RecordsError
from kproxy.protocol import Message
from kproxy.protocol.elements import request_elements, top_roles
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.protocol.table.shapes import shape

from .compare import IgnoredFields
from .read_records import digest_of, readable
from .recording import RecordedExchange, Recording
from .structs import codes, layout_of

SAME = IgnoredFields(compare=("members", "producers"))


@dataclass(slots=True)
class ResponseQueue:
    """Recorded exchanges that answer one question, and how many of them have been given."""

    exchanges: list[RecordedExchange] = field(default_factory=list)
    given: int = 0

    def next(self) -> Message | None:
        """Return the next response; the last good one again when all have been given."""
        if self.given < len(self.exchanges):
            self.given += 1
            return self.exchanges[self.given - 1].response
        good = (one for one in reversed(self.exchanges) if one.response is not None and not codes(one.response))
        last = next(good, self.exchanges[-1])
        return last.response


class RecordedResponses:
    """Responses of a recording, by question."""

    def __init__(self, recording: Recording) -> None:
        self.names = recording.names
        self.by_body: dict[Hashable, ResponseQueue] = {}
        self.by_keys: dict[Hashable, ResponseQueue] = {}
        for exchange in recording.exchanges:
            if exchange.request is None or exchange.response is None:
                continue
            self.by_body.setdefault(self.body_key(exchange.request), ResponseQueue()).exchanges.append(exchange)
            for key in self.keys(exchange.request):
                self.by_keys.setdefault(key, ResponseQueue()).exchanges.append(exchange)

    def exact(self, request: Message) -> Message | None:
        """Return the response to a request of this version that says the same; None if there was none."""
        queue = self.by_body.get(self.body_key(request))
        return queue.next() if queue is not None else None

    def alike(self, request: Message) -> Message | None:
        """Return the response to a request, of any version, about the same; None if the API was never asked."""
        queues = (self.by_keys.get(key) for key in self.keys(request))
        queue = next((one for one in queues if one is not None), None)
        return queue.next() if queue is not None else None

    def body_key(self, request: Message) -> Hashable:
        """Return the request's body as a key, without fields that do not count."""
        return request.api.key, request.version, self.frozen(request.api.name, layout_of(request), request.body)

    def keys(self, request: Message) -> list[Hashable]:
        """Return keys of what the request is about, the closest first: with the member, without it, the API alone."""
        form = shape(request.api.key, request.version)
        roles = next((one.roles for one in request_elements(request)), top_roles(form, request.body))
        top = {role: roles[role] for role, _ in form.top if role in roles}
        key, group = request.api.key, {role: value for role, value in top.items() if role != "member"}
        keys: list[Hashable] = [(key, frozenset(top.items()))]
        if group != top:
            keys.append((key, frozenset(group.items())))
        if top:
            keys.append((key, frozenset()))
        return keys

    def frozen(self, api: str, struct: Struct, value: dict[str, Any]) -> Hashable:
        return tuple(
            (slot.name, self.frozen_slot(api, slot, value.get(slot.name)))
            for slot in struct.all_slots
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
    """Return the contents of a records field: keys, values and headers."""
    try:
        return tuple(digest_of(record, offsets=False) for record in readable(records))
    except RecordsError:
        return bytes(records)
