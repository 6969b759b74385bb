"""The scenario of tests/lab/matrix/scenario.py by Kafka Connect: a standalone worker with a source and a sink for
files.

Called with the folder of Connect's jars before the scenario's arguments. Lines that are appended to a file go to the
topic MADE, which Connect makes, and from there to another file. The sink's two tasks are the two members of GROUP.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from kproxy.testing.process import Child, free_port

LIBS, BOOTSTRAP, TOPIC, MADE, GROUP, _ = sys.argv[1:]
COUNT, SECONDS = 30, 120
JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
FOLDER = Path(tempfile.mkdtemp(prefix="kproxy-connect-"))
SOURCE, SINK = FOLDER / "in.txt", FOLDER / "out.txt"
STRING = "org.apache.kafka.connect.storage.StringConverter"


def properties(name: str, settings: dict[str, str]) -> str:
    """A file of that name with these settings."""
    path = FOLDER / f"{name}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


def worker() -> Child:
    """Connect itself; it makes MADE with two partitions when the first line is there."""
    settings = {
        "bootstrap.servers": BOOTSTRAP,
        "key.converter": STRING,
        "value.converter": STRING,
        "offset.storage.file.filename": str(FOLDER / "offsets"),
        "offset.flush.interval.ms": "500",
        "listeners": f"http://127.0.0.1:{free_port()}",
        "connector.client.config.override.policy": "All",
        "plugin.discovery": "service_load",
    }
    source = {
        "name": "source",
        "connector.class": "FileStreamSource",
        "tasks.max": "1",
        "file": str(SOURCE),
        "topic": MADE,
        "topic.creation.default.partitions": "2",
        "topic.creation.default.replication.factor": "1",
        "producer.override.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
    }
    sink = {
        "name": "sink",
        "connector.class": "FileStreamSink",
        "tasks.max": "2",
        "file": str(SINK),
        "topics": MADE,
        "consumer.override.group.id": GROUP,
        "consumer.override.metadata.max.age.ms": "1000",
        "consumer.override.allow.auto.create.topics": "false",  # the source makes it, with two partitions
    }
    files = [properties(*one) for one in (("worker", settings), ("source", source), ("sink", sink))]
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    return Child(["java", *JVM, "-cp", f"{LIBS}/*", main, *files], FOLDER / "log")


def until(condition: Callable[[], Any], what: str) -> Any:
    """What the condition gives as soon as that is true."""
    limit = time.monotonic() + SECONDS
    while not (found := condition()):
        if time.monotonic() > limit:
            raise TimeoutError(what)
        time.sleep(0.1)
    return found


def append(word: str) -> None:
    with SOURCE.open("a") as lines:
        lines.writelines(f"{word}-{number}\n" for number in range(COUNT))


def arrived(*words: str) -> list[str]:
    """The lines that the sink wrote which begin with one of the words."""
    lines = SINK.read_text().split() if SINK.exists() else []
    return [line for line in lines if line.partition("-")[0] in words]


def committed() -> list[TopicPartition]:
    """What GROUP committed."""
    reader = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": GROUP, "log_level": 0})
    try:
        return list(reader.committed([TopicPartition(MADE, 0), TopicPartition(MADE, 1)], SECONDS))
    finally:
        reader.close()


class Steps:
    """The steps; the worker lives from the first one to the end of the third."""

    def __init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "log_level": 0})
        self.connect: Child | None = None

    def topics(self) -> dict[str, Any]:
        return dict(self.admin.list_topics(timeout=SECONDS).topics)

    def members(self) -> list[set[str]]:
        """The topics of each member of GROUP that has partitions."""
        found = self.admin.describe_consumer_groups([GROUP])[GROUP].result(SECONDS).members
        return [{place.topic for place in one.assignment.topic_partitions} for one in found if one.assignment]

    def produce(self) -> dict[str, Any]:
        append("v")
        self.connect = worker()
        made = until(lambda: self.topics().get(MADE), "Connect made no topic")
        return {"topics": [TOPIC] if len(made.partitions) == 2 else [f"{len(made.partitions)} partitions"]}

    def consume(self) -> dict[str, Any]:
        until(lambda: len(arrived("v")) >= COUNT, "the first lines did not arrive")
        return {"topics": [MADE], "values": arrived("v")}

    def group(self) -> dict[str, Any]:
        assert self.connect is not None
        both = until(lambda: len(found := [one for one in self.members() if one]) == 2 and found, "not two members")
        append("w")
        until(lambda: len(arrived("w")) >= COUNT, "the second lines did not arrive")
        self.connect.stop(30)  # commits, and the group is empty
        before = committed()
        append("x")
        self.connect = worker()
        until(lambda: len(arrived("x")) >= COUNT, "the third lines did not arrive")
        self.connect.stop(30)
        after = committed()
        shares = [place.offset for place in before]
        return {
            "topics": sorted(set.union(*both)),
            "values": arrived("w", "x"),
            "shares": shares,
            "committed": sum(place.offset for place in after),
        }

    def transactions(self) -> dict[str, Any]:
        return {"missing": "a standalone worker has no transactions"}

    def administration(self) -> dict[str, Any]:
        until(lambda: not self.admin.describe_consumer_groups([GROUP])[GROUP].result(SECONDS).members, "members left")
        listed = self.topics()
        groups = self.admin.list_consumer_groups().result(SECONDS).valid
        described = self.admin.describe_consumer_groups([GROUP])[GROUP].result(SECONDS)
        self.admin.delete_topics([MADE])[MADE].result(SECONDS)
        until(lambda: MADE not in self.topics(), f"{MADE} is still there")
        return {
            "listed": sorted(listed),
            "partitions": len(listed[MADE].partitions),
            "groups": [one.group_id for one in groups],
            "described": described.group_id,
            "members": len(described.members),
        }

    def brokers(self) -> dict[str, Any]:
        known = self.admin.list_topics(timeout=SECONDS).brokers.values()
        return {"addresses": [f"{one.host}:{one.port}" for one in known]}


def main() -> None:
    """Do the steps, telling each."""
    steps = Steps()
    version = next(Path(LIBS).glob("connect-runtime-*.jar")).stem.rpartition("-")[2]
    print(json.dumps({"step": "client", "version": version}), flush=True)
    for name in ("produce", "consume", "group", "transactions", "admin", "brokers"):
        try:
            told = (steps.administration if name == "admin" else getattr(steps, name))()
        except Exception as error:  # noqa: BLE001  # the next step may go all the same
            tail = steps.connect.tail(5) if steps.connect else ""
            told = {"error": f"{type(error).__name__}: {error} {tail}"}
        print(json.dumps({"step": name, **told}), flush=True)
    if steps.connect is not None:
        steps.connect.stop(10)
    shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
