"""Run clients with each fault, one at a time in front of a real Kafka, and write RESULTS.md and its matrix.

    python -m tests.lab.conformance.run -k librdkafka --for 10m --jobs 3

Strategy: what was run before is not run again, so an interrupted run goes on where it stopped. The run of a client
without a fault comes first: where that is not clean, its other runs would say nothing, and are left out.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

from confluent_kafka import Consumer, KafkaException, TopicPartition

from kproxy.base.errors import InternalError
from kproxy.base.terminal import say
from kproxy.rules.values.quantities import parse_duration
from kproxy.testing.kafka import Kafka
from tests.lab.conformance import kept, page
from tests.lab.conformance.cell import Run, broken, run
from tests.lab.conformance.faults import NO_FAULT, Fault, faults
from tests.lab.matrix.matrix import CLIENTS
from tests.support.wait import until

BROKERS = 3
MOST_JOBS = 8
TWICE = ("hung", "died")
"""Outcomes that busy machines and races bring about, too: such a run is made a second time."""
GROUPS = 8
"""Groups that are looked for at first, so many that each partition of the topic of their offsets has one of them."""
START_SECONDS = 60
_numbers = itertools.count(1)


@cache
def command(client: str) -> list[str]:
    """Return how a client is run; it is built the first time."""
    return CLIENTS[client].command()


class Conformance:
    """The runs that are asked for, on one cluster, until the time is up."""

    def __init__(self, kafka: Kafka, known: dict[str, Fault], jobs: int, until: float) -> None:
        self.kafka, self.known, self.jobs, self.until = kafka, known, jobs, until
        self.done = 0
        self.lock = threading.Lock()

    def client(self, client: str, names: Sequence[str]) -> None:
        """Run a client with these faults, several at a time, unless it cannot be built or fails without any."""
        try:
            command(client)
        except InternalError as error:
            sys.stderr.write(f"{client}: not run: {error}\n")
            return
        if not self.is_clean(client):
            return
        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(lambda name: self.one(client, name), names))

    def is_clean(self, client: str) -> bool:
        """Return True if the client does what it should without a fault; it is run if that is not known."""
        found = kept.kept().get((client, NO_FAULT)) or self.one(client, NO_FAULT)
        if found is None or found.outcome != "recovered":
            told = "the time is up" if found is None else f"{found.outcome}, {found.text}"
            sys.stderr.write(f"{client}: its runs with faults are left out: without a fault: {told}\n")
            return False
        return True

    def one(self, client: str, name: str) -> Run | None:
        """Run a client with a fault, keep and print what came of it. None if the time is up."""
        if time.monotonic() > self.until:
            return None
        try:
            found = self.tried(client, name)
        except Exception as error:  # noqa: BLE001 -- one run that fails is told, and the others go on
            found = broken(client, name, error)
        kept.keep(found)
        with self.lock:
            self.done += 1
            say(f"{client} {name}: {found.outcome}: {found.text}")
        return found

    def tried(self, client: str, name: str) -> Run:
        """Run a client with a fault; a run that hung or died is made once more, and both are told."""

        def once() -> Run:
            return run(self.kafka, client, command(client), self.known.get(name), next(_numbers))

        first = once()
        if first.outcome not in TWICE:
            return first
        second = once()
        if second.outcome == first.outcome:
            return replace(second, notes=[*second.notes, f"{first.outcome} in two of two runs"])
        told = f"in one of two runs: {first.outcome}: {first.text}"
        return replace(second, notes=[*second.notes, told, *first.notes])


def coordinate(kafka: Kafka) -> None:
    """Have the brokers make the topic of groups' offsets, or the first runs would be told that it is being loaded."""
    for number in range(GROUPS):
        settings = {"bootstrap.servers": kafka.bootstrap("DIRECT"), "group.id": f"first-{number}", "log_level": 0}
        consumer = Consumer(settings)
        until(lambda consumer=consumer: answered(consumer), START_SECONDS)
        consumer.close()


def answered(consumer: Consumer) -> bool:
    """Return True if a group's coordinator tells its offsets."""
    try:
        return bool(consumer.committed([TopicPartition("none", 0)], timeout=START_SECONDS))
    except KafkaException:
        return False


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.conformance.run", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("-k", default="", metavar="WORDS", help="a client, part of a fault's name, or CLIENT/FAULT")
    parser.add_argument("--for", dest="seconds", type=parse_duration, default=float("inf"), metavar="10m",
                        help="begin no run after this time")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=3, help=f"runs side by side, at most {MOST_JOBS}")
    parser.add_argument("--again", action="store_true", help="also what was run before")
    parser.add_argument("--list", action="store_true", help="print the runs that are asked for, and run nothing")
    parser.add_argument("--page", action="store_true", help="write the pages from what was run before, and run nothing")
    given = parser.parse_args(words)
    if not 1 <= given.jobs <= MOST_JOBS:
        parser.error(f"--jobs: 1 to {MOST_JOBS}")
    return given


def main() -> int:
    """Run what is asked for, and write the pages. Return 1 if a run failed itself, 2 for a mistake on the command
    line."""
    given, known = arguments(), faults()
    pairs = kept.wanted(known, given.k)
    if not pairs:
        sys.stderr.write(f'-k: nothing has "{given.k}" in it; --list prints all runs\n')
        return 2
    if given.list:
        print("\n".join(f"{client}/{fault}" for client, fault in pairs))
        return 0
    if given.page:
        page.write()
        return 0
    before = {} if given.again else kept.kept()
    left = [pair for pair in pairs if pair not in before or before[pair].outcome == "broken"]
    print(f"{len(left)} runs, {len(pairs) - len(left)} were run before", flush=True)
    if left:
        with Kafka(BROKERS) as kafka:
            coordinate(kafka)
            conformance = Conformance(kafka, known, given.jobs, time.monotonic() + given.seconds)
            for client, group in itertools.groupby(left, key=lambda pair: pair[0]):
                conformance.client(client, [fault for _, fault in group if fault != NO_FAULT or given.again])
                page.write()
    page.write()
    now = kept.kept()
    missing = sum(pair not in now for pair in pairs)
    print(f"{missing} of {len(pairs)} are left; RESULTS.md and docs/conformance-matrix.html are written")
    return int(any(now[pair].outcome == "broken" for pair in pairs if pair in now))


if __name__ == "__main__":
    sys.exit(main())
