"""Selection of the entities of a request by rules, and the cache of its results by the bytes of a request's head.

Strategy. The index (`RuleIndex`) gives the candidate rules for an entity; rules whose selectors match get it into their
group. So each entity is matched once, not once for each rule. The groups of a request are discarded with it. The groups
of a fetch session are kept with the session and updated by the partitions that requests list, so the cost of a request
depends on its list, not on the session's size.

Most rules select by the client id and by the name or id of the only topic, which are in the head of a request. If a
request has the same head as an earlier one, the same rules match it, and its other bytes are not read (`HeadCache`). It
passes if no rule matches, or if no trigger of the matching rules fires. If the trigger that led to an error response
fires again, the request gets the same response. Each connection has its own cache. The scan compares the last template
only, if requests of this template pass unchanged. The cache is cleared when the client's identity changes.

The bytes after the head can be malformed: a request that would be refused without the cache passes with it. They cannot
name another topic, because the head contains the number of topics, which is one (docs/security-model.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.cooperative import defer_free, free_by_parts, yielding, yielding_tuple
from kproxy.protocol.framing import plain_head, single_topic
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.table.api_keys import FETCH, PRODUCE
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.rules.entity import Entity
from kproxy.rules.kinds.base.access import is_nameless
from kproxy.rules.rule_set import ActiveRule
from kproxy.session.compiled_rule import CompiledRule
from kproxy.session.frame import RequestView
from kproxy.session.partition_session import Key
from kproxy.session.plan import HEAD, Step
from kproxy.session.respond.error_responses import Failure
from kproxy.session.rule_program import RuleProgram

if TYPE_CHECKING:
    from .evaluation import RequestEvaluation


class CachedAnswer(NamedTuple):
    """Error response of kproxy without the correlation id, and the `failure` in it.

    `asked`: all requests about the same entity get this response if the trigger of the last of these rules fires, and
    those of the earlier rules do not. Empty: triggers do not determine the response.
    """

    failure: Failure
    asked: tuple[ActiveRule, ...]
    content: bytes


MOST_MATCHED = 1000
"""Partitions of a session that a rule may match: even a request that lists none may need a decision and a response for
each. A client with more of them has no session, and lists them."""


class Selection:
    """Entities of one request. `groups`: the entities that a rule selects, by the rule's number.

    `asks_nothing`: the request lists nothing, and does not request all either. `answer`: the last response of kproxy to
    a request about the only entity.
    """

    __slots__ = ("answer", "asks_nothing", "entities", "groups", "members", "program")

    def __init__(self, program: RuleProgram, entities: Sequence[Entity], *, asks_nothing: bool = False) -> None:
        self.program, self.asks_nothing = program, asks_nothing
        self.entities = defer_free(tuple(entities))
        self.members: frozenset[Entity] | None = None
        self.answer: CachedAnswer | None = None
        self.groups: dict[int, list[Entity]] = defaultdict(list)
        index, groups = program.index, self.groups
        for entity in yielding(self.entities):
            for number in index.about(entity):
                groups[number].append(entity)
        defer_free(groups)

    @property
    def names_one(self) -> bool:
        """Return True for one entity without a topic id, which the bytes of the request identify."""
        return len(self.entities) == 1 and self.entities[0].topic_id is None

    def __len__(self) -> int:
        return len(self.entities)

    def __contains__(self, entity: Entity) -> bool:
        if self.members is None:
            self.members = defer_free(frozenset(yielding(self.entities)))
        return entity in self.members

    def all(self) -> tuple[Entity, ...]:
        """Return every entity, in the request's order."""
        return self.entities

    def matched(self, part: CompiledRule, number: int, but: bool, failed: Collection[Entity]) -> Sequence[Entity]:
        """Return the entities that a rule selects and none before it has failed; `but`: without those of its `not:`."""
        if self.asks_nothing and part.running.rule.of_answers:
            return ()
        group: Sequence[Entity] = self.entities if part.matcher.entity is None else self.groups.get(number, ())
        if not failed and not but:
            return yielding_tuple(tuple(group))
        excluded = part.matcher.not_entity if but else None
        found = (one for one in yielding(group) if one not in failed and not (excluded is not None and excluded(one)))
        return yielding_tuple(tuple(found))


@free_by_parts
class SessionSelection:
    """Partitions of one fetch or share session that rules select. `buts`: `groups` without the entities of the rules'
    `not:`."""

    __slots__ = ("buts", "groups", "nameless", "partitions", "passing", "program")

    def __init__(self, program: RuleProgram) -> None:
        self.program = program
        self.partitions: dict[Key, Entity] = {}
        self.groups: dict[int, dict[Key, Entity]] = defaultdict(dict)
        self.buts: dict[int, dict[Key, Entity]] = defaultdict(dict)
        self.nameless: set[Key] = set()  # other rules may apply to them once their name is heard
        self.passing: list[Key] = []  # listed and forgotten by the same request

    def add(self, key: Key, entity: Entity) -> None:
        self.partitions[key] = entity
        if self.program.reads_topics and is_nameless(entity):
            self.nameless.add(key)
        self.put(key, entity)

    def move(self, key: Key, entity: Entity) -> None:
        """Update the requested offset of a known partition."""
        before = self.partitions[key]
        if before.offset != entity.offset:
            self.take_out(key, before)
            self.partitions[key] = replace(before, offset=entity.offset)
            self.put(key, self.partitions[key])

    def put(self, key: Key, entity: Entity) -> None:
        """Put a partition into the groups of the rules that select it."""
        index = self.program.index
        numbers = index.about(entity)
        for number in numbers:
            self.groups[number][key] = entity
        for number, excluded in index.excluding:
            if (index.tests[number] is None or number in numbers) and not excluded(entity):
                self.buts[number][key] = entity

    def discard(self, key: Key) -> None:
        entity = self.partitions.pop(key, None)
        if entity is None:
            return
        self.nameless.discard(key)
        self.take_out(key, entity)

    def take_out(self, key: Key, entity: Entity) -> None:
        for number in self.program.index.about(entity):
            self.groups[number].pop(key, None)
        for number, _ in self.program.index.excluding:
            self.buts[number].pop(key, None)

    def __len__(self) -> int:
        return len(self.partitions)

    def __contains__(self, entity: Entity) -> bool:
        return self.partitions.get(key_of(entity)) == entity

    def all(self) -> tuple[Entity, ...]:
        """Return every entity, in the order of the client's first mention."""
        return tuple(self.partitions.values())

    def matched(self, part: CompiledRule, number: int, but: bool, failed: Collection[Entity]) -> Sequence[Entity]:
        """Return the entities as `Selection.matched` does, in a view of the session's group."""
        group = self.partitions if part.matcher.entity is None else self.groups.get(number) or {}
        if but:
            group = self.buts.get(number) or {}
        if len(failed) <= len(group):
            gone = [key for key in map(key_of, yielding(failed)) if key in group]
        else:
            gone = [key for key, one in yielding(group.items()) if one in failed]
        return Matched(group, frozenset(gone))


class Matched(Sequence[Entity]):
    """View of those partitions of a session's group that have not failed, computed on iteration.

    A session's requests are answered one after another, so the group stays as it is until then."""

    __slots__ = ("failed", "group")

    def __init__(self, group: dict[Key, Entity], failed: frozenset[Key]) -> None:
        self.group, self.failed = group, failed

    def __len__(self) -> int:
        return len(self.group) - len(self.failed)

    def __iter__(self) -> Iterator[Entity]:
        return iter([one for key, one in yielding(self.group.items()) if key not in self.failed])

    @overload
    def __getitem__(self, index: int) -> Entity: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entity]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return tuple(self)[index]


def key_of(entity: Entity) -> Key:
    """Return the partition that an entity of a Fetch or share request is; number -1 for a topic that lists none."""
    topic = entity.topic_id or ZERO_UUID if entity.topic is None or entity.topic_id else entity.topic
    return topic, -1 if entity.partition is None else entity.partition


CLIENT_ID = 12
"""Offset of the client id's length. The size, the API, its version and the correlation id precede it."""
LONGEST = 1024
"""Maximum bytes of a cached beginning. Names and ids are far shorter."""
MOST = 100
"""Maximum entries of a connection's cache: 100 kB with usual names."""
INDEX_BYTES = 4
"""Bytes of a partition's index, the first bytes after a Produce's beginning."""
ONE_PARTITION, ONE_PARTITION_CLASSIC = b"\x02", b"\0\0\0\1"
"""Last bytes of the beginning of a Produce for one partition, in flexible versions and in others."""
NO_TERMS: Mapping[ActiveRule, Any] = {}
OF_ONE_TOPIC = frozenset((PRODUCE, FETCH))
"""APIs with topics as their first array; an element begins with its name or id, and the array of partitions follows."""


class FrameTemplate:
    """Beginning of requests of one step, client id to topic, and the rules that match each request that begins so.

    `read(buf, pos + CLIENT_ID)` gives the bytes to be compared with `head`, if `end` bytes of the frame, with its size,
    have arrived. `answered` is False for acks=0, `passes` True if the request needs no second look, `applies` True if a
    rule can apply to it, by `candidates` those with these numbers. `waiting` are the matching rules in file order, if
    only their triggers have to be evaluated; otherwise it is empty. `terms` has those of them that may fire without an
    effect, with the input of their effects for such a request. `read_index` reads `head` with the index of the only
    partition; None: the request may be about more.
    """

    __slots__ = (
        "answered", "applies", "candidates", "client_id", "end", "head", "passes", "read", "read_index", "step",
        "terms", "waiting",
    )  # fmt: skip

    def __init__(self, step: Step, head: bytes, answered: bool) -> None:
        self.step, self.head, self.answered = step, head, answered
        self.end = CLIENT_ID + len(head)
        self.read = reader(len(head))
        self.passes = step.plain.request in (None, HEAD)
        self.waiting: tuple[ActiveRule, ...] = ()
        self.terms: Mapping[ActiveRule, Any] = NO_TERMS
        self.client_id: str | None = None
        self.applies = False
        self.candidates: frozenset[int] | None = None
        compact = step.key in OF_ONE_TOPIC and plain_head(step.key, step.version, "request").compact
        alone = step.key == PRODUCE and head.endswith(ONE_PARTITION if compact else ONE_PARTITION_CLASSIC)
        self.read_index = reader(len(head) + INDEX_BYTES) if alone else None

    def begins(self, frame: RequestView) -> bool:
        """Return True if the request begins so."""
        here = frame.start + self.end <= frame.have and frame.step is self.step
        return here and bool(self.read(frame.buf, frame.start + CLIENT_ID)[0] == self.head)

    @property
    def may_wait(self) -> bool:
        """Return True if requests with this beginning would need no second evaluation if the turn that they wait for
        were known."""
        return self.passes and not self.waiting


class HeadCache(BoundedMap[tuple[Step, bytes], FrameTemplate | Selection]):
    """Cache of one connection: a template by the beginning of a request; a selection, with its answer, by the beginning
    and the only partition.

    `latest` is the template of the last request with a known beginning.
    """

    latest: FrameTemplate | None = None

    def recognise(self, frame: RequestView) -> FrameTemplate | None:
        """Return the template of the request. None: the first request with this beginning."""
        last = self.latest
        if last is None or not last.begins(frame):
            head = beginning(frame) if self else None
            found = None if head is None else self.get((frame.step, head))
            self.latest = last = found if isinstance(found, FrameTemplate) else None
        return last

    def forget(self) -> None:
        """Clear the cache, since rules or names have changed."""
        self.clear()
        self.latest = None

    def learn(self, frame: RequestView) -> FrameTemplate | None:
        """Return a new template for similar requests. None: the beginning is not sufficient."""
        head = beginning(frame)
        if head is None:
            return None
        template = self[frame.step, head] = FrameTemplate(frame.step, head, frame.answered)
        return template

    def learn_rules(self, frame: RequestView, made: RequestEvaluation) -> FrameTemplate | None:
        """Return a new template for requests to which the evaluation's candidates can apply, or None as for `learn`.

        Rules that only wait for their triggers are evaluated first if the request passes without them: a rewrite may
        process a frame again, and rules count once.
        """
        template = self.learn(frame)
        if template is not None:
            template.applies, template.candidates, template.client_id = True, made.candidates, frame.client_id
            if template.passes:
                template.waiting, template.terms = made.pending_triggers, made.fast_path_args
        return template

    def selection(self, frame: RequestView, known: FrameTemplate) -> Selection | None:
        if known.read_index is None or not frame.start + known.end + INDEX_BYTES <= frame.end == frame.have:
            return None
        found = self.get((frame.step, known.read_index(frame.buf, frame.start + CLIENT_ID)[0]))
        return found if isinstance(found, Selection) else None

    def learn_selection(self, frame: RequestView, known: FrameTemplate, selection: Selection) -> None:
        """Cache the selection of a request with this template, unless it depends on other bytes."""
        if known.read_index is not None and selection.names_one:
            self[frame.step, known.read_index(frame.buf, frame.start + CLIENT_ID)[0]] = selection


@cache
def reader(size: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
    """Return a reader of `size` bytes, at most LONGEST + INDEX_BYTES, which limits this cache."""
    return Struct(f"{size}s").unpack_from


def beginning(frame: RequestView) -> bytes | None:
    """Return the part of the request that the selectors of all rules read; None: they read more, or it is
    incomplete."""
    step, buf, end = frame.step, frame.buf, frame.have
    program = step.program
    if program is None or not program.names_client or not (program.prefilter is not None or program.decided_by_header):
        return None
    if program.prefilter is not None and program.prefilter.scan is not None:  # names may be anywhere
        return None
    start = frame.start + CLIENT_ID
    after = start + 2 + max(frame.id_length, 0)
    if step.key in OF_ONE_TOPIC:
        head = plain_head(step.key, step.version, "request")
        topic = head.topic(buf, after, end)
        stop = single_topic_end(frame) if topic is None else topic[1]
        stop = after_count(buf, stop, end, compact=head.compact)
    elif program.prefilter is None or program.prefilter.walk is None:
        stop = after
    else:
        return None
    return bytes(buf[start:stop]) if start < stop <= min(end, start + LONGEST) else None


def single_topic_end(frame: RequestView) -> int:
    """Return the end of the only topic's name or id in a request with an arbitrary header; 0: not such a request."""
    body, step = frame.body, frame.step
    spans = None if body is None else single_topic(step.key, step.version, "request")(frame.buf, body, frame.have)
    return 0 if spans is None else spans[-1][1]


def after_count(buf: Buffer, pos: int, end: int, *, compact: bool) -> int:
    """Return the end of the partition count at `pos`; 0 if the count is 0, large or incomplete."""
    stop = pos + (1 if compact else 4)
    if not pos or stop > end:
        return 0
    count = buf[pos] - 1 if compact else int.from_bytes(buf[pos:stop], "big", signed=True)
    return stop if 0 < count < 0x7F else 0
