"""Which rewrites a message needs, as one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from kproxy.core.rewrite import Apply, Buffer, Context, Hits, Rewrite
from kproxy.rules.names import NameMap
from kproxy.wire import layout
from kproxy.wire.edit import Edits
from kproxy.wire.layout import Struct
from kproxy.wire.walk import Walk

from . import groups, resources
from .answers import AskedForAll, CursorName, TopicAnswers
from .plain import PlainNames, name_paths
from .regex import DescribedRegex, HeartbeatRegex, TopologyRegexes
from .spell import Spelling

METADATA, HEARTBEAT, DESCRIBE, DESCRIBE_TOPICS, STREAMS_HEARTBEAT = 3, 68, 69, 75, 88
NULL_NAMES_FROM = 12  # Metadata: topics can be asked for by id from here on, and the name in the answer may be null
CURSORS = {"request": "cursor.topic_name", "response": "next_cursor.topic_name"}


@dataclass(frozen=True, slots=True)
class Cannot:
    """An API that cannot be translated above the version `newest` (-1: not at all), and why."""

    newest: int
    reason: str


CANNOT: Mapping[int, Cannot] = {}
"""By API key, what has to be hidden while topics are renamed. Nothing, today: even patterns that the broker evaluates
are translated (see `regex.py`). The Envelope's inner requests are not, but it is for brokers among themselves."""


@dataclass(frozen=True)
class TopicRewrite:
    """All that has to be done about topic names in one message; what may have to wait for the broker comes first."""

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


def topic_rewrite(key: int, version: int, direction: str, names: NameMap) -> TopicRewrite | None:
    """The rewrite of this message. None: it carries no topic names. Raises KeyError for what the table lacks."""
    struct = layout.body(key, version, direction)
    spelling = Spelling(names, direction)
    parts = [*regex_parts(key, struct, spelling), *answer_parts(key, version, struct, spelling)]
    taken = {path for part in parts for path in part.wanted if path in name_paths(struct)}
    plain = name_paths(struct) - taken
    if plain:
        parts.append(PlainNames(plain, spelling, struct.flexible))
    if (key, direction) in groups.PLACES:
        parts.append(groups.GroupBytes(key, spelling, struct.flexible))
    if (key, direction) in resources.PLACES:
        parts.append(resources.ResourceNames(*resources.PLACES[key, direction], spelling, struct.flexible))
    return TopicRewrite(tuple(parts)) if parts else None


def regex_parts(key: int, struct: Struct, spelling: Spelling) -> list[Rewrite]:
    """For the patterns in this message."""
    patterns = [slot.path for slot in struct.everywhere() if slot.kind == "topic_regex"]
    if not patterns:
        return []
    match key, spelling.direction:
        case 68, "request":
            return [HeartbeatRegex(spelling.names)]
        case 69, "response":
            return [DescribedRegex()]
        case _:
            return [TopologyRegexes(spelling, path) for path in patterns]


def answer_parts(key: int, version: int, struct: Struct, spelling: Spelling) -> list[Rewrite]:
    """For the two APIs that answer what topics there are."""
    if key not in (METADATA, DESCRIBE_TOPICS):
        return []
    parts: list[Rewrite] = []
    if spelling.direction == "response":
        parts.append(TopicAnswers(struct, spelling, by_id=key == METADATA and version >= NULL_NAMES_FROM))
    elif key == METADATA:
        parts.append(AskedForAll(version, struct.flexible))
    if key == DESCRIBE_TOPICS:
        parts.append(CursorName(CURSORS[spelling.direction], spelling))
    return parts
