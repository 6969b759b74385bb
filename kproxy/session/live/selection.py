"""Entities that rules select in a request: each entity is looked at once, not once for each rule.

Strategy. The index (`PartIndex`) says for an entity which rules can be about it; those whose selectors hold get it into
their group. A request's groups are made with it and thrown away; those of a fetch session stay with the session, and
change by what its requests list, so that a request costs what it lists, however much the session holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, overload

from kproxy.protocol.breath import each, holds_many, keep, spread_tuple
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.rules.entity import Entity
from kproxy.rules.kinds.base.access import is_nameless
from kproxy.rules.rule_set import Running
from kproxy.session.respond.tree import Failure

from .partition_session import Key
from .rule_part import Part
from .rule_program import RuleProgram

MOST_MATCHED = 1000
"""Partitions of a session that a rule may match: what it does about them, and the answer, can be as much for a request
that lists none. A client with more of them has no session, and lists them."""

MOST_ANSWERS = 16
"""Answers that are kept for requests about one partition."""


class SettledAnswer(NamedTuple):
    """Answer, behind the correlation id, to each request like one before for which the trigger of the last rule fires,
    and those of the rules before it do not."""

    asked: tuple[Running, ...]
    content: bytes


class Selection:
    """Entities of one request. `groups`: by the numbers of rules that select entities, those selected.

    `asks_nothing`: the request lists nothing, and does not ask for all either. `answers` are those that kproxy has
    made, behind the correlation id, by the error of the only entity; None if a selection is used once. `settled` is the
    last of them that triggers alone lead to.
    """

    __slots__ = ("answers", "asks_nothing", "entities", "groups", "members", "program", "settled")

    def __init__(self, program: RuleProgram, entities: Sequence[Entity], *, asks_nothing: bool = False) -> None:
        self.program, self.asks_nothing = program, asks_nothing
        self.entities = keep(tuple(entities))
        self.members: frozenset[Entity] | None = None
        self.answers: dict[Failure, bytes] | None = None
        self.settled: SettledAnswer | None = None
        self.groups: dict[int, list[Entity]] = defaultdict(list)
        index, groups = program.index, self.groups
        for entity in each(self.entities):
            for number in index.about(entity):
                groups[number].append(entity)
        keep(groups)

    def __len__(self) -> int:
        return len(self.entities)

    def __contains__(self, entity: Entity) -> bool:
        if self.members is None:
            self.members = keep(frozenset(each(self.entities)))
        return entity in self.members

    def all(self) -> tuple[Entity, ...]:
        """Return every entity, in the request's order."""
        return self.entities

    def matched(self, part: Part, number: int, but: bool, failed: Collection[Entity]) -> Sequence[Entity]:
        """Return the entities that a rule selects and none before it has failed; `but`: without those of its `not:`."""
        if self.asks_nothing and part.running.rule.of_answers:
            return ()
        group: Sequence[Entity] = self.entities if part.matcher.entity is None else self.groups.get(number, ())
        if not failed and not but:
            return spread_tuple(tuple(group))
        excluded = part.matcher.not_entity if but else None
        found = (one for one in each(group) if one not in failed and not (excluded is not None and excluded(one)))
        return spread_tuple(tuple(found))


@holds_many
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
        """Take note of the offset that is asked for now of a partition that is there."""
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
        """Take a partition out of the groups of the rules that select it."""
        for number in self.program.index.about(entity):
            self.groups[number].pop(key, None)
        for number, _ in self.program.index.excluding:
            self.buts[number].pop(key, None)

    def __len__(self) -> int:
        return len(self.partitions)

    def __contains__(self, entity: Entity) -> bool:
        return self.partitions.get(key_of(entity)) == entity

    def all(self) -> tuple[Entity, ...]:
        """Return every entity, in the order in which the client first named them."""
        return tuple(self.partitions.values())

    def matched(self, part: Part, number: int, but: bool, failed: Collection[Entity]) -> Sequence[Entity]:
        """Return the entities as `Selection.matched` does, in a view of the session's group."""
        group = self.partitions if part.matcher.entity is None else self.groups.get(number) or {}
        if but:
            group = self.buts.get(number) or {}
        if len(failed) <= len(group):
            gone = [key for key in map(key_of, each(failed)) if key in group]
        else:
            gone = [key for key, one in each(group.items()) if one in failed]
        return Matched(group, frozenset(gone))


class Matched(Sequence[Entity]):
    """View of those partitions of a session's group that have not failed, which costs nothing until it is gone through.

    A session's requests are answered one after another, so the group stays as it is until then."""

    __slots__ = ("failed", "group")

    def __init__(self, group: dict[Key, Entity], failed: frozenset[Key]) -> None:
        self.group, self.failed = group, failed

    def __len__(self) -> int:
        return len(self.group) - len(self.failed)

    def __iter__(self) -> Iterator[Entity]:
        return iter([one for key, one in each(self.group.items()) if key not in self.failed])

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
