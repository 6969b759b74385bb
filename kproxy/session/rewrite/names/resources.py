"""Names that are topics, groups or transactional ids by another field's value: config resources and ACL resources.

Strategy. The fields of one element (or of the top level) are gathered until the element ends, since the type may follow
the name; then one function determines the new name.

ACLs (KIP-290) are for literal names, for prefixes, and with `*` for all. A prefixed ACL has a counterpart only if its
prefix does not straddle a rename. Without one, a filter gets a name that matches nothing. A creation gets an empty
name, so that the broker refuses that one entry with INVALID_REQUEST: an ACL for other resources than the client's would
be worse. The same goes for literal names that the client cannot reach. Filters for any pattern, or for all patterns
that match a name, are for a name.

`*` means all. To a tenant all is what has its prefix: `*` goes out as that prefix, and comes back as `*`; ACLs for all
of the cluster are hidden from it. Without isolation, `*` stays.

A filter for resources of any type means the same on the other side if its name is the same for all types; otherwise it
is not changed, and from a tenant it matches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import MAX_STRING, Buffer
from kproxy.protocol.scan.walk import Hit, Hits, Walk, read_string, write_string
from kproxy.protocol.table.api_keys import (
    ALTER_CONFIGS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
)
from kproxy.rules.names.layer import GROUP, TOPIC, TRANSACTIONAL_ID, Namespace
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.rewriter import Apply

from .translator import NameTranslator, Translators

ANY_TYPE = 1  # of org.apache.kafka.common.resource.ResourceType
ACL_TYPES: Mapping[int, Namespace] = {2: TOPIC, 3: GROUP, 5: TRANSACTIONAL_ID}
MATCH, LITERAL, PREFIXED = 2, 3, 4  # org.apache.kafka.common.resource.PatternType
ALL = b"*"
NO_NAME = b""  # brokers refuse an ACL for a resource without a name: INVALID_REQUEST
IMPOSSIBLE = b"!"  # no topic has it, and no ACL of a tenant is for it


class Resource(NamedTuple):
    """Resource that an ACL, a filter or a config is about. `has_pattern`: the version has a pattern type."""

    kind: int
    pattern: int
    name: bytes
    has_pattern: bool = False


def counterpart(translator: NameTranslator, one: Resource, context: Context) -> Resource | None:
    """Return the resource that means the same on the other side. None: clients must not see it, or it does not
    exist."""
    names, response = translator.names, translator.direction == "response"
    if one.pattern == PREFIXED:
        prefix = names.prefix_to_client(one.name) if response else names.prefix_to_broker(one.name)
        if prefix == b"":  # the prefix of everything that this client has
            return one._replace(name=ALL, pattern=LITERAL) if names.isolates else None
        return None if prefix is None else one._replace(name=prefix)
    if one.name == ALL:
        if not names.isolates:
            return one
        mine = None if response or not one.has_pattern else names.prefix_to_broker(b"")
        return one._replace(name=mine, pattern=PREFIXED) if mine else None
    if names.isolates and not names.space.takes_prefix(one.name):  # no name, but prefixes of others may match it
        return None
    name = translator.translate(one.name, context)
    return None if name is None else one._replace(name=name)


def shown_resource(translators: Translators, one: Resource, context: Context) -> Resource | None:
    """Return the resource of an ACL in a response as the client sees it; None: it is hidden."""
    space = ACL_TYPES.get(one.kind)
    translator = None if space is None else translators.get(space)
    if translator is None:
        return one
    shown = counterpart(translator, one, context)
    if shown is None:
        context.count(translator.space.hidden)
    return shown


def created_resource(translators: Translators, one: Resource, context: Context) -> Resource:
    """Return the resource of an ACL to create; one without a counterpart, or out of the client's reach, gets a name
    that the broker refuses."""
    space = ACL_TYPES.get(one.kind)
    translator = None if space is None else translators.get(space)
    if translator is None:
        return one
    new = counterpart(translator, one, context)
    if new is None:
        return without_counterpart(one, NO_NAME, context)
    return one._replace(name=NO_NAME) if translator.names.is_escaped(new.name) else new


def filter_resource(translators: Translators, one: Resource, context: Context) -> Resource:
    """Return the resource of a filter; one without a counterpart gets a name that no ACL has."""
    if one.kind == ANY_TYPE:
        return filter_of_any_type(translators, one, context)
    space = ACL_TYPES.get(one.kind)
    translator = None if space is None else translators.get(space)
    if translator is None:
        return one
    new = counterpart(translator, one, context)
    return without_counterpart(one, translator.names.escaped(one.name), context) if new is None else new


def deletion_filter(translators: Translators, one: Resource, context: Context) -> Resource:
    """Return the resource of a filter for ACLs to delete. One for all that matches a name would reach ACLs that cover
    more than a tenant: it becomes a filter for a name that does not exist (see `tenant_denials.py`)."""
    new = filter_resource(translators, one, context)
    return new._replace(name=IMPOSSIBLE) if is_for_all_that_match(translators, one.kind, one.pattern) else new


def isolated_types(translators: Translators) -> set[int]:
    """Return the types of resources that are isolated for the client, and the type ANY, which includes them."""
    isolated = {space for space, translator in translators.items() if translator.names.isolates}
    return {kind for kind, space in ACL_TYPES.items() if space in isolated} | ({ANY_TYPE} if isolated else set())


def is_for_all_that_match(translators: Translators, kind: int, pattern: int) -> bool:
    """Return True if a filter is for everything that matches a name, of a type that is isolated for the client."""
    return pattern == MATCH and kind in isolated_types(translators)


def filter_of_any_type(translators: Translators, one: Resource, context: Context) -> Resource:
    quiet = [
        counterpart(translators[space], one, context) if space in translators else one for space in ACL_TYPES.values()
    ]
    if all(new == quiet[0] for new in quiet) and quiet[0] is not None:
        return quiet[0]
    if any(translator.names.isolates for translator in translators.values()):
        return without_counterpart(one, IMPOSSIBLE, context)
    return one


def without_counterpart(one: Resource, name: bytes, context: Context) -> Resource:
    """Return the resource with `name` in place of its own, and count that it has no counterpart."""
    context.count("acl_prefix_straddles")
    return one._replace(name=name)


CONFIG_TYPES: Mapping[int, Namespace] = {2: TOPIC, 32: GROUP}  # org.apache.kafka.common.config.ConfigResource.Type
CLIENT_METRICS = 16  # type of all that ListConfigResources 0 lists, without saying so (KIP-1000)


Decide = Callable[[Translators, Resource, Context], Resource | None]


def config_name(translators: Translators, one: Resource, context: Context) -> Resource | None:
    """Return the config resource with its name on the other side. None: hidden."""
    space = CONFIG_TYPES.get(one.kind)
    translator = None if space is None else translators.get(space)
    if translator is None:
        return one
    name = translator.translate(one.name, context)
    if name is None:
        context.count(translator.space.hidden)
        return None
    return one._replace(name=name)


class ResourcePlace(NamedTuple):
    """Position of resources in a message: the array ("" for the top level), the names of the fields, and the function
    that determines the new name."""

    array: str
    kind: str
    name: str
    pattern: str
    decide: Decide

    def concerns(self, translators: Translators) -> bool:
        """Return True if a resource can be of a type that rules are about."""
        types = CONFIG_TYPES if self.decide is config_name else ACL_TYPES
        return any(space in translators for space in types.values())


@dataclass(frozen=True, slots=True)
class ResourceNames:
    """Rewrite of the resources at one place of a message."""

    place: ResourcePlace
    translators: Translators
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
        if not old.name and self.place.pattern:  # an ACL filter for any name; a group may have an empty name
            return True
        new = self.place.decide(self.translators, old, context)
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
RESOURCE_PLACES: dict[tuple[int, str], ResourcePlace] = {
    (DESCRIBE_ACLS, "request"): ResourcePlace("", *FILTER, filter_resource),
    (DESCRIBE_ACLS, "response"): ResourcePlace("resources[]", *ACL, shown_resource),
    (CREATE_ACLS, "request"): ResourcePlace(
        "creations[]", "resource_type", "resource_name", "resource_pattern_type", created_resource
    ),
    (DELETE_ACLS, "request"): ResourcePlace("filters[]", *FILTER, deletion_filter),
    (DELETE_ACLS, "response"): ResourcePlace("filter_results[].matching_acls[]", *ACL, shown_resource),
    (DESCRIBE_CONFIGS, "request"): ResourcePlace("resources[]", *CONFIG, config_name),
    (DESCRIBE_CONFIGS, "response"): ResourcePlace("results[]", *CONFIG, config_name),
    (ALTER_CONFIGS, "request"): ResourcePlace("resources[]", *CONFIG, config_name),
    (ALTER_CONFIGS, "response"): ResourcePlace("responses[]", *CONFIG, config_name),
    (INCREMENTAL_ALTER_CONFIGS, "request"): ResourcePlace("resources[]", *CONFIG, config_name),
    (INCREMENTAL_ALTER_CONFIGS, "response"): ResourcePlace("responses[]", *CONFIG, config_name),
    (LIST_CONFIG_RESOURCES, "response"): ResourcePlace("config_resources[]", *CONFIG, config_name),
}
