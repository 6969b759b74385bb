"""Declaration of an answer: question, text and columns, and the answers on health.

Columns with the same meaning in several answers are declared here. Answers on health: latency (also as reported by
clients), errors, groups, lag, storms and effects of rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kproxy.record.events.column import Column
from kproxy.record.events.schema import CONNECTION

_COMMON = {column.name: column for column in CONNECTION} | {
    column.name: column
    for column in (
        Column("client_id", "string", "client id, as the client chose it"),
        Column("topic", "string", "topic, by the client's name; absent: only the id is known"),
        Column("broker_topic", "string", "the topic's name at the broker"),
        Column("partition", "int", "the partition; absent: those beyond what is told one by one"),
        Column("api", "string", "name of the API"),
        Column("version", "int", "version of the API"),
        Column("error", "string", "error name; in lower case: none of the protocol's, see the text"),
        Column("group", "string", "group, by the client's name"),
        Column("broker_group", "string", "the group's name at the broker"),
        Column("first_seen", "timestamp", "the first time"),
        Column("last_seen", "timestamp", "the last time"),
        Column("requests", "long", "how many", "requests"),
        Column("errors", "long", "how many of them ended in an error", "requests"),
        Column("records", "long", "records that were taken or brought", "records"),
        Column("bytes", "long", "bytes of their batches", "bytes"),
        Column("findings", "string", "findings as text; empty: none", array=True),
    )
}
SortBy = Literal["rank", "ascending", "descending"]
RANKED = ("verdict", "kind", "level")
"""An answer's `worst_first` ranks the first of these columns that the answer has."""
SHOWN = 50  # rows of an answer on the report page
TOPIC_REQUESTS = Column("requests", "long", "requests, counted once for each of the topic's partitions", "requests")


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """Gold table that answers one question.

    `order`: the report sorts rows by these columns (`-`: descending).
    """

    name: str
    title: str
    question: str
    text: str
    """Notes for readers of the table."""
    reads: tuple[str, ...]
    order: tuple[str, ...]
    columns: tuple[Column, ...]
    worst_first: tuple[str, ...] = ()
    """Verdicts in the report's order."""

    def sort_keys(self) -> Iterator[tuple[str, SortBy]]:
        """Yield the sort columns and their sort order: by rank in `worst_first`, or by value. Nulls come last."""
        for name in self.order:
            column = name.removeprefix("-")
            if self.worst_first and column in RANKED:
                yield column, "rank"
            else:
                yield column, "descending" if name.startswith("-") else "ascending"


def columns(*given: str | Column) -> tuple[Column, ...]:
    """Look up names in `_COMMON`; other columns are returned unchanged."""
    return tuple(_COMMON[one] if isinstance(one, str) else one for one in given)


SOFTWARE = ("software_name", "software_version")
CLIENT = ("client_id", "principal", "client_address", *SOFTWARE)
TIMES = ("first_seen", "last_seen")


_TIMED = (
    Column("mean_ms", "double", "mean time", "ms"),
    Column("p50_ms", "double", "half took at most this", "ms"),
    Column("p95_ms", "double", "95 % took at most this", "ms"),
    Column("p99_ms", "double", "99 % took at most this", "ms"),
    Column("max_ms", "double", "the longest", "ms"),
    Column("broker_ms", "double", "mean of the broker's part, of requests that it answered; absent: none", "ms"),
    Column("rule_ms", "double", "mean time that rules held requests and responses, or frames before them", "ms"),
    Column("wait_ms", "double", "mean time in kproxy for other causes, such as lookups", "ms"),
    Column("throttled", "long", "responses with a throttle_time_ms", "requests"),
    Column("throttle_ms", "double", "mean throttle_time_ms of these", "ms"),
)

LATENCY = GoldAnswer(
    "latency",
    "Latency",
    "How long do requests take, by API and node, and where does the time go?",
    "From a request's first byte read to its response's last byte sent on. A Fetch waits at the broker for records, "
    "and a JoinGroup for the other members, which is normal. Percentiles are upper bounds of a histogram with "
    "bounds at 1, 2, 5, 10, 25, 50, 100, 250, 500 ms, 1, 2.5, 5, 10 and 30 s. The true value is at most that, "
    "and more than the bound below; no percentile is above the maximum. The parts of the broker, of rules and of "
    "kproxy add up to the latency if the broker answered all requests.",
    reads=("requests",),
    order=("-p99_ms", "-requests"),
    columns=columns(*("cluster", "api", "node", "requests"), *_TIMED),
)

CLIENT_LATENCY = GoldAnswer(
    "client_latency",
    "Latency by client",
    "Which clients are slow, and is it the broker, a rule or kproxy?",
    "One row per client and API. A client is its client id, principal and software. Times are as in `latency`, and so "
    "are percentiles. A Fetch waits at the broker for records: compare clients by the same API.",
    reads=("requests",),
    order=("-p99_ms", "-requests", "client_id"),
    columns=columns(*("cluster", "client_id", "principal", *SOFTWARE, "api", "requests"), *_TIMED),
)

CLIENT_METRICS = GoldAnswer(
    "client_metrics",
    "What clients say",
    "What do clients say of themselves, and what did kproxy see of them?",
    "One row per client that pushed its metrics (KIP-714, `telemetry` with `to: [audit]`), all its instances "
    "together: first what it says, then, in columns that begin with `seen_`, what kproxy saw of the same client id, "
    "principal and software. A mean is that of what the pushes told, each counting once; the largest is the largest "
    "told. These are claims: any client may say anything under any client id, only the principal is not its word. "
    "What a client measures begins before kproxy and ends behind it, so it is the larger one; finding `slow before "
    "kproxy`: its mean latency as a producer (beside Produce and all requests), or of fetches, is more than 10 ms "
    "above, and more than twice, what kproxy saw. Percentiles are as in `latency`; requests by which clients push are "
    "not among those seen.",
    reads=("telemetry", "requests", "connections"),
    order=("-producer_request_ms", "-fetch_ms", "client_id"),
    columns=columns(
        *("cluster", "client_id", "principal", *SOFTWARE, "findings"),
        Column("instances", "long", "client instance ids, of which each start has another; an estimate if many"),
        Column("pushes", "long", "pushes that could be read", "pushes"),
        Column("producer_request_ms", "double", "latency of a producer's requests, mean of all nodes", "ms"),
        Column("producer_request_max_ms", "double", "the longest", "ms"),
        Column("consumer_request_ms", "double", "latency of a consumer's requests, mean of all nodes", "ms"),
        Column("consumer_request_max_ms", "double", "the longest", "ms"),
        Column("queue_ms", "double", "mean time that records wait in the producer", "ms"),
        Column("queue_max_ms", "double", "the longest", "ms"),
        Column("throttle_ms", "double", "mean throttle time of Produce, from the client", "ms"),
        Column("throttle_max_ms", "double", "the longest", "ms"),
        Column("fetch_ms", "double", "mean latency of fetches", "ms"),
        Column("fetch_max_ms", "double", "the longest", "ms"),
        Column("commit_ms", "double", "mean latency of commits", "ms"),
        Column("commit_max_ms", "double", "the longest", "ms"),
        Column("rebalance_ms", "double", "mean time that a rebalance took it", "ms"),
        Column("rebalance_max_ms", "double", "the longest", "ms"),
        Column("connections", "long", "connections that the client reports", "connections"),
        Column("seen_connections", "long", "connections of it that have closed", "connections"),
        Column("seen_requests", "long", "requests", "requests"),
        Column("seen_mean_ms", "double", "mean latency of all of them", "ms"),
        Column("seen_p50_ms", "double", "half took at most this", "ms"),
        Column("seen_p95_ms", "double", "95 % took at most this", "ms"),
        Column("seen_p99_ms", "double", "99 % took at most this", "ms"),
        Column("seen_max_ms", "double", "the longest", "ms"),
        Column("seen_produce_ms", "double", "mean latency of Produce", "ms"),
        Column("seen_produce_max_ms", "double", "the longest", "ms"),
        Column("seen_fetch_ms", "double", "mean latency of Fetch and ShareFetch", "ms"),
        Column("seen_fetch_max_ms", "double", "the longest", "ms"),
        Column("seen_commit_ms", "double", "mean latency of OffsetCommit", "ms"),
        Column("seen_commit_max_ms", "double", "the longest", "ms"),
        Column("seen_join_ms", "double", "mean latency of JoinGroup", "ms"),
        Column("seen_join_max_ms", "double", "the longest", "ms"),
        Column("seen_throttled", "long", "responses that reported a throttle_time_ms", "requests"),
        Column("seen_throttle_ms", "double", "mean throttle_time_ms of these", "ms"),
        Column("seen_errors", "long", "requests that ended in an error", "requests"),
        Column("seen_retriable", "long", "those of them that a client retries", "requests"),
        Column("seen_cut_off", "long", "requests without an answer, which the client may retry", "requests"),
        *TIMES,
    ),
)

ERRORS_AND_DENIALS = GoldAnswer(
    "errors_and_denials",
    "Errors and denials",
    "What went wrong, and who was refused?",
    "Three kinds of rows, not to be added together: a `request` that ended badly, a `partition` answered with an error "
    "(a request with five bad partitions is one of the first kind and five of the second), a `connection` that failed "
    "to authenticate. `unanswered` and `closed` are requests that got no answer. Some errors are part of ordinary "
    "life, such as NOT_LEADER_OR_FOLLOWER after a leader has moved, or REBALANCE_IN_PROGRESS.",
    reads=("requests", "produce_partitions", "fetch_partitions", "commits", "connections"),
    order=("kind", "-count"),
    worst_first=("authentication", "authorization", "cut off", "other"),
    columns=columns(
        "cluster",
        Column("kind", "string", "authentication, authorization, cut off or other"),
        Column("scope", "string", "request, partition or connection"),
        *("api", "error"),
        Column("responder", "string", "source of the error: kproxy (a rule) or broker; absent: none"),
        *("client_id", "principal", "client_address", "topic"),
        Column("count", "long", "how many requests, partitions or connections"),
        *TIMES,
    ),
)

GROUP_HEALTH = GoldAnswer(
    "group_health",
    "Groups",
    "Which groups rebalance, flap, or commit too often?",
    "A rebalance is a generation that members joined, or a new epoch of a group of the newer protocol (KIP-848). "
    "Findings: `rebalances often`: more than 6 an hour; `flapping members`: three or more member ids for each member "
    "at the group's largest; `zombies`: heartbeats of members that the group has gone on without; `commits often`: "
    "more than 60 a minute and member. Rates are over the time from the first to the last sight, an hour or a minute "
    "at least.",
    reads=("groups", "requests"),
    order=("-rebalances", "-zombie_heartbeats", "group"),
    columns=columns(
        *("cluster", "group", "broker_group", "findings"),
        Column("protocol", "string", "assignor that was chosen last; absent: not known"),
        Column("members", "long", "members when it was largest", "members"),
        Column("member_ids", "long", "different member ids; an estimate, exact where they are few"),
        Column("rebalances", "long", "generations or epochs that it went through"),
        Column("rebalances_per_hour", "double", "the same per hour"),
        Column("joins", "long", "JoinGroup requests that went well", "requests"),
        Column("failed_joins", "long", "those that did not, without a member's first step (KIP-394)", "requests"),
        Column("leaves", "long", "members that left", "requests"),
        Column("most_joins_client", "string", "client id that joined most often"),
        Column("most_joins_address", "string", "its address"),
        Column("most_joins", "long", "how often it joined", "requests"),
        Column("heartbeats", "long", "heartbeats", "requests"),
        Column("zombie_heartbeats", "long", "those of members that the group has gone on without", "requests"),
        Column("commits", "long", "requests that committed offsets", "requests"),
        Column("commits_per_minute", "double", "the same per minute"),
        *TIMES,
    ),
)

GROUP_LAG = GoldAnswer(
    "group_lag",
    "Lag and commits",
    "How far are groups behind, and did commits go back?",
    "Lag is the end of the log, as readers and writers saw it last, less the last commit: as good as the last look at "
    "both, and absent where nobody read or wrote the partition through kproxy. A commit goes back when it is below the "
    "one before it: a reset, or two members that both think the partition theirs.",
    reads=("commits", "fetch_partitions", "produce_partitions"),
    order=("-lag", "-commits_back", "group", "topic", "partition"),
    columns=columns(
        *("cluster", "group", "broker_group", "topic", "broker_topic", "partition"),
        Column("lag", "long", "records between the last commit and the end of the log; absent: not known", "records"),
        Column("committed_offset", "long", "the last commit"),
        Column("committed_at", "timestamp", "when that was"),
        Column("log_end", "long", "end of the log as it was seen last"),
        Column("log_end_at", "timestamp", "when that was"),
        Column("commits", "long", "commits of this partition"),
        Column("commits_back", "long", "those below the one before"),
    ),
)

STORMS = GoldAnswer(
    "storms",
    "Storms",
    "Who connects, or asks for metadata, too often?",
    "Per client address. A storm is a minute with at least 60 connections, or at least 300 requests of Metadata, "
    "ApiVersions or FindCoordinator each, from one address.",
    reads=("connections", "requests"),
    order=("-storm", "-peak_per_minute", "client_address"),
    columns=columns(
        *("cluster", "client_address"),
        Column("activity", "string", "connections, Metadata, ApiVersions or FindCoordinator"),
        Column("storm", "boolean", "there was a storm"),
        Column("peak_per_minute", "long", "how many in the worst minute"),
        Column("peak_at", "timestamp", "when that was"),
        Column("mean_per_minute", "double", "mean over the minutes with any"),
        Column("total", "long", "how many in all"),
        Column("minutes", "long", "minutes with any", "minutes"),
    ),
)

THROTTLED = GoldAnswer(
    "throttled",
    "Throttled clients",
    "Which clients and rules have throttles, and how long are they?",
    "Throttle time is the `throttle_time_ms` that responses report; Kafka clients wait for it before their next "
    "request. After a mute (KIP-219) kproxy reads the client's channel again. A mute covers the complete debt of a "
    "quota, so it can be longer than the reported throttle time. Rules also hold requests and responses: a request "
    "waits for its turn at a quota. Rows without a rule are quotas of the brokers; kproxy sees them in responses only.",
    reads=("requests",),
    order=("-throttle_ms", "-mute_ms", "-held_ms", "client_id"),
    columns=columns(
        *("cluster", "client_id", "principal", "client_address", "api"),
        Column("throttle_rule", "string", "rule that throttled the requests; absent: the broker's quota"),
        Column("requests", "long", "throttled requests", "requests"),
        Column("throttled", "long", "responses of them that reported a throttle time", "requests"),
        Column("throttle_ms", "double", "sum of the reported throttle times", "ms"),
        Column("mean_throttle_ms", "double", "mean of the reported throttle times", "ms"),
        Column("mute_ms", "double", "sum of the mutes", "ms"),
        Column("held_ms", "double", "sum of the times that these requests and responses were held by rules", "ms"),
        *TIMES,
    ),
)

RULES_EFFECT = GoldAnswer(
    "rules_effect",
    "Rules",
    "What did each rule do, and to whom?",
    "Matched, fired and applied are the rules' own counters: selectors held, the trigger held as well, the change was "
    "sent. Requests, clients and topics come from requests recorded one by one; APIs in summary have none. Rules that "
    "bind when a connection opens, such as `prefix` and `advertise`, have connections instead of counters.",
    reads=("rules", "requests", "connections"),
    order=("-applied", "-matched", "rule", "day"),
    columns=columns(
        Column("rule", "string", "name of the rule"),
        Column("day", "string", "UTC date"),
        Column("kind", "string", "its kind"),
        Column("matched", "long", "how often its selectors held", "requests"),
        Column("fired", "long", "how often its trigger held as well", "requests"),
        Column("applied", "long", "how often what it changed has gone out", "requests"),
        Column("connections", "long", "connections that opened with it, of rules that bind then", "connections"),
        Column("requests", "long", "requests on record that it fired for", "requests"),
        Column("answered", "long", "those of them that kproxy answered in the broker's place", "requests"),
        Column("clients", "long", "client ids of these requests; an estimate, exact where they are few"),
        Column("topics", "long", "their topics; an estimate, exact where they are few"),
        Column("client_names", "string", "client ids, the first ten by name", array=True),
        Column("topic_names", "string", "topics, the first ten by name", array=True),
        *TIMES,
    ),
)
