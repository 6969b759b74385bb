"""The `telemetry` section of the config: clients' own metrics (KIP-714), taken where brokers do not take them.

telemetry:
  serve: auto
  metrics: standard
  interval: 60s
  to: [metrics]
  labels: [client_id, software]
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from kproxy.rules.values.model import Model, Wrong
from kproxy.rules.values.quantities import Seconds

KAFKA: Final = "org.apache.kafka."
"""Beginning of the names of Kafka's own metrics, which clients of other languages use as well."""
SHORTEST_INTERVAL, LONGEST_INTERVAL = 1, 3600
MOST_PREFIXES: Final = 100
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")

STANDARD: Final = tuple(
    f"{KAFKA}{role}.{name}"
    for role, names in {
        "producer": (
            "connection.creation.total", "node.request.latency.avg", "node.request.latency.max",
            "produce.throttle.time.avg", "produce.throttle.time.max", "record.queue.time.avg", "record.queue.time.max",
        ),
        "consumer": (
            "connection.creation.total", "node.request.latency.avg", "node.request.latency.max", "poll.idle.ratio.avg",
            "coordinator.commit.latency.avg", "coordinator.commit.latency.max", "coordinator.assigned.partitions",
            "coordinator.rebalance.latency.avg", "coordinator.rebalance.latency.max",
            "coordinator.rebalance.latency.total", "fetch.manager.fetch.latency.avg", "fetch.manager.fetch.latency.max",
        ),
    }.items()
    for name in names
)  # fmt: skip
"""KIP-714's standard metrics, but for rates, which whoever reads counters works out."""


def _prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise ValueError(f'"{text}" is no beginning of a metric\'s name: a letter, then a-z A-Z 0-9 . _ -, at most 100')
    return text


Prefixes = Annotated[
    list[Annotated[str, AfterValidator(_prefix)]], Field(min_length=1, max_length=MOST_PREFIXES)
]  # fmt: skip


def _form(value: Any) -> str:
    return "list" if isinstance(value, list) else "word"


TelemetryLabel = Literal["client_id", "principal", "role", "listener", "software", "topic"]
TelemetryTarget = Literal["metrics", "audit"]


class TelemetryConfig(Model):
    """Settings of clients' own metrics."""

    serve: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="when kproxy asks clients for their metrics: auto, where the broker does not; always, also in its "
        "place; never: what clients push to brokers is only read on its way",
    )
    listeners: list[str] | None = Field(
        default=None, description="names of the listeners whose clients are asked; all if left out"
    )
    metrics: Annotated[
        Annotated[Literal["standard", "all"], Tag("word")] | Annotated[Prefixes, Tag("list")], Discriminator(_form)
    ] = Field(
        default="standard",
        description="what clients are asked for: standard, the metrics that KIP-714 wants of every client; all; or "
        "beginnings of names, such as org.apache.kafka.producer.",
    )
    interval: Annotated[Seconds, Field(ge=SHORTEST_INTERVAL, le=LONGEST_INTERVAL)] = Field(
        default=60.0, description="time between two pushes of a client"
    )
    to: list[TelemetryTarget] = Field(
        default=["metrics"],
        min_length=1,
        description="where what clients push goes: metrics, added up at the admin address; audit, an event for each "
        "push",
    )
    labels: list[TelemetryLabel] = Field(
        default=["client_id", "software"],
        description="labels in /metrics: any of client_id, principal, role, listener, software, topic",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that targets and labels stand once."""
        for field in ("to", "labels"):
            given = raw.get(field)
            listed = given if isinstance(given, list) else []
            for index, one in enumerate(listed):
                if one in listed[:index]:
                    yield (field, index), f'"{one}" stands here twice'

    @property
    def requested(self) -> tuple[str, ...]:
        """Return the beginnings of the names that clients are asked for; ("",) for all."""
        if self.metrics == "standard":
            return STANDARD
        return ("",) if self.metrics == "all" else tuple(self.metrics)

    def takes(self, name: str) -> bool:
        """Return True if a metric is taken that a client has pushed; rates are what counters tell already."""
        if name.endswith(".rate"):
            return False
        return name in _STANDARD if self.metrics == "standard" else name.startswith(self.requested)


_STANDARD = frozenset(STANDARD)
