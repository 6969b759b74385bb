"""Answers on how well clients use Kafka: producers' settings, skew, fetches."""

from __future__ import annotations

from kproxy.events.column import Column
from kproxy.pipeline.answer import SOFTWARE, TIMES, GoldAnswer, columns

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
    "Topics in the brokers' names. Largest to mean: 1 is even; with 12 partitions, 12 is all in one. Variation is the "
    "standard deviation over the mean: 0 is even. Partitions that got nothing count.",
    reads=("produce_partitions", "fetch_partitions", "topology"),
    order=("-records_max_to_mean", "-records"),
    columns=columns(
        "cluster",
        Column("topic", "string", "the topic's name at the broker"),
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
