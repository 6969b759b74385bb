"""The `audit` section of the config: levels by API, and outlets.

audit:
  dir: audit/
  level: summary
  level_by_api: {Produce: requests, Metadata: connections}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field

from kproxy.protocol.table import schema
from kproxy.rules.values.model import Model, Wrong, unknown
from kproxy.rules.values.quantities import ByteCount, Seconds
from kproxy.rules.values.tls import FileName, Secret

AuditLevel = Literal["connections", "summary", "requests"]
"""connections: in the connection's totals · summary: counted by the minute · requests: each of them."""

STREAMS = frozenset(
    (
        "Produce", "Fetch", "ShareFetch", "ShareAcknowledge", "ListOffsets", "Metadata", "ApiVersions",
        "OffsetForLeaderEpoch", "FindCoordinator", "DescribeTopicPartitions",
    )
)  # fmt: skip
"""APIs that producers and consumers call again and again: by default they are counted by the minute. All others change
or show something that an auditor asks for, and are seldom: by default each request is recorded."""

OF_BROKERS = frozenset(
    (
        "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot", "BrokerHeartbeat", "UpdateRaftVoter",
        "LeaderAndIsr", "StopReplica", "UpdateMetadata", "AlterPartition",
    )
)  # fmt: skip
"""APIs between brokers and controllers, for a kproxy that is between them."""


def _by_name() -> dict[str, str]:
    return {schema.load(key).name.lower(): schema.load(key).name for key in schema.paths()}


class KafkaTopic(Model):
    """Kafka topic that also receives the audit's events."""

    bootstrap: str = Field(description="brokers of any cluster: host:port, separated by commas")
    topic: str = Field(default="kproxy-audit", description="existing topic, or one that the brokers may create")
    options: dict[str, str | int | bool] = Field(
        default_factory=dict, description="further settings of librdkafka, such as security.protocol"
    )
    password: Secret | None = Field(default=None, description="sasl.password, as ${VARIABLE} or file:NAME")


class AuditConfig(Model):
    """Settings of the audit: which events are recorded, and where to. It needs `dir`, `kafka` or `otlp.logs`."""

    dir: FileName | None = Field(default=None, description="folder for event files; created if missing")
    kafka: KafkaTopic | None = Field(default=None, description="Kafka topic that receives the same events")
    level: AuditLevel | None = Field(
        default=None,
        description="level of all APIs: connections, summary or requests (default: summary for frequent APIs such as "
        "Produce, Fetch and Metadata; requests for groups, offsets, transactions, administration and authentication)",
    )
    level_by_api: dict[str, AuditLevel] = Field(
        default_factory=dict, description="level by name of the API; takes precedence over `level`"
    )
    partitions: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=100,
        description="maximum topics, partitions and resources in one event; further ones are counted. An event of 100 "
        "partitions has about 20 kB",
    )
    flush: Annotated[Seconds, Field(gt=0, le=60)] = Field(
        default=1.0,
        description="events are written and synced twice in this interval; a kill loses the events of one interval, or "
        "more with a slow disk",
    )
    roll_size: Annotated[ByteCount, Field(ge=4096)] = Field(
        default=64_000_000,
        description="closes, compresses and publishes a file of this uncompressed size",
    )
    roll_age: Annotated[Seconds, Field(gt=0)] = Field(
        default=300.0, description="closes, compresses and publishes a file of this age"
    )
    when_full: Literal["drop", "block"] = Field(
        default="drop",
        description="when events cannot be written: drop and count them, or block: pause reading from clients",
    )
    queue: Annotated[int, Field(ge=100)] = Field(
        default=100_000, description="maximum events in memory that wait to be written, with at most 64 MiB of lines"
    )
    topology_every: Annotated[Seconds, Field(gt=0)] = Field(
        default=300.0, description="interval of requests for all topics, to record changes"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that each API in `level_by_api` is known."""
        levels = raw.get("level_by_api")
        known = _by_name()
        if isinstance(levels, dict):
            for name in levels:
                if str(name).lower() not in known:
                    yield ("level_by_api", name), unknown("API", str(name), known.values())

    @cached_property
    def by_api(self) -> Mapping[str, AuditLevel]:
        known = _by_name()
        return {known[name.lower()]: level for name, level in self.level_by_api.items()}

    def level_of(self, api: str) -> AuditLevel:
        """Return the level of an API: `requests` for unknown APIs, which are rare."""
        if api in self.by_api:
            return self.by_api[api]
        if self.level is not None:
            return self.level
        return "summary" if api in STREAMS or api in OF_BROKERS else "requests"
