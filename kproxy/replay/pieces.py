"""Answers put together from recorded ones, one element for each thing that is asked about.

A client that does the same again asks in other portions: two partitions in one request where there were two requests.
So for APIs whose answers have an element for each partition, group or the like (wire/shapes.yaml), the recorded
elements are kept by what they are about, in their order; each is given once, and the last good one again when they are
used up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kproxy.core.respond.element import element
from kproxy.core.respond.failure import Failure
from kproxy.rules.entity import places
from kproxy.wire import Message, layout
from kproxy.wire.layout import ZERO_UUID, Struct
from kproxy.wire.shapes import Level, Shape, shape

from .recording import Recording

TOPIC, TOPIC_ID = "topic", "topic_id"
UNKNOWN_TOPIC, UNKNOWN_ID, UNKNOWN = 3, 100, -1

Roles = Mapping[str, Any]


@dataclass(slots=True)
class Elements:
    """The recorded elements of one thing, those of each level around it with them, and how many were given."""

    chains: list[tuple[dict[str, Any], ...]] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    given: int = 0

    def next(self) -> tuple[dict[str, Any], ...]:
        if self.given < len(self.chains):
            self.given += 1
            return self.chains[self.given - 1]
        good = [chain for chain, code in zip(self.chains, self.codes, strict=True) if not code]
        return good[-1] if good else self.chains[-1]


class Pieces:
    """All elements of a recording's answers."""

    def __init__(self, recording: Recording) -> None:
        self.names: Mapping[UUID, str] = recording.names
        self.elements: dict[Hashable, Elements] = {}
        self.last: dict[int, Message] = {}
        """API key → the last answer, for what stands beside the elements."""
        for one in recording.exchanges:
            if one.response is not None and one.request is not None and one.response.version == one.version:
                self.learn(one.request, one.response)

    def learn(self, request: Message, response: Message) -> None:
        form = shape(response.api.key, response.version)
        self.last[response.api.key] = response
        if form.positional or not form.response:
            return
        around = {role: request.body[name] for role, name in form.top}
        for roles, chain in self.chains(form, 0, response.body, around, ()):
            found = self.elements.setdefault(self.key(form, roles), Elements())
            found.chains.append(chain)
            code = form.response[-1].code
            found.codes.append(chain[-1].get(code, 0) if code else 0)

    def chains(
        self, form: Shape, depth: int, parent: dict[str, Any], around: Roles, chain: tuple[dict[str, Any], ...]
    ) -> Iterator[tuple[Roles, tuple[dict[str, Any], ...]]]:
        level = form.response[depth]
        for one in level.elements(parent):
            if level.struct is None:
                return
            roles, here = {**around, **level.roles(one)}, (*chain, one)
            if depth + 1 < len(form.response):
                yield from self.chains(form, depth + 1, one, roles, here)
            else:
                yield roles, here

    def key(self, form: Shape, roles: Roles) -> Hashable:
        """What an element is about; topics by name."""
        wanted = {role for level in form.response for role, _ in level.keys} | {"group", "transactional_id"}
        said = {role: value for role, value in roles.items() if role in wanted and role not in (TOPIC, TOPIC_ID)}
        topic = roles.get(TOPIC) or self.names.get(roles.get(TOPIC_ID, ZERO_UUID)) or roles.get(TOPIC_ID)
        return form.api.key, topic, frozenset((role, plain(value)) for role, value in said.items())

    def answer(self, request: Message) -> tuple[Message, list[str]] | None:
        """An answer made of elements, and what of the request no element was found for; None if the API's answers have
        none, or were never recorded."""
        form = shape(request.api.key, request.version)
        last = self.last.get(request.api.key)
        if last is None or form.positional or not form.response:
            return None
        struct = layout.body(request.api.key, request.version, "response")
        body = fit(struct, last.body)
        body[form.response[0].array] = []
        missing: list[str] = []
        for roles in self.asked(form, request):
            found = self.elements.get(self.key(form, roles))
            if found is None:
                missing.append(" ".join(str(value) for value in roles.values() if value is not None))
            self.put(form, body, roles, found.next() if found is not None else None)
        header = {"correlation_id": request.header["correlation_id"]}
        return Message(request.api, request.version, header, body), missing

    def asked(self, form: Shape, request: Message) -> Iterator[Roles]:
        """What a request is about; of one that asks for all there is, all that there was."""
        if form.request and form.asks_all(request.body.get(form.request[0].array)):
            top = {role: request.body[name] for role, name in form.top}
            for key, found in list(self.elements.items()):
                assert isinstance(key, tuple)
                if key[0] == form.api.key:
                    chain = found.chains[-1]
                    roles: dict[str, Any] = dict(top)
                    for level, one in zip(form.response, chain, strict=True):
                        roles |= {role: one[name] for role, name in level.keys if name in one}
                    yield roles
            return
        for named, where in places(form, request.body):
            if where:
                yield named

    def put(self, form: Shape, body: dict[str, Any], roles: Roles, chain: tuple[dict[str, Any], ...] | None) -> None:
        """One element into the answer, with those around it."""
        parent = body
        for depth, level in enumerate(form.response):
            if level.struct is None:
                return
            innermost = depth + 1 == len(form.response)
            one = None if innermost else same(level, parent, roles)
            if one is None:
                one = self.made(form, level, roles, chain[depth] if chain is not None else None, innermost)
                if not innermost:
                    one[form.response[depth + 1].array] = []
                parent[level.array].append(one)
            parent = one

    def made(
        self, form: Shape, level: Level, roles: Roles, recorded: dict[str, Any] | None, innermost: bool
    ) -> dict[str, Any]:
        assert level.struct is not None
        if recorded is None:
            code = UNKNOWN_TOPIC if roles.get(TOPIC) else UNKNOWN_ID if roles.get(TOPIC_ID) else UNKNOWN
            return element(form, level, roles, Failure(code) if innermost else None)
        one = fit(level.struct, recorded)
        for role, name in level.keys:
            if name in one and roles.get(role) not in (None, ZERO_UUID):
                one[name] = roles[role]
        return one


def same(level: Level, parent: dict[str, Any], roles: Roles) -> dict[str, Any] | None:
    """The element of this level that is there already."""
    for one in parent[level.array]:
        if all(one.get(name) == roles[role] for role, name in level.keys if role in roles):
            return one  # type: ignore[no-any-return]
    return None


def fit(struct: Struct, value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of another version's struct as this one has them; what it lacks gets its default."""
    found = {}
    for slot in (*struct.slots, *struct.tagged):
        inner = value.get(slot.name, slot.default())
        if slot.struct is not None and inner is not None:
            inner = [fit(slot.struct, one) for one in inner] if slot.array else fit(slot.struct, inner)
        found[slot.name] = slot.default() if inner is None and not slot.nullable else inner
    return found


def plain(value: Any) -> Hashable:
    return str(value) if isinstance(value, list | dict | UUID) else value
