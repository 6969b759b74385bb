"""Targets: requests that rules are asked about. Each is a frame, or made up from an API and what options tell of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from kproxy.protocol import Message, decode_request, encode
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.protocol.table.shapes import Level, shape
from kproxy.rules.entity import KEY_TYPES, Entity, entities
from kproxy.rules.exchange import ConnectionView, Exchange, Facts
from kproxy.rules.select.frame_match import OF_ENTITY

from .findings import OF_CONNECTION, KnownRequest


class NoCluster:
    """Cluster of which neither nodes nor topic ids are known."""

    nodes: tuple[int, ...] = ()

    def topic_of(self, topic_id: UUID) -> str | None:
        return None


@dataclass(frozen=True)
class Said:
    """Identity of a client, as options on the command line give it."""

    principal: str | None
    software: str | None
    is_anyone: bool = False


class WatchedBody(dict[str, Any]):
    """Struct of a body that no client has sent, which notes the made-up fields that are read from it."""

    def __init__(self, struct: Mapping[str, Any], given: Collection[str], reads: set[str]) -> None:
        super().__init__({name: watched(value, given, reads) for name, value in struct.items()})
        self.made_up = {name for name, value in struct.items() if name not in given and not has_structs(value)}
        self.reads = reads

    def __getitem__(self, name: str) -> Any:
        if name in self.made_up:
            self.reads.add(name)
        return super().__getitem__(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.made_up.discard(name)
        super().__setitem__(name, value)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 -- `__getitem__` notes it


def watched(value: Any, given: Collection[str], reads: set[str]) -> Any:
    """Return a value whose structs note what is read from them in `reads`; `given` are the fields that are known."""
    if isinstance(value, dict):
        return WatchedBody(value, given, reads)
    return [watched(one, given, reads) for one in value] if isinstance(value, list) else value


def has_structs(value: Any) -> bool:
    """Return True for a struct or an array of structs: reads count for the fields in them, not for these."""
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, dict) for one in value))


@dataclass(frozen=True)
class Target:
    """Request that rules are asked about. `frame`: its bytes without the length, None when it is made up from `given`;
    `fields` are then the fields of its body that were given. `known`: what selectors may ask, by name.
    """

    message: Message
    given: Mapping[str, Any]
    frame: bytes | None = None
    known: Mapping[str, Any] = field(default_factory=dict)
    fields: frozenset[str] = frozenset()

    def copy(self, reads: set[str]) -> Message:
        """Return a copy of the request, for an effect that may change it. `reads` gets the names of the fields that the
        effect reads and that were made up."""
        message = decode_request(encode(self.message))
        if self.frame is not None:
            return message
        return Message(message.api, message.version, message.header, WatchedBody(message.body, self.fields, reads))

    @property
    def key(self) -> int:
        return self.message.api.key

    @property
    def version(self) -> int:
        return self.message.version

    @property
    def entities(self) -> tuple[Entity, ...]:
        """Return the entities of the request. Topics that have an id have no name here: the id decides, whatever name
        is beside it, and the name of an id is not known."""
        found = entities(self.message)
        return tuple(one if one.topic_id is None else replace(one, topic=None) for one in found)

    @property
    def subject(self) -> KnownRequest:
        """Return the known part of the request, which rules' selectors can be asked about."""
        about = {name: value for name, value in self.given.items() if name in OF_ENTITY}
        whole = self.frame is not None
        seen = self.entities if whole else (Entity(**about),)
        return KnownRequest(self.key, self.version, self.known, seen, whole)

    @property
    def facts(self) -> Facts:
        """Return the facts of the connection; a fact that is not known is empty."""
        empty = {"listener": "", "cluster": "", "client_address": ""}
        return Facts(**(empty | {name: self.known[name] for name in OF_CONNECTION if name in self.known}))

    def exchange(self, reads: set[str]) -> Exchange:
        """Return the exchange for rules' effects. `reads` gets the names of made-up fields that they read."""
        message = self.copy(reads)
        said = Said(self.known.get("principal"), self.known.get("client_software"))
        view = ConnectionView(self.facts, 1, NoCluster(), said)
        size = self.known.get("size") or len(self.frame or encode(self.message))
        exchange = Exchange(view, self.message.api, self.version, 1, self.known.get("client_id"), size, 0.0)
        exchange.read_request = lambda: message
        exchange.find = lambda: self.entities
        if self.key == PRODUCE:
            exchange.acks = self.message.body["acks"]
        return exchange


def of_frame(message: Message, frame: bytes, given: Mapping[str, Any]) -> Target:
    """Return the target of a frame, which tells all of the request; `given` tells of its connection."""
    known = dict(given) | {"client_id": message.header.get("client_id"), "size": len(frame)}
    if message.api.key == PRODUCE:
        known["acks"] = message.body["acks"]
    return Target(message, given, frame, known)


def of_api(key: int, version: int, given: Mapping[str, Any]) -> Target:
    """Return a made-up request about one entity, of which `given` tells the parts; other fields have defaults."""
    struct = layout.body(key, version, "request")
    body = struct.defaults()
    form = shape(key, version)
    roles = {name: value for name, value in given.items() if name in OF_ENTITY}
    fields: set[str] = {name for level in form.request for role, name in level.keys if role in roles}
    for role, name in form.top:
        known = {name: roles[role]} if role in roles else coordinator(role, name, body, roles)
        body |= known
        fields |= known.keys()
    if form.request and any(role in roles for level in form.request for role, _ in level.keys):
        body[form.request[0].array] = [element(form.request, roles)]
    if key == PRODUCE:
        body["acks"] = given.get("acks", -1)
        fields |= {"acks"} & given.keys()
    header = {"request_api_key": key, "request_api_version": version, "correlation_id": 1,
              "client_id": given.get("client_id")}  # fmt: skip
    return Target(Message(schema.load(key), version, header, body), given, None, given, frozenset(fields))


def coordinator(role: str, name: str, body: Mapping[str, Any], roles: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a coordinator key, which names a group or a transactional id by its type; else none."""
    if role == "coordinator_key":
        for number, of in KEY_TYPES.items():
            if of in roles:
                return {name: roles[of], **({"key_type": number} if "key_type" in body else {})}
    return {}


def element(levels: tuple[Level, ...], roles: Mapping[str, Any]) -> Any:
    """Return one element of the first level's array, with one element of each deeper level in it."""
    level, deeper = levels[0], levels[1:]
    if level.struct is None:
        return next((roles[role] for role, _ in level.keys if role in roles), 0)
    made = level.struct.defaults()
    made |= {name: roles[role] for role, name in level.keys if role in roles}
    if deeper:
        made[deeper[0].array] = [element(deeper, roles)]
    return made
