"""Model of a cluster with operators: its histories are lawful, and look broken in many ways.

Operators move and delete groups, delete records and topics, change configs, abort transactions in one partition, and
elect leaders that lack records. Clients share an address and a client id, and send again what was reported as failed.
Requests of operators pass the proxy or not.
"""

from __future__ import annotations

from copy import copy
from typing import Any
from uuid import UUID

from kproxy.record.captures.pairs import BothSides
from kproxy.record.exchange import Form
from kproxy.tools.verify.cluster import COORDINATORS_LOGS
from tests.support.exchange_factory import Somebody, exchange
from tests.tools.verify.history import TOPIC, TOPIC_ID, History, batch, marker
from tests.tools.verify.model import Client, Model, ModelBatch, ModelLog, ended

OPERATIONS = (
    "move_group", "delete_offsets", "delete_topic", "elect", "lose_commits", "abort", "compact", "metadata", "configs",
)  # fmt: skip
TIMED_OUT = 7


class OperatedModel(Model):
    """Cluster with operators. `hidden`: some request did not pass the proxy, so that the record is not complete."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        random = self.random
        self.unclean: bool | None = random.choice((None, True, False))
        """The election setting in DescribeConfigs. If it is False, elections are requested with ElectLeaders."""
        self.shared = random.random() < 0.5
        self.beside = random.random() < 0.5
        self.hidden = False
        self.topic_id = TOPIC_ID
        self.epochs = [0 for _ in self.logs]
        told = self.compacted if random.random() < 0.8 else None
        self.history = History(known=random.random() < 0.8, compacted=told, unclean=self.unclean)
        self.operations = random.sample(OPERATIONS, random.randint(1, 4))

    def somebody(self, number: int, name: str) -> Somebody:
        """Return the connection of a client, which may have the default client id and the address of others."""
        return super().somebody(number, "rdkafka" if self.shared else name)

    def clients(self, steps: int) -> list[tuple[Client, Somebody]]:
        """Return the clients, with an operator and a writer that sends again."""
        return [
            *super().clients(steps),
            (self.again(steps), self.somebody(21, "again")),
            (self.operator(steps), self.somebody(22, "operator")),
        ]

    def passes_by(self, api: str) -> bool:
        """Return True for some requests of operators."""
        by = self.beside and api in OPERATED and self.random.random() < 0.5
        self.hidden |= by
        return by

    def run(self, steps: int) -> list[BothSides]:
        """Return the history, with the id and the configs of the topic at its end."""
        super().run(steps)
        last = max(ended(pair) for pair in self.history.pairs)
        if self.history.known:
            _, _, _, described = next(self.metadata())
            self.history.add(last + 1, "Metadata", 12, {"topics": None}, described())
        if self.history.compacted is not None:
            self.history.configs(last + 2, self.history.compacted)
        return sorted(self.history.pairs, key=ended)

    def again(self, steps: int) -> Client:
        """Write without a producer id, and send the same records again after a failure."""
        for _ in range(steps):
            at = self.random.randrange(len(self.logs))
            data = batch(self.value(), at=self.values)

            def work(at: int = at, data: bytes = data) -> dict[str, Any]:
                done = self.produce(at, data, 1)
                if self.random.random() < 0.3:
                    done["responses"][0]["partition_responses"][0] |= {"error_code": TIMED_OUT, "base_offset": -1}
                return done

            for _ in range(3):
                answer = yield self.write(at, data, work)
                part = None if answer is None else answer["responses"][0]["partition_responses"][0]
                if part is not None and not part.get("error_code"):
                    break

    def operator(self, steps: int) -> Client:
        for _ in range(steps):
            yield from getattr(self, self.random.choice(self.operations))()

    # ---- operations

    def move_group(self) -> Client:
        """Set a group's offset, as alter_consumer_group_offsets does."""
        at, group = self.random.randrange(len(self.logs)), f"g{self.random.random() < 0.5}"
        api, version, request, work = self.commit(group, at, self.random.randint(0, self.logs[at].end))
        yield api, version, request | {"generation_id_or_member_epoch": -1}, work

    def delete_offsets(self) -> Client:
        group = f"g{self.random.random() < 0.5}"

        def work() -> dict[str, Any]:
            for at in range(len(self.logs)):
                self.commits.pop(hash((group, at)), None)
            return {"results": [{"group_id": group}]}

        yield "DeleteGroups", 2, {"groups_names": [group]}, work

    def delete_topic(self) -> Client:
        """Delete the topic, which is created again at once."""

        def work() -> dict[str, Any]:
            self.logs[:] = [ModelLog() for _ in self.logs]
            self.epochs = [0 for _ in self.logs]
            self.commits.clear()
            self.topic_id = UUID(int=self.random.getrandbits(100))
            return {"responses": [{"name": TOPIC}]}

        yield "DeleteTopics", 4, {"topic_names": [TOPIC]}, work

    def elect(self) -> Client:
        """Elect a leader that lacks the last batches."""

        def work() -> dict[str, Any]:
            at = self.random.randrange(len(self.logs))
            log = self.logs[at]
            self.epochs[at] += 1
            kept = log.batches[: max(len(log.batches) - self.random.randint(0, 4), 0)]
            log.end = kept[-1].last + 1 if kept else log.start
            log.batches, log.open = kept, {}
            log.aborted = [one for one in log.aborted if one[2] < log.end]
            for known in log.sequences.values():
                for sequence in [one for one, base in known.items() if base >= log.end]:
                    del known[sequence]
            for one in kept:
                reopen(log, one)
            return {}

        if self.unclean:
            work()  # the controller does it
        elif self.unclean is not None or self.random.random() < 0.5:
            yield (
                "ElectLeaders",
                1,
                {"election_type": 1, "topic_partitions": [{"topic": TOPIC, "partitions": [0]}]},
                work,
            )
        else:
            work()

    def lose_commits(self) -> Client:
        """Elect a coordinator that lacks the last commits, if the configs permit it."""
        if self.unclean is not False and self.commits:
            self.history.log_epoch += 1
            del self.commits[self.random.choice(sorted(self.commits))]
        yield from ()

    def abort(self) -> Client:
        """Abort the transaction in one partition, as kafka-transactions does."""
        at = self.random.randrange(len(self.logs))

        def work() -> dict[str, Any]:
            log = self.logs[at]
            if 700 in log.open:
                log.append(marker(700, self.epoch, commit=False), 1, 700, transactional=True, end="abort")
            return {"markers": []}

        topics = [{"name": TOPIC, "partition_indexes": [at]}]
        one = {"producer_id": 700, "producer_epoch": self.epoch, "transaction_result": False, "topics": topics}
        yield "WriteTxnMarkers", 1, {"markers": [one]}, work

    def compact(self) -> Client:
        """Compact the topic for a while."""
        if self.compacted:
            return
        for policy in ("compact", "delete"):
            config = {"name": "cleanup.policy", "config_operation": 0, "value": policy}
            resource = {"resource_type": 2, "resource_name": TOPIC, "configs": [config]}

            def work(compacted: bool = policy == "compact") -> dict[str, Any]:
                self.compacted = compacted
                return {"responses": []}

            yield "IncrementalAlterConfigs", 1, {"resources": [resource]}, work

    def metadata(self) -> Client:
        """Read the id of the topic."""

        def described() -> dict[str, Any]:
            parts = [
                {"partition_index": at, "leader_id": 1, "leader_epoch": epoch} for at, epoch in enumerate(self.epochs)
            ]
            logs = [
                {"name": name, "partitions": [{"partition_index": 0, "leader_epoch": self.history.log_epoch}]}
                for name in COORDINATORS_LOGS
            ]
            topics = [{"name": TOPIC, "topic_id": self.topic_id, "partitions": parts}, *logs]
            return {"cluster_id": "model", "brokers": [], "topics": topics}

        yield "Metadata", 12, {"topics": None}, described

    def configs(self) -> Client:
        """Read the policy of the topic."""
        asked = {"resources": [{"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}]}

        def work() -> dict[str, Any]:
            config = {"name": "cleanup.policy", "value": "compact" if self.compacted else "delete"}
            return {"results": [{"resource_type": 2, "resource_name": TOPIC, "configs": [config]}]}

        yield "DescribeConfigs", 2, asked, work


def reopen(log: ModelLog, one: ModelBatch) -> None:
    """Open or end the transaction of a batch that a new leader has."""
    if one.end:
        log.open.pop(one.producer, None)
    elif one.transactional:
        log.open.setdefault(one.producer, one.base)


OPERATED = frozenset(("DeleteTopics", "DeleteGroups", "WriteTxnMarkers", "DeleteRecords", "ElectLeaders"))
"""APIs of which requests may bypass the proxy. Configs are an assumption: they do not change unseen and change back."""


def cut(pairs: list[BothSides], share: float) -> list[BothSides]:
    """Return the exchanges after this share of them, as of a capture that began late."""
    return pairs[int(len(pairs) * share) :]


def apart(pairs: list[BothSides], offset: float) -> list[BothSides]:
    """Return the exchanges in the recordings of two proxies of one cluster. The clock of the second one is ahead by an
    offset."""
    response = {"cluster_id": "model", "brokers": [], "topics": []}
    for number in (0, 1):
        who = Somebody(number, client_port=3000 + number)
        pairs.append(BothSides(exchange("Metadata", 9, {"topics": None}, response, who=who, at=0.3), None))
    for pair in pairs:
        seen = pair.front
        assert seen is not None, "the model makes both"
        behind, seen.who = seen.who.number % 2, copy(seen.who)
        seen.who.recording = 1 + behind  # type: ignore[attr-defined]  # as `kproxy verify` notes it
        for frame in (seen.request, seen.response) if behind else ():
            if frame is not None:
                frame.first, frame.last = frame.first + offset, frame.last + offset
    return sorted(pairs, key=ended)


def unreadable(pairs: list[BothSides]) -> list[BothSides]:
    """Return the exchanges. Requests that change configs have no bodies."""
    for pair in pairs:
        seen = pair.front
        if seen is not None and seen.api == "IncrementalAlterConfigs" and seen.request is not None:
            seen.request.form = Form.HEAD
    return pairs
