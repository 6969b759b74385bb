"""Last part of the demo: a fault, injected through the admin API while kproxy runs, and how a real client takes it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from rich.console import Console

    from kproxy.testing.proxy import Proxy

REFUSED = 2
RULE = {
    "name": "the next two writes fail",
    "kind": "error",
    "match": {"api": "Produce", "topic": "orders"},
    "when": {"first": REFUSED},
    "error": "NOT_LEADER_OR_FOLLOWER",
}
_PATIENCE = 30.0


@dataclass(frozen=True)
class Fault:
    """Outcome of the demo's fault: the rule's counters, and True in `delivered` if the record was acknowledged."""

    matched: int
    fired: int
    applied: int
    delivered: bool
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Return True if the record was refused twice and delivered at the third try."""
        return self.delivered and (self.matched, self.fired, self.applied) == (REFUSED + 1, REFUSED, REFUSED)


def inject(console: Console, proxy: Proxy, settings: dict[str, Any], topic: str) -> Fault:
    """Add the rule, produce one record, and show what happened."""
    proxy.post("/api/rules", {"rules": [RULE]})
    began = time.monotonic()
    delivered = produce_one(settings, topic)
    seconds = time.monotonic() - began
    shown = json.loads(proxy.get(f"/api/rules/{quote(str(RULE['name']))}")[1])
    fault = Fault(shown["matched"], shown["fired"], shown["applied"], delivered, seconds)
    console.print(f"injected  {RULE['error']} for the next {REFUSED} writes, while kproxy runs")
    how = "was acknowledged" if delivered else "[red]was not acknowledged[/]"
    console.print(
        f"produced  one more record, {how} after {seconds:.2f} s: "
        f"{fault.applied} of {fault.matched} tries were answered by kproxy in the broker's place",
        soft_wrap=True,
    )
    return fault


def produce_one(settings: dict[str, Any], topic: str) -> bool:
    """Produce one record, and return True if it is acknowledged in time."""
    from confluent_kafka import Producer

    done: list[bool] = []
    producer = Producer(settings | {"retry.backoff.ms": 50})
    producer.produce(topic, b"one more order", callback=lambda error, message: done.append(error is None))
    producer.flush(_PATIENCE)
    return done == [True]
