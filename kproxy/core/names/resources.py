"""Names that are topics by another field's value: config resources and ACL resources.

Strategy. The fields of one element (or of the top level) are gathered until the element ends, since the type may
stand behind the name; then one function decides what the name becomes.

ACLs (KIP-290). A literal name is a topic's name, `*` means all and stays. A prefixed one is a prefix of names, which
has a counterpart only if it does not straddle a rename; if it has none, a filter gets a name that matches nothing,
and a creation gets an empty name, which the broker refuses with INVALID_REQUEST for that one entry, as it is meant
to: an ACL for other topics than the client asked for would be worse. The same goes for literal names that the client
cannot reach. A filter for any type of resource stays as it is: its name may mean a group, too. Filters for any
pattern, or for all patterns that match a name, name a topic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kproxy.core.rewrite import Apply, Buffer, Context, Hits
from kproxy.rules.names import ESCAPE
from kproxy.wire.edit import Edits
from kproxy.wire.primitives import MAX_STRING
from kproxy.wire.walk import Hit, Walk, read_string, write_string

from .spell import Spelling

TOPIC = 2  # of org.apache.kafka.common.resource.ResourceType and of config.ConfigResource.Type alike
CLIENT_METRICS = 16  # what ListConfigResources 0 lists, without saying so (KIP-1000)
LITERAL, PREFIXED = 3, 4  # org.apache.kafka.common.resource.PatternType
ALL = b"*"
NOBODY = b""  # brokers refuse an ACL for a resource without a name: INVALID_REQUEST

Decide = Callable[[Spelling, int, int, bytes, Context], bytes | None]


def config_name(spelling: Spelling, kind: int, pattern: int, name: bytes, context: Context) -> bytes | None:
    """A config resource's name on the other side. None: hidden."""
    return spelling.translate(name, context) if kind == TOPIC else name


def acl_name(spelling: Spelling, kind: int, pattern: int, name: bytes, context: Context) -> bytes | None:
    """An ACL resource's name on the other side. None: a client must not see it, or no such name means the same."""
    if kind != TOPIC:
        return name
    if pattern == PREFIXED:
        names = spelling.names
        return names.prefix_to_client(name) if spelling.direction == "response" else names.prefix_to_broker(name)
    return name if name == ALL else spelling.translate(name, context)


def acl_filter(spelling: Spelling, kind: int, pattern: int, name: bytes, context: Context) -> bytes:
    """For a filter: what has no counterpart becomes a name that no ACL has."""
    found = acl_name(spelling, kind, pattern, name, context)
    return straddles(context, ESCAPE + name) if found is None else found


def acl_creation(spelling: Spelling, kind: int, pattern: int, name: bytes, context: Context) -> bytes:
    """For a creation: what has no counterpart, or must not be reached, becomes a name that the broker refuses."""
    found = acl_name(spelling, kind, pattern, name, context)
    if found is None:
        return straddles(context, NOBODY)
    return NOBODY if kind == TOPIC and pattern != PREFIXED and found.startswith(ESCAPE) else found


def straddles(context: Context, name: bytes) -> bytes:
    context.count("acl_prefix_straddles")
    return name


@dataclass(frozen=True, slots=True)
class ResourceNames:
    """One place of resources: the array they are in ("" for the top level), and the names of their fields there."""

    array: str
    kind: str
    name: str
    pattern: str
    decide: Decide
    spelling: Spelling
    compact: bool

    def path(self, field: str) -> str:
        return f"{self.array}.{field}" if self.array else field

    @property
    def wanted(self) -> frozenset[str]:
        fields = {self.path(field) for field in (self.kind, self.name, self.pattern) if field}
        return frozenset(fields | ({self.array} if self.array else set()))

    def bind(self, walk: Walk) -> Apply:
        kind, name, pattern = (walk.find("value", self.path(field)) for field in (self.kind, self.name, self.pattern))
        count, element = walk.find("count", self.array), walk.find("element", self.array)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            fields: dict[int, Hit] = {}
            for hit in hits:
                fields[hit[0]] = hit
                if hit[0] == element:
                    kept = self.one(buf, fields.get(kind), fields.get(pattern), fields[name], edits, context)
                    if not kept:
                        edits.remove(hit[1], hit[2], fields[count])
            if not self.array and name in fields:
                self.one(buf, fields.get(kind), fields.get(pattern), fields[name], edits, context)

        return apply

    def one(
        self, buf: Buffer, kind: Hit | None, pattern: Hit | None, name: Hit, edits: Edits, context: Context
    ) -> bool:
        """Put the edit of one name. False: the element is to go."""
        _, start, end = name
        old = read_string(buf, start, end, self.compact)
        if not old:
            return True
        new = self.decide(
            self.spelling,
            buf[kind[1]] if kind else CLIENT_METRICS,
            buf[pattern[1]] if pattern else LITERAL,
            old,
            context,
        )
        if new is None:
            context.count("topics_hidden")
            return False
        if new != old and len(new) <= MAX_STRING:
            edits.replace(start, end, write_string(new, self.compact))
            context.rewrote("resource_names")
        return True


PLACES: dict[tuple[int, str], tuple[str, str, str, str, Decide]] = {
    (29, "request"): ("", "resource_type_filter", "resource_name_filter", "pattern_type_filter", acl_filter),
    (29, "response"): ("resources[]", "resource_type", "resource_name", "pattern_type", acl_name),
    (30, "request"): ("creations[]", "resource_type", "resource_name", "resource_pattern_type", acl_creation),
    (31, "request"): ("filters[]", "resource_type_filter", "resource_name_filter", "pattern_type_filter", acl_filter),
    (31, "response"): (
        "filter_results[].matching_acls[]", "resource_type", "resource_name", "pattern_type", acl_name
    ),
    (32, "request"): ("resources[]", "resource_type", "resource_name", "", config_name),
    (32, "response"): ("results[]", "resource_type", "resource_name", "", config_name),
    (33, "request"): ("resources[]", "resource_type", "resource_name", "", config_name),
    (33, "response"): ("responses[]", "resource_type", "resource_name", "", config_name),
    (44, "request"): ("resources[]", "resource_type", "resource_name", "", config_name),
    (44, "response"): ("responses[]", "resource_type", "resource_name", "", config_name),
    (74, "response"): ("config_resources[]", "resource_type", "resource_name", "", config_name),
}  # fmt: skip
