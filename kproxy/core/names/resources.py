"""Names that are topics, groups or transactional ids by another field's value: config resources and ACL resources.

Strategy. The fields of one element (or of the top level) are gathered until the element ends, since the type may
stand behind the name; then one function decides what the name becomes (see `acls.py` for those of ACLs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kproxy.core.rewrite import Apply, Buffer, Context, Hits
from kproxy.rules.names.namespace import GROUP, TOPIC, Namespace
from kproxy.wire.edit import Edits
from kproxy.wire.primitives import MAX_STRING
from kproxy.wire.scan.walk import Hit, Walk, read_string, write_string

from . import acls
from .acls import LITERAL, Resource
from .spell import Spelling

CONFIGS: Mapping[int, Namespace] = {2: TOPIC, 32: GROUP}  # org.apache.kafka.common.config.ConfigResource.Type
CLIENT_METRICS = 16  # type of all that ListConfigResources 0 lists, without saying so (KIP-1000)

Spellings = Mapping[Namespace, Spelling]
Decide = Callable[[Spellings, Resource, Context], Resource | None]


def config_name(spellings: Spellings, one: Resource, context: Context) -> Resource | None:
    """Return the config resource with its name on the other side. None: hidden."""
    space = CONFIGS.get(one.kind)
    spelling = None if space is None else spellings.get(space)
    if spelling is None:
        return one
    name = spelling.translate(one.name, context)
    if name is None:
        context.count(spelling.space.hidden)
        return None
    return one._replace(name=name)


class Place(NamedTuple):
    """Position of resources in a message: the array ("" for the top level), the names of the fields, and the function
    that decides what a name becomes."""

    array: str
    kind: str
    name: str
    pattern: str
    decide: Decide

    def concerns(self, spellings: Spellings) -> bool:
        """Return True if a resource can be of a type that rules are about."""
        types = CONFIGS if self.decide is config_name else acls.TYPES
        return any(space in spellings for space in types.values())


@dataclass(frozen=True, slots=True)
class ResourceNames:
    """Rewrite of the resources at one place of a message."""

    place: Place
    spellings: Spellings
    compact: bool

    def path(self, field: str) -> str:
        return f"{self.place.array}.{field}" if self.place.array else field

    @property
    def wanted(self) -> frozenset[str]:
        fields = {self.path(field) for field in (self.place.kind, self.place.name, self.place.pattern) if field}
        return frozenset(fields | ({self.place.array} if self.place.array else set()))

    def bind(self, walk: Walk) -> Apply:
        array = self.place.array
        kind, name, pattern = (
            walk.find("value", self.path(field)) for field in (self.place.kind, self.place.name, self.place.pattern)
        )
        count, element = walk.find("count", array), walk.find("element", array)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            fields: dict[int, Hit] = {}
            for hit in hits:
                fields[hit[0]] = hit
                if hit[0] == element:
                    kept = self.one(buf, fields.get(kind), fields.get(pattern), fields[name], edits, context)
                    if not kept:
                        edits.remove(hit[1], hit[2], fields[count])
            if not array and name in fields:
                self.one(buf, fields.get(kind), fields.get(pattern), fields[name], edits, context)

        return apply

    def one(
        self, buf: Buffer, kind: Hit | None, pattern: Hit | None, name: Hit, edits: Edits, context: Context
    ) -> bool:
        """Make the edits for one resource. False: the element is to go."""
        _, start, end = name
        old = Resource(
            buf[kind[1]] if kind else CLIENT_METRICS,
            buf[pattern[1]] if pattern else LITERAL,
            read_string(buf, start, end, self.compact) or b"",
            pattern is not None,
        )
        if not old.name and self.place.pattern:  # an ACL filter for any name; a group may be called nothing
            return True
        new = self.place.decide(self.spellings, old, context)
        if new is None:
            return False
        if new.name != old.name:
            edits.replace(start, end, write_string(new.name[:MAX_STRING], self.compact))
            context.rewrote("resource_names")
        if new.pattern != old.pattern and pattern is not None:
            edits.replace(pattern[1], pattern[2], bytes((new.pattern,)))
        return True


FILTER = "resource_type_filter", "resource_name_filter", "pattern_type_filter"
ACL = "resource_type", "resource_name", "pattern_type"
CONFIG = "resource_type", "resource_name", ""
PLACES: dict[tuple[int, str], Place] = {
    (29, "request"): Place("", *FILTER, acls.asked_for),
    (29, "response"): Place("resources[]", *ACL, acls.found),
    (30, "request"): Place("creations[]", "resource_type", "resource_name", "resource_pattern_type", acls.created),
    (31, "request"): Place("filters[]", *FILTER, acls.deleted),
    (31, "response"): Place("filter_results[].matching_acls[]", *ACL, acls.found),
    (32, "request"): Place("resources[]", *CONFIG, config_name),
    (32, "response"): Place("results[]", *CONFIG, config_name),
    (33, "request"): Place("resources[]", *CONFIG, config_name),
    (33, "response"): Place("responses[]", *CONFIG, config_name),
    (44, "request"): Place("resources[]", *CONFIG, config_name),
    (44, "response"): Place("responses[]", *CONFIG, config_name),
    (74, "response"): Place("config_resources[]", *CONFIG, config_name),
}
