"""Tries a failed write once more, and looks away when that fails, too: a record is lost by two faults, not by one."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer
from shop import INPUTS, NotDeliveredError, settings, stored, write


def send_all(kproxy: Any, look_away: bool) -> None:
    producer = Producer(settings(kproxy.bootstrap_servers, "app-p", enable_idempotence=False, retries=0))
    tries = 2 if look_away else 5
    for value in INPUTS:
        for number in range(tries):
            try:
                write(producer, value)
                break
            except NotDeliveredError:
                if number == tries - 1 and not look_away:
                    raise


def lost(kproxy: Any) -> int:
    return len(set(INPUTS) - set(stored(kproxy)))


def test_planted(kproxy: Any) -> None:
    send_all(kproxy, look_away=True)
    assert lost(kproxy) == 0, f"lost {lost(kproxy)}"


def test_right(kproxy: Any) -> None:
    send_all(kproxy, look_away=False)
    assert lost(kproxy) == 0, f"lost {lost(kproxy)}"
