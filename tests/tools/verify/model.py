"""Small model of a cluster and its clients, whose histories are lawful unless one of its steps is broken.

Strategy: clients are generators that ask for one thing after another. Each takes effect at some time between its
request and its answer, and effects are carried out in the order of their times, so that exchanges overlap as real ones
do. Answers may get lost, before or after the effect. `broken` names the one step that the cluster does wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any

from kproxy.record.captures.pairs import BothSides
from tests.support.exchange_factory import Somebody
from tests.tools.verify.history import TOPIC, History, batch, marker, stored, thinned

Asked = tuple[str, int, dict[str, Any], Callable[[], dict[str, Any]]]
"""API, version, request, and what the cluster does with it, which gives the response."""
Client = Generator[Asked, "dict[str, Any] | None", None]
PARTITIONS = 2


@dataclass
class ModelBatch:
    """Batch in the log of a partition."""

    base: int
    data: bytes
    count: int
    producer: int = -1
    transactional: bool = False
    end: str = ""

    @property
    def last(self) -> int:
        return self.base + self.count - 1


@dataclass
class ModelLog:
    """Log of a partition, whose high watermark is its end. `open`: first offsets of open transactions, by producer.
    `aborted`, `committed`: producer, first and last offset of ended ones. `sequences`: by producer and epoch, the next.
    """

    batches: list[ModelBatch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    reads: int = 0
    open: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    committed: list[tuple[int, int, int]] = field(default_factory=list)
    sequences: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def append(self, data: bytes, count: int, producer: int = -1, *, transactional: bool = False, end: str = "") -> int:
        """Append a batch and return its offset."""
        base = self.end
        self.batches.append(ModelBatch(base, data, count, producer, transactional, end))
        self.end += count
        if transactional and not end:
            self.open.setdefault(producer, base)
        elif end:
            first = self.open.pop(producer, None)
            if first is not None:
                (self.aborted if end == "abort" else self.committed).append((producer, first, base))
        return base


class Model:
    """Cluster with some clients. `own_epochs`: each transaction has an epoch of its own (KIP-890)."""

    def __init__(self, seed: int, broken: str = "", *, own_epochs: bool | None = None) -> None:
        self.random = random = Random(seed)
        self.broken, self.spoilt = broken, False
        self.own_epochs = random.random() < 0.5 if own_epochs is None else own_epochs
        self.compacted = not broken and random.random() < 0.2
        self.logs = [ModelLog() for _ in range(PARTITIONS)]
        self.commits: dict[int, int] = {}
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.history = History(compacted=self.compacted)
        self.values = 0
        self.epoch = -1

    # ---- running

    def run(self, steps: int) -> list[BothSides]:
        """Let all clients do so many things, then read all logs whole; return the history by the time of its ends."""
        for client, who in self.clients(steps):
            self.go_on(client, who, None, 1.0 + self.random.random())
        now = self.carry_out()
        for committed in (True, False):
            for client in (self.consumer(0, committed=committed, partition=at) for at in range(PARTITIONS)):
                self.go_on(client, Somebody(17, client_port=1017, client_id="last"), None, now + 1)
                now = self.carry_out()
        return sorted(self.history.pairs, key=ended)

    def clients(self, steps: int) -> list[tuple[Client, Somebody]]:
        """Return the clients with their connections."""
        clients = [
            (self.plain(steps), self.somebody(11, "plain")),
            (self.idempotent(steps), self.somebody(12, "idempotent")),
            (self.transactional(steps), self.somebody(13, "transactional")),
            (self.consumer(steps, committed=True), self.somebody(14, "committed")),
            (self.consumer(steps, committed=False), self.somebody(15, "uncommitted")),
        ]
        if not self.broken:
            clients.append((self.cleaner(steps), self.somebody(16, "cleaner")))
        return clients

    def somebody(self, number: int, name: str) -> Somebody:
        """Return the connection of a client."""
        return Somebody(number, client_port=1000 + number, client_id=name)

    def carry_out(self) -> float:
        """Carry out all effects in the order of their times; return the last one."""
        now = 0.0
        while self.due:
            now, _, effect = heappop(self.due)
            effect()
        return now

    def at(self, time: float, effect: Callable[[], None]) -> None:
        """Have something done at this time."""
        self.count += 1
        heappush(self.due, (time, self.count, effect))

    def go_on(self, client: Client, who: Somebody, answer: dict[str, Any] | None, now: float) -> None:
        """Give a client its answer, and carry out what it asks for next."""
        try:
            api, version, request, work = client.send(answer)
        except StopIteration:
            return
        random = self.random
        began = now + random.random() * 0.3
        effect = began + 0.01 + random.random() * 0.5
        over = effect + 0.01 + random.random() * 0.5
        fate = random.random()

        def done() -> None:
            lost = api != "Fetch" and fate < 0.1
            response = None if lost and fate < 0.05 else work()
            told = None if lost else response
            if not self.passes_by(api):
                self.history.add(began, api, version, request, told, who=who, took=over - began)
            self.at(over, lambda: self.go_on(client, who, told, over))

        self.at(effect, done)

    def passes_by(self, api: str) -> bool:
        """Return True if a request does not pass the proxy."""
        return False

    # ---- the cluster

    def breaks(self, step: str) -> bool:
        """Return True the first time that the broken step is done, once there is something to break."""
        if step != self.broken or self.spoilt:
            return False
        self.spoilt = True
        return True

    def produce(self, at: int, data: bytes, count: int, **more: Any) -> dict[str, Any]:
        """Append a batch and return the response."""
        log = self.logs[at]
        base = log.append(data, count, **more)
        if log.end > 3 and self.breaks("offset-given-twice"):
            base -= 1
        if log.end > 3 and not more and self.breaks("lost-write"):
            log.batches.pop()
            log.append(batch(b"behind", at=999), 1)
        part = {"index": at, "base_offset": base}
        if not more and self.breaks("refused-but-stored"):
            part = {"index": at, "base_offset": -1, "error_code": 10}
        return {"responses": [{"name": TOPIC, "partition_responses": [part]}]}

    def fetch(self, at: int, position: int, committed: bool) -> dict[str, Any]:
        """Return the response to a Fetch."""
        log = self.logs[at]
        part: dict[str, Any] = {"partition_index": at, "high_watermark": log.end, "last_stable_offset": log.stable,
                                "log_start_offset": log.start, "aborted_transactions": [], "records": b""}  # fmt: skip
        if not log.start <= position <= log.end or (log.end > 3 and self.breaks("out-of-range")):
            part["error_code"] = 1
        else:
            limit = log.stable if committed else log.end
            found = [one for one in log.batches if one.last >= position and one.base < limit]
            found = found[: self.random.randint(1, 4)]
            if found and committed:
                part["aborted_transactions"] = [
                    {"producer_id": producer, "first_offset": first}
                    for producer, first, last in log.aborted
                    if last >= position and first <= found[-1].last
                ]
                inside = [one for one in log.committed if found[0].base <= one[1] and one[2] <= found[-1].last]
                if inside and self.breaks("hidden-transaction"):
                    listed = {"producer_id": inside[0][0], "first_offset": inside[0][1]}
                    part["aborted_transactions"].append(listed)
                data = any(one.transactional and not one.end for one in found)
                if data and part["aborted_transactions"] and self.breaks("aborted-read"):
                    part["aborted_transactions"] = []
            if any(one.count > 1 for one in found) and self.breaks("inconsistent-offset"):
                spoilt = next(one for one in found if one.count > 1)
                found[found.index(spoilt)] = ModelBatch(spoilt.base, batch(*[b"other"] * spoilt.count), spoilt.count)
            part["records"] = stored(*((one.base, one.data) for one in found))
            if log.reads > 5 and log.end > 3 and self.breaks("log-goes-back"):
                part["high_watermark"] = 1
            log.reads += 1
        return {"responses": [{"topic": TOPIC, "partitions": [part]}]}

    # ---- clients

    def value(self) -> bytes:
        """Return a value that no other record has."""
        self.values += 1
        return b"value %d" % self.values

    def plain(self, steps: int) -> Client:
        """Write without a producer id, and never again what was not answered."""
        for _ in range(steps):
            at, count = self.random.randrange(PARTITIONS), self.random.randint(1, 3)
            data = batch(*(self.value() for _ in range(count)), at=self.values)
            yield self.write(at, data, partial(self.produce, at, data, count))

    def write(self, at: int, data: bytes, work: Callable[[], dict[str, Any]], version: int = 9) -> Asked:
        """Return a Produce of one batch."""
        part = {"index": at, "records": data}
        request = {"acks": -1, "transactional_id": None, "topic_data": [{"name": TOPIC, "partition_data": [part]}]}
        return "Produce", version, request, work

    def idempotent(self, steps: int) -> Client:
        """Write with sequences, and again what was not answered."""
        next_sequence = dict.fromkeys(range(PARTITIONS), 0)
        for _ in range(steps):
            at, count = self.random.randrange(PARTITIONS), self.random.randint(1, 3)
            sequence = next_sequence[at]
            data = batch(*(self.value() for _ in range(count)), producer=(500, 0, sequence), at=self.values)

            def work(at: int = at, data: bytes = data, count: int = count, sequence: int = sequence) -> dict[str, Any]:
                known = self.logs[at].sequences.setdefault((500, 0), {})
                if sequence in known and not self.breaks("duplicate-sequence"):
                    part = {"index": at, "base_offset": known[sequence]}
                    return {"responses": [{"name": TOPIC, "partition_responses": [part]}]}
                known[sequence] = self.logs[at].end
                return self.produce(at, data, count, producer=500)

            while (yield self.write(at, data, work)) is None:
                pass
            next_sequence[at] += count

    def transactional(self, steps: int) -> Client:
        """Write in transactions, of which some are aborted; after an answer that is lost begin with a new epoch."""
        version = 5 if self.own_epochs else 3
        answer = None
        sequences: dict[tuple[int, int], int] = {}
        for _ in range(steps):
            while answer is None:
                request = {"transactional_id": "t", "transaction_timeout_ms": 1000}
                answer = yield "InitProducerId", 4, request, self.begin
            epoch = answer["producer_epoch"]
            for at in self.random.sample(range(PARTITIONS), self.random.randint(1, PARTITIONS)):
                sequence = sequences.get((at, epoch), 0)
                sequences[at, epoch] = sequence + 1
                data = batch(self.value(), producer=(700, epoch, sequence), transactional=True, at=self.values)
                answer = yield self.write(at, data, partial(self.store, at, data, epoch))
                if answer is None:
                    break
            if answer is None:
                continue
            commit = self.random.random() < 0.6
            request = {"transactional_id": "t", "producer_id": 700, "producer_epoch": epoch, "committed": commit}
            answer = yield "EndTxn", version, request, partial(self.finish, epoch, commit)
            if answer is not None:
                answer = {"producer_epoch": epoch + self.own_epochs}
        if self.epoch > 0 and self.breaks("zombie-write"):
            data = batch(self.value(), producer=(700, self.epoch - 1, 900), transactional=True)
            yield self.write(0, data, lambda: self.produce(0, data, 1, producer=700))

    def begin(self) -> dict[str, Any]:
        """Give the transactional producer a new epoch, and abort what it has open."""
        for log in self.logs:
            if 700 in log.open:
                log.append(marker(700, self.epoch + 1, commit=False), 1, 700, transactional=True, end="abort")
        self.epoch += 1
        return {"producer_id": 700, "producer_epoch": self.epoch}

    def finish(self, epoch: int, commit: bool) -> dict[str, Any]:
        """End the transaction of this epoch."""
        if self.epoch != epoch:
            return {"error_code": 47}
        in_log = epoch + self.own_epochs
        places = [log for log in self.logs if 700 in log.open]
        wrong = len(places) > 1 and commit and self.breaks("torn-transaction")
        for number, log in enumerate(places):
            done = commit and not (wrong and number)
            data = marker(700, in_log, commit=done)
            log.append(data, 1, 700, transactional=True, end="commit" if done else "abort")
        self.epoch = in_log
        return {"producer_id": 700, "producer_epoch": in_log} if self.own_epochs else {}

    def store(self, at: int, data: bytes, epoch: int) -> dict[str, Any]:
        """Append a transactional batch, unless its epoch is fenced."""
        if self.epoch != epoch:
            parts = [{"index": at, "base_offset": -1, "error_code": 47}]
            return {"responses": [{"name": TOPIC, "partition_responses": parts}]}
        return self.produce(at, data, 1, producer=700, transactional=True)

    def consumer(self, steps: int, *, committed: bool, partition: int | None = None) -> Client:
        """Read from where the group is, and commit; without `steps` read a partition from its beginning to its end."""
        at = self.random.randrange(PARTITIONS) if partition is None else partition
        position, group = (self.logs[at].start if partition is not None else 0), f"g{committed}"
        step, asked = 0, False
        while step < steps or partition is not None:
            step += 1
            wanted = [{"topic": TOPIC, "partitions": [{"partition": at, "fetch_offset": position}]}]
            request = {"isolation_level": int(committed), "session_epoch": -1, "topics": wanted}
            before = position
            answer = yield "Fetch", 11, request, partial(self.fetch, at, position, committed)
            part = (answer or {})["responses"][0]["partitions"][0]
            if part.get("error_code"):
                position = yield from self.reset(at)
                continue
            records = part["records"]
            while records:
                size = int.from_bytes(records[8:12], "big") + 12
                position = int.from_bytes(records[:8], "big") + int.from_bytes(records[23:27], "big") + 1
                records = records[size:]
            if partition is not None and position == before:
                return
            if partition is None and self.random.random() < 0.5:
                yield self.commit(group, at, position)
            just_lost = self.broken == "lost-commit" and self.spoilt and not asked
            if partition is None and (self.random.random() < 0.2 or just_lost):
                asked = asked or self.spoilt
                position = yield from self.committed(group, at)

    def reset(self, at: int) -> Generator[Asked, dict[str, Any] | None, int]:
        """Ask where a log begins."""
        parts = [{"partition_index": at, "timestamp": -2}]
        request = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": parts}]}

        def told() -> dict[str, Any]:
            parts = [{"partition_index": at, "offset": self.logs[at].start}]
            return {"topics": [{"name": TOPIC, "partitions": parts}]}

        answer = yield "ListOffsets", 5, request, told
        while answer is None:
            answer = yield "ListOffsets", 5, request, told
        return int(answer["topics"][0]["partitions"][0]["offset"])

    def commit(self, group: str, at: int, position: int) -> Asked:
        """Return an OffsetCommit."""
        parts = [{"partition_index": at, "committed_offset": position}]
        request = {"group_id": group, "topics": [{"name": TOPIC, "partitions": parts}]}

        def work() -> dict[str, Any]:
            key = hash((group, at))
            if not (self.commits.get(key, position) != position and self.breaks("lost-commit")):
                self.commits[key] = position
            return {"topics": [{"name": TOPIC, "partitions": [{"partition_index": at}]}]}

        return "OffsetCommit", 8, request, work

    def committed(self, group: str, at: int) -> Generator[Asked, dict[str, Any] | None, int]:
        """Ask for the group's offset."""
        request = {"groups": [{"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": [at]}]}]}

        def told() -> dict[str, Any]:
            parts = [{"partition_index": at, "committed_offset": self.commits.get(hash((group, at)), -1)}]
            return {"groups": [{"group_id": group, "topics": [{"name": TOPIC, "partitions": parts}]}]}

        answer = yield "OffsetFetch", 8, request, told
        while answer is None:
            answer = yield "OffsetFetch", 8, request, told
        offset = int(answer["groups"][0]["topics"][0]["partitions"][0]["committed_offset"])
        return offset if offset >= 0 else self.logs[at].start

    def cleaner(self, steps: int) -> Client:
        """Delete what is old, or clean it."""
        for _ in range(steps // 3):
            at = self.random.randrange(PARTITIONS)

            def work(at: int = at) -> dict[str, Any]:
                log = self.logs[at]
                old = [one for one in log.batches if one.last < log.stable and not one.transactional][:2]
                if self.compacted:
                    for one in old:
                        if one.count > 1 and one.producer < 0:
                            one.data = thinned(b"kept", last=one.count - 1)
                        elif one.producer < 0:
                            log.batches.remove(one)
                elif old and not log.open and log.batches[0] is old[0]:
                    log.start = old[0].last + 1
                    log.batches.remove(old[0])
                parts = [{"partition_index": at, "low_watermark": log.start}]
                return {"topics": [{"name": TOPIC, "partitions": parts}]}

            parts = [{"partition_index": at, "offset": 0}]
            yield "DeleteRecords", 1, {"topics": [{"name": TOPIC, "partitions": parts}], "timeout_ms": 1}, work


def ended(pair: BothSides) -> float:
    """Return when an exchange was over, or when it began."""
    seen = pair.front
    assert seen is not None and seen.request is not None, "the model makes both"
    return seen.request.first if seen.answer is None else seen.answer.last
