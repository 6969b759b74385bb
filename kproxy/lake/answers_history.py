"""Answer on what the recorded exchanges prove: which guarantees of Kafka they break."""

from __future__ import annotations

from kproxy.record.events.column import Column

from .answer import GoldAnswer, columns

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
    "without a read. The checks need an event for each request: `audit: {details: {Produce: requests, Fetch: "
    "requests}}`; `not-checked` counts other requests. Between days, a hundred batches of a partition are compared: "
    "unread ones, and ones without a write on that day. The view is the clients', so effects of rules are included.",
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
        Column("text", "string", "what was found first"),
        Column("events", "string", "the exchanges that show it: source and id of their events", array=True),
        Column("first_seen", "timestamp", "when the last of these exchanges was answered"),
    ),
)
