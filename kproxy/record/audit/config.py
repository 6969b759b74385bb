"""The `audit` section of the config: recorded APIs, level of detail, and outlets.

audit:
  dir: audit/
  detail: summary
  details: {Produce: requests, Metadata: connections}
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

Detail = Literal["connections", "summary", "requests"]
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

    bootstrap: str = Field(description="brokers of any cluster, host:port separated by commas")
    topic: str = Field(default="kproxy-audit", description="the topic; it must exist or be allowed to be created")
    options: dict[str, str | int | bool] = Field(
        default_factory=dict, description="further settings of librdkafka, such as security.protocol"
    )
    password: Secret | None = Field(
        default=None, description="sasl.password, better as ${VARIABLE} or file:NAME than among the options"
    )


class AuditConfig(Model):
    """Settings of the audit: which events are recorded, and where to. It needs `dir`, `kafka` or `otlp.logs`."""

    dir: FileName | None = Field(default=None, description="folder for event files; made if it is not there")
    kafka: KafkaTopic | None = Field(default=None, description="a topic that gets the same events")
    detail: Detail | None = Field(
        default=None,
        description="for all APIs: connections, summary or requests. Left out: summary for Produce, Fetch, Metadata "
        "and what else clients call all the time, requests for groups, offsets, transactions, administration and "
        "authentication",
    )
    details: dict[str, Detail] = Field(default_factory=dict, description="by name of the API; goes before `detail`")
    partitions: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=100,
        description="topics, partitions and resources that one event tells one by one; what is beyond is counted. An "
        "event of 100 partitions has some 20 kB",
    )
    flush: Annotated[Seconds, Field(gt=0, le=60)] = Field(
        default=1.0, description="written and synced to disk this often; what a kill can cost at most"
    )
    roll_size: Annotated[ByteCount, Field(ge=4096)] = Field(
        default=64_000_000, description="a file is closed, compressed and published at this size, before compression"
    )
    roll_age: Annotated[Seconds, Field(gt=0)] = Field(
        default=300.0, description="and at this age, so that readers see events soon"
    )
    when_full: Literal["drop", "block"] = Field(
        default="drop",
        description="what to do when events cannot be written: drop them, counted, or block: take no more from clients",
    )
    queue: Annotated[int, Field(ge=100)] = Field(
        default=100_000, description="events that wait to be written, in memory; some 100 MB at worst"
    )
    topology_every: Annotated[Seconds, Field(gt=0)] = Field(
        default=300.0, description="how often kproxy asks the brokers for all topics, to record what has changed"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that each API in `details` is known."""
        details = raw.get("details")
        known = _by_name()
        if isinstance(details, dict):
            for name in details:
                if str(name).lower() not in known:
                    yield ("details", name), unknown("API", str(name), known.values())

    @cached_property
    def by_api(self) -> Mapping[str, Detail]:
        known = _by_name()
        return {known[name.lower()]: detail for name, detail in self.details.items()}

    def detail_of(self, api: str) -> Detail:
        """Return how deep an API is recorded. Unknown APIs are recorded by request, since they are seldom."""
        if api in self.by_api:
            return self.by_api[api]
        if self.detail is not None:
            return self.detail
        return "summary" if api in STREAMS or api in OF_BROKERS else "requests"
