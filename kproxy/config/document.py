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
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationError, model_validator

from kproxy.rules.document.address import UNIX, Address, ServerAddress, TargetAddress
from kproxy.rules.document.check import why_tls
from kproxy.rules.document.model import Model, ValidWords, Wrong
from kproxy.rules.document.parsed_rules import ListenerTraits
from kproxy.rules.document.quantities import Seconds, Seed
from kproxy.rules.kinds.advertise import Advertise

from .audit import AuditConfig
from .limits import Jitter, Limits
from .metrics import MetricsConfig
from .network import MARK, HostPattern, Mark, MaybeTransparent, ProxyProtocol, ProxyVersion
from .otlp import OtlpConfig
from .ports import circles, overlaps
from .sasl import ListenerSasl, UpstreamSasl
from .telemetry import TelemetryConfig
from .tls import FileName, HeaderSecret, HeaderSecretFile, ListenerTls, UpstreamTls
from .view import ViewConfig

__all__ = [
    "Address",
    "AdminConfig",
    "Advertise",
    "AuditConfig",
    "ClusterConfig",
    "Config",
    "Limits",
    "ListenerConfig",
    "ListenerSasl",
    "ListenerTls",
    "LogConfig",
    "MetricsConfig",
    "OtlpConfig",
    "TelemetryConfig",
    "UpstreamSasl",
    "UpstreamTls",
    "ViewConfig",
]  # fmt: skip

MOST_WORKERS = 256
"""Worker processes at most: no machine has more cores for one proxy, and each process takes some 60 MB."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f'"{text}" is no name here: a-z A-Z 0-9 . _ -, at most 100 characters')
    return text


Name = Annotated[str, AfterValidator(_name)]
"""Name of a cluster or listener, of 1 to 100 characters: selectors and metrics use it unchanged."""


class ClusterConfig(Model):
    """Kafka cluster behind kproxy: its brokers, and how kproxy connects to them."""

    bootstrap: list[ServerAddress] = Field(
        min_length=1,
        description="brokers to begin with, host:port, or unix:/path for a socket of this machine; tried in parallel",
    )
    tls: UpstreamTls | None = Field(
        default=None, description="TLS towards the brokers; {} for the defaults, left out for none"
    )
    sasl: UpstreamSasl | None = Field(
        default=None, description="kproxy logs in to the brokers itself; left out: clients do, and kproxy lets it pass"
    )
    dial: dict[TargetAddress, ServerAddress] = Field(
        default_factory=dict, description="where to go instead of an address that the brokers advertise, old: new"
    )
    mark: Mark | None = Field(
        default=None,
        description="mark of connections to these brokers, for the firewall (SO_MARK); 0: none. By default "
        f"{MARK} where a listener of this cluster is transparent, else none",
    )
    proxy_protocol: ProxyVersion | None = Field(
        default=None, description="version of the PROXY header that tells these brokers whose connection it is"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that certificates have a name to be checked against: a Unix socket has no host name."""
        servers, dial, tls = raw.get("bootstrap"), raw.get("dial"), raw.get("tls")
        reached = [*(servers if isinstance(servers, list) else ()), *(dial.values() if isinstance(dial, dict) else ())]
        local = [one for one in reached if isinstance(one, str) and one.startswith(UNIX)]
        if local and isinstance(tls, dict) and tls.get("server_name") is None:
            yield ("tls",), f"{local[0]} has no host name to check a certificate against, server_name is needed"


def _advertise_tag(value: Any) -> str:
    return "off" if value is False else "on"


class ListenerConfig(Model):
    """Listener: a port for clients, and the cluster that they reach there."""

    name: Name = Field(description="unique; rules select by it")
    bind: Address = Field(description="host:port to listen on; port 0 takes any free one")
    cluster: Name = Field(description="name of the cluster that clients of this port reach")
    advertise: Annotated[
        Annotated[Advertise, Tag("on")] | Annotated[Literal[False], Tag("off")], Discriminator(_advertise_tag)
    ] = Field(
        default_factory=Advertise,
        description="how brokers appear to clients; false: they see the brokers' own addresses, and go past kproxy",
    )
    tls: ListenerTls | None = Field(default=None, description="TLS towards clients; left out for none")
    sasl: ListenerSasl | None = Field(
        default=None, description="clients log in to kproxy; left out: to the brokers, if they want it"
    )
    proxy_protocol: ProxyProtocol | None = Field(
        default=None, description="load balancers that say in a PROXY header who the client is; left out for none"
    )
    hosts: list[HostPattern] = Field(
        default_factory=list,
        description="names that TLS clients ask for, kafka.example.com or *.example.com; with them the listener serves "
        "these and the names of its brokers only, and may share its port with others that have hosts",
    )
    transparent: MaybeTransparent = Field(
        default=None,
        description="take what the kernel diverts, and go on to where it was to go; true for the defaults. Brokers "
        "keep their own addresses, so advertise is false",
    )
    max_connection_age: Seconds | None = Field(
        default=None, description="age at which its connections are closed in order; by default that of the limits"
    )
    max_connection_age_jitter: Jitter | None = Field(
        default=None, description="by how much these ages differ; by default that of the limits"
    )

    @model_validator(mode="before")
    @classmethod
    def _without_advertising(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and raw.get("transparent") not in (None, False):
            return {"advertise": False, **raw}
        return raw

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that nodes and listeners that only a host name tells apart have TLS, which carries that name."""
        if raw.get("hosts") and raw.get("tls") is None:
            yield ("hosts",), "hosts are asked for in TLS handshakes, and this listener has no tls"
        if raw.get("transparent") not in (None, False):
            for other in ("advertise", "hosts", "proxy_protocol"):
                if raw.get(other) not in (None, False, []):
                    yield (other,), f"{other} has no meaning where connections go to where their clients want"
        if isinstance(raw.get("advertise"), dict) and raw.get("tls") is None:
            try:
                advertise = Advertise.model_validate(raw["advertise"])
            except ValidationError:
                return
            if advertise.needs_tls:
                field = "sni" if advertise.sni is not None else "nodes"
                yield ("advertise", field), f"{why_tls(advertise)}, and this listener has none"


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
