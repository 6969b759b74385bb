"""Answer on what the recorded exchanges prove: which guarantees of Kafka they break."""

from __future__ import annotations

from kproxy.events.column import Column
from kproxy.pipeline.answer import GoldAnswer, columns

VIOLATIONS = GoldAnswer(
    "violations",
    "Violations",
    "Was anything lost, doubled, reordered, or read that should not have been?",
    "One row for each check, day and place, with the first finding of the worst level and how many there are. "
    "Proved: no cluster that keeps its promises gives these exchanges, whatever is missing. Suspect: true unless "
    "something lawful has happened that is not on record, such as compaction, a topic made anew (no id of it is "
    "known, or several are), writes past kproxy. Note: lawful, worth knowing. An exchange is before another only "
    "if its answer had left (`response_out`) before the other came (`request_in`), by the hosts' clocks: where the "
    "clock of an instance was seen to go back, what is less apart than that is suspect. Checked are `lost-write`, "
    "`watermark-behind`, `offset-given-twice`, `inconsistent-offset`, `duplicate`, `duplicate-sequence`, "
    "`order`, `read-beyond-stable`, `aborted-read` (where the marker was in an answer of at most 64 KiB), "
    "`zombie-write` (Produce), `lost-commit`, `commit-goes-back`; `unseen` counts acknowledged offsets that "
    "nobody has read. That takes requests told one by one: `audit: {details: {Produce: requests, Fetch: "
    "requests}}`; `not-checked` counts those that were not. Between days a hundred batches of a partition are "
    "compared, those that were still unread and those that had not been written that day. The view is the "
    "clients': what rules of kproxy have done to them is found, too.",
    reads=("produce_partitions", "fetch_partitions", "commits", "offsets_told", "requests"),
    order=("level", "-day", "check", "broker_topic", "partition", "broker_group"),
    worst_first=("proved", "suspect", "note"),
    columns=columns(
        "cluster",
        Column("day", "string", "UTC date, of the later one of two exchanges"),
        Column("check", "string", "which guarantee"),
        Column("level", "string", "proved, suspect or note"),
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
