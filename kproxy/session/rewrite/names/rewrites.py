"""Table of the rewrites that a message needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, Walk
from kproxy.protocol.table import api_keys, layout
from kproxy.protocol.table.api_keys import (
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_TOPICS,
    DESCRIBE_TOPIC_PARTITIONS,
    ELECT_LEADERS,
    FETCH,
    FIND_COORDINATOR,
    LIST_TRANSACTIONS,
    METADATA,
)
from kproxy.protocol.table.layout import Struct
from kproxy.rules.names.composed import NameMaps
from kproxy.rules.names.layer import GROUP, TOPIC, TRANSACTIONAL_ID
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.rewriter import Apply, Rewrite

from . import groups, resources
from .answers import AskedForAll, CursorName, TopicAnswers
from .coordinators import CoordinatorKeys
from .fetch_owner import SESSIONS_FROM, OwnSessions
from .ids import GivenBackIds, VisibleIds, telling
from .plain import PlainNames, name_paths
from .refusals import MESSAGES_FROM, NamedOnly, NoOtherNames, NotAllPartitions, RefusedDeletions, RefusedElection
from .regex import DescribedRegex, HeartbeatRegex, TopologyRegexes
from .transactions import MatchingOnly, PatternAside
from .translator import NameTranslator, Translators, name_translators

NULL_NAMES_FROM = 12  # Metadata: topics can be asked for by id from here on, and the name in the answer may be null
PATTERN_FROM = 2  # ListTransactions: a pattern over transactional ids
CURSORS = {"request": "cursor.topic_name", "response": "next_cursor.topic_name"}


@dataclass(frozen=True)
class NameRewrite:
    """Rewrite of all names in one message, made of parts; those that may have to wait for the broker come first."""

    parts: tuple[Rewrite, ...]

    @cached_property
    def wanted(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.wanted for part in self.parts))

    def bind(self, walk: Walk) -> Apply:
        applies = [part.bind(walk) for part in self.parts]
        if len(applies) == 1:
            return applies[0]

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            for each in applies:
                each(buf, hits, edits, context)
                if context.incomplete:
                    return

        return apply


def name_rewrite(key: int, version: int, direction: str, names: NameMaps) -> NameRewrite | None:
    """Return the rewrite of this message. None: it carries no names that rules are about. Raises KeyError for an API or
    version that the table lacks."""
    struct = layout.body(key, version, direction)
    translators = name_translators(names, direction)
    parts: list[Rewrite] = [*id_parts(key, version, struct, names, direction)]
    special = [
        *regex_parts(key, struct, translators, names, direction),
        *topic_parts(key, version, struct, translators),
    ]
    parts += special
    parts += coordinator_parts(key, version, struct, translators, direction)
    parts += refusals(key, version, struct, translators, direction)
    taken = {path for part in special for path in part.wanted}
    plain = {path: one for path, one in name_paths(struct, translators).items() if not is_taken(path, one, taken)}
    if plain:
        parts.append(PlainNames(plain, struct.flexible))
    if (key, direction) in groups.GROUP_FIELDS and TOPIC in translators:
        parts.append(groups.GroupBytes(key, translators[TOPIC], struct.flexible))
    place = resources.RESOURCE_PLACES.get((key, direction))
    if place is not None and place.concerns(translators):
        parts.append(resources.ResourceNames(place, translators, struct.flexible))
    return NameRewrite(tuple(parts)) if parts else None


def is_taken(path: str, translator: NameTranslator, taken: set[str]) -> bool:
    """Return True if a special part already deals with this topic name; other names are only read by special parts."""
    return translator.space is TOPIC and path in taken


def id_parts(key: int, version: int, struct: Struct, names: NameMaps, direction: str) -> Iterator[Rewrite]:
    """Yield the rewrites of topic ids and fetch sessions, where topics of others are to be unreachable."""
    if names.topics is None or not names.topics.isolates:
        return
    paths = struct.paths("topic_id")
    if paths and direction == "request":
        yield VisibleIds(paths, names.topics, listed=key == DELETE_TOPICS)
    elif paths:
        yield from telling(key, struct)
        yield GivenBackIds(paths, names.topics)
    if key == FETCH and direction == "request" and version >= SESSIONS_FROM:
        yield OwnSessions()


def regex_parts(
    key: int, struct: Struct, translators: Translators, names: NameMaps, direction: str
) -> Iterator[Rewrite]:
    """Yield the rewrites of the patterns over topics in this message."""
    patterns = [slot.path for slot in struct.everywhere() if slot.kind == "topic_regex"]
    if not patterns or names.topics is None:
        return
    match key, direction:
        case api_keys.CONSUMER_GROUP_HEARTBEAT, "request":
            yield HeartbeatRegex(names.topics, names.groups)
        case api_keys.CONSUMER_GROUP_DESCRIBE, "response":
            yield DescribedRegex(names.topics)
        case _:
            for path in patterns:
                yield TopologyRegexes(translators[TOPIC], path)


def topic_parts(key: int, version: int, struct: Struct, translators: Translators) -> Iterator[Rewrite]:
    """Yield the rewrites of the two APIs that answer which topics there are."""
    translator = translators.get(TOPIC)
    if translator is None or key not in (METADATA, DESCRIBE_TOPIC_PARTITIONS):
        return
    if translator.direction == "response":
        yield TopicAnswers(struct, translator, by_id=key == METADATA and version >= NULL_NAMES_FROM)
    elif key == METADATA:
        yield AskedForAll(version, struct.flexible)
    if key == DESCRIBE_TOPIC_PARTITIONS:
        yield CursorName(CURSORS[translator.direction], translator)


def coordinator_parts(
    key: int, version: int, struct: Struct, translators: Translators, direction: str
) -> Iterator[Rewrite]:
    """Yield the rewrites of coordinators' keys, and of patterns over transactional ids."""
    if key == FIND_COORDINATOR and (GROUP in translators or TRANSACTIONAL_ID in translators):
        keys = CoordinatorKeys(translators, direction, struct.flexible)
        if any(slot.path in keys.wanted for slot in struct.everywhere()):
            yield keys
    if key == LIST_TRANSACTIONS and version >= PATTERN_FROM and TRANSACTIONAL_ID in translators:
        yield PatternAside() if direction == "request" else MatchingOnly(translators[TRANSACTIONAL_ID])


def refusals(key: int, version: int, struct: Struct, translators: Translators, direction: str) -> Iterator[Rewrite]:
    """Yield the rewrites that refuse what a tenant must not ask for, since it is about others, too."""
    isolated = {space for space, translator in translators.items() if translator.names.isolates}
    if key == ELECT_LEADERS and TOPIC in isolated:
        if direction == "request":
            yield NotAllPartitions(struct.flexible)
        elif version >= 1:
            yield RefusedElection()
    if key == DELETE_ACLS and isolated:
        yield NamedOnly(translators, struct.flexible) if direction == "request" else RefusedDeletions(struct.flexible)
    if key == CREATE_TOPICS and version >= MESSAGES_FROM and TOPIC in isolated and direction == "response":
        yield NoOtherNames(struct.flexible)
