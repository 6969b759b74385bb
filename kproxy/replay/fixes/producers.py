"""Producer ids and epochs: the target gives its own.

InitProducerId gives a producer its id and epoch (KIP-98), and so may EndTxn from version 5 on, which raises the epoch
with every transaction (KIP-890). What the target answers is put in the place of what the recording answered: in batch
headers, and in every request that names a producer (AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit, and
InitProducerId itself, KIP-360). An epoch that no answer gave was raised by the client itself (KIP-360), so it is as far
above the target's as it was above the recorded one. The batches of a producer that began before the recording are sent
without idempotence: the broker would not know its id.
"""

from __future__ import annotations

from typing import Any

from kproxy.errors import RecordsError
from kproxy.wire import Message
from kproxy.wire.records import Batch, Producer

from ..structs import carriers, layout_of, of_kind, structs
from . import Asked
from .batches import restamped
from .sequences import Sequences

PRODUCE, INIT_PRODUCER_ID, END_TXN = 0, 22, 26
KIND = "producer_id"
NOBODY = Producer()
LAST_EPOCH = 32767

Known = tuple[int, int]
"""A producer id and an epoch."""


class Producers:
    """See the module."""

    requests = carriers(KIND, "request") | {PRODUCE}
    answers = frozenset((INIT_PRODUCER_ID, END_TXN))

    def __init__(self) -> None:
        self.now: dict[int, dict[int, Known]] = {}
        """Recorded id → recorded epoch → what the target gave."""
        self.sequences = Sequences()

    def request(self, asked: Asked) -> None:
        if asked.message.api.key == PRODUCE:
            self.produce(asked)
            return
        for struct, value in structs(layout_of(asked.message), asked.message.body):
            for slot in of_kind(struct, KIND):
                epoch = slot.name.replace("_id", "_epoch")
                found = self.of(value[slot.name], value.get(epoch, -1))
                if found is not None and epoch in value:
                    value[slot.name], value[epoch] = found

    def answer(self, asked: Asked, recorded: Message | None, now: Message) -> None:
        if recorded is None or recorded.body["error_code"] or now.body["error_code"]:
            return
        was, given = known(recorded.body), known(now.body)
        if was is not None and given is not None:
            self.now.setdefault(was[0], {})[was[1]] = given

    def of(self, number: int, epoch: int) -> Known | None:
        """What the target calls this producer; None if it has not met it."""
        epochs = self.now.get(number)
        if not epochs:
            return None
        if epoch in epochs:
            return epochs[epoch]
        below = max((one for one in epochs if one < epoch), default=None)
        if below is None:
            return epochs[min(epochs)]
        given, at = epochs[below]
        return given, min(at + epoch - below, LAST_EPOCH)

    def produce(self, asked: Asked) -> None:
        body = asked.message.body
        for topic in body["topic_data"] or ():
            name = str(topic.get("name") or topic.get("topic_id"))
            for partition in topic["partition_data"] or ():
                if partition["records"] is not None:
                    partition["records"] = self.stamped(asked, name, partition)

    def stamped(self, asked: Asked, topic: str, partition: dict[str, Any]) -> Any:
        def choose(batch: Batch) -> Producer | None:
            found = self.of(batch.producer_id, batch.producer_epoch)
            if found is not None:
                where = batch.producer_id, batch.producer_epoch, topic, partition["index"]
                return Producer(*found, self.sequences.number(where, batch))
            if batch.is_transactional:
                asked.notes.append(UNKNOWN_TRANSACTION)
                return None
            asked.notes.append(UNKNOWN)
            return NOBODY

        try:
            return restamped(partition["records"], choose)
        except RecordsError as error:
            asked.notes.append(f"its records are sent as they are: {error}")
            return partition["records"]


UNKNOWN = "sent without idempotence: its producer began before the recording"
UNKNOWN_TRANSACTION = "sent with the recorded producer id: its transactional producer began before the recording"


def known(body: dict[str, Any]) -> Known | None:
    """The producer that an answer names; None if it names none."""
    number: int = body.get("producer_id", -1)
    return (number, body["producer_epoch"]) if number >= 0 else None
