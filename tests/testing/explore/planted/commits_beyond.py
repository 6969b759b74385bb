"""Counts wrongly when a commit fails: the next try commits a record more than it has read. What it does itself looks
right; the record is lost to whoever goes on from there, and only verify tells."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from shop import INPUTS, next_of, reader, settings, write

TRIES = 5


def commit(consumer: Consumer, offset: int, more: int) -> None:
    for number in range(TRIES):
        try:
            consumer.commit(offsets=[TopicPartition("in", 0, offset + number * more)], asynchronous=False)
            return
        except KafkaException:
            if number == TRIES - 1:
                raise


def read_all(kproxy: Any, more: int) -> None:
    producer = Producer(settings(kproxy.bootstrap_servers, "app-p", enable_idempotence=True))
    for value in INPUTS:
        write(producer, value, "in")
    consumer = reader(kproxy)
    read: dict[int, bytes] = {}  # by offset: when one is out of range they are read again
    while len(read) < len(INPUTS):
        message = next_of(consumer)
        if message.offset() not in read:
            read[message.offset()] = message.value()
            commit(consumer, message.offset() + 1, more)
    consumer.close()
    assert list(read.values()) == INPUTS


def test_planted(kproxy: Any) -> None:
    read_all(kproxy, more=1)


def test_right(kproxy: Any) -> None:
    read_all(kproxy, more=0)
