"""Aborts a transaction and goes on behind its records: they are lost, since the consumer does not go back."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from shop import INPUTS, next_of, reader, seed, settings, stored


def copy_one(consumer: Consumer, producer: Producer, message: Message) -> None:
    producer.begin_transaction()
    producer.produce("out", message.value(), partition=0)
    offsets = [TopicPartition("in", 0, message.offset() + 1)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 5)
    producer.commit_transaction(10)


def copy(kproxy: Any, rewind: bool) -> None:
    consumer = reader(kproxy, joins=True)
    producer = Producer(settings(kproxy.bootstrap_servers, "app-p", transactional_id="app"))
    producer.init_transactions(20)
    aborts = 0
    while True:
        message = next_of(consumer)
        try:
            copy_one(consumer, producer, message)
        except KafkaException as error:
            aborts += 1
            if not error.args[0].txn_requires_abort() or aborts > 5:
                raise
            producer.abort_transaction(10)
            if rewind:
                consumer.seek(TopicPartition("in", 0, message.offset()))
                continue
        if message.offset() == len(INPUTS) - 1:
            break
    consumer.close()


def judged(kproxy: Any, rewind: bool) -> None:
    seed(kproxy)
    copy(kproxy, rewind)
    lost = len(set(INPUTS) - set(stored(kproxy)))
    assert lost == 0, f"lost {lost}"


def test_planted(kproxy: Any) -> None:
    judged(kproxy, rewind=False)


def test_right(kproxy: Any) -> None:
    judged(kproxy, rewind=True)
