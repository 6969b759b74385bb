"""Entities of a request in the order of its response's elements, with their errors.

The errors that a response is to have are a tree, a level of it for each response level.

Strategy. Elements find each other by *handles*: the values of their keys. A topic has two, its name and its id, of
which one is enough, because a response may name what was asked for by its id; every other key has to be equal.
Elements of the request with the same handles are one node, as brokers answer them once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kproxy.protocol.breath import breathe, each, holds_many, keep
from kproxy.protocol.codec.message import Message
from kproxy.protocol.elements import Roles, request_elements
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.protocol.table.shapes import Level, Shape, shape
from kproxy.rules.entity import Entity, entities

EITHER = ("topic", "topic_id")
Handle = tuple[Hashable, ...]


class Failure(NamedTuple):
    """Error of a response: its code, and the text that stands beside it where the version has a field for one.

    None becomes null there; clients have texts of their own.
    """

    code: int
    message: str | None = None


Failures = Mapping[Entity, Failure]


@holds_many
@dataclass(slots=True)
class Node:
    """Element of a response level: its keys, its error, and the elements in it, in the request's order."""

    roles: Roles = field(default_factory=dict)
    failure: Failure | None = None
    failing: bool = False
    children: list[Node] = field(default_factory=list)
    by_handle: dict[Handle, int] = field(default_factory=dict)

    def place(self, handles: tuple[Handle, ...]) -> int | None:
        """Return the index of the child with one of these handles; None if there is none."""
        for handle in handles:
            if handle in self.by_handle:
                return self.by_handle[handle]
        return None

    def child(self, level: Level, roles: Roles, number: int | None) -> Node:
        """Return the child with the keys of this level, made if it is not there. `number`: its place, in positional
        arrays."""
        handles = ((number,),) if number is not None else handles_of(level, roles)
        place = self.place(handles)
        if place is None:
            place = len(self.children)
            self.children.append(Node(roles))
        for handle in handles:
            self.by_handle.setdefault(handle, place)
        return self.children[place]


def handles_of(level: Level, roles: Roles) -> tuple[Handle, ...]:
    """Return the handles by which an element with these roles is found; never empty."""
    breathe()
    names = [role for role, _ in level.keys]
    rest = tuple(plain(roles.get(role)) for role in names if role not in EITHER)
    if len(rest) == len(names):
        return (rest,)
    found: list[Handle] = []
    if "topic" in names and roles.get("topic") is not None:
        found.append(("topic", roles["topic"], *rest))
    if "topic_id" in names and roles.get("topic_id") not in (None, ZERO_UUID):
        found.append(("topic_id", roles["topic_id"], *rest))
    return tuple(found) or ((None, *rest),)


def plain(value: Any) -> Hashable:
    """Return a key as something that can be looked up; a quota entity is a set of (type, name)."""
    if isinstance(value, list):
        return frozenset((part["entity_type"], part["entity_name"]) for part in value)
    return value  # type: ignore[no-any-return]


def reaches(level: Level, roles: Roles) -> bool:
    """Return True if the keys of this level are all known."""
    names = [role for role, _ in level.keys]
    either = [role for role in names if role in EITHER]
    return all(role in roles for role in names if role not in EITHER) and (
        not either or any(role in roles for role in either)
    )


def tree(form: Shape, request: Message, failures: Failures) -> Node:
    """Build the tree of all entities of the request, and those in `failures` that it does not list; return its root.

    An entity without a place in the request (`where` is ()) is one that it does not list if it is a partition; any
    other is the request itself, and its error is the root's. So is an error that brokers say at the top (`outer`).
    """
    root, by_place = keep(Node()), {entity.where: failure for entity, failure in each(failures.items()) if entity.where}
    for roles, where, _ in request_elements(request):
        add(form, root, roles, where, by_place.get(where))
    for entity, failure in each(failures.items()):
        if not entity.where:
            if not form.response or entity.partition is None:
                root.failure, root.failing = failure, True
            elif reached(form, roles := roles_of(entity)) == len(form.response):
                add(form, root, roles, (), failure)
    return root


def roles_of(entity: Entity) -> dict[str, Any]:
    """Return the roles that an entity itself can tell, for one that has no place in its request."""
    names = ("topic", "topic_id", "partition", "group", "transactional_id", "member")
    return {name: value for name in names if (value := getattr(entity, name)) is not None}


def reached(form: Shape, roles: Roles) -> int:
    """Return how many response levels, from the outside, can be reached with these roles."""
    depth = 0
    while depth < len(form.response) and reaches(form.response[depth], roles):
        depth += 1
    return depth


def add(form: Shape, root: Node, roles: Roles, where: tuple[int, ...], failure: Failure | None) -> None:
    """Add an entity to the tree, with its error in the node where a broker says it."""
    node, path = root, [root]
    for level in form.response[: reached(form, roles)]:
        node = node.child(level, roles, where[0] if form.positional else None)
        path.append(node)
    if failure is None or node is root:
        return
    if failure.code in form.outer:
        codes = [level.code for level in form.response[:-1][: len(path) - 1]]
        outermost = next((place for place, code in enumerate(codes, 1) if code), 0)
        path = path[: outermost + 1]
    path[-1].failure = failure
    for passed in path:
        passed.failing = True


@holds_many
@dataclass(slots=True)
class Answered:
    """Element of a response: its code, and the elements in it."""

    code: int
    inside: dict[Handle, Answered] = field(default_factory=dict)


def errors_of(request: Message, response: Message, asked: Iterable[Entity] | None = None) -> dict[Entity, int]:
    """Return the error code in the response for each entity, 0 for none, also for those that the response lacks.

    The code is that of the entity's own element, else of the elements around it, else the one at the top. `asked`: the
    entities of the request, if they were changed (names for topic ids) or there are more (those of a fetch session).
    """
    form = shape(request.api.key, response.version)
    root = keep(Answered(response.body.get(form.code or "", 0), answered(form, 0, response.body)))
    roles = keep({where: said for said, where, _ in request_elements(request)})
    return {
        entity: code_of(form, root, roles[entity.where] if entity.where else roles_of(entity), entity.where)
        for entity in each(entities(request) if asked is None else asked)
    }


def answered(form: Shape, depth: int, parent: Mapping[str, Any]) -> dict[Handle, Answered]:
    found: dict[Handle, Answered] = {}
    if depth == len(form.response):
        return found
    level = form.response[depth]
    for number, element in each(enumerate(parent.get(level.array) or ())):
        one = Answered(element[level.code] if level.code else 0, answered(form, depth + 1, element))
        for handle in ((number,),) if form.positional else handles_of(level, level.roles(element)):
            found.setdefault(handle, one)
    return found


def code_of(form: Shape, root: Answered, roles: Roles, where: tuple[int, ...]) -> int:
    node, code = root, root.code
    for level in form.response:
        if form.positional:
            handles: tuple[Handle, ...] = (where[:1],)
        else:
            handles = handles_of(level, roles) if reaches(level, roles) else ()
        inner = next((node.inside[handle] for handle in handles if handle in node.inside), None)
        if inner is None:
            break
        node, code = inner, inner.code or code
    return code
