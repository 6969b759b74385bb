"""Workloads of real groups that break nothing: static members that are started anew, and a share group."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, ShareConsumer

from kproxy.protocol.table import api_keys
from tests.support.topics import create_topics
from tests.support.wait import until
from tests.tools.verify.site import GROUP_RESOURCE, PATIENCE, RECORDS, Site, configure

ACCEPT, RELEASE = 1, 2
"""Ways in which a member of a share group acknowledges a record."""


def static_members(protocol: str) -> Callable[[Site], None]:
    """Return a workload of members with names of their own, one of which is started anew, and then taken over."""

    def restarted(site: Site) -> None:
        site.create()
        create_parts(site, 2)
        producer = site.producer(enable_idempotence=False)
        seen: set[tuple[int, int]] = set()
        members = {name: member(site, protocol, name) for name in ("one", "two")}
        fenced: list[Consumer] = []
        for step in range(1, 5):
            for number in range(RECORDS):
                for partition in (0, 1):
                    producer.produce(site.name, f"{step}-{number}", partition=partition)
            assert producer.flush(PATIENCE) == 0
            if step == 2:
                members["two"].close()
                members["two"] = member(site, protocol, "two")
            elif step == 3 and protocol == "classic":
                fenced.append(members["one"])
                members["one"] = member(site, protocol, "one")  # by which the first one of that name is fenced

            def all_read(wanted: int = step * 2 * RECORDS) -> bool:
                for name, one in members.items():
                    if not take(one, seen):  # its name was not free yet
                        one.close()
                        members[name] = member(site, protocol, name)
                for one in fenced:
                    take(one, seen)
                return len(seen) >= wanted

            until(all_read, PATIENCE)
        for one in (*members.values(), *fenced):
            one.close()

    return restarted


def create_parts(site: Site, count: int) -> None:
    """Have the topic of a workload so many partitions, known to all brokers."""
    site.ask(
        api_keys.CREATE_PARTITIONS, 1,
        {"topics": [{"name": site.name, "count": count, "assignments": None}], "timeout_ms": 30_000,
         "validate_only": False},
    )  # fmt: skip
    create_topics(site.kafka.bootstrap(), site.name, partitions=count)


def member(site: Site, protocol: str, instance: str) -> Consumer:
    """Return a static member of the workload's group."""
    made = Consumer(site.address | {
        "group.id": site.name, "group.protocol": protocol, "group.instance.id": instance, "fetch.wait.max.ms": 100,
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })  # fmt: skip
    made.subscribe([site.name])
    return made


def take(one: Consumer, seen: set[tuple[int, int]]) -> bool:
    """Take what a member has, and commit it unless its partitions are another's by now. Return False once it has failed
    for good."""
    try:
        told = one.consume(100, 0.05)
        if found := [message for message in told if message.error() is None]:
            one.commit(asynchronous=False)
    except KafkaException as failure:
        return not failure.args[0].fatal()
    seen |= {(message.partition() or 0, message.offset() or 0) for message in found}
    errors = [error for message in told if (error := message.error()) is not None]
    return not any(error.fatal() for error in errors)


def shared(site: Site) -> None:
    """Members of a share group acquire records, release them, and let their locks expire; all are delivered again."""
    site.create()
    configure(site, GROUP_RESOURCE, "share.auto.offset.reset", "earliest")
    producer = site.producer(enable_idempotence=False)
    site.write(producer, 0, 1)
    deliveries: list[int] = []
    accepted: set[int] = set()
    mode = {"group.id": site.name, "share.acknowledgement.mode": "explicit"}
    members = [ShareConsumer(site.address | mode) for _ in range(2)]
    for one in members:
        one.subscribe([site.name])

    def all_accepted(end: int) -> bool:
        for one in members:
            for message in one.poll(0.1):
                if message.error() is None:
                    offset = message.offset() or 0
                    first = offset not in deliveries
                    deliveries.append(offset)
                    one.acknowledge(message, RELEASE if first and offset % 2 else ACCEPT)
                    if not (first and offset % 2):
                        accepted.add(offset)
            one.commit_sync(PATIENCE)
        return len(accepted) == end

    until(lambda: all_accepted(2 * RECORDS), PATIENCE)
    site.write(producer, 2, 3)
    until(lambda: all_accepted(4 * RECORDS), PATIENCE)
    for one in members:
        one.close()
    assert len(deliveries) > 4 * RECORDS
    site.read("beside")
