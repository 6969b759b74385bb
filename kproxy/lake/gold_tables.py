"""Declarations of the gold tables on use, compatibility and violations, and the list of all gold tables.

Spark's schemas, the report and docs/events.md are made from these declarations.
"""

from __future__ import annotations

from kproxy.base.errors import UnknownTable
from kproxy.record.events.column import Column

from .answers import (
    CLIENT,
    CLIENT_LATENCY,
    CLIENT_METRICS,
    ERRORS_AND_DENIALS,
    GROUP_HEALTH,
    GROUP_LAG,
    LATENCY,
    RULES_EFFECT,
    SOFTWARE,
    STORMS,
    THROTTLED,
    TIMES,
    TOPIC_REQUESTS,
    GoldAnswer,
    columns,
)

VIOLATIONS = GoldAnswer(
    "violations",
    "Violations",
    "Was anything lost, doubled, reordered, or read that should not have been?",
    "One row for each check, day and place, with the first finding of the worst level and the number of findings. "
    "Suspect: true unless a lawful cause is not in the events, such as compaction, an unclean leader election, a topic "
    "that was deleted and created again, or writes past kproxy. Events have no configs, so that nothing is proved; "
    "`kproxy verify` proves findings from captures. Note: lawful, worth knowing. An exchange is before another only "
    "if its response had left (`response_out`) before the other came (`request_in`), by the hosts' clocks. The checks "
    "are `lost-write`, `watermark-behind`, `offset-given-twice`, `inconsistent-offset`, `duplicate`, "
    "`duplicate-sequence`, `order`, `read-beyond-stable`, `aborted-read` (if the marker was in a response of at most "
    "64 KiB), `zombie-write` (Produce), `lost-commit` and `commit-goes-back`. `unseen` counts acknowledged offsets "
    "without a read. The checks need an event for each request: `audit: {level_by_api: {Produce: requests, Fetch: "
    "requests}}`; `not-checked` counts other requests. Between days, at most a hundred batches of each of these are "
    "compared in a partition: unread ones, ones without a write on that day, and ones of transactions. The view is "
    "the clients', so effects of rules are included.",
    reads=("produce_partitions", "fetch_partitions", "commits", "offsets_told", "requests"),
    order=("level", "-day", "check", "broker_topic", "partition", "broker_group"),
    worst_first=("suspect", "note"),
    columns=columns(
        "cluster",
        Column("day", "string", "UTC date, of the later one of two exchanges"),
        Column("check", "string", "which guarantee"),
        Column("level", "string", "suspect or note"),
        "broker_topic",
        Column("partition", "int", "the partition"),
        "broker_group",
        Column("producer_id", "long", "the producer, of checks of sequences, epochs and transactions"),
        Column("count", "long", "how often it was found; of not-checked, requests; of unseen, offsets"),
        Column("text", "string", "first finding"),
        Column("events", "string", "the exchanges that show it: source and id of their events", array=True),
        Column("first_seen", "timestamp", "when the last of these exchanges was answered"),
    ),
)


TRAFFIC = GoldAnswer(
    "traffic",
    "Traffic",
    "How much went through, and when?",
    "Hours are UTC.",
    reads=("requests",),
    order=("hour", "-requests"),
    columns=columns(
        "cluster",
        Column("hour", "timestamp", "start of the hour"),
        "api",
        "requests",
        "errors",
        Column("request_bytes", "long", "bytes of request frames", "bytes"),
        Column("response_bytes", "long", "bytes of response frames", "bytes"),
    ),
)

ZONES = GoldAnswer(
    "zones",
    "Zones",
    "Which networks' bytes come from, and go to, which zones?",
    "One row per network of clients and rack of the brokers (`broker.rack`) that their connections led to: who pays "
    "for traffic between zones. Networks are the first 24 bits of an IPv4 address, also of one within IPv6, and the "
    "first 64 of an IPv6 address, which is what a zone's subnets are made of; larger ones can be added up of these. A "
    "broker's rack is as the cluster told it last by the end of the day. Rows without a rack: brokers whose rack "
    "nobody told, and bootstrap connections, of which it is not known where they lead. Bytes are those of frames, as "
    "in `traffic`, whose sums are the same; what kproxy answered in a broker's place is among them.",
    reads=("requests", "topology"),
    order=("-request_bytes", "-response_bytes", "client_network", "rack"),
    columns=columns(
        "cluster",
        Column("client_network", "string", "network of the clients; absent: address unknown"),
        Column("rack", "string", "rack of the brokers; absent: not known"),
        Column("nodes", "long", "how many brokers they are, as far as they are known"),
        Column("network_part", "double", "part of the network's bytes, both directions, that is this row's", "part"),
        "requests",
        Column("request_bytes", "long", "bytes to the brokers", "bytes"),
        Column("response_bytes", "long", "bytes from the brokers", "bytes"),
        Column("produce_request_bytes", "long", "those of Produce requests", "bytes"),
        Column("produce_response_bytes", "long", "those of their responses", "bytes"),
        Column("fetch_request_bytes", "long", "those of Fetch and ShareFetch requests", "bytes"),
        Column("fetch_response_bytes", "long", "those of their responses", "bytes"),
        Column("other_request_bytes", "long", "those of all other requests", "bytes"),
        Column("other_response_bytes", "long", "those of their responses", "bytes"),
        *TIMES,
    ),
)

TOPIC_PRODUCERS = GoldAnswer(
    "topic_producers",
    "Who writes",
    "Who writes to each topic?",
    "One row per topic and client. Records are those of which a broker has said that it stored them: not those that "
    "it, or a rule of kproxy's, refused, and not those that were sent with acks=0, of which nobody knows.",
    reads=("produce_partitions",),
    order=("-records", "topic", "client_id"),
    columns=columns(
        *("cluster", "topic", "broker_topic", *CLIENT),
        TOPIC_REQUESTS,
        *("records", "bytes"),
        Column("unconfirmed_records", "long", "records sent with acks=0, without confirmation", "records"),
        *("errors", *TIMES),
    ),
)

TOPIC_CONSUMERS = GoldAnswer(
    "topic_consumers",
    "Who reads",
    "Who reads each topic?",
    "One row per topic and client. A client that got no records, or was refused, has a row with its requests.",
    reads=("fetch_partitions",),
    order=("-records", "-requests", "topic"),
    columns=columns(
        *("cluster", "topic", "broker_topic", *CLIENT),
        TOPIC_REQUESTS,
        Column("empty", "long", "those of them that brought nothing for the partition", "requests"),
        *("records", "bytes", "errors", *TIMES),
    ),
)

KAFKA4_READINESS = GoldAnswer(
    "kafka4_readiness",
    "Ready for Kafka 4",
    "Which clients would break on Kafka 4?",
    "Kafka 4 no longer takes versions of the protocol from before Kafka 2.1 (KIP-896). Verdicts, the first that holds: "
    "`breaks`: the client used a version, or an API, that Kafka 4 lacks; `unknown api`: kproxy does not know the API; "
    "`old software`: the client's library is older than those that KIP-896 took as its measure; `unknown software`: it "
    "does not say what it is, as libraries before Kafka 2.4 do not, but its versions are fine; `ready`. A client takes "
    "the highest version that its broker has, so on brokers before 2.1 `breaks` may be the broker's doing.",
    reads=("requests",),
    order=("verdict", "client_id", "api"),
    worst_first=("breaks", "unknown api", "old software", "unknown software", "ready"),
    columns=columns(
        *("cluster", "client_id", *SOFTWARE, "api", "version"),
        Column("minimum", "int", "first version of the API that Kafka 4 takes; absent: Kafka 4 or kproxy lacks it"),
        Column("verdict", "string", "breaks, unknown api, old software, unknown software or ready"),
        *(*TIMES, "requests"),
        Column("principals", "string", "principals, the first ten by name", array=True),
        Column("addresses", "string", "client addresses, the first ten by name", array=True),
    ),
)

UNUSED_TOPICS = GoldAnswer(
    "unused_topics",
    "Unused topics",
    "Which topics does nobody write to, or nobody read?",
    "Topics of the clusters, beside their traffic through kproxy. Traffic that does not pass kproxy is missing. If "
    "clients use several names for a topic, each has a row with the same numbers. `internal` topics are Kafka's own; "
    "`gone`: the cluster had the topic before.",
    reads=("topology", "produce_partitions", "fetch_partitions"),
    order=("verdict", "cluster", "topic"),
    worst_first=("unused", "never read", "never written", "gone", "in use", "internal"),
    columns=columns(
        "cluster",
        Column("topic", "string", "the client's name of the topic; without traffic the broker's; absent: not known"),
        "broker_topic",
        Column("verdict", "string", "unused, never read, never written, in use, internal or gone"),
        Column("partitions", "long", "how many it has", "partitions"),
        Column("internal", "boolean", "it belongs to Kafka itself"),
        Column("known", "boolean", "it is in the last that the cluster told"),
        Column("last_written", "timestamp", "the last successful write; absent: none"),
        Column("last_read", "timestamp", "the last successful read, with records or without; absent: none"),
        Column("records_written", "long", "records written", "records"),
        Column("records_read", "long", "records read, each time", "records"),
        Column("topic_id", "string", "its id, as told last"),
    ),
)

DORMANT_CLIENTS = GoldAnswer(
    "dormant_clients",
    "Clients, and the dormant ones",
    "Which clients are there, and which have gone silent?",
    "A client that has sent nothing for 7 days, counted back from the last request of all, is dormant. ApiVersions, "
    "SaslHandshake and SaslAuthenticate requests do not count.",
    reads=("requests",),
    order=("-dormant", "-days_idle", "client_id"),
    columns=columns(
        *("cluster", "client_id", "principal"),
        Column("software", "string", "library and version, as used last; absent: unknown"),
        Column("client_address", "string", "last address"),
        Column("addresses", "long", "how many addresses it came from; an estimate, exact where they are few"),
        *(*TIMES, "requests"),
        Column("days_idle", "long", "whole days from its last request to the last request of all", "days"),
        Column("dormant", "boolean", "it was idle for 7 days or more"),
    ),
)


PRODUCER_HYGIENE = GoldAnswer(
    "producer_hygiene",
    "Producers",
    "Do producers wait for acks, write idempotently, compress, and fill their batches?",
    "One row per client and topic. Findings: `acks=0`, `acks=1`, `not idempotent`: at least one write; `uncompressed`: "
    "more than half; `tiny batches`, `huge batches`: 100 batches or more with a mean below 1,024 or above 1,000,000 "
    "bytes.",
    reads=("produce_partitions", "requests"),
    order=("-records", "client_id", "topic"),
    columns=columns(
        *("cluster", "client_id", "principal", *SOFTWARE, "topic", "findings"),
        Column("acks_0", "double", "part of the writes that waited for nothing (acks=0)", "part"),
        Column("acks_1", "double", "part that waited for the leader alone (acks=1)", "part"),
        Column("idempotent", "double", "part whose batches have a producer id; of those that could be read", "part"),
        Column("uncompressed", "double", "part whose batches are not compressed; of those that could be read", "part"),
        Column("codecs", "string", "codecs used", array=True),
        Column("batch_records", "double", "mean records of a batch", "records"),
        Column("batch_bytes", "double", "mean bytes of a batch", "bytes"),
        Column("records_per_request", "double", "mean records of a Produce request of this client, all topics"),
        Column("writes", "long", "requests, counted once for each partition", "requests"),
        *("records", "bytes"),
        Column("batches", "long", "record batches", "batches"),
        *TIMES,
    ),
)

PARTITION_SKEW = GoldAnswer(
    "partition_skew",
    "Skew",
    "Are topics spread evenly over their partitions?",
    "If clients use several names for a topic, each has a row with the same numbers. Largest to mean: 1 is even; "
    "with 12 partitions, 12 is all in one. Variation is the standard deviation over the mean: 0 is "
    "even. Partitions that got nothing count.",
    reads=("produce_partitions", "fetch_partitions", "topology"),
    order=("-records_max_to_mean", "-records"),
    columns=columns(
        "cluster",
        *("topic", "broker_topic"),
        Column("partitions", "long", "how many it has, as told, or else as far as seen", "partitions"),
        Column("records", "long", "records written", "records"),
        Column("bytes", "long", "bytes written", "bytes"),
        Column("largest_partition", "int", "partition with the most records"),
        Column("largest_records", "long", "records written to it", "records"),
        Column("records_max_to_mean", "double", "records of the largest partition over an even share; absent: none"),
        Column("bytes_max_to_mean", "double", "the same of bytes"),
        Column("records_variation", "double", "standard deviation of the partitions' records over their mean"),
        Column("bytes_variation", "double", "the same of bytes"),
        Column("records_read", "long", "records read, each time", "records"),
        Column("bytes_read", "long", "bytes read", "bytes"),
        Column("records_read_max_to_mean", "double", "as above, of records read"),
    ),
)

EMPTY_FETCHES = GoldAnswer(
    "empty_fetches",
    "Fetches",
    "What do readers get for their fetches?",
    "Finding `polls in vain`: nine fetches in ten or more bring nothing, at more than 120 a minute: fetch.max.wait.ms "
    "is too small. Few records per fetch at a high rate: fetch.min.bytes could be larger.",
    reads=("requests", "fetch_partitions"),
    order=("-empty_part", "-fetches"),
    columns=columns(
        *("cluster", "client_id", "principal", *SOFTWARE, "findings"),
        Column("fetches", "long", "Fetch and ShareFetch requests", "requests"),
        Column("empty", "long", "those that brought no bytes", "requests"),
        Column("empty_part", "double", "part that brought no bytes", "part"),
        Column("fetches_per_minute", "double", "from the first to the last sight, a minute at least"),
        Column("records_per_fetch", "double", "mean records of a fetch", "records"),
        Column("bytes_per_fetch", "double", "mean bytes of a fetch", "bytes"),
        *("records", "bytes", *TIMES),
    ),
)


ANSWERS = (
    TRAFFIC,
    ZONES,
    TOPIC_PRODUCERS,
    TOPIC_CONSUMERS,
    KAFKA4_READINESS,
    UNUSED_TOPICS,
    DORMANT_CLIENTS,
    LATENCY,
    CLIENT_LATENCY,
    CLIENT_METRICS,
    THROTTLED,
    ERRORS_AND_DENIALS,
    GROUP_HEALTH,
    GROUP_LAG,
    PRODUCER_HYGIENE,
    PARTITION_SKEW,
    EMPTY_FETCHES,
    RULES_EFFECT,
    STORMS,
    VIOLATIONS,
)
"""Gold tables in the report's order."""


def answer_named(name: str) -> GoldAnswer:
    """Return the gold table of this name; UnknownTable lists the valid names."""
    for answer in ANSWERS:
        if answer.name == name:
            return answer
    raise UnknownTable(f"expected a gold table, got {name!r}; tables: {', '.join(answer.name for answer in ANSWERS)}")


def questions() -> str:
    """Return a reference line for each question and its table."""
    lines = ["| question | table |", "|---|---|"]
    lines += [f"| {answer.question} | [`{answer.name}`](#{answer.name}) |" for answer in ANSWERS]
    return "\n".join(lines) + "\n"


def answers() -> str:
    """Return a chapter for each answer: notes, sources, columns."""
    return "\n".join(map(_chapter, ANSWERS))


def _chapter(answer: GoldAnswer) -> str:
    made_of = ", ".join(f"`{name}`" for name in answer.reads)
    lines = [f"### {answer.name}", "", f"{answer.question} {answer.text} Made of {made_of}.", ""]
    lines += ["| column | type | unit | description |", "|---|---|---|---|", *map(_row, answer.columns)]
    return "\n".join(lines) + "\n"


def _row(column: Column) -> str:
    kind = f"array of {column.type}" if column.array else column.type
    unit = "part of 1" if column.unit == "part" else column.unit
    return f"| `{column.name}` | {kind} | {unit} | {column.meaning.replace('|', '&#124;')} |"
