"""Translation of one name at a time, in one direction, with its counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kproxy.protocol.primitives import MAX_STRING
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import GROUP, TOPIC, TRANSACTIONAL_ID, Namespace
from kproxy.session.rewrite.context import Context

SPACES: Mapping[str, Namespace] = {"topic_name": TOPIC, "group_id": GROUP, "transactional_id": TRANSACTIONAL_ID}
"""Namespace of a field's names, by its kind in the table."""


@dataclass(frozen=True, slots=True)
class NameTranslator:
    """Translation of names to the other side: towards the broker in requests, towards the client in responses."""

    names: NameMap
    direction: str

    @property
    def space(self) -> Namespace:
        return self.names.space

    def escapes(self, name: bytes) -> bool:
        """Return True if the broker gets a name that reaches nothing, as the client's would reach somebody else's."""
        return self.direction == "request" and self.names.is_escaped(self.names.to_broker(name))

    def translate(self, name: bytes, context: Context) -> bytes | None:
        """Return the name on the other side. None: hidden from clients.

        What is too long to be written is sent cut off, which reaches nothing that is not the client's; a topic that
        long is none, and stays.
        """
        if self.direction == "response":
            return self.names.to_client(name)
        found = self.names.to_broker(name)
        if self.names.is_escaped(found):
            context.count(self.space.unreachable)
        if len(found) <= MAX_STRING:
            return found
        return name if len(name) > self.space.longest else found[:MAX_STRING]


Translators = Mapping[Namespace, NameTranslator]


def name_translators(names: NameMaps, direction: str) -> dict[Namespace, NameTranslator]:
    """Return a translator for each namespace that rules are about."""
    return {one.space: NameTranslator(one, direction) for one in names.maps}
