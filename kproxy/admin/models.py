"""Models shared by operations: responses and queries. The OpenAPI description is generated from them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from kproxy.rules.document.read import LONGEST_TTL
from kproxy.rules.values.quantities import parse_duration

Role = Literal["broker", "controller"]
SentOutcome = Literal["answered", "no_answer_due", "unanswered"]
LONGEST_NUMBER = 20  # Digits of a connection's number: no more connections are ever opened


class Shown(BaseModel):
    """Base of all answers."""


class MistakeShown(Shown):
    """Mistake in a request or in rules."""

    where: str = Field(description="file:line:column, the body is <api>; or the name of a query parameter")
    message: str


class ErrorShown(Shown):
    """Reason why a request was refused."""

    code: str = Field(description="stable, for programs")
    message: str = Field(description="for people")
    mistakes: list[MistakeShown]


class FailureShown(Shown):
    """Body of every answer that is no success."""

    error: ErrorShown


class RuleShown(Shown):
    """Rule and what it has done."""

    name: str
    kind: str
    origin: Literal["file", "api", "test"]
    position: str = Field(description="file:line:column")
    rule: dict[str, Any] = Field(description="the rule as it was written")
    enabled: bool = Field(description="false: a user has disabled it")
    in_force: bool = Field(description="it is enabled, not off by `kproxy faults disable`, and its stage is in force")
    stage: str | None = Field(description="the stage of a scenario that it belongs to")
    binds: Literal["connection", "frame"] = Field(
        description="connection: it is bound when one opens; frame: it acts from the next frame on"
    )
    mode: Literal["enforce", "dry_run"]
    family: Literal["names", "fault", "access", "quota", "content", "code"] = Field(description="purpose of the kind")
    fault: bool = Field(description="`kproxy faults disable` turns it off")
    matched: int | None = Field(description="requests that its selectors held for; null for rules that count nothing")
    fired: int | None = Field(description="those of them that its trigger chose")
    applied: int | None = Field(description="those of them where what it changed has gone out")
    held: int | None = Field(description="requests that it holds now")
    problems: int | None = Field(description="how often it failed by itself")
    problem: str | None = Field(description="how it failed last")
    seed: int | None = Field(description="of its chances")
    since: str = Field(description="when it came or was changed, ISO 8601")
    ttl_left: float | None = Field(description="seconds until it goes away by itself")
    warnings: list[str] = Field(description="limits of the rule that are easily overlooked")


class ScenarioShown(Shown):
    """Scenario and where it is."""

    name: str | None
    origin: Literal["file", "api", "test"]
    file: str
    stages: list[str] = Field(description="their names, or numbers from 1")
    stage: str | None = Field(description="the one in force, null when it is over")
    round: int | None = Field(description="from 1")
    ends_in: float | None = Field(description="seconds until the stage in force ends, null: never, or it is over")


class RejectionShown(Shown):
    """Rules that were refused."""

    at: str = Field(description="ISO 8601")
    origin: Literal["file", "api", "test"]
    mistakes: list[MistakeShown]


class RulesShown(Shown):
    """Rules in order, and how they came in."""

    version: str = Field(description="changes exactly when what is in force does")
    seed: int = Field(description="of the chances of rules that have none of their own")
    faults_disabled: bool = Field(description="true after `kproxy faults disable`: no fault is in force")
    rules: list[RuleShown]
    scenarios: list[ScenarioShown]
    loaded: dict[str, int] = Field(description="how often rules were taken in, by origin")
    rejected: dict[str, int] = Field(description="how often rules were refused, by origin")
    last_rejection: RejectionShown | None = Field(description="until rules of that origin are accepted")


class WaitShown(Shown):
    """Outcome of waiting for a rule."""

    reached: bool = Field(description="false: the time was over before")
    rule: RuleShown


class ResumedShown(Shown):
    """Number of held requests that were resumed."""

    resumed: int


class ResetShown(Shown):
    """Rules that begin anew."""

    reset: int


class FaultShown(Shown):
    """Live rule, and whether it is in force."""

    name: str
    kind: str
    family: Literal["names", "fault", "access", "quota", "content", "code"]
    in_force: bool
    note: str | None = Field(description="hint, if the rule may be permanent")


class FaultsShown(Shown):
    """Whether faults are disabled, and the rules concerned."""

    disabled: bool
    version: str
    faults: list[FaultShown] = Field(
        description="GET: all faults; POST: faults that the request turned off or on. At most 100"
    )
    unaffected: list[FaultShown] = Field(
        description="live rules in force that stay in force while faults are disabled. At most 100"
    )
    more: int = Field(description="number of rules left out of both lists")


class ConnectionShown(Shown):
    """Client connection that is open."""

    id: int
    listener: str
    cluster: str
    client: str = Field(description="address and port")
    client_id: str | None = Field(description="in its last ApiVersions request, null: it has sent none")
    sni: str | None
    certificate: str | None
    principal: str | None = Field(description="principal that the broker authenticated, or the certificate's subject")
    software: str | None = Field(description="name/version of the client's library, null: unknown")
    node: int | None = Field(description="the broker that it is for, null: none in particular")
    broker: str | None = Field(description="the broker's address, null: not connected yet")
    since: str = Field(description="ISO 8601")
    client_bytes: int
    broker_bytes: int
    in_flight: int = Field(description="requests that wait for their answers")
    rules: list[str] = Field(description="rules for names, addresses and versions that it is bound to until it ends")
    version: str = Field(description="version of these rules; empty: no rules")
    outdated: bool = Field(description="a new connection in its place would be bound to others: recycle it")
    leaving: bool = Field(description="it closes as soon as nothing is in flight")


class EndShown(Shown):
    """Client connection that has ended."""

    id: int
    listener: str
    client: str = Field(description="address and port")
    client_id: str | None = Field(description="in its last ApiVersions request, null: it has sent none")
    node: int | None = Field(description="the broker that it was for, null: none in particular")
    broker: str | None = Field(description="the broker's address, null: it was never connected")
    since: str = Field(description="ISO 8601")
    ended: str = Field(description="ISO 8601")
    client_bytes: int
    broker_bytes: int
    cause: str = Field(description="as in the metric kproxy_connections_closed")
    reason: str = Field(description="the same in words")
    blame: str = Field(description="client, broker, or empty: neither")


class EndsShown(Shown):
    """Ends of connections, the newest first."""

    ended: list[EndShown]


class NodeShown(Shown):
    """Broker or controller, as the cluster names it."""

    id: int
    host: str
    port: int
    role: Role
    addresses: dict[str, str] = Field(
        description="host:port where clients reach it, by listener: kproxy's own, or the broker's where advertise is "
        "false. Without the listeners whose clients have not been told of it yet, or do not see it. Rules that select "
        "clients may give them others"
    )


class ClusterShown(Shown):
    """Cluster behind kproxy."""

    bootstrap: list[str]
    nodes: list[NodeShown] = Field(description="those that some answer has named so far")


class ListenerShown(Shown):
    """Port for clients."""

    address: str
    cluster: str
    tls: bool
    connections: int


class TopologyShown(Shown):
    """Clusters with their nodes, and listeners."""

    clusters: dict[str, ClusterShown]
    listeners: dict[str, ListenerShown]


class SentAgainShown(Shown):
    """Request that was sent again, and what became of it."""

    id: str | None = Field(description="of the new exchange; null: it was not kept")
    again_of: str = Field(description="id of the exchange that the request is from")
    outcome: SentOutcome
    reason: str = Field(description="error")
    notes: list[str] = Field(description="differences from the recorded request")
    seconds: float | None = Field(description="from the request to its answer")


def iso_time(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")


def calendar_time(when: float) -> str:
    """Convert a time of `monotonic()` to ISO 8601."""
    return (datetime.now(UTC) - timedelta(seconds=monotonic() - when)).isoformat(timespec="milliseconds")


LONGEST_WAIT = 3600.0  # Seconds; who wants to wait longer asks again


def duration(value: Any) -> Any:
    """Return the seconds of a text such as 10s. Other values are returned unchanged, for pydantic to check."""
    return float(value) if isinstance(value, str) and value.isdecimal() else parse_duration(value)


AS_TEXT = WithJsonSchema({"type": ["string", "number"], "examples": ["10s", "500ms", 3]})
Ttl = Annotated[float, BeforeValidator(duration), Field(gt=0, le=LONGEST_TTL), AS_TEXT]
Timeout = Annotated[float, BeforeValidator(duration), Field(ge=0, le=LONGEST_WAIT), AS_TEXT]


class Query(BaseModel, extra="forbid"):
    """Base of all queries."""


PageId = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_-]*$")]
"""Random id that a page of the view gives itself; empty: none."""


def printable(name: str) -> str:
    """Return a name without characters that control a terminal."""
    return "".join(char if char.isprintable() else "?" for char in name).strip()
