"""State that the screening of answers keeps from request to response.

Strategy. The ids that a heartbeat's answer assigns must have names before it can be judged, and an answer cannot wait:
what comes behind it would tell. So all topics are asked for when a member joins; an answer with an id that is new all
the same is exchanged for an error upon which the member asks again, and the next request asks the broker first.
"""

from __future__ import annotations

from collections import OrderedDict
from uuid import UUID

from kproxy.protocol.codec.message import Message
from kproxy.protocol.table.api_keys import DESCRIBE_TOPIC_PARTITIONS, JOIN_GROUP, SYNC_GROUP
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.session.cluster import Cluster, fresh_topics
from kproxy.session.respond.tree import Failure
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.names.remembered import ASKED_IDS, recall, remember

from .answer_screen import BY_ID, COORDINATOR_LOAD_IN_PROGRESS, AnswerScreen, joins
from .evaluation import EvaluatedExchange, Pending, RequestEvaluation
from .rule_part import Part

MOST_IDS = 10_000
"""Ids that a connection has to ask for; an answer with more new ones is not believed."""
MOST_CURSORS = 16
"""Cursors of paged answers that one connection may use: names after which a list continues."""
PLACE = "?"
"""First letter of the word that stands for a cursor's name; not legal in names of topics."""


class Screening:
    """Screening of one connection's answers: the topic ids to ask for, and the cursors given to it."""

    __slots__ = ("cluster", "context", "cursors", "given", "ids")

    def __init__(self, context: Context, cluster: Cluster) -> None:
        self.context, self.cluster = context, cluster
        self.ids: set[UUID] = set()
        self.cursors: OrderedDict[str, str] = OrderedDict()
        self.given = 0

    def prepare(self, exchange: EvaluatedExchange) -> None:
        """Ask for the names of the topics without which the response to this request could not be judged."""
        if not exchange.program.enforces:
            return
        context = self.context
        ids, self.ids = self.ids, set()
        for topic_id in ids:
            self.cluster.asks(topic_id, listed=False)
        joining = exchange.api.key in BY_ID and joins(exchange.request)
        if joining and fresh_topics(context.cluster_memory, exchange.came) is None:
            context.topics_wanted = True

    def begin(self, part: Part, exchange: EvaluatedExchange, evaluation: RequestEvaluation, *, judged: bool) -> None:
        """Note that the response to this request is to be screened, and screen the bytes of groups that the request
        holds."""
        exchange.pending.append(Pending(part, (), judged, screens=True))
        running, request = part.running, exchange.request
        if running.observes:
            return
        if self.changes(part, exchange, remove=True):
            evaluation.act(running)
            evaluation.frame = b""
        elif exchange.api.key == DESCRIBE_TOPIC_PARTITIONS and (cursor := request.body.get("cursor")) is not None:
            name = self.cursors.get(cursor["topic_name"])
            if name is not None:
                cursor["topic_name"] = name
                evaluation.frame = b""

    def changes(self, part: Part, exchange: EvaluatedExchange, *, remove: bool = False) -> bool:
        """Return True if the groups' bytes in the request mention what the rule forbids; `remove` takes it out."""
        of_group = exchange.api.key in (JOIN_GROUP, SYNC_GROUP)
        return of_group and self.screen(part.running.rule, exchange, exchange.request, remove).found

    def find(self, rule: LiveRule, exchange: EvaluatedExchange, message: Message) -> bool:
        """Return True if the message mentions what the rule forbids."""
        return self.screen(rule, exchange, message, False).found

    def leave_out(self, rule: LiveRule, exchange: EvaluatedExchange, message: Message) -> Failure | None:
        """Take what the rule forbids out of the message, in place; return the error that the response becomes if it
        cannot be judged yet, else None."""
        body = message.body
        cursor = body.get("next_cursor") if exchange.api.key == DESCRIBE_TOPIC_PARTITIONS else None
        asked = recall(self.context.memory, ASKED_IDS)
        seen = self.screen(rule, exchange, message, True)
        new = {one for one in seen.unknown if one.bytes not in asked}
        if cursor is not None and body["next_cursor"] is None:
            body["next_cursor"] = {**cursor, "topic_name": self.place(cursor["topic_name"])}
        if exchange.api.key in BY_ID and new and len(new) <= MOST_IDS:
            self.ids |= new
            return Failure(COORDINATOR_LOAD_IN_PROGRESS)
        return None

    def screen(self, rule: LiveRule, exchange: EvaluatedExchange, message: Message, remove: bool) -> AnswerScreen:
        screen = AnswerScreen(self.cluster, rule.forbids, exchange.request, remove)
        screen.run(message)
        return screen

    def place(self, name: str) -> str:
        """Return a word that stands for the name of a cursor, which the client must not see."""
        self.given += 1
        word = f"{PLACE}{self.given}"
        remember(self.cursors, word, name, MOST_CURSORS)
        return word
