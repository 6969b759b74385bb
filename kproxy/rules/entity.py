"""The smallest things that a request asks about."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Entity:
    """One partition of a topic, a group, a transactional id, a config resource; None for what does not concern it.

    `where` are the indexes into the request's nested arrays; () for a request that is about one thing.
    """

    topic: str | None = None
    topic_id: UUID | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    resource: tuple[int, str] | None = None
    member: str | None = None
    where: tuple[int, ...] = ()
