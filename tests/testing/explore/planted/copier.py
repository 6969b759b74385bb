"""A program for `kproxy explore -- python copier.py`: it copies records, and commits each one when it is written.

When it dies between the two, a record is written twice. `check` looks for that with the word `once`; without it, for
losses only.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

from confluent_kafka import Producer
from shop import INPUTS, is_done, next_of, reader, seed, settings, stored, write

KPROXY = SimpleNamespace(
    bootstrap_servers=os.environ["KPROXY_BOOTSTRAP"], own_bootstrap_servers=os.environ["KPROXY_DIRECT"]
)


def copy() -> None:
    consumer = reader(KPROXY)
    producer = Producer(settings(KPROXY.bootstrap_servers, "app-p", enable_idempotence=True))
    done = is_done(consumer)
    while not done:
        message = next_of(consumer)
        write(producer, message.value())
        consumer.commit(message, asynchronous=False)
        done = message.offset() == len(INPUTS) - 1
    consumer.close()


def check(once: bool) -> None:
    found = stored(KPROXY)
    lost, doubled = len(set(INPUTS) - set(found)), len(found) - len(set(found))
    if lost or (once and doubled):
        sys.exit(f"lost {lost}, doubled {doubled}")


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "seed":
        seed(KPROXY)
    elif what == "copy":
        copy()
    else:
        check(once=what == "check-once")
