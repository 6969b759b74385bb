"""Redaction of names that a rule forbids from all places of a response.

Strategy. `rules/select/mentions.py` lists the response fields with names that the client did not request, such as
assignments, subscriptions, topologies and group bytes. The element of the innermost array with such a field is removed;
a name outside an array becomes null. In the bytes of the consumer protocol the same is done one level deeper. Requested
names are not checked: rules evaluate them as entities.

The ids in an assignment must have names before the response can be checked. A response cannot wait for a lookup,
because later responses would overtake it. So all topics are looked up when a member joins. A response with an id that
is still unknown is replaced by an error after which the member retries, and the next request waits for a lookup.
`RedactionState` keeps these ids from request to response.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.cooperative import yield_point, yielding
from kproxy.protocol.codec.message import Message
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import (
    DESCRIBE_TOPIC_PARTITIONS,
    JOIN_GROUP,
    SYNC_GROUP,
)
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.rules.entity import ACL_TYPES, CONFIG_TYPES, Entity
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.names.composed import NameMap
from kproxy.rules.select.mentions import loose, texts
from kproxy.session.cluster import Cluster, fresh_topics
from kproxy.session.compiled_rule import CompiledRule
from kproxy.session.literal_search import BY_ID, joins
from kproxy.session.respond.error_responses import Failure
from kproxy.session.rewrite.context import ASKED_IDS, Context, NeedsLookup, session_lru
from kproxy.session.rewrite.names.groups import ASSIGNMENT, SUBSCRIPTION, rewrite_consumer_bytes
from kproxy.session.rewrite.names.translator import NameTranslator

from .evaluation import EvaluatedExchange, PendingResponse, RequestEvaluation

Forbids = Callable[[Entity], bool]
BYTES: Mapping[str, str] = {"group_metadata": SUBSCRIPTION, "group_assignment": ASSIGNMENT}
CONSUMER = "consumer"
AROUND: Mapping[str, str] = {"group_id": "group", "transactional_id": "transactional_id"}
WORD = re.compile(r"[a-zA-Z0-9._-]+")
NOT_SHOWN = "topics that this client may not see"
COORDINATOR_LOAD_IN_PROGRESS = 14
"""An error upon which members of groups send the same heartbeat again."""


class VisibleNames(NameMap):
    """Name map that leaves names as they are, but hides those that `forbids` holds for."""

    def __init__(self, forbids: Callable[[str], bool]) -> None:
        super().__init__(())
        self.forbids = forbids

    def to_client(self, name: bytes) -> bytes | None:
        """Return the name if it is allowed, else None."""
        return None if self.forbids(name.decode("utf-8", "surrogateescape")) else name


class ResponseRedaction:
    """One look at one message. `found`: a forbidden name was found; `unknown`: topic ids without a name.

    With `remove`, forbidden names are taken out of the message in place.
    """

    def __init__(self, cluster: Cluster, forbids: Forbids, request: Message, remove: bool) -> None:
        self.cluster, self.forbids, self.request, self.remove = cluster, forbids, request, remove
        self.found = False
        self.unknown: set[UUID] = set()
        self.paths: frozenset[str] = frozenset()
        self.texts: frozenset[str] = frozenset()
        self.kind: str | None = request.body.get("protocol_type")  # type of the group whose bytes follow
        self.assignor = ""

    def run(self, message: Message) -> bool:
        """Return True if the message names something forbidden, and take it out if `remove` is set."""
        key, version = message.api.key, message.version
        self.paths = loose(key, version, message.direction)
        self.texts = texts(key, version) if message.direction == "response" else frozenset()
        around = {role: self.request.body.get(field) for field, role in AROUND.items()}
        self.strip(layout.body(key, version, message.direction), message.body, around)
        return self.found

    def strip(self, struct: Struct, body: dict[str, Any], around: Mapping[str, Any]) -> bool:
        """Return True if `body` has to go, since it names something forbidden in a field that cannot be emptied.

        Forbidden names in its arrays and in structs inside it are dealt with here. `around` has the group and
        transactional id that the structs around it name.
        """
        yield_point()
        own = {AROUND[slot.kind or ""]: body[slot.name] for slot in struct.slots if is_around(slot)}
        roles = {**around, **own}
        named = any(slot.kind == "topic_name" and not slot.array and body.get(slot.name) for slot in struct.slots)
        self.kind = body.get("protocol_type") or self.kind
        self.assignor = body.get("protocol_name") or body.get("protocol_data") or self.assignor
        goes = False
        for slot in struct.all_slots:
            value = body.get(slot.name)
            if value is None:
                continue
            if slot.path in self.texts:
                self.put(body, slot, value, self.detail(value, roles))
            elif slot.struct is not None:
                if any(path.startswith(slot.path) for path in (*self.paths, *self.texts)):
                    self.inside(slot, slot.struct, body, roles)
            elif slot.path not in self.paths or (slot.kind == "topic_id" and named):
                continue
            elif slot.array:
                kept = [one for one in yielding(value) if not self.forbidden(slot, one, body, roles)]
                self.put(body, slot, value, kept)
            elif slot.kind in BYTES:
                self.put(body, slot, value, self.of_bytes(slot, value, body, roles))
            elif self.forbidden(slot, value, body, roles):
                if slot.nullable or slot.kind == "topic_regex":
                    self.put(body, slot, value, None if slot.nullable else "")
                else:
                    goes = True
        return goes

    def inside(self, slot: Slot, struct: Struct, body: dict[str, Any], roles: Mapping[str, Any]) -> None:
        """Look at the one struct, or the array of structs, in the field `slot` of `body`."""
        value = body[slot.name]
        if slot.array:
            self.put(body, slot, value, [one for one in value if not self.strip(struct, one, roles)])
        elif self.strip(struct, value, roles):
            self.put(body, slot, value, None)

    def put(self, body: dict[str, Any], slot: Slot, value: Any, other: Any) -> None:
        """Note that a field has to become `other`, if that differs from `value`, and write it if `remove` is set."""
        if other != value:
            self.found = True
            if self.remove:
                body[slot.name] = other

    def forbidden(self, slot: Slot, value: Any, body: Mapping[str, Any], roles: Mapping[str, Any]) -> bool:
        """Return True if rules forbid the topic, group or transactional id that `value` names; a topic id without a
        known name is noted in `unknown`."""
        if value in (None, ""):
            return False
        if slot.kind == "topic_id":
            topic = self.cluster.topic_of(value)
            if topic is None and value.int:
                self.unknown.add(value)
            return bool(value.int) and self.forbids(Entity(**{**roles, "topic": topic, "topic_id": value}))
        if slot.kind in ("acl_resource_name", "config_resource_name"):
            known = ACL_TYPES if slot.kind == "acl_resource_name" else CONFIG_TYPES
            role = known.get(body["resource_type"])
            return role is not None and self.forbids(Entity(**{role: value}))
        if slot.kind is not None and slot.kind in AROUND:
            return self.forbids(Entity(**{**roles, AROUND[slot.kind]: value}))
        return self.forbids(Entity(**{**roles, "topic": value}))

    def detail(self, text: str, roles: Mapping[str, Any]) -> str:
        """Return the text, or NOT_SHOWN in its place if one of its words is a forbidden topic name."""
        names = {word.strip(".") for word in WORD.findall(text)} | set(WORD.findall(text))
        return (
            NOT_SHOWN
            if any(self.forbids(Entity(**{**roles, "topic": name})) for name in yielding(names) if name)
            else text
        )

    def of_bytes(self, slot: Slot, data: bytes, body: Mapping[str, Any], roles: Mapping[str, Any]) -> bytes:
        """Return the consumer protocol's bytes without forbidden topics. Bytes of another protocol stay as they are;
        those that the consumer protocol cannot have written are left out altogether."""
        kind = self.kind
        if not data or kind not in (None, CONSUMER):
            return data
        allowed = VisibleNames(lambda name: self.forbids(Entity(**{**roles, "topic": name})))
        translator = NameTranslator(allowed, "response")
        assignor = (body.get("name") or self.assignor).encode("utf-8", "replace")
        context = self.cluster.context
        found = rewrite_consumer_bytes(bytes(data), BYTES[slot.kind or ""], translator, assignor, context, kind is None)
        if found is not None:
            return found
        context.count("group_bytes_unreadable")
        return data if kind is None else b""


def is_around(slot: Slot) -> bool:
    return slot.kind in AROUND and not slot.array


MOST_IDS = 10_000
"""Ids that a connection has to look up; a response with more new ones does not cause a lookup."""
MOST_CURSORS = 16
"""Cursors of paged responses that one connection may use: names after which a list continues."""
PLACE = "?"
"""First letter of the placeholder for a cursor's name; not legal in names of topics."""


class RedactionState:
    """Screening of one connection's responses: the topic ids to look up, and the cursors given to it."""

    __slots__ = ("cluster", "context", "cursors", "given", "ids")

    def __init__(self, context: Context, cluster: Cluster) -> None:
        self.context, self.cluster = context, cluster
        self.ids: set[UUID] = set()
        self.cursors: BoundedMap[str, str] = BoundedMap(MOST_CURSORS)
        self.given = 0

    def unknown(self, exchange: EvaluatedExchange) -> NeedsLookup | None:
        """Return the lookup of the topics that the response to this request may contain. None: not needed."""
        if not exchange.program.enforces:
            return None
        ids, self.ids = self.ids, set()
        needed = self.cluster.unknown(ids)
        joining = exchange.api.key in BY_ID and joins(exchange.request)
        if joining and fresh_topics(self.context.cluster_memory, exchange.came) is None:
            return NeedsLookup(all_topics=True)  # the list also has the names of `ids`
        return needed

    def begin(
        self, part: CompiledRule, exchange: EvaluatedExchange, evaluation: RequestEvaluation, *, judged: bool
    ) -> None:
        """Note that the response to this request is to be screened, and screen the bytes of groups that the request
        holds."""
        exchange.pending.append(PendingResponse(part, (), judged, screens=True))
        running, request = part.running, exchange.request
        if running.dry_run:
            return
        if self.changes(part, exchange, remove=True):
            evaluation.act(running)
            evaluation.edited = True
        elif exchange.api.key == DESCRIBE_TOPIC_PARTITIONS and (cursor := request.body.get("cursor")) is not None:
            name = self.cursors.get(cursor["topic_name"])
            if name is not None:
                cursor["topic_name"] = name
                evaluation.edited = True

    def changes(self, part: CompiledRule, exchange: EvaluatedExchange, *, remove: bool = False) -> bool:
        """Return True if the groups' bytes in the request mention forbidden names; `remove` takes them out."""
        of_group = exchange.api.key in (JOIN_GROUP, SYNC_GROUP)
        return of_group and self.screen(part.running.rule, exchange, exchange.request, remove).found

    def find(self, rule: LiveRule, exchange: EvaluatedExchange, message: Message) -> bool:
        """Return True if the message mentions names that the rule forbids."""
        return self.screen(rule, exchange, message, False).found

    def leave_out(self, rule: LiveRule, exchange: EvaluatedExchange, message: Message) -> Failure | None:
        """Remove forbidden names from the message, in place; return the error that replaces the response if it cannot
        be judged yet, else None."""
        body = message.body
        cursor = body.get("next_cursor") if exchange.api.key == DESCRIBE_TOPIC_PARTITIONS else None
        asked = session_lru(self.context.memory, ASKED_IDS)
        seen = self.screen(rule, exchange, message, True)
        new = {one for one in seen.unknown if one.bytes not in asked}
        if cursor is not None and body["next_cursor"] is None:
            body["next_cursor"] = {**cursor, "topic_name": self.place(cursor["topic_name"])}
        if exchange.api.key in BY_ID and new and len(new) <= MOST_IDS:
            self.ids |= new
            return Failure(COORDINATOR_LOAD_IN_PROGRESS)
        return None

    def screen(self, rule: LiveRule, exchange: EvaluatedExchange, message: Message, remove: bool) -> ResponseRedaction:
        screen = ResponseRedaction(self.cluster, rule.forbids, exchange.request, remove)
        screen.run(message)
        return screen

    def place(self, name: str) -> str:
        """Return a placeholder for the name of a cursor, which is hidden from the client."""
        self.given += 1
        word = f"{PLACE}{self.given}"
        self.cursors[word] = name
        return word
