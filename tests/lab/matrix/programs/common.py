"""What the Python programs have in common: arguments, how steps are told, and what the step traffic keeps."""

from __future__ import annotations

import asyncio
import faulthandler
import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

BOOTSTRAP, TOPIC, MADE, GROUP, TRANSACTIONAL_ID, *ONLY = sys.argv[1:]
COUNT, PARTITIONS, SECONDS = 30, 3, 90
ROUNDS, EACH, ROUND_SECONDS, TRAFFIC_SECONDS, MOST_ERRORS = 6, 5, 10, 45, 100

Step = Callable[[], Any]
"""Function `NAME_step` that does a step and returns what it tells of it, or a coroutine that will."""


def run(version: str, steps: Iterable[Step]) -> None:
    """Do the steps that were asked for, telling each; `traffic` is done only if it is named."""
    print(json.dumps({"step": "client", "version": version}), flush=True)
    if ONLY:
        faulthandler.dump_traceback_later(TRAFFIC_SECONDS + 15)  # a call that does not return is told with its place
    for step in steps:
        name = step.__name__.removesuffix("_step")
        if name in ONLY or (not ONLY and name != "traffic"):
            print(json.dumps({"step": name, **done(step)}), flush=True)


def done(step: Step) -> dict[str, Any]:
    """Do a step. Return what it tells, or its error: the next step may go all the same."""
    try:
        told = step()
        return dict(asyncio.run(told) if asyncio.iscoroutine(told) else told)
    except Exception as error:  # noqa: BLE001
        return {"error": named(error)}


def named(error: object) -> str:
    """Return an error with the name of its class."""
    return f"{type(error).__name__}: {error}"


class Traffic:
    """What was written and read, and what failed; `limit` is when it gives up."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.limit = self.began + TRAFFIC_SECONDS
        self.sent: list[str] = []
        self.acknowledged: list[tuple[str, int, int]] = []
        self.failed: list[tuple[str, str]] = []
        self.read: list[tuple[str | None, int, int]] = []
        self.errors: list[str] = []

    def note(self, error: object) -> None:
        """Keep an error, unless there are many."""
        if len(self.errors) < MOST_ERRORS:
            self.errors.append(named(error))

    def next_values(self) -> list[tuple[str, int]]:
        """Return the values of a round, with their partitions."""
        made = [(f"t-{number}", number % PARTITIONS) for number in range(len(self.sent), len(self.sent) + EACH)]
        self.sent += [value for value, _ in made]
        return made

    def took(self, value: bytes | None, partition: int, offset: int) -> None:
        """Keep a record that was read."""
        self.read.append((None if value is None else value.decode(errors="replace"), partition, offset))

    def all_read(self) -> bool:
        """Return True if all that was acknowledged was read."""
        return {value for value, _, _ in self.acknowledged} <= {value for value, _, _ in self.read}

    def left(self) -> float:
        """Return the seconds until it gives up."""
        return max(0.1, self.limit - time.monotonic())

    def round_ends(self) -> float:
        """Return when a round that begins now is over."""
        return min(self.limit, time.monotonic() + ROUND_SECONDS)

    def told(self) -> dict[str, Any]:
        """Return the line of the step."""
        names = ("sent", "acknowledged", "failed", "read", "errors")
        return {**{name: getattr(self, name) for name in names}, "seconds": time.monotonic() - self.began}
