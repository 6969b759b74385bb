"""Tries a write again that may have been stored: it is doubled when the answer is lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

from confluent_kafka import Producer
from shop import INPUTS, NotDeliveredError, settings, stored, write


def send_all(producer: Producer, tries: int) -> None:
    for value in INPUTS:
        for number in range(tries):
            try:
                write(producer, value)
                break
            except NotDeliveredError:
                if number == tries - 1:
                    raise


def doubled(kproxy: Any) -> int:
    return sum(count - 1 for count in Counter(stored(kproxy)).values())


def test_planted(kproxy: Any) -> None:
    send_all(Producer(settings(kproxy.bootstrap_servers, "app-p", enable_idempotence=False, retries=0)), tries=5)
    assert doubled(kproxy) == 0, f"doubled {doubled(kproxy)}"


def test_right(kproxy: Any) -> None:
    send_all(Producer(settings(kproxy.bootstrap_servers, "app-p", enable_idempotence=True)), tries=1)
    assert doubled(kproxy) == 0, f"doubled {doubled(kproxy)}"
    assert set(stored(kproxy)) == set(INPUTS)
