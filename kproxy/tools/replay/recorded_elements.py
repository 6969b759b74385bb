"""Responses put together from recorded ones, one element for each entity that a request is about.

A client that does the same again asks in other portions: two partitions in one request where there were two requests.
So for APIs whose responses have an element for each partition, group or the like (protocol/shapes.yaml), the recorded
elements are kept by what they are about, in their order; each is given once, and the last good one again when they are
used up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kproxy.protocol import Message
from kproxy.protocol.elements import Roles, elements, request_elements, top_roles
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import ZERO_UUID, Struct
from kproxy.protocol.table.shapes import Level, Shape, shape
from kproxy.session.respond.answer import element as made_element
from kproxy.session.respond.tree import Failure

from .recording import Recording

TOPIC, TOPIC_ID = "topic", "topic_id"
UNKNOWN_TOPIC, UNKNOWN_ID, UNKNOWN = 3, 100, -1


@dataclass(slots=True)
class ElementQueue:
    """Recorded elements of one entity, each with those of the levels around it, and how many were given."""

    chains: list[tuple[dict[str, Any], ...]] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    given: int = 0

    def next(self) -> tuple[dict[str, Any], ...]:
        if self.given < len(self.chains):
            self.given += 1
            return self.chains[self.given - 1]
        good = [chain for chain, code in zip(self.chains, self.codes, strict=True) if not code]
        return good[-1] if good else self.chains[-1]


class RecordedElements:
    """Elements of a recording's responses, by entity."""

    def __init__(self, recording: Recording) -> None:
        self.names: Mapping[UUID, str] = recording.names
        self.elements: dict[Hashable, ElementQueue] = {}
        self.last: dict[int, Message] = {}
        """API key → the last answer, for what stands beside the elements."""
        for exchange in recording.exchanges:
            if (
                exchange.response is not None
                and exchange.request is not None
                and exchange.response.version == exchange.version
            ):
                self.learn(exchange.request, exchange.response)

    def learn(self, request: Message, response: Message) -> None:
        form = shape(response.api.key, response.version)
        self.last[response.api.key] = response
        if form.positional or not form.response:
            return
        code = form.response[-1].code
        for roles, where, chain in elements(form.response, response.body, top_roles(form, request.body)):
            if len(where) == len(form.response):
                queue = self.elements.setdefault(self.key(form, roles), ElementQueue())
                queue.chains.append(chain)
                queue.codes.append(chain[-1].get(code, 0) if code else 0)

    def key(self, form: Shape, roles: Roles) -> Hashable:
        """Return the key of the entity that an element is about; topics by name."""
        wanted = {role for level in form.response for role, _ in level.keys} | {"group", "transactional_id"}
        told_apart_by = {
            role: value for role, value in roles.items() if role in wanted and role not in (TOPIC, TOPIC_ID)
        }
        topic = roles.get(TOPIC) or self.names.get(roles.get(TOPIC_ID, ZERO_UUID)) or roles.get(TOPIC_ID)
        return form.api.key, topic, frozenset((role, plain(value)) for role, value in told_apart_by.items())

    def answer(self, request: Message) -> tuple[Message, list[str]] | None:
        """Return a response made of elements, and the entities of the request for which none was found.

        Returns None if the API's responses have no elements, or were never recorded.
        """
        form = shape(request.api.key, request.version)
        last = self.last.get(request.api.key)
        if last is None or form.positional or not form.response:
            return None
        struct = layout.body(request.api.key, request.version, "response")
        body = fit(struct, last.body)
        body[form.response[0].array] = []
        missing: list[str] = []
        for roles in self.entities_of(form, request):
            queue = self.elements.get(self.key(form, roles))
            if queue is None:
                missing.append(" ".join(str(value) for value in roles.values() if value is not None))
            self.put(form, body, roles, queue.next() if queue is not None else None)
        header = {"correlation_id": request.header["correlation_id"]}
        return Message(request.api, request.version, header, body), missing

    def entities_of(self, form: Shape, request: Message) -> Iterator[Roles]:
        """Yield the entities of a request; for one about all there is, those of all recorded elements."""
        if form.request and form.asks_all(request.body.get(form.request[0].array)):
            top = top_roles(form, request.body)
            for key, queue in list(self.elements.items()):
                assert isinstance(key, tuple)
                if key[0] == form.api.key:
                    chain = queue.chains[-1]
                    roles: dict[str, Any] = dict(top)
                    for level, entry in zip(form.response, chain, strict=True):
                        roles |= {role: entry[name] for role, name in level.keys if name in entry}
                    yield roles
            return
        for element in request_elements(request):
            yield element.roles

    def put(self, form: Shape, body: dict[str, Any], roles: Roles, chain: tuple[dict[str, Any], ...] | None) -> None:
        """Put one element into the response, with those around it."""
        parent = body
        for depth, level in enumerate(form.response):
            if level.struct is None:
                return
            innermost = depth + 1 == len(form.response)
            entry = None if innermost else same(level, parent, roles)
            if entry is None:
                entry = self.make_element(form, level, roles, chain[depth] if chain is not None else None, innermost)
                if not innermost:
                    entry[form.response[depth + 1].array] = []
                parent[level.array].append(entry)
            parent = entry

    def make_element(
        self, form: Shape, level: Level, roles: Roles, recorded: dict[str, Any] | None, innermost: bool
    ) -> dict[str, Any]:
        assert level.struct is not None
        if recorded is None:
            code = UNKNOWN_TOPIC if roles.get(TOPIC) else UNKNOWN_ID if roles.get(TOPIC_ID) else UNKNOWN
            return made_element(form, level, roles, Failure(code) if innermost else None)
        fitted = fit(level.struct, recorded)
        for role, name in level.keys:
            if name in fitted and roles.get(role) not in (None, ZERO_UUID):
                fitted[name] = roles[role]
        return fitted


def same(level: Level, parent: dict[str, Any], roles: Roles) -> dict[str, Any] | None:
    """Return the element of this level that is there already."""
    for known in parent[level.array]:
        if all(known.get(name) == roles[role] for role, name in level.keys if role in roles):
            return known  # type: ignore[no-any-return]
    return None


def fit(struct: Struct, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a struct of another version with this version's fields; what it lacks gets its default."""
    fields = {}
    for slot in struct.all_slots:
        inner = value.get(slot.name, slot.default())
        if slot.struct is not None and inner is not None:
            inner = [fit(slot.struct, one) for one in inner] if slot.array else fit(slot.struct, inner)
        fields[slot.name] = slot.default() if inner is None and not slot.nullable else inner
    return fields


def plain(value: Any) -> Hashable:
    return str(value) if isinstance(value, list | dict | UUID) else value
