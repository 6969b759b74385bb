"""Commits a record before it is processed: it is lost when that fails, and the program is started again."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer
from shop import INPUTS, NotDeliveredError, is_done, next_of, reader, seed, settings, stored, write

STARTS = 4


def copy(kproxy: Any, commit_first: bool) -> None:
    consumer = reader(kproxy)
    producer = Producer(settings(kproxy.bootstrap_servers, "app-p"))
    try:
        done = is_done(consumer)
        while not done:
            message = next_of(consumer)
            if commit_first:
                consumer.commit(message, asynchronous=False)
            write(producer, message.value())
            if not commit_first:
                consumer.commit(message, asynchronous=False)
            done = message.offset() == len(INPUTS) - 1
    finally:
        consumer.close()


def started_again(kproxy: Any, commit_first: bool) -> None:
    """As a container is started again that has ended with an error."""
    seed(kproxy)
    for _ in range(STARTS):
        try:
            copy(kproxy, commit_first)
            break
        except NotDeliveredError:
            continue
    lost = len(set(INPUTS) - set(stored(kproxy)))
    assert lost == 0, f"lost {lost}"


def test_planted(kproxy: Any) -> None:
    started_again(kproxy, commit_first=True)


def test_right(kproxy: Any) -> None:
    started_again(kproxy, commit_first=False)
