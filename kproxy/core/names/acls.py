"""Resources of ACLs (KIP-290): literal names, prefixes, `*` for all.

A prefixed ACL has a counterpart only if its prefix does not straddle a rename; if it has none, a filter gets a name
that matches nothing, and a creation gets an empty name, which the broker refuses with INVALID_REQUEST for that one
entry, as it is meant to: an ACL for other things than the client asked for would be worse. The same goes for literal
names that the client cannot reach. Filters for any pattern, or for all patterns that match a name, are for a name.

`*` means all. To a tenant all is what has its prefix: `*` goes out as that prefix, and comes back as `*`; ACLs for
all of the cluster are hidden from it. Where nothing isolates, `*` stays.

A filter for resources of any type means the same on the other side if its name is spelled alike for all types; else
it stays, and from a tenant it matches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kproxy.core.rewrite import Context
from kproxy.rules.names.namespace import GROUP, TOPIC, TRANSACTIONAL_ID, Namespace

from .spell import Spelling

ANY_TYPE = 1  # of org.apache.kafka.common.resource.ResourceType
TYPES: Mapping[int, Namespace] = {2: TOPIC, 3: GROUP, 5: TRANSACTIONAL_ID}
MATCH, LITERAL, PREFIXED = 2, 3, 4  # org.apache.kafka.common.resource.PatternType
ALL = b"*"
NOBODY = b""  # brokers refuse an ACL for a resource without a name: INVALID_REQUEST
IMPOSSIBLE = b"!"  # no topic has it, and no ACL of a tenant is for it

Spellings = Mapping[Namespace, Spelling]


class Resource(NamedTuple):
    """Resource that an ACL, a filter or a config is about. `has_pattern`: the version has a pattern type."""

    kind: int
    pattern: int
    name: bytes
    has_pattern: bool = False


def counterpart(spelling: Spelling, one: Resource, context: Context) -> Resource | None:
    """Return the resource that means the same on the other side. None: clients must not see it, or there is none."""
    names, response = spelling.names, spelling.direction == "response"
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
    name = spelling.translate(one.name, context)
    return None if name is None else one._replace(name=name)


def found(spellings: Spellings, one: Resource, context: Context) -> Resource | None:
    """Return the resource of an ACL in a response as the client sees it; None: it is hidden."""
    space = TYPES.get(one.kind)
    spelling = None if space is None else spellings.get(space)
    if spelling is None:
        return one
    shown = counterpart(spelling, one, context)
    if shown is None:
        context.count(spelling.space.hidden)
    return shown


def created(spellings: Spellings, one: Resource, context: Context) -> Resource:
    """Return the resource of an ACL that is to be created; one without a counterpart, or out of the client's reach,
    gets a name that the broker refuses."""
    space = TYPES.get(one.kind)
    spelling = None if space is None else spellings.get(space)
    if spelling is None:
        return one
    new = counterpart(spelling, one, context)
    if new is None:
        return straddles(one, NOBODY, context)
    return one._replace(name=NOBODY) if spelling.names.is_escaped(new.name) else new


def asked_for(spellings: Spellings, one: Resource, context: Context) -> Resource:
    """Return the resource of a filter; one without a counterpart gets a name that no ACL has."""
    if one.kind == ANY_TYPE:
        return asked_of_any(spellings, one, context)
    space = TYPES.get(one.kind)
    spelling = None if space is None else spellings.get(space)
    if spelling is None:
        return one
    new = counterpart(spelling, one, context)
    return straddles(one, spelling.names.escaped(one.name), context) if new is None else new


def deleted(spellings: Spellings, one: Resource, context: Context) -> Resource:
    """Return the resource of a filter for ACLs that are to be deleted. One for all that matches a name would reach ACLs
    that cover more than a tenant: it becomes one for a name that nobody has (see `acl_deletions.py`)."""
    new = asked_for(spellings, one, context)
    return new._replace(name=IMPOSSIBLE) if is_for_all_that_match(spellings, one.kind, one.pattern) else new


def isolated_types(spellings: Spellings) -> set[int]:
    """Return the types of resources of which a client has a part, and the one that means any of them."""
    isolated = {space for space, spelling in spellings.items() if spelling.names.isolates}
    return {kind for kind, space in TYPES.items() if space in isolated} | ({ANY_TYPE} if isolated else set())


def is_for_all_that_match(spellings: Spellings, kind: int, pattern: int) -> bool:
    """Return True if a filter is for everything that matches a name, of a type of which the client has only a part."""
    return pattern == MATCH and kind in isolated_types(spellings)


def asked_of_any(spellings: Spellings, one: Resource, context: Context) -> Resource:
    """Return the resource of a filter for resources of any type."""
    quiet = [counterpart(spellings[space], one, context) if space in spellings else one for space in TYPES.values()]
    if all(new == quiet[0] for new in quiet) and quiet[0] is not None:
        return quiet[0]
    if any(spelling.names.isolates for spelling in spellings.values()):
        return straddles(one, IMPOSSIBLE, context)
    return one


def straddles(one: Resource, name: bytes, context: Context) -> Resource:
    """Return the resource with `name` in place of its own, and count that it has no counterpart."""
    context.count("acl_prefix_straddles")
    return one._replace(name=name)
