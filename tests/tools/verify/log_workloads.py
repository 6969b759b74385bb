"""Workloads of real clients that break nothing, though brokers store what they write in another form, or remove it.

Each function is one workload: it makes the topic of its site, writes and reads it, and returns once all is over.
"""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.wait import until
from tests.tools.verify.site import HOUR, PATIENCE, RECORDS, TOPIC_RESOURCE, Site, client, configure, now


def recompressed(site: Site) -> None:
    """Brokers compress anew what comes, with an answer lost on the way: the batch is sent again as it was."""
    site.create(compression_type="zstd")
    producer = site.producer(compression_type="lz4")
    site.write(producer, 0, 1)
    site.read("early")
    site.write(producer, 2, 3)
    site.write(site.producer(compression_type="none", enable_idempotence=False), 4)
    site.read("early")
    site.read("late")


def stamped(site: Site) -> None:
    """Brokers put their own time into records."""
    site.create(message_timestamp_type="LogAppendTime")
    producer = site.producer(compression_type="lz4")
    site.write(producer, 0, 1, at=now() - 2 * HOUR)
    site.read("early")
    site.write(producer, 2, 3)
    site.write(site.producer(enable_idempotence=False), 4)
    site.read("early")
    site.read("late")


def compacted(site: Site) -> None:
    """A cleaner goes over what was written, read, and in part aborted."""
    site.create(
        cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.01", delete_retention_ms="100"
    )
    producer = site.producer()
    site.write(producer, 0, at=now() - 49 * HOUR)
    whole = site.read("early")  # the segment that is active is never cleaned
    site.write(producer, *range(1, 6), at=now() - 48 * HOUR)
    aborting = site.producer(transactional_id=site.name)
    aborting.init_transactions(PATIENCE)
    for batch in (6, 7, 8):
        aborting.begin_transaction()
        site.write(aborting, batch, at=now() - (36 - batch) * HOUR)
        aborting.abort_transaction() if batch == 7 else aborting.commit_transaction()
    site.read("early")
    site.write(producer, 9, at=now())
    until(lambda: site.count() < 4 * RECORDS, PATIENCE)
    site.write(producer, 10, at=now())
    assert len(whole) == RECORDS > len([one for one in site.read("late") if one < RECORDS])
    site.read("early")
    site.read("any", committed=False)


def deleted(site: Site) -> None:
    """DeleteRecords takes the beginning, then all; the producer goes on."""
    site.create()
    producer = site.producer()
    site.write(producer, 0, 1, 2)
    site.read("early")
    admin = AdminClient(site.address)
    for offset in (15, 30):
        wanted = TopicPartition(site.name, 0, offset)
        admin.delete_records([wanted])[wanted].result(PATIENCE)
        site.read(f"from-{offset}")
        site.write(producer, offset)
    site.write(site.producer(enable_idempotence=False), 3)
    assert min(site.read("late")) == 30
    site.read("early")


def aged(site: Site) -> None:
    """Retention takes what is old, also from below a reader that stands there."""
    site.create(retention_ms=str(2 * HOUR), segment_ms="1000")
    producer = site.producer()
    site.write(producer, 0, at=now())
    chosen = {"group.id": f"{site.name}-slow", "auto.offset.reset": "earliest", "enable.auto.commit": False,
              "fetch.wait.max.ms": 100, "queued.min.messages": 1, "max.poll.interval.ms": 300_000}  # fmt: skip
    found: list[int] = []
    with client(Consumer(site.address | chosen)) as slow:
        slow.subscribe([site.name])
        site.read_on(slow, RECORDS, found)
        slow.pause([site.place])
        site.write(producer, 1, 2, 3, at=now() - 24 * HOUR)
        site.write(producer, 4, at=now())
        site.read("early")
        configure(site, TOPIC_RESOURCE, "retention.ms", "1000")
        site.write(producer, 5, at=now() + HOUR)
        until(lambda: site.bounds()[0] > 0, PATIENCE)
        slow.resume([site.place])
        site.read_on(slow, site.end(), found)
    site.write(producer, 6)
    assert 0 not in site.read("late")
