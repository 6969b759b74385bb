"""What rules are asked about: a request that is there as a frame, or one of which only some things are said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from kproxy.rules.entity import KEY_TYPES, Entity, entities
from kproxy.rules.exchange import ConnectionView, Exchange
from kproxy.rules.facts import Facts
from kproxy.rules.frame_match import OF_ENTITY
from kproxy.rules.selector_findings import OF_CONNECTION, KnownRequest
from kproxy.wire import Message, encode, layout, schema
from kproxy.wire.shapes import Level, shape

PRODUCE = 0


class NoCluster:
    """A cluster that nothing is known of."""

    nodes: tuple[int, ...] = ()

    def topic_of(self, topic_id: UUID) -> str | None:
        """Nobody has said."""
        return None


@dataclass(frozen=True)
class Said:
    """An identity from the command line."""

    principal: str | None
    software: str | None
    is_anyone: bool = False


@dataclass(frozen=True)
class Target:
    """A request. `frame`: its bytes without the length, None when it is thought up from `given`."""

    message: Message
    given: Mapping[str, Any]
    frame: bytes | None = None
    known: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> int:
        return self.message.api.key

    @property
    def version(self) -> int:
        return self.message.version

    @property
    def entities(self) -> tuple[Entity, ...]:
        """What it is about. Topics that have an id are those of the id, whatever name stands beside it, and which name
        an id has is not known here."""
        found = entities(self.message)
        return tuple(one if one.topic_id is None else replace(one, topic=None) for one in found)

    @property
    def subject(self) -> KnownRequest:
        """What rules' selectors can be asked about."""
        about = {name: value for name, value in self.given.items() if name in OF_ENTITY}
        whole = self.frame is not None
        seen = self.entities if whole else (Entity(**about),)
        return KnownRequest(self.key, self.version, self.known, seen, whole)

    @property
    def facts(self) -> Facts:
        """Of the connection; what is not known is empty."""
        empty = {"listener": "", "cluster": "", "client_address": ""}
        return Facts(**(empty | {name: self.known[name] for name in OF_CONNECTION if name in self.known}))

    def exchange(self) -> Exchange:
        """For effects of rules."""
        said = Said(self.known.get("principal"), self.known.get("client_software"))
        view = ConnectionView(self.facts, 1, NoCluster(), said)
        size = self.known.get("size") or len(self.frame or encode(self.message))
        exchange = Exchange(view, self.message.api, self.version, 1, self.known.get("client_id"), size, 0.0)
        exchange.read_request = lambda: self.message
        exchange.find = lambda: self.entities
        if self.key == PRODUCE:
            exchange.acks = self.message.body["acks"]
        return exchange


def of_frame(message: Message, frame: bytes, given: Mapping[str, Any]) -> Target:
    """A frame tells all of the request, `given` the rest."""
    known = dict(given) | {"client_id": message.header.get("client_id"), "size": len(frame)}
    if message.api.key == PRODUCE:
        known["acks"] = message.body["acks"]
    return Target(message, given, frame, known)


def of_api(key: int, version: int, given: Mapping[str, Any]) -> Target:
    """A request that is about one thing, as far as `given` says what."""
    struct = layout.body(key, version, "request")
    body = {slot.name: slot.default() for slot in (*struct.slots, *struct.tagged)}
    form = shape(key, version)
    roles = {name: value for name, value in given.items() if name in OF_ENTITY}
    for role, name in form.top:
        body |= {name: roles[role]} if role in roles else coordinator(role, name, body, roles)
    if form.request and any(role in roles for level in form.request for role, _ in level.keys):
        body[form.request[0].array] = [element(form.request, roles)]
    if key == PRODUCE:
        body["acks"] = given.get("acks", -1)
    header = {"request_api_key": key, "request_api_version": version, "correlation_id": 1,
              "client_id": given.get("client_id")}  # fmt: skip
    return Target(Message(schema.load(key), version, header, body), given, None, given)


def coordinator(role: str, name: str, body: Mapping[str, Any], roles: Mapping[str, Any]) -> dict[str, Any]:
    """A coordinator key stands for a group or a transactional id, by its type."""
    if role == "coordinator_key":
        for number, of in KEY_TYPES.items():
            if of in roles:
                return {name: roles[of], **({"key_type": number} if "key_type" in body else {})}
    return {}


def element(levels: tuple[Level, ...], roles: Mapping[str, Any]) -> Any:
    """One element of the first level's array, with one of each level in it."""
    level, deeper = levels[0], levels[1:]
    if level.struct is None:
        return next((roles[role] for role, _ in level.keys if role in roles), 0)
    made = {slot.name: slot.default() for slot in (*level.struct.slots, *level.struct.tagged)}
    made |= {name: roles[role] for role, name in level.keys if role in roles}
    if deeper:
        made[deeper[0].array] = [element(deeper, roles)]
    return made
