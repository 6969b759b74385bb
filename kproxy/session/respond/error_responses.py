"""Responses that a broker would send when a request fails, or some of its entities.

Strategy. The errors of a response are a tree (`Node`) with one level for each response level. Elements are found by
*handles*, the values of their keys. A topic has two keys, its name and its id. One match is sufficient, because a
response may contain the name of a topic that was requested by id; every other key has to be equal. Request elements
with the same handles are one node, because brokers return one element for them.

Elements in a response keep their order, and failed ones are replaced in place. A missing element is inserted before the
first existing one that follows it in the request. So a response in the order of the request keeps that order, and a
response in the broker's own order is not shuffled.

The place of the error code when the entire request fails follows Kafka's own `getErrorResponse` (the `whole` of
`protocol/shapes.yaml`). tests/kafka/test_error_answers.py compares both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kproxy.base.cooperative import defer_free, free_by_parts, yield_point, yielding
from kproxy.protocol.codec.message import Message
from kproxy.protocol.elements import Roles, request_elements
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.protocol.table.layout import ZERO_UUID, Slot, Struct
from kproxy.protocol.table.shapes import Level, Shape, shape
from kproxy.rules.entity import Entity, entities

EITHER = ("topic", "topic_id")
RECORD_ERRORS = "record_errors"
Handle = tuple[Hashable, ...]


class Failure(NamedTuple):
    """Error of a response: its code, and the error message if the version has a field for one.

    None becomes null there; clients have texts of their own. `records`: index in the batch and reason of each record
    that caused the error of a partition (KIP-467).
    """

    code: int
    message: str | None = None
    records: tuple[tuple[int, str], ...] = ()


Failures = Mapping[Entity, Failure]


@free_by_parts
@dataclass(slots=True)
class Node:
    """Element of a response level: its keys, its error, and the elements in it, in the request's order."""

    roles: Roles = field(default_factory=dict)
    failure: Failure | None = None
    failing: bool = False
    children: list[Node] = field(default_factory=list)
    by_handle: dict[Handle, int] = field(default_factory=dict)

    def place(self, handles: tuple[Handle, ...]) -> int | None:
        """Return the index of the child with one of these handles; None: not found."""
        for handle in handles:
            if handle in self.by_handle:
                return self.by_handle[handle]
        return None

    def child(self, level: Level, roles: Roles, number: int | None) -> Node:
        """Return the child with the keys of this level, created if missing. `number`: its place, in positional
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
    """Return the handles that find an element with these roles; never empty."""
    yield_point()
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
    other is the request itself, and its error is the root's. Top-level errors of brokers (`outer`) are also errors of
    the root.
    """
    root, by_place = (
        defer_free(Node()),
        {entity.where: failure for entity, failure in yielding(failures.items()) if entity.where},
    )
    for roles, where, _ in request_elements(request):
        add(form, root, roles, where, by_place.get(where))
    for entity, failure in yielding(failures.items()):
        if not entity.where:
            if not form.response or entity.partition is None:
                root.failure, root.failing = failure, True
            elif reached(form, roles := roles_of(entity)) == len(form.response):
                add(form, root, roles, (), failure)
    return root


def roles_of(entity: Entity) -> dict[str, Any]:
    """Return the roles that the entity itself contains, for an entity without a place in its request."""
    names = ("topic", "topic_id", "partition", "group", "transactional_id", "member")
    return {name: value for name in names if (value := getattr(entity, name)) is not None}


def reached(form: Shape, roles: Roles) -> int:
    """Return how many response levels, from the outside, can be reached with these roles."""
    depth = 0
    while depth < len(form.response) and reaches(form.response[depth], roles):
        depth += 1
    return depth


def add(form: Shape, root: Node, roles: Roles, where: tuple[int, ...], failure: Failure | None) -> None:
    """Add an entity to the tree, with its error in the node that carries the error code in a broker's response."""
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


@free_by_parts
@dataclass(slots=True)
class Answered:
    """Element of a response: its code, and the elements in it."""

    code: int
    inside: dict[Handle, Answered] = field(default_factory=dict)


def errors_of(request: Message, response: Message, asked: Iterable[Entity] | None = None) -> dict[Entity, int]:
    """Return the error code in the response for each entity, 0 for none, also for those that the response lacks.

    The code comes from the entity's own element, then from the enclosing elements, then from the top level. `asked`:
    the entities of the request, if they were changed (names for topic ids) or there are more (those of a fetch
    session).
    """
    form = shape(request.api.key, response.version)
    root = defer_free(Answered(response.body.get(form.code or "", 0), answered(form, 0, response.body)))
    roles = defer_free({where: said for said, where, _ in request_elements(request)})
    return {
        entity: code_of(form, root, roles[entity.where] if entity.where else roles_of(entity), entity.where)
        for entity in yielding(entities(request) if asked is None else asked)
    }


def answered(form: Shape, depth: int, parent: Mapping[str, Any]) -> dict[Handle, Answered]:
    found: dict[Handle, Answered] = {}
    if depth == len(form.response):
        return found
    level = form.response[depth]
    for number, element in yielding(enumerate(parent.get(level.array) or ())):
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


UNSUPPORTED_VERSION = 35


def fail(request: Message, failure: Failure) -> Message:
    """Return the response to a request that fails entirely. Also for a Produce with acks 0, which brokers do not
    answer.

    An ApiVersions request that fails with UNSUPPORTED_VERSION is answered in version 0, as KIP-511 has it.
    """
    form = shape(request.api.key, request.version)
    if request.api.key == API_VERSIONS and failure.code == UNSUPPORTED_VERSION:
        return unsupported(request)
    body = top_error(form, request, failure if form.whole in ("top", "both") else None)
    if form.whole != "top":
        fill(form, body, request, failure)
    return response_to(request, body)


def fail_each(request: Message, failures: Failures) -> Message:
    """Return the response to a request without remaining entities: each entity has its own error, and the top level has
    no code.

    An entity that is the request itself fails as `fail` has it.
    """
    form = shape(request.api.key, request.version)
    root = tree(form, request, failures)
    if root.failure is not None:
        return fail(request, root.failure)
    return response_to(request, weave(form, top_error(form, request, None), root))


def response_to(request: Message, body: dict[str, Any], version: int | None = None) -> Message:
    header = {"correlation_id": request.header["correlation_id"]}
    return Message(request.api, request.version if version is None else version, header, body)


def top_error(form: Shape, request: Message | None, failure: Failure | None) -> dict[str, Any]:
    """Return a response's body with empty arrays, and the error at the top if it has a field for one."""
    body = empty(layout.body(form.api.key, form.version, "response"), form.blank)
    for name, asked in form.echo.items():
        if request is not None and name in body:
            body[name] = request.body[asked]
    if failure is not None:
        put(body, form.code, form.text, failure)
    return body


def fill(form: Shape, body: dict[str, Any], request: Message, failure: Failure) -> None:
    """Put an element with this error into `body` for every entity, or for every element of the first level."""
    root = defer_free(Node())
    for roles, where, _ in request_elements(request):
        add(form, root, outermost(form, roles) if form.whole == "first" else roles, where, failure)
    if form.response:
        body[form.response[0].array] = [built(form, 0, child) for child in yielding(root.children)]


def outermost(form: Shape, roles: Roles) -> Roles:
    names = [role for role, _ in form.response[0].keys]
    return {role: value for role, value in roles.items() if role in names}


def unsupported(request: Message) -> Message:
    """Return the response of error 35 with the one entry that a client needs to ask again (KIP-511)."""
    known: schema.Versions = request.api.versions
    entry = {"api_key": API_VERSIONS, "min_version": known.first, "max_version": known.last}
    return response_to(request, {"error_code": UNSUPPORTED_VERSION, "api_keys": [entry]}, version=0)


def empty(struct: Struct, blank: Mapping[str, Any]) -> dict[str, Any]:
    """Return a struct of defaults, except for the names in `blank`."""
    yield_point()
    slots = struct.all_slots
    return {slot.name: blank[slot.name] if slot.name in blank else slot.default() for slot in slots}


def element(form: Shape, level: Level, roles: Mapping[str, Any], failure: Failure | None) -> dict[str, Any]:
    """Return an element of a response level with these keys, and the error if its level carries one."""
    assert level.struct is not None
    made = empty(level.struct, form.blank)
    for slot in level.struct.slots:
        for role, name in level.keys:
            if name == slot.name and role in roles:
                made[name] = fitted(slot, roles[role])
    if failure is not None:
        put(made, level.code, level.text, failure)
        if failure.records and RECORD_ERRORS in made:
            made[RECORD_ERRORS] = [
                {"batch_index": index, "batch_index_error_message": text} for index, text in yielding(failure.records)
            ]
    return made


def put(struct: dict[str, Any], code: str | None, text: str | None, failure: Failure) -> None:
    if code is not None:
        struct[code] = failure.code
    if text is not None:
        struct[text] = failure.message


def fitted(slot: Slot, value: Any) -> Any:
    """Return a request's key as the response's field takes it: null only in nullable fields, structs without unknown
    tags."""
    if slot.struct is not None and value:
        return [{inner.name: one[inner.name] for inner in slot.struct.slots} for one in value]
    return slot.default() if value is None and not slot.nullable else value


def weave(form: Shape, body: Mapping[str, Any], root: Node) -> dict[str, Any]:
    """Return a copy of a response's body with the errors of the tree; parts without errors are shared."""
    if not root.failing or not form.response or not any(level.code for level in form.response):
        return dict(body)
    return woven(form, 0, body, root)


def woven(form: Shape, depth: int, parent: Mapping[str, Any], node: Node) -> dict[str, Any]:
    """Return `parent` with its array at this depth woven with the node's children."""
    level = form.response[depth]
    present = parent.get(level.array) or []
    places = [node.place(handles_of(level, level.roles(one))) for one in yielding(present)]
    there = set(places)
    missing = [place for place, child in yielding(enumerate(node.children)) if child.failing and place not in there]
    missing.reverse()
    out: list[Any] = []
    for one, place in yielding(zip(present, places, strict=True)):
        if place is None:
            out.append(one)
            continue
        while missing and missing[-1] < place:
            out.append(built(form, depth, node.children[missing.pop()]))
        out.append(changed(form, depth, one, node.children[place]))
    out += [built(form, depth, node.children[place]) for place in yielding(reversed(missing))]
    return {**parent, level.array: out}


def changed(form: Shape, depth: int, one: dict[str, Any], node: Node) -> dict[str, Any]:
    """Return an existing element with its failed children merged in. It keeps its keys: it may know a name for the
    request's id."""
    if not node.failing:
        return one
    if node.failure is not None and not node.children:
        return element(form, form.response[depth], known(form.response[depth], one, node), node.failure)
    copy = woven(form, depth + 1, one, node)
    if node.failure is not None:  # the request names it entirely, and again in part
        put(copy, form.response[depth].code, form.response[depth].text, node.failure)
    return copy


def known(level: Level, one: dict[str, Any], node: Node) -> dict[str, Any]:
    return {**node.roles, **level.roles(one)}


def built(form: Shape, depth: int, node: Node) -> dict[str, Any]:
    """Return a new element with its failed children."""
    made = element(form, form.response[depth], node.roles, node.failure)
    failing = [child for child in yielding(node.children) if child.failing]
    if failing:
        array = form.response[depth + 1].array
        made[array] = [built(form, depth + 1, child) for child in yielding(failing)]
    return made
