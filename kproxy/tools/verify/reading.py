"""Reader of facts from exchanges.

An exchange is decoded once, and its records by batch headers. Unreadable exchanges are counted and have no facts. Fetch
sessions are followed by connection, since a Fetch of an incremental session lacks most of its positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from sys import intern
from typing import Any

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.errors import DecodeError
from kproxy.protocol.scan.sketch import decode_sketch
from kproxy.protocol.table import api_keys
from kproxy.record.exchange import Form, Frame, ObservedExchange, Who
from kproxy.session.counters import Counters
from kproxy.session.fetch_sessions import FetchSessions
from kproxy.session.partition_session import SessionPartitionLimit

from . import coordinator_facts, log_facts
from .facts import ConfigsAlteredFact, ConnectionKey, Fact, RequestFact, TopicFact, Witness
from .read_exchange import ClientNames, ReadExchange

MOST_CONNECTIONS = 20_000  # with followed fetch sessions; the least recently used one is evicted
LONGEST_TEXT = 200
MOST_RULES = 16  # names of fired rules that a witness stores
MOST_NAMES = 100_000  # stored names of topic ids, some 30 MB

ALTERING = frozenset((api_keys.ALTER_CONFIGS, api_keys.INCREMENTAL_ALTER_CONFIGS))
FactTeller = Callable[[ReadExchange], Iterator[Fact]]
TELLERS: dict[int, FactTeller] = {
    api_keys.PRODUCE: log_facts.write_facts,
    api_keys.FETCH: log_facts.read_facts,
    api_keys.SHARE_FETCH: log_facts.shared_reads,
    api_keys.LIST_OFFSETS: log_facts.listed_offsets,
    api_keys.DELETE_RECORDS: log_facts.deleted_records,
    api_keys.METADATA: log_facts.topics_in_metadata,
    api_keys.CREATE_TOPICS: log_facts.created_topics,
    api_keys.DELETE_TOPICS: log_facts.deleted_topics,
    api_keys.DESCRIBE_CONFIGS: log_facts.described_configs,
    api_keys.ALTER_CONFIGS: log_facts.altered_configs,
    api_keys.INCREMENTAL_ALTER_CONFIGS: log_facts.altered_configs,
    api_keys.ELECT_LEADERS: log_facts.elected_leaders,
    api_keys.OFFSET_COMMIT: coordinator_facts.commits,
    api_keys.TXN_OFFSET_COMMIT: coordinator_facts.commits,
    api_keys.OFFSET_FETCH: coordinator_facts.fetched_commits,
    api_keys.DELETE_GROUPS: coordinator_facts.deleted_groups,
    api_keys.OFFSET_DELETE: coordinator_facts.deleted_commits,
    api_keys.JOIN_GROUP: coordinator_facts.joins,
    api_keys.SYNC_GROUP: coordinator_facts.assignments,
    api_keys.HEARTBEAT: coordinator_facts.heartbeats,
    api_keys.LEAVE_GROUP: coordinator_facts.leaves,
    api_keys.CONSUMER_GROUP_HEARTBEAT: coordinator_facts.ownerships,
    api_keys.INIT_PRODUCER_ID: coordinator_facts.given_epochs,
    api_keys.ADD_PARTITIONS_TO_TXN: coordinator_facts.added_partitions,
    api_keys.ADD_OFFSETS_TO_TXN: coordinator_facts.added_offsets,
    api_keys.END_TXN: coordinator_facts.ended_transactions,
    api_keys.API_VERSIONS: coordinator_facts.offered_versions,
}


@dataclass(slots=True)
class ReadCounts:
    """Exchanges by API: read ones, partly recorded ones, and unreadable ones.

    `side`: words before a verb that name the side; empty for the client's.
    """

    side: str = ""
    looked: Counter[str] = field(default_factory=Counter)
    not_kept: Counter[str] = field(default_factory=Counter)
    damaged: Counter[str] = field(default_factory=Counter)


class FactReader:
    """Reader of the facts of one side's exchanges, in the order of their ends.

    `names`: topics by id. `records`: records are decoded, not only batch headers.
    """

    def __init__(self, side: str = "", *, records: bool = False) -> None:
        self.records = records
        self.counts = ReadCounts(side)
        self.names: dict[str, str] = {}
        self.room, counters = SessionPartitionLimit(), Counters()
        self.sessions: BoundedMap[ConnectionKey, FetchSessions] = BoundedMap(
            MOST_CONNECTIONS, lambda: FetchSessions(counters, self.room), lambda _, sessions: sessions.end()
        )

    def facts(
        self, seen: ObservedExchange, witness: Witness, exchange: ReadExchange | None, others: ClientNames | None = None
    ) -> list[Fact]:
        """Return the facts of an exchange that `read` has returned, None included."""
        facts: list[Fact] = [RequestFact(witness, seen.key)]
        if exchange is None:
            if seen.key in ALTERING:
                facts.append(ConfigsAlteredFact(witness))
            return facts
        exchange.others = others
        for fact in TELLERS[seen.key](exchange):
            facts.append(fact)
            if isinstance(fact, TopicFact):
                self.name(fact)
        self.counts.damaged[seen.api] += bool(exchange.damaged)
        return facts

    def read(self, seen: ObservedExchange, witness: Witness) -> ReadExchange | None:
        """Return the decoded exchange. None: its API has no facts, or it is unreadable, which is counted."""
        if seen.key not in TELLERS:
            return None
        if not (kept(seen.request) and (seen.answer is None or kept(seen.answer))):
            self.counts.not_kept[seen.api] += 1
            return None
        try:
            request, response = decoded(seen, seen.request, "request"), decoded(seen, seen.answer, "response")
        except DecodeError:
            self.counts.damaged[seen.api] += 1
            return None
        assert request is not None, "it was kept"
        self.counts.looked[seen.api] += 1
        sessions = self.sessions[witness.connection]
        while not self.room.holds(self.room.limit // 2) and len(self.sessions) > 1:
            self.sessions.evict()

        def name_of(topic_id: str) -> str | None:
            return self.names.get(topic_id) or exchange.topic(seen.who.topic_of(topic_id))

        exchange = ReadExchange(
            seen.key, seen.version, witness, request, response, name_of, sessions, self.records,
            true_names=seen.who.cluster is not None,
        )  # fmt: skip
        return exchange

    def name(self, fact: TopicFact) -> None:
        if fact.topic_id and len(self.names) < MOST_NAMES:
            self.names[fact.topic_id] = fact.topic


def kept(frame: Frame | None) -> bool:
    """True if the kept part of a frame has all its fields."""
    return frame is not None and (frame.form >= Form.SKETCH or bool(frame.sketch))


def decoded(seen: ObservedExchange, frame: Frame | None, direction: str) -> dict[str, Any] | None:
    """Return a frame's body, records as RecordHeaders; None for no frame. Raises DecodeError."""
    if frame is None:
        return None
    whole = frame.form is Form.WHOLE
    data = frame.data if whole or not frame.sketch else frame.sketch
    return decode_sketch(data, seen.key, seen.version, direction, sketched=not whole, headers=True)


def witness_of(seen: ObservedExchange, number: int, skew: float, altered: bool, at: ObservedExchange) -> Witness:
    """Return an exchange's witness. `at`: the same exchange at the client, which names the client and the rules."""
    request, answer = seen.request, seen.answer
    first = request or seen.response
    began = 0.0 if first is None else first.first
    ended = None if answer is None else max(answer.last, began) + skew
    who = at.who
    recording: int = getattr(who, "recording", 0)
    software = " ".join(filter(None, (who.software_name, who.software_version)))
    return Witness(
        number=number,
        began=began - skew,
        ended=ended,
        connection=(f"{who.client_address}:{who.client_port}", who.number, recording),
        client=intern((at.client_id or "")[:LONGEST_TEXT]),
        node=who.node,
        api=seen.api,
        version=seen.version,
        rules=tuple(intern(rule[:LONGEST_TEXT]) for rule in at.rules[:MOST_RULES]),
        made_by_kproxy=at.answered_by_rule,
        software=intern(software[:LONGEST_TEXT]),
        altered=altered,
        correlation_id=at.correlation_id,
        server=server_of(who, recording),
        clock=0 if skew else recording,
    )


def server_of(who: Who, recording: int) -> str:
    """Return the address of a connection's server if its cluster is unknown, as in files of tcpdump.

    Among several recordings, a cluster's name is valid in its own recording only: other configs may use the same name.
    """
    address: str | None = getattr(who, "server_address", None)
    if who.cluster is not None or address is None:
        return intern(f"{recording} {who.cluster}") if recording else ""
    return intern(f"{f'{recording} ' if recording else ''}{address}:{getattr(who, 'server_port', 0)}")
