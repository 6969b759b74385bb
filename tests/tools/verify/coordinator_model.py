"""Small model of a group and a transaction coordinator with their clients, lawful unless one step is broken.

It has transactions that commit offsets, with markers that are written some time after EndTxn, members of a consumer
group (KIP-848), members of a classic group, operators, and responses that are lost before or after the effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from heapq import heappop
from typing import Any

from kproxy.record.captures.pairs import BothSides
from tests.support.exchange_factory import Somebody
from tests.tools.verify.history import TOPIC, TOPIC_ID
from tests.tools.verify.model import Asked, Client, Model, ended

PARTITIONS = 4
UNKNOWN_MEMBER, ILLEGAL_GENERATION, FENCED_EPOCH, INVALID_STATE = 25, 22, 110, 48
CONCURRENT, UNSTABLE, FENCED_PRODUCER = 51, 88, 90
Place = tuple[str, int]
"""Group and partition."""


@dataclass
class Transaction:
    """State of a transactional id. `pending`: by place, order and offset of its commits; `ending`: until its markers
    are written; `result`: of the last transaction."""

    producer_id: int
    epoch: int = -1
    pending: dict[Place, tuple[int, int]] = field(default_factory=dict)
    ending: bool = False
    result: bool | None = None


@dataclass
class GroupMember:
    """Member of a consumer group, as its coordinator has it."""

    epoch: int = 0
    before: int = -1
    assigned: set[int] = field(default_factory=set)
    revoking: set[int] = field(default_factory=set)


class CoordinatorModel(Model):
    """Coordinators with some clients."""

    def __init__(self, seed: int, broken: str = "") -> None:
        super().__init__(seed, broken)
        self.now, self.order, self.next_id = 0.0, 0, 7000
        self.offsets: dict[Place, tuple[int, int]] = {}
        self.transactions: dict[str, Transaction] = {}
        self.members: dict[str, GroupMember] = {}
        self.group_epoch = 0
        self.generation = self.stored = 0

    def run(self, steps: int) -> list[BothSides]:
        """Let all clients do so many things; return the history by the time of its ends."""
        clients = [
            *(self.copier(f"t{number}", steps) for number in range(2)), self.reader(4 * steps),
            self.operator(0 if self.broken.endswith("commit") else steps),
            *(self.member(f"m{number}", 2 * steps) for number in range(3)), self.classic(steps),
        ]  # fmt: skip
        for number, client in enumerate(clients):
            who = Somebody(20 + number, client_port=2000 + number, client_id=f"client{number}", node=2)
            self.go_on(client, who, None, 1.0 + self.random.random())
        self.carry_out()
        return sorted(self.history.pairs, key=ended)

    def carry_out(self) -> float:
        """Carry out all effects in the order of their times; return the last one."""
        while self.due:
            self.now, _, effect = heappop(self.due)
            effect()
        return self.now

    # ---- transactions

    def init(self, name: str | None) -> dict[str, Any]:
        """Return a producer id and an epoch; abort the open transaction of the transactional id first."""
        known = self.transactions.get(name or "")
        if name is None or known is None:
            self.next_id += 1
            if known is None and len(self.transactions) > 0 and self.breaks("producer-id-reused"):
                self.next_id = next(iter(self.transactions.values())).producer_id
            known = Transaction(self.next_id)
            if name is not None:
                self.transactions[name] = known
        if known.ending:
            return {"error_code": CONCURRENT, "producer_id": -1, "producer_epoch": -1}
        known.pending, known.result = {}, None
        known.epoch += 1
        if known.epoch > 1 and self.breaks("producer-epoch-goes-back"):
            known.epoch -= 2
        return {"producer_id": known.producer_id, "producer_epoch": known.epoch}

    def add(self, name: str, epoch: int, place: Place, offset: int) -> dict[str, Any]:
        known = self.transactions[name]
        error = FENCED_PRODUCER if known.epoch != epoch else CONCURRENT if known.ending else 0
        if not error:
            self.order += 1
            known.pending[place] = self.order, offset
        return {"topics": [{"name": TOPIC, "partitions": [{"partition_index": place[1], "error_code": error}]}]}

    def end(self, name: str, epoch: int, commit: bool) -> dict[str, Any]:
        """End a transaction. Its markers are written some time later."""
        known = self.transactions[name]
        repeated = self.own_epochs and epoch == known.epoch - 1 and known.result is commit
        if repeated:
            return {"producer_id": known.producer_id, "producer_epoch": known.epoch}
        if known.epoch != epoch or known.ending or not known.pending:
            return {"error_code": FENCED_PRODUCER if known.epoch != epoch else INVALID_STATE}
        known.ending, known.result = True, commit
        known.epoch += self.own_epochs

        def marked() -> None:
            applied = commit
            if self.breaks("lost-commit" if commit else "aborted-commit"):
                applied = not commit
            for place, (order, offset) in known.pending.items() if applied else ():
                if order > self.offsets.get(place, (0, -1))[0]:
                    self.offsets[place] = order, offset
            known.pending, known.ending = {}, False

        self.at(self.now + self.random.random(), marked)
        return {"producer_id": known.producer_id, "producer_epoch": known.epoch} if self.own_epochs else {}

    def copier(self, name: str, steps: int) -> Client:
        """Commit offsets in transactions; begin again with InitProducerId after a failure."""
        epoch, producer_id, offset = -1, -1, 0
        for _ in range(steps):
            while epoch < 0:
                request = {"transactional_id": name, "transaction_timeout_ms": 1000}
                answer = yield "InitProducerId", 4, request, lambda: self.init(name)
                if answer is not None and not answer.get("error_code"):
                    epoch, producer_id = answer["producer_epoch"], answer["producer_id"]
            for partition in self.random.sample(range(2), self.random.randint(1, 2)):
                offset += self.random.randint(1, 5)
                parts = [{"partition_index": partition, "committed_offset": offset}]
                request = {"transactional_id": name, "group_id": "g", "producer_id": producer_id,
                           "producer_epoch": epoch, "topics": [{"name": TOPIC, "partitions": parts}]}  # fmt: skip
                work = partial(self.add, name, epoch, ("g", partition), offset)
                answer = yield "TxnOffsetCommit", 3, request, work
                if answer is None or answer["topics"][0]["partitions"][0].get("error_code"):
                    epoch = -1
                    break
            if epoch < 0:
                continue
            commit = self.random.random() < 0.6
            request = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch,
                       "committed": commit}  # fmt: skip
            end = partial(self.end, name, epoch, commit)
            for _ in range(self.random.randint(1, 3)):
                answer = yield "EndTxn", 5 if self.own_epochs else 3, request, end
                if answer is not None:
                    break
            failed = answer is None or answer.get("error_code")
            epoch = -1 if failed or answer is None else answer.get("producer_epoch", epoch)

    def operator(self, steps: int) -> Client:
        """Commit offsets of the group, delete it, and get ids of idempotent producers."""
        for _ in range(steps):
            kind, partition, offset = self.random.random(), self.random.randrange(2), self.random.randint(100, 999)
            if kind < 0.2:
                yield "DeleteGroups", 2, {"groups_names": ["g"]}, self.delete
            elif kind < 0.5:
                request = {"transactional_id": None, "transaction_timeout_ms": 1000}
                yield "InitProducerId", 4, request, lambda: self.init(None)
            else:
                parts = [{"partition_index": partition, "committed_offset": offset}]
                request = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
                           "topics": [{"name": TOPIC, "partitions": parts}]}  # fmt: skip
                yield "OffsetCommit", 8, request, lambda at=("g", partition), to=offset: self.commit_now(at, to)

    def commit_now(self, place: Place, offset: int) -> dict[str, Any]:
        self.order += 1
        self.offsets[place] = self.order, offset
        return {"topics": [{"name": TOPIC, "partitions": [{"partition_index": place[1]}]}]}

    def delete(self) -> dict[str, Any]:
        """Delete the group's offsets, with those of open transactions."""
        self.offsets.clear()
        for one in self.transactions.values():
            one.pending = dict.fromkeys(one.pending, (0, 0))
        return {"results": [{"group_id": "g", "error_code": 0}]}

    def reader(self, steps: int) -> Client:
        """Read the group's offsets."""
        for _ in range(steps):
            partition, stable = self.random.randrange(2), self.random.random() < 0.6

            def fetched(partition: int = partition, stable: bool = stable) -> dict[str, Any]:
                place = ("g", partition)
                unstable = stable and any(place in one.pending for one in self.transactions.values())
                offset = -1 if unstable else self.offsets.get(place, (0, -1))[1]
                part = {"partition_index": partition, "committed_offset": offset,
                        "error_code": UNSTABLE if unstable else 0}  # fmt: skip
                return {"groups": [{"group_id": "g", "topics": [{"name": TOPIC, "partitions": [part]}]}]}

            group = {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [partition]}]}
            yield "OffsetFetch", 8, {"groups": [group], "require_stable": stable}, fetched

    # ---- members

    def target(self, member: str) -> set[int]:
        """Return the partitions that a member of the consumer group is to get."""
        names = sorted(self.members)
        return {number for number in range(PARTITIONS) if names[number % len(names)] == member}

    def heartbeat(self, name: str, epoch: int, owned: set[int] | None) -> dict[str, Any]:
        """Reconcile a member of the consumer group, as Kafka's coordinator does."""
        known = self.members.get(name)
        if epoch < 0:
            self.group_epoch += self.members.pop(name, None) is not None
            return {"member_id": name, "member_epoch": epoch}
        if known is None and epoch:
            return {"member_id": name, "error_code": UNKNOWN_MEMBER}
        if known is None:
            known = self.members[name] = GroupMember()
            self.group_epoch += 1
        retried = epoch == known.before and owned is not None and owned <= known.assigned
        if epoch and epoch != known.epoch and not retried:
            return {"member_id": name, "error_code": FENCED_EPOCH}
        assigned, target = set(known.assigned), self.target(name)
        if not (known.revoking and (owned is None or owned & known.revoking)):
            known.revoking = (known.assigned - target) if owned is None or owned & (known.assigned - target) else set()
            known.assigned &= target
            if not known.revoking:
                if known.epoch != self.group_epoch:
                    known.before, known.epoch = known.epoch, self.group_epoch
                others = [one for key, one in self.members.items() if key != name]
                taken: set[int] = set().union(*(one.assigned for one in others))
                held: set[int] = set().union(*(one.revoking for one in others))
                free = target - taken - held
                if (target & held) and self.breaks("two-owners"):
                    free |= target & held
                known.assigned |= free
        if self.random.random() < 0.1:  # a member that does not revoke within the rebalance timeout is fenced
            for slow in [key for key, one in self.members.items() if one.revoking and key != name]:
                del self.members[slow]
                self.group_epoch += 1
        given = known.assigned if epoch == 0 or known.assigned != assigned else None
        current = known.epoch
        if epoch > 1 and self.breaks("generation-goes-back"):
            current = epoch - 1
        return {"member_id": name, "member_epoch": current, "assignment": None if given is None else
                {"topic_partitions": [{"topic_id": TOPIC_ID, "partitions": sorted(given)}]}}  # fmt: skip

    def member(self, name: str, steps: int) -> Client:
        """Be a member of the consumer group: take and give up partitions, leave, and join again."""
        epoch, owned, wanted, full = 0, set[int](), set[int](), True
        for _ in range(steps):
            if epoch > 0 and self.random.random() < 0.1:
                yield self.beat(name, -1, None)
                epoch, owned, wanted, full = 0, set(), set(), True
                continue
            if owned != wanted and self.random.random() < 0.7:
                owned, full = set(wanted), True
            answer = yield self.beat(name, epoch, set(owned) if full or epoch == 0 else None)
            full = answer is None
            if answer is None:
                continue
            if answer.get("error_code"):
                epoch, owned, wanted, full = 0, set(), set(), True
                continue
            epoch = answer["member_epoch"]
            if answer["assignment"] is not None:
                topics = answer["assignment"]["topic_partitions"]
                wanted = {number for topic in topics for number in topic["partitions"]}

    def beat(self, name: str, epoch: int, owned: set[int] | None) -> Asked:
        """Return a ConsumerGroupHeartbeat."""
        topics = None if owned is None else [{"topic_id": TOPIC_ID, "partitions": sorted(owned)}]
        request = {"group_id": "c", "member_id": name, "member_epoch": epoch, "topic_partitions": topics}
        return "ConsumerGroupHeartbeat", 0, request, lambda: self.heartbeat(name, epoch, owned)

    def classic(self, steps: int) -> Client:
        """Be the only member of a classic group, whose coordinator moves: generations that were not stored return."""

        def join() -> dict[str, Any]:
            self.generation += 1
            return {"generation_id": self.generation, "member_id": "one", "protocol_name": "range"}

        def sync(generation: int) -> dict[str, Any]:
            if generation == self.generation:
                self.stored = generation
            return {"assignment": b"", "error_code": 0 if generation == self.generation else ILLEGAL_GENERATION}

        def beat(generation: int) -> dict[str, Any]:
            return {"error_code": 0 if generation == self.generation else ILLEGAL_GENERATION}

        generation = -1
        for _ in range(steps):
            if self.random.random() < 0.2:
                self.generation = self.stored
            same = {"group_id": "k", "member_id": "one"}
            if generation < 0 or self.random.random() < 0.4:
                request = same | {"session_timeout_ms": 1000, "rebalance_timeout_ms": 9000, "protocol_type": "consumer",
                                  "protocols": []}  # fmt: skip
                answer = yield "JoinGroup", 4, request, join
                generation = -1 if answer is None else answer["generation_id"]
                continue
            request = same | {"generation_id": generation}
            if self.random.random() < 0.5:
                answer = yield "SyncGroup", 4, request | {"assignments": []}, lambda of=generation: sync(of)
            else:
                answer = yield "Heartbeat", 3, request, lambda of=generation: beat(of)
            if answer is None or answer["error_code"]:
                generation = -1
