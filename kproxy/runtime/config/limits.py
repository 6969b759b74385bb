"""Every limit by name, with its default and the reason for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from kproxy.rules.values.model import Model, Wrong
from kproxy.rules.values.quantities import ByteCount, Seconds, parse_size
from kproxy.session.held_memory import SMALL_AREA

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
PositiveSeconds = Annotated[Seconds, Field(gt=0)]
Jitter = Annotated[float, Field(ge=0, lt=1)]

SMALLEST_FRAME_LIMIT = 16 * 1024
"""Bytes that `max_frame_bytes` has at least: no cluster's Metadata response fits in less, so less is a mistake."""


class Limits(Model):
    """Limits of a proxy's memory, time and connections. Well-behaved clients of an ordinary cluster reach none."""

    max_frame_bytes: Annotated[ByteCount, Field(ge=SMALLEST_FRAME_LIMIT, lt=2**31)] = Field(
        default=104_857_600,
        description="a frame with a greater length closes its connection before anything is allocated; Kafka's own "
        "socket.request.max.bytes is the same 100 MiB",
    )
    hold_up_to: ByteCount = Field(
        default=65_536,
        description="frames up to this size are held until they are whole and rewritten exactly; larger Fetch answers "
        "stream and keep their length. 64 KiB holds the Metadata of some 150 topics and every small answer",
    )
    held_bytes: ByteCount = Field(
        default=268_435_456,
        description="memory for held frames, per cluster, direction and worker process. A frame reserves its whole "
        "length; an eighth is for frames below 1 MiB. Client networks take turns, and frames that make no progress are "
        "evicted while others wait. 256 MiB is two and a half of the largest frames",
    )
    max_in_flight: Positive = Field(
        default=1000,
        description="requests of one connection that wait for their responses; then reading pauses. Clients send 5 "
        "(Java) to some hundred; librdkafka's limit is 1000000, that is none",
    )
    max_nodes: Positive = Field(
        default=1000,
        description="nodes that one response may name, and that are remembered of a cluster; a response that names "
        "more closes its connection. Clusters have some hundred brokers at most",
    )
    session_partitions: Positive = Field(
        default=250_000,
        description="partitions in all fetch and share sessions, if rules match fetches, per worker process; beyond "
        "that, sessions are refused as by a broker without room. A client network, and each of several clusters, may "
        "have three times what is left free. Each takes some 0.8 kB, so 200 MB at most",
    )
    header_timeout: PositiveSeconds = Field(
        default=10.0,
        description="time for a frame's header once its first byte is here; a client that takes longer is stuck or "
        "hostile",
    )
    held_timeout: PositiveSeconds = Field(
        default=60.0,
        description="time for a held frame to arrive, from the reservation of its memory. The largest request needs "
        "1.7 MB/s. While others wait for memory, a frame needs that pace in every half second",
    )
    idle_timeout: Seconds = Field(
        default=660.0,
        description="a connection without traffic is closed, unless answers are due, the client is still read and "
        "no request is cut off; 0: never. Brokers close after 600 s and Java clients after 540 s, so that in peace "
        "they do it first",
    )
    connect_timeout: PositiveSeconds = Field(
        default=10.0,
        description="time for a TCP connection to a broker; Java clients give up after 10 s (setup.timeout.ms)",
    )
    handshake_timeout: PositiveSeconds = Field(
        default=10.0,
        description="time for a TLS handshake, on either side, for a PROXY header, and for a client to authenticate to "
        "kproxy; they take milliseconds when both sides are alive",
    )
    write_stall: PositiveSeconds = Field(
        default=300.0,
        description="a peer that takes no byte for so long, with output waiting, is cut off. As long as "
        "max.poll.interval.ms, after which a consumer that reads nothing has lost its partitions anyway",
    )
    drain_timeout: Seconds = Field(
        default=30.0,
        description="time to answer requests in flight after SIGTERM; Kubernetes kills after 30 s by default, and "
        "clients' request.timeout.ms is 30 s",
    )
    shutdown_delay: Seconds = Field(
        default=0.0,
        description="time from SIGTERM to the drain, in which /readyz says no and clients are still accepted; for load "
        "balancers that ask for it: as long as they take to notice, and some seconds more",
    )
    max_connection_age: Seconds = Field(
        default=0.0,
        description="a connection that is so old answers what is in flight and is closed between two exchanges, so "
        "that its client connects anew, perhaps elsewhere; 0: never. Fifty begin to in a second at most",
    )
    max_connection_age_jitter: Jitter = Field(
        default=0.1,
        description="part of max_connection_age by which single connections are younger or older then, at random: "
        "what has come at once does not go at once",
    )
    max_connections: Positive = Field(
        default=20_000,
        description="client connections in all; each takes two file descriptors and a few kB. A process "
        "with a lower limit of open files allows fewer, and keeps some for its other ports. At the limit, a network "
        "with fewer connections takes a place of the network with the most",
    )
    max_connections_per_address: Count = Field(
        default=0,
        description="client connections from one IP address; 0: no limit, because many clients may share one address",
    )
    unknown_apis: Literal["hide", "pass"] = Field(
        default="hide",
        description="API keys that kproxy does not know: hide them in ApiVersions and refuse them, or pass them. An "
        "unknown answer may hold broker addresses; without advertising they always pass",
    )
    rule_labels: Count = Field(
        default=1000,
        description="rules with lines of their own in the metrics; those beyond are added up by kind under the name "
        "other, because Prometheus keeps every label that it has ever seen",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that every frame of `hold_up_to` bytes fits into the memory for held frames."""
        try:
            hold, held = (
                parse_size(raw.get(name, cls.model_fields[name].default)) for name in ("hold_up_to", "held_bytes")
            )
        except ValueError:
            return
        if isinstance(hold, int) and isinstance(held, int) and hold > (longest := held - held // SMALL_AREA):
            where = ("hold_up_to",) if "hold_up_to" in raw else ("held_bytes",)
            yield where, f"expected hold_up_to of at most seven eighths of held_bytes ({longest}), got {hold}"
