"""set: any field of any message gets another value."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import defer_free, yielding
from kproxy.protocol.codec.message import Message
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.protocol.table.layout import Slot
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange, FrameDepth
from kproxy.rules.kinds.base.fields import (
    FieldFinder,
    Path,
    elements_of,
    field_value,
    nearest_path,
    parse_path,
    slot_at,
)
from kproxy.rules.kinds.base.rule import Decisions, Direction, Effect, LiveRule, Permanent
from kproxy.rules.select.selected import SelectedVersions, chosen, spans
from kproxy.rules.values.model import KEY, Wrong

ACKS = "acks"


class SetRule(LiveRule):
    """Sets fields of requests or responses to other values.

    With a selector of entities in `match` or `not`, only elements of matching entities change. Outer lengths and counts
    are updated. A field that already has the value is not changed.
    """

    group = "custom changes"
    example: ClassVar[str] = """\
- name: leaders of orders have no epoch
  kind: set
  match: {api: Metadata, topic: orders}
  fields: {"topics[].partitions[].leader_epoch": -1}
  at: response
"""

    kind: Literal["set"] = Field(description="kind of the rule")
    permanent: Permanent = False
    fields: Annotated[dict[str, Any], Field(min_length=1)] = Field(
        description="value by path of the field, as in `kproxy protocol`; [] means all elements of an array, [0] one"
    )
    at: Direction = Field(default="response", description="changed message")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        given, at = raw.get("fields"), raw.get("at", "response")
        match = raw.get("match")
        if not isinstance(match, dict) or match.get("api") is None:
            yield (), "which API is meant? fields have other paths in each, write match: {api: …}"
        if not isinstance(given, dict) or at not in ("request", "response"):
            return
        selected = chosen(raw)
        for text, value in given.items():
            if isinstance(text, str):
                yield from wrong_path(text, value, selected, at)

    def warnings(self) -> Iterable[str]:
        # Versions without the field, and requests without a response.
        match = self.match
        if match is None:
            return
        if self.at == "response" and match.acks is not None and 0 in match.acks:
            yield "a Produce request with acks 0 has no response"
        for choice in chosen({"match": match.model_dump(include={"api", "version"}, mode="json")}):
            for text in self.fields:
                path = parse_path(text)
                lacking = [
                    version for version in choice.versions if not slot_at(path, choice.api.key, version, self.at)
                ]
                if lacking:
                    yield f"{choice.api.name} {spans(lacking)} has no {text}"

    @property
    def reads_topics(self) -> bool:
        return self.selects_topics

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        if direction != self.at:
            return FrameDepth.NOTHING
        return (
            FrameDepth.BODY
            if any(slot_at(parse_path(text), key, version, direction) for text in self.fields)
            else (FrameDepth.NOTHING)
        )

    def start(self) -> Effect:
        return SetEffect(self)


class SetEffect(Effect):
    """Effect that knows the places of the fields in each version."""

    def __init__(self, rule: SetRule) -> None:
        self.rule = rule
        self.selective = any(one is not None and one.of_entities for one in (rule.match, rule.not_))
        self.known: dict[tuple[int, int], list[tuple[FieldFinder, Any]]] = {}

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.change(exchange.request, entities)

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.change(exchange.response, entities)

    def change(self, message: Message, entities: Sequence[Entity]) -> Decisions:
        lets = elements_of(message, entities) if self.selective else None
        changed = False
        for places, value in self.values(message.api.key, message.version):
            for container, name in yielding(defer_free(list(places.find(message.body, lets)))):
                if container[name] != value or type(container[name]) is not type(value):
                    container[name] = copy.deepcopy(value)
                    changed = True
        return (Edit(),) if changed else ()

    def values(self, key: int, version: int) -> list[tuple[FieldFinder, Any]]:
        """Return the places and the values that go there, for this version."""
        if (key, version) not in self.known:
            self.known[key, version] = list(self.resolved(key, version))
        return self.known[key, version]

    def resolved(self, key: int, version: int) -> Iterator[tuple[FieldFinder, Any]]:
        """Yield the places and values of the fields that this version has."""
        struct = layout.body(key, version, self.rule.at)
        for text, value in self.rule.fields.items():
            path = parse_path(text)
            slot = slot_at(path, key, version, self.rule.at)
            if slot is not None:
                yield FieldFinder(struct, path), field_value(slot, value, element=is_element(path))


def is_element(path: Path) -> bool:
    """Return True if the path ends in brackets."""
    return path[-1].index is not None


def wrong_path(text: str, value: Any, selected: Sequence[SelectedVersions], at: str) -> Iterator[Wrong]:
    """Yield the errors in one line of `fields`."""
    key: tuple[Any, ...] = ("fields", text, KEY)
    try:
        path = parse_path(text)
    except ValueError as error:
        yield key, str(error)
        return
    for choice in selected:
        slots = [(version, slot_at(path, choice.api.key, version, at)) for version in choice.versions]
        if all(slot is None for _, slot in slots):
            if choice.by_name:
                yield key, no_such_path(text, path, choice, at)
            continue
        yield from (
            (("fields", text), message)
            for message in dict.fromkeys(bad_value(slot, value, path) for _, slot in slots if slot is not None)
            if message
        )
        if choice.api.key == PRODUCE and at == "request" and text == ACKS and value == 0:
            yield ("fields", text), "acks 0 would leave the client waiting for a response that never comes"


def no_such_path(text: str, path: Path, choice: SelectedVersions, at: str) -> str:
    """Return the message for a path that leads nowhere, with where it would lead, or the one that was meant."""
    elsewhere = [version for version in choice.api.versions if slot_at(path, choice.api.key, version, at)]
    if elsewhere:
        return f'"{text}" is in versions {spans(elsewhere)} of the {at}, selected are {spans(choice.versions)}'
    near = nearest_path(path, choice.api.key, choice.versions or tuple(choice.api.versions), at)
    other = "request" if at == "response" else "response"
    if any(slot_at(path, choice.api.key, version, other) for version in choice.api.versions):
        return f'"{text}" is a field of the {other}, write at: {other}'
    hint = f', did you mean "{near}"?' if near else ""
    return f'a {choice.api.name} {at} has no field "{text}"{hint}'


def bad_value(slot: Slot, value: Any, path: Path) -> str:
    """Return why a value does not fit; empty when it does."""
    try:
        field_value(slot, value, element=is_element(path))
    except ValueError as error:
        return str(error)
    return ""
