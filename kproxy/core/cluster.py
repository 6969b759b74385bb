"""Names and brokers of a cluster that live rules can ask for, as the clients of one connection see them."""

from __future__ import annotations

from uuid import UUID

from kproxy.rules.names.composed import NameMap

from .names.ids import is_nobodys
from .names.remembered import ASKED_IDS, MAX_ASKED_AT_ONCE, MAX_ASKED_IDS, TOPIC_IDS, recall, remember
from .rewrite import Context


class Cluster:
    """View of the memory that the connections of a cluster share, with the names that one connection's clients use."""

    __slots__ = ("context", "topics")

    def __init__(self, context: Context, topics: NameMap | None) -> None:
        self.context, self.topics = context, topics

    def topic_of(self, topic_id: UUID) -> str | None:
        """Return the clients' name of the topic; None: no answer has told it, or clients do not see the topic."""
        name = recall(self.context.cluster_memory, TOPIC_IDS).get(topic_id.bytes)
        if name is not None and self.topics is not None:
            name = self.topics.to_client(name)
        return None if name is None else name.decode("utf-8", "replace")

    @property
    def nodes(self) -> tuple[int, ...]:
        """Return the ids of the brokers that this connection was told of, ascending."""
        return tuple(sorted(self.context.nodes))

    def asks(self, topic_id: UUID, listed: bool) -> bool:
        """Return True if the brokers have to be asked for this id first, and note that they are to be. They are asked
        once a connection for an id, and once for a request. `listed`: ask for all topics, not for this one (see
        `VisibleIds`)."""
        context, key = self.context, topic_id.bytes
        asked = recall(context.memory, ASKED_IDS)
        if context.has_asked or key in recall(context.cluster_memory, TOPIC_IDS) or key in asked or is_nobodys(key):
            return False
        remember(asked, key, context.now, MAX_ASKED_IDS)
        context.topics_wanted = context.topics_wanted or listed
        if not listed and len(context.ids_wanted) < MAX_ASKED_AT_ONCE:
            context.ids_wanted.add(key)
        return True
