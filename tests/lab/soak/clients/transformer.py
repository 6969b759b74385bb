"""Reads what is committed, writes it changed, and commits both in one transaction: exactly once, if all is well."""

from __future__ import annotations

from functools import partial

from confluent_kafka import KafkaException, Message, Producer

from tests.lab.soak.clients.common import MARK, Client
from tests.lab.soak.clients.group import GroupReader


class Transformer:
    """The loop. What was undone is read again from where the group has committed."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.reader = GroupReader(client, **{"isolation.level": "read_committed", "session.timeout.ms": 10000})
        self.producer = self._producer()
        self.counts = {"transactions": 0, "aborted": 0, "begun_anew": 0}

    def _producer(self) -> Producer:
        identity = {"transactional.id": self.client.arguments["id"], "transaction.timeout.ms": 30000, "linger.ms": 5}
        made = Producer(self.client.settings(**identity))
        self.client.insist(lambda: made.init_transactions(30))
        return made

    def run(self) -> None:
        while not self.client.ended:
            if records := self.reader.read(contiguous=True):
                self._transaction(records)
        self.reader.consumer.close()
        self.client.note(**self.counts)

    def _transaction(self, records: list[Message]) -> None:
        producer, insist = self.producer, self.client.insist
        try:
            producer.begin_transaction()
            for message in records:
                producer.produce(self.client.arguments["to"], MARK + message.value(), partition=message.partition())
                producer.poll(0)
            places, group = self.reader.places(records), self.reader.consumer.consumer_group_metadata()
            # librdkafka may forget its time-out and wait for ever: github.com/confluentinc/librdkafka/issues/5456
            sent = partial(producer.send_offsets_to_transaction, places, group, 20)
            insist(lambda: self.client.or_anew("send_offsets_to_transaction", sent))
            insist(lambda: producer.commit_transaction(20))
            self.counts["transactions"] += 1
        except KafkaException as refused:
            self._undo(refused)

    def _undo(self, refused: KafkaException) -> None:
        self.counts["aborted"] += 1
        try:
            if refused.args[0].fatal():
                raise refused
            self.client.insist(lambda: self.producer.abort_transaction(20))
        except KafkaException:  # fenced, or nobody can tell how the transaction ended: init_transactions sees to it
            self.counts["begun_anew"] += 1
            self.producer = self._producer()
        self.reader.rewind()


if __name__ == "__main__":
    Transformer(Client()).run()
