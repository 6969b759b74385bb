"""The config document: clusters, listeners, limits, where the rules are.

    clusters:
      main: {bootstrap: [b1:9092, b2:9092]}
    listeners:
      - {name: outside, bind: "0.0.0.0:9092", cluster: main}
    admin: {bind: "127.0.0.1:9190"}
    rules: [rules/]

`kproxy run --upstream … --listen …` makes the same with one cluster and one listener, both called `main`.
Values may hold `${VARIABLE}`. Relative names start from the document's folder.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from kproxy.record.audit.config import AuditConfig
from kproxy.record.live_view.config import ViewConfig
from kproxy.record.metrics.config import MetricsConfig
from kproxy.record.metrics.telemetry_config import TelemetryConfig
from kproxy.record.otlp.config import OtlpConfig
from kproxy.rules.document.check import ListenerTraits
from kproxy.rules.values.address import Address
from kproxy.rules.values.model import Model, ValidWords, Wrong
from kproxy.rules.values.quantities import Seed
from kproxy.rules.values.tls import FileName, HeaderSecret, HeaderSecretFile
from kproxy.runtime.config.limits import Limits
from kproxy.runtime.config.network import MARK, ClusterConfig, ListenerConfig, Name
from kproxy.runtime.config.ports import circles, overlaps

MOST_WORKERS = 256
"""Worker processes at most: no machine has more cores for one proxy, and each process takes some 60 MB."""


class AdminConfig(Model):
    """Settings of the admin address, which serves metrics, health and the API for rules."""

    bind: Address = Field(description="host:port; only loopback unless a token is set")
    token: HeaderSecret | None = Field(
        default=None, description="asked for as a bearer token; better as ${VARIABLE} or file:NAME"
    )
    read_token: HeaderSecretFile | None = Field(
        default=None,
        alias="read_token_file",
        description="file with a second token, for whoever may look at everything and change nothing",
    )
    ready: Literal["any", "all"] = Field(
        default="any",
        description="clusters whose brokers have to answer for /readyz to be 200. With any, a cluster that is lost "
        "takes nothing from the clients of the others; /readyz/NAME is about one cluster",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that an address that others can reach has a token, and that whoever may only look is told apart."""
        if raw.get("token") is None and raw.get("read_token_file") is not None:
            yield ("read_token_file",), "without a token anyone on this machine may change things, set token, too"
        try:
            bind = Address.parse(raw.get("bind"))
        except ValueError:
            return
        if raw.get("token") is None and (problem := exposed(bind)) is not None:
            yield ("bind",), problem

    @model_validator(mode="after")
    def _tokens_differ(self) -> AdminConfig:
        if self.token is not None and self.read_token == self.token:
            raise ValueError("the token for reading is the same as the other one, and tells nobody apart")
        return self


class LogConfig(Model):
    """Settings of the log, which goes to standard error."""

    format: Literal["auto", "human", "json"] = Field(
        default="auto", description="auto: human on a terminal, else JSON lines"
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="lowest level that is written"
    )


class Config(Model):
    """Config document as a whole."""

    clusters: dict[Name, ClusterConfig] = Field(min_length=1, description="Kafka clusters by name")
    listeners: list[ListenerConfig] = Field(min_length=1, description="ports for clients")
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] = Field(
        default=1, description="processes that carry the traffic; with more than one, another one starts them"
    )
    limits: Limits = Field(default_factory=Limits, description="what is taken at most")
    admin: AdminConfig | None = Field(default=None, description="metrics and health over HTTP; left out for none")
    metrics: MetricsConfig = Field(
        default_factory=MetricsConfig, description="metrics by topic, client, principal and group; none by default"
    )
    telemetry: TelemetryConfig | None = Field(
        default=None, description="clients' own metrics (KIP-714); left out: nobody is asked for them"
    )
    rules: list[FileName] = Field(default_factory=list, description="rule files, and folders of them, in order")
    seed: Seed | None = Field(
        default=None, description="of the chances of rules that have none of their own; drawn and logged if left out"
    )
    audit: AuditConfig | None = Field(default=None, description="a record of what happens; left out for none")
    otlp: OtlpConfig | None = Field(
        default=None,
        description="metrics, events and traces for an OpenTelemetry collector; left out for none",
    )
    captures: FileName | None = Field(
        default=None, description="folder in which captures may be made over the admin address; left out for none"
    )
    capture_topics: bool = Field(
        default=True,
        description="captures have ids, leader epochs and configs of topics, which kproxy requests by itself",
    )
    view: ViewConfig = Field(default_factory=ViewConfig, description="the live view of the admin address")
    instance: Name | None = Field(
        default=None, description="name of this process in what it records; the host's name if left out"
    )
    state: FileName | None = Field(default=None, description="file that keeps each broker's port over restarts")
    log: LogConfig = Field(default_factory=LogConfig, description="logging")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that what is counted and recorded goes somewhere, that listeners differ in name and port, and that they
        lead to clusters that are defined."""
        yield from _homeless(raw)
        yield from _telemetry_targets(raw)
        clusters, listeners = raw.get("clusters"), raw.get("listeners")
        if not isinstance(listeners, list):
            return
        entries = [(index, one) for index, one in enumerate(listeners) if isinstance(one, dict)]
        yield from _repeated(entries)
        yield from overlaps(entries, raw.get("admin"))
        yield from circles(entries, clusters)
        if isinstance(clusters, dict):
            known = ValidWords("cluster", map(str, clusters))
            for index, one in entries:
                if isinstance(one.get("cluster"), str) and one["cluster"] not in clusters:
                    yield ("listeners", index, "cluster"), known.unknown(one["cluster"])

    @property
    def measured(self) -> bool:
        """Return True if somebody may ask for metrics: who scrapes the admin address, or the export to a collector."""
        return self.admin is not None or (self.otlp is not None and self.otlp.metrics is not None)

    @property
    def tells_labels(self) -> bool:
        """Return True if metrics by label, or those of clients, are told to anybody."""
        telemetry = self.telemetry is not None and "metrics" in self.telemetry.to
        return self.measured and (bool(self.metrics.by) or telemetry)

    def marks(self) -> dict[str, int]:
        """Return the firewall marks (SO_MARK) of connections to the brokers of each cluster; 0 for none."""
        transparent = {one.cluster for one in self.listeners if one.transparent is not None}
        return {
            name: cluster.mark if cluster.mark is not None else MARK if name in transparent else 0
            for name, cluster in self.clusters.items()
        }

    def places(self) -> dict[str, ListenerTraits]:
        """Return the traits of each listener, by its name, which rules are checked against."""
        return {
            one.name: ListenerTraits(one.cluster, one.tls is not None, one.transparent is not None)
            for one in self.listeners
        }


def _telemetry_targets(raw: dict[Any, Any]) -> Iterator[Wrong]:
    """Yield targets of clients' own metrics that are not there, and listeners that are not."""
    telemetry, listeners = raw.get("telemetry"), raw.get("listeners")
    if not isinstance(telemetry, dict):
        return
    targets = telemetry.get("to", ["metrics"])
    if isinstance(targets, list) and "metrics" in targets and not _tells_metrics(raw):
        yield ("telemetry",), "they are served at the admin address, and there is no `admin`"
    if isinstance(targets, list) and "audit" in targets and raw.get("audit") is None:
        yield ("telemetry", "to", targets.index("audit")), "there is no `audit`"
    named = telemetry.get("listeners")
    if isinstance(named, list) and isinstance(listeners, list):
        names = [one["name"] for one in listeners if isinstance(one, dict) and isinstance(one.get("name"), str)]
        known = ValidWords("listener", names)
        for index, name in enumerate(named):
            if isinstance(name, str) and name not in known:
                yield ("telemetry", "listeners", index), known.unknown(name)


def _tells_metrics(raw: dict[Any, Any]) -> bool:
    """Return True if the document has an admin address, or an export of metrics."""
    otlp = raw.get("otlp")
    return raw.get("admin") is not None or (isinstance(otlp, dict) and otlp.get("metrics") is not None)


def _homeless(raw: dict[Any, Any]) -> Iterator[Wrong]:
    """Yield what is counted or recorded for nobody, and exports of what is not there."""
    audit, metrics = raw.get("audit"), raw.get("metrics")
    otlp = raw["otlp"] if isinstance(raw.get("otlp"), dict) else {}
    if isinstance(metrics, dict) and metrics.get("by") and not _tells_metrics(raw):
        yield ("metrics", "by"), "they are served at the admin address, and there is no `admin`"
    if isinstance(audit, dict) and audit.get("dir") is None and audit.get("kafka") is None and otlp.get("logs") is None:
        yield ("audit",), "an audit needs `dir` or `kafka`, somewhere to write to, or `logs: audit` in `otlp`"
    if otlp.get("logs") == "audit" and audit is None:
        yield ("otlp", "logs"), "there are no events to send: set `audit`, too; {} for the defaults"


def _repeated(entries: list[tuple[int, dict[Any, Any]]]) -> Iterator[Wrong]:
    first: dict[str, int] = {}
    for index, one in entries:
        name = one.get("name")
        if isinstance(name, str) and first.setdefault(name, index) != index:
            yield ("listeners", index, "name"), f'the name "{name}" is taken by listener {first[name] + 1}'


def exposed(bind: Address) -> str | None:
    """Return why an address must not be served without a token; None when only this machine can reach it."""
    if is_loopback(bind.host):
        return None
    return f"{bind.host} can be reached by others; set a token, or bind to 127.0.0.1"


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach that host name or IP."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
