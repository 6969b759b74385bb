"""Captures of real clients on a real Kafka behind kproxy, with one fault each: what is found in them, and nothing else.

All workloads that are asked for run at once, each with a topic, a group and a rule of its own, which is for the client
that has its name. Each is captured with whole frames and as a sketch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kproxy.record.captures.pairs import BothSides, paired
from kproxy.record.captures.reader import Capture
from kproxy.testing.kafka import Kafka
from kproxy.testing.process import Proxy, free_port_with_room
from kproxy.tools.verify import VerifyTerms, verify
from kproxy.tools.verify.report import report_text
from tests.support.topics import create_topics

pytestmark = pytest.mark.kafka
PATIENCE = 60
PRODUCE_ONCE: dict[str, Any] = {"match": {"api": "Produce"}, "when": {"nth": 2}}


@dataclass(frozen=True)
class Workload:
    """Rule for a client, how the client writes and reads, and what is found then: the level by the check. `together`:
    the group protocol of several members, which come and go."""

    rule: Mapping[str, Any] | None = None
    found: Mapping[str, str] = field(default_factory=dict)
    idempotent: bool = False
    transactions: bool = False
    together: str = ""


def proved(*checks: str) -> dict[str, str]:
    return dict.fromkeys(checks, "proved")


BEHIND = {"watermark-behind": "suspect"}
DOUBLED = {"duplicate": "suspect"}
LOST = {"kind": "disconnect", "at": "response", **PRODUCE_ONCE}
DROPPED = {"kind": "drop", "what": "response", "connection": "close", **PRODUCE_ONCE}
LATE = {"kind": "error", "error": "REQUEST_TIMED_OUT", "at": "response", **PRODUCE_ONCE}
WORKLOADS: dict[str, Workload] = {
    "answer-lost": Workload(LOST, DOUBLED),
    "answer-dropped": Workload(DROPPED, DOUBLED),
    "timed-out-late": Workload(LATE, DOUBLED),
    "answer-lost-idempotent": Workload(LOST, idempotent=True),
    "answer-dropped-idempotent": Workload(DROPPED, idempotent=True),
    "timed-out-late-idempotent": Workload(LATE, idempotent=True),
    "not-leader": Workload({"kind": "error", "error": "NOT_LEADER_OR_FOLLOWER", **PRODUCE_ONCE}),
    "empty-fetch": Workload({"kind": "empty_fetch", "match": {"api": "Fetch"}, "when": {"first": 2}}),
    "drop-at-fetch": Workload(
        {"kind": "drop_records", "at": "fetch", "offsets": 12}, proved("inconsistent-offset", "thinned-batch")
    ),
    "drop-at-produce": Workload(
        {"kind": "drop_records", "at": "produce", "offsets": 3},
        proved("inconsistent-offset", "offset-given-twice") | BEHIND,
    ),
    "double-at-fetch": Workload(
        {"kind": "duplicate_records", "at": "fetch", "offsets": 12}, proved("inconsistent-offset", "thinned-batch")
    ),
    "double-at-produce": Workload(
        {"kind": "duplicate_records", "at": "produce", **PRODUCE_ONCE}, proved("inconsistent-offset")
    ),
    "reorder-at-fetch": Workload({"kind": "reorder_records", "at": "fetch"}, proved("inconsistent-offset")),
    "reorder-at-produce": Workload({"kind": "reorder_records", "at": "produce"}, proved("inconsistent-offset")),
    "poison": Workload({"kind": "poison_records", "at": "fetch", "offsets": 12}, proved("inconsistent-offset")),
    "rewind-offset": Workload({"kind": "rewind_offset", "offset_by": -5}, proved("lost-commit")),
    "drop-commit": Workload({"kind": "drop_commit", "when": {"first": 1}}, proved("lost-commit")),
    "watermark": Workload({"kind": "set_watermark", "offset_by": -5, "when": {"first": 2}}, BEHIND),
    "no-fault": Workload(),
    "no-fault-idempotent": Workload(idempotent=True),
    "transactions": Workload(transactions=True),
    "rebalances": Workload(together="classic"),
    "rebalances-by-the-broker": Workload(together="consumer"),
}
PARTITIONS = 3
PAGE = Path(__file__).parents[3] / "docs" / "verify.md"


def row(workload: Workload) -> str:
    """Return what the page says of a workload: the rule, how the client writes and reads, what is found."""
    rule = {name: value for name, value in (workload.rule or {}).items() if name not in ("match", "when")}
    text = ", ".join(f"{name}: {value}" for name, value in rule.items())
    how = ["idempotent"] * workload.idempotent + ["transactions, one aborted"] * workload.transactions
    how += [f"one member, two, one; protocol `{workload.together}`"] * bool(workload.together)
    found = [f"`{check}`" + (f", {level}" if level != "proved" else "") for check, level in workload.found.items()]
    return f"| {f'`{{{text}}}`' if text else 'none'} | {'; '.join(how)} | {'; '.join(sorted(found)) or 'nothing'} |"


def test_the_page_says_what_is_found() -> None:
    """Each workload is a row of its table, and there are no others."""
    _, _, rest = PAGE.read_text().partition("| rule | the client | found |\n|---|---|---|\n")
    table, _, _ = rest.partition("\n\n")
    assert table.splitlines() == [row(workload) for workload in WORKLOADS.values()]


class Client:
    """Client that writes, reads and commits under one name, through kproxy."""

    def __init__(self, bootstrap: str, name: str, workload: Workload) -> None:
        self.bootstrap, self.name, self.workload = bootstrap, name, workload
        self.address = {"bootstrap.servers": bootstrap, "client.id": name, "log_level": 0,
                        "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}  # fmt: skip

    def write(self, batches: int) -> None:
        """Write batches of ten records, each acknowledged before the next; of transactions the second is aborted."""
        more: dict[str, Any] = {"transactional.id": self.name} if self.workload.transactions else {}
        producer = Producer(self.address | more | {
            "enable.idempotence": self.workload.idempotent or self.workload.transactions, "linger.ms": 20,
            "retry.backoff.ms": 50,
        })  # fmt: skip
        if more:
            producer.init_transactions(PATIENCE)
        for batch in range(batches):
            if more:
                producer.begin_transaction()
            for number in range(10):
                producer.produce(self.name, f"{batch}-{number}", key=f"key-{number}", partition=0)
            assert producer.flush(PATIENCE) == 0, f"{self.name}: not written"
            if more and batch == 1:
                producer.abort_transaction(PATIENCE)
            elif more:
                producer.commit_transaction(PATIENCE)

    def read(self, end: int) -> None:
        """Read up to an offset as a member of the group, and commit on the way and at the end."""
        consumer = Consumer(self.address | {
            "group.id": self.name, "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "fetch.wait.max.ms": 100, "fetch.error.backoff.ms": 50, "check.crcs": True,
        })  # fmt: skip
        consumer.subscribe([self.name])
        limit = monotonic() + PATIENCE
        place = TopicPartition(self.name, 0)
        while monotonic() < limit:
            consumer.poll(0.1)
            position = consumer.position([place])[0].offset
            if position >= end:
                break
        else:
            raise AssertionError(f"{self.name}: read up to {position} of {end}")
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].name() != "_NO_OFFSET":
                raise
        consumer.close()

    def member(self) -> Consumer:
        """Return a member of the group, by its protocol."""
        member = Consumer(self.address | {
            "group.id": self.name, "group.protocol": self.workload.together, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "fetch.wait.max.ms": 100,
        })  # fmt: skip
        member.subscribe([self.name])
        return member

    def read_together(self) -> None:
        """Write and read by one member, by two, and by the second alone; each commits what it has read."""
        producer = Producer(self.address | {"linger.ms": 5})
        seen: set[tuple[int, int]] = set()
        first, written = self.member(), 0
        members = [first]
        for step in range(3):
            for number in range(10):
                for partition in range(PARTITIONS):
                    producer.produce(self.name, f"{step}-{number}", partition=partition)
            assert producer.flush(PATIENCE) == 0
            written += 10 * PARTITIONS
            if step == 1:
                members.append(self.member())
            elif step == 2:
                members.remove(first)
                first.close()
            limit = monotonic() + PATIENCE
            while len(seen) < written or not all(member.assignment() for member in members):
                assert monotonic() < limit, f"{self.name}: {len(seen)} of {written} in step {step}"
                for member in members:
                    seen |= read_some(member)
        for member in members:
            member.close()


def read_some(member: Consumer) -> set[tuple[int, int]]:
    """Return the partitions and offsets of the next records of a member, which are committed."""
    found = {(one.partition(), one.offset()) for one in member.consume(100, 0.05) if one.error() is None}
    if found:
        with suppress(KafkaException):  # a rebalance is under way, and others will read them again
            member.commit(asynchronous=False)
    return {(partition, offset) for partition, offset in found if partition is not None and offset is not None}


class Recorded:
    """Captures of the workloads, by name and payload."""

    def __init__(self, kafka: Kafka, folder: Path, names: list[str]) -> None:
        self.kafka, self.folder, self.names = kafka, folder, names
        rules = [
            {"name": name, **rule, "match": {**rule.get("match", {}), "client_id": name}}
            for name in names
            if (rule := WORKLOADS[name].rule) is not None
        ]
        bind = f"127.0.0.1:{free_port_with_room(16)}"
        config = {
            "clusters": {"main": {"bootstrap": kafka.bootstrap("PROXIED").split(",")}},
            "listeners": [{"name": "main", "bind": bind, "cluster": "main"}],
            "captures": str(folder),
        }  # fmt: skip
        together = [name for name in names if WORKLOADS[name].together]
        create_topics(kafka.bootstrap("DIRECT"), *(name for name in names if name not in together))
        create_topics(kafka.bootstrap("DIRECT"), *together, partitions=PARTITIONS)
        with Proxy(config=config, rules=rules) as proxy:
            for payload in ("full", "sketch"):
                proxy.post(f"/api/captures?file={payload}&payload={payload}", {})
            with ThreadPoolExecutor(len(names)) as pool:
                for done in [pool.submit(self.work, proxy.bootstrap, name) for name in names]:
                    done.result()

        self.by_client = {payload: self.exchanges(payload) for payload in ("full", "sketch")}

    def work(self, bootstrap: str, name: str) -> None:
        """Write, read all and commit; then once more, as a member that begins where the first one has ended."""
        client = Client(bootstrap, name, WORKLOADS[name])
        if WORKLOADS[name].together:
            client.read_together()
            return
        for batches in (3, 2):
            client.write(batches)
            client.read(self.end(name))

    def end(self, topic: str) -> int:
        """Return where the log of a topic ends, by the broker itself."""
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap("DIRECT"), "group.id": "count"})
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE)
        consumer.close()
        return int(end)

    def exchanges(self, payload: str) -> dict[str | None, list[BothSides]]:
        """Return what was recorded, by client id."""
        found = defaultdict(list)
        for pair in paired(Capture(self.folder / f"{payload}.pcapng", side="both")):
            seen = pair.front or pair.behind
            found[None if seen is None else seen.client_id].append(pair)
        return found


@pytest.fixture(scope="module")
def recorded(request: pytest.FixtureRequest, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The captures of those workloads that this run looks at."""
    names = [
        name
        for name in WORKLOADS
        if any(item.name.endswith(f"[{name}]") for item in request.session.items if item.path == request.path)
    ]
    return Recorded(kafka, tmp_path_factory.mktemp("recorded"), names)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_recorded_fault(recorded: Recorded, name: str) -> None:
    """Clients' view: exactly what the fault breaks, at whole frames and at sketches. Brokers' view: clean."""
    workload = WORKLOADS[name]
    for payload, by_client in recorded.by_client.items():
        verdict = verify(by_client[name], VerifyTerms(assume_complete=True))
        told = f"{payload}:\n{report_text(verdict, name)}"
        assert {one.check: one.level for one in verdict.findings} == workload.found, told
        assert all(one.view == "clients" for one in verdict.findings), told
        assert all(name in one.rules for one in verdict.findings), told
        assert verdict.counts["acknowledged writes"] > 0
        assert verdict.incomplete == [], told

        brokers = verify(by_client[name], VerifyTerms(view="brokers", assume_complete=True))
        assert brokers.findings == [], f"{payload}:\n{report_text(brokers, name)}"
