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
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Field, SecretStr, model_validator

from kproxy.base.named_file import PathGuard, reason
from kproxy.base.sockets import HAS_DIVERSION, HAS_EPOLL, HAS_HAND_OVER, HAS_MARK, UNIX
from kproxy.base.system import HAS_FORKS, HAS_LOCKS
from kproxy.record.audit.config import AuditConfig
from kproxy.record.live_view.config import ViewConfig
from kproxy.record.metrics.client_telemetry import TelemetryConfig
from kproxy.record.metrics.totals import MetricsConfig
from kproxy.record.otlp.config import OtlpConfig
from kproxy.rules.document.check import ListenerTraits
from kproxy.rules.kinds.advertise import Advertise
from kproxy.rules.values.address import Address, PortRange, check_host
from kproxy.rules.values.model import Model, ValidWords, Wrong, found, validate
from kproxy.rules.values.quantities import Seed
from kproxy.rules.values.source import Source, Where, raise_mistakes, to_value
from kproxy.rules.values.tls import FileContext, FileName, HeaderSecret, HeaderSecretFile
from kproxy.rules.values.yaml_file import Mapping, Scalar, Sequence
from kproxy.runtime.config.network import MARK, ClusterConfig, Limits, ListenerConfig, Name
from kproxy.runtime.config.ports import circles, overlaps
from kproxy.runtime.config.registries import RegistryConfig, registry_mistakes

MOST_WORKERS = 256
"""Maximum number of worker processes: no machine has more cores for one proxy, and each process takes some 60 MB."""


class AdminConfig(Model):
    """Settings of the admin address, which serves metrics, health and the API for rules."""

    bind: Address = Field(description="host:port; only loopback unless a token is set")
    token: HeaderSecret | None = Field(
        default=None, description="bearer token of requests, as ${VARIABLE} or file:NAME"
    )
    read_token: HeaderSecretFile | None = Field(
        default=None,
        alias="read_token_file",
        description="file with a second token, for read-only access",
    )
    ready: Literal["any", "all"] = Field(
        default="any",
        description="clusters that /readyz requires to answer. With any, a lost cluster does not affect other clients. "
        "/readyz/NAME checks one cluster",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that a non-loopback address has a token, and that the read-only token differs from the full one."""
        if raw.get("token") is None and raw.get("read_token_file") is not None:
            yield (
                ("read_token_file",),
                "expected a token beside read_token, got none: without it, local users can change everything",
            )
        try:
            bind = Address.parse(raw.get("bind"))
        except ValueError:
            return
        if raw.get("token") is None and (problem := exposed(bind)) is not None:
            yield ("bind",), problem

    @model_validator(mode="after")
    def _tokens_differ(self) -> AdminConfig:
        if self.token is not None and self.read_token == self.token:
            raise ValueError("expected a read_token that differs from the token, got the same")
        return self


class LogConfig(Model):
    """Settings of the log, which goes to standard error."""

    format: Literal["auto", "human", "json"] = Field(
        default="auto", description="auto: human on a terminal, otherwise JSON lines"
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="minimum level of log lines"
    )


class Config(Model):
    """Config document as a whole."""

    clusters: dict[Name, ClusterConfig] = Field(min_length=1, description="Kafka clusters by name")
    listeners: list[ListenerConfig] = Field(min_length=1, description="ports for clients")
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] = Field(
        default=1, description="worker processes; with more than one, a supervisor process starts them"
    )
    limits: Limits = Field(default_factory=Limits, description="limits of memory, time and connections")
    admin: AdminConfig | None = Field(
        default=None, description="admin API, metrics and health over HTTP (default: none)"
    )
    metrics: MetricsConfig = Field(
        default_factory=MetricsConfig, description="metrics by topic, client, principal and group (default: none)"
    )
    telemetry: TelemetryConfig | None = Field(
        default=None, description="metrics of clients (KIP-714) (default: not requested)"
    )
    rules: list[FileName] = Field(default_factory=list, description="rule files and folders of rule files, in order")
    seed: Seed | None = Field(default=None, description="seed of rules without own seed (default: random, logged)")
    audit: AuditConfig | None = Field(default=None, description="audit log (default: none)")
    otlp: OtlpConfig | None = Field(
        default=None,
        description="export to an OpenTelemetry collector (default: none)",
    )
    registries: dict[Name, RegistryConfig] = Field(
        default_factory=dict, description="schema registries by name, for decoded keys and values (default: none)"
    )
    captures: FileName | None = Field(
        default=None, description="folder of captures that the admin API starts (default: none)"
    )
    capture_topics: bool = Field(
        default=True,
        description="add ids, leader epochs and configs of topics, which kproxy requests, to captures",
    )
    view: ViewConfig = Field(default_factory=ViewConfig, description="live view at the admin address")
    instance: Name | None = Field(
        default=None, description="name of this process in events and metrics (default: the host name)"
    )
    state: FileName | None = Field(default=None, description="file that stores each broker's port across restarts")
    log: LogConfig = Field(default_factory=LogConfig, description="logging")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that metrics and recordings have a destination, that listeners differ in name and port, and that they
        lead to defined clusters."""
        yield from _homeless(raw)
        yield from _telemetry_targets(raw)
        clusters, listeners = raw.get("clusters"), raw.get("listeners")
        yield from registry_mistakes(raw.get("registries"), clusters)
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
        """Return True if metrics are used: scraped at the admin address, or exported to a collector."""
        return self.admin is not None or (self.otlp is not None and self.otlp.metrics is not None)

    @property
    def exports_labels(self) -> bool:
        """Return True if metrics by label or clients' own metrics are published."""
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
    """Yield undefined targets and listeners of clients' own metrics."""
    telemetry, listeners = raw.get("telemetry"), raw.get("listeners")
    if not isinstance(telemetry, dict):
        return
    targets = telemetry.get("to", ["metrics"])
    if isinstance(targets, list) and "metrics" in targets and not _tells_metrics(raw):
        yield ("telemetry",), "metrics need `admin`, because they are served at the admin address"
    if isinstance(targets, list) and "audit" in targets and raw.get("audit") is None:
        yield ("telemetry", "to", targets.index("audit")), "target audit needs `audit`"
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
    """Yield metrics and recordings without a destination, and exports without a source."""
    audit, metrics = raw.get("audit"), raw.get("metrics")
    otlp = raw["otlp"] if isinstance(raw.get("otlp"), dict) else {}
    if isinstance(metrics, dict) and metrics.get("by") and not _tells_metrics(raw):
        yield ("metrics", "by"), "metrics need `admin`, because they are served at the admin address"
    if isinstance(audit, dict) and audit.get("dir") is None and audit.get("kafka") is None and otlp.get("logs") is None:
        yield ("audit",), "an audit needs `dir` or `kafka`, somewhere to write to, or `logs: audit` in `otlp`"
    if otlp.get("logs") == "audit" and audit is None:
        yield ("otlp", "logs"), "logs need `audit`, for example {}"


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


DEFAULT_LISTEN = Address("127.0.0.1", 9092)
"""Kafka's usual port, for this machine only: an open proxy needs an explicit address."""


def load_config(path: str | Path) -> Config:
    """Read a config document. Raises DocumentError with all mistakes; does not read rules (`load_rules`)."""
    source = Source.open(Path(path))
    config = config_from(source, Path(path).parent)
    raise_mistakes([source])
    assert config is not None, "no config and no error"
    return config


def usable_config(source: Source, folder: Path, guard: PathGuard | None = None) -> Config:
    """Return the config in a document, which this system can run. `guard`: the document came over the admin API, see
    `config_from`. Raises DocumentError with every error."""
    config = config_from(source, folder, guard=guard)
    for where, message in system_needs(config) if config is not None else ():
        source.note(where, message)
    raise_mistakes([source])
    assert config is not None, "no config and no error"
    return config


def config_from(
    source: Source, folder: Path = Path(), environment: dict[str, str] | None = None, guard: PathGuard | None = None
) -> Config | None:
    """Return the config in a document that is already read. None: the document is invalid, and `source` has the errors.

    With a guard the document came over the admin API: the guard checks its file names, and variables are replaced in
    secrets only, because messages, steps and responses do not contain secrets.
    """
    if not source.is_yaml:
        return None
    may_replace = is_secret if guard is not None else lambda where: True
    value = to_value(source, variables=True, environment=environment, may_replace=may_replace)
    if not isinstance(value, dict):
        source.note((), f"expected a config document (mapping with clusters and listeners), got {found(value)}")
        return None
    config = validate(Config, value, source, context=FileContext(folder, guard))
    if config is not None and guard is not None:
        _check_sockets(source, config, guard)
    return None if source.lines() else config


def _check_sockets(source: Source, config: Config, guard: PathGuard) -> None:
    """Note the Unix sockets of clusters that the guard refuses."""
    for name, cluster in config.clusters.items():
        servers: list[tuple[Any, Address]] = [(("bootstrap", n), one) for n, one in enumerate(cluster.bootstrap)]
        servers += [(("dial", str(old)), new) for old, new in cluster.dial.items()]
        for where, server in servers:
            try:
                if server.host.startswith("/"):
                    guard.check_name(server.host)
            except OSError as error:
                source.note(("clusters", name, *where), reason(error))


def is_secret(where: Where) -> bool:
    """Return True if the setting at this path of a config document is a secret, or is hidden like one."""
    if where[:3] == ("audit", "kafka", "options"):  # librdkafka has many settings with secrets
        return True
    kinds: list[Any] = [Config]
    for part in where:
        kinds = [below for kind in kinds for below in _below(kind, part)]
    return any(SecretStr in (kind, *_alternatives(kind)) for kind in kinds)


def _alternatives(kind: Any) -> list[Any]:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _alternatives(inner[0])
    if origin in (Union, UnionType):
        return [one for part in inner for one in _alternatives(part)]
    return [kind]


def _below(kind: Any, part: Any) -> Iterator[Any]:
    """Yield the types that an annotation has for one of its keys or positions."""
    for one in _alternatives(kind):
        if get_origin(one) in (list, dict):
            yield get_args(one)[-1]
        elif isinstance(one, type) and issubclass(one, BaseModel):
            yield from (info.annotation for name, info in one.model_fields.items() if (info.alias or name) == part)


def config_from_flags(
    bootstrap: Iterable[Address],
    bind: Address = DEFAULT_LISTEN,
    rules: Iterable[str] = (),
    admin: AdminConfig | None = None,
    advertise: Advertise | None = None,
) -> Config:
    """Return a config with one cluster and one listener, both called `main`."""
    return Config(
        clusters={"main": ClusterConfig(bootstrap=list(bootstrap))},
        listeners=[ListenerConfig(name="main", bind=bind, cluster="main", advertise=advertise or Advertise())],
        rules=list(rules),
        admin=admin,
    )


def admin_from(text: str, config: AdminConfig | None = None) -> AdminConfig:
    """Return the config of an admin address given as a flag, all else as in `config`. Raises ValueError with the
    mistake."""
    bind = Address.parse(text)
    if (config is None or config.token is None) and (problem := exposed(bind)) is not None:
        raise ValueError(problem)
    return AdminConfig(bind=bind) if config is None else config.model_copy(update={"bind": bind})


def advertise_from(text: str) -> Advertise:
    """Return how brokers appear, read from `HOST` or `HOST:PORTS`. Raises ValueError with the mistake."""
    host, colon, ports = text.rpartition(":")
    if not colon or text.endswith("]"):
        return Advertise(host=check_host(text))
    if not ports:
        raise ValueError(f'"{text}" ends behind the colon, write {host} or {host}:9093-9100')
    return Advertise(host=check_host(host), ports=PortRange.parse(ports))


def is_config(source: Source) -> bool:
    """Return True if a document is meant as a config: it has a config's key, or `rules:` with names of files."""
    if not isinstance(source.root, Mapping):
        return False
    keys = {key.text: value for key, value in source.root.pairs if isinstance(key, Scalar)}
    rules = keys.get("rules")
    names_files = (
        isinstance(rules, Sequence) and bool(rules.items) and all(isinstance(one, Scalar) for one in rules.items)
    )
    return names_files or any(key in keys for key in Config.model_fields if key != "rules")


def rule_paths(source: Source, folder: Path, config: Config | None = None) -> list[str]:
    """Return the rule files and folders that a config document names, even if other parts of it are invalid. Missing
    ones are recorded as mistakes at their place; without a config, paths with a ${VARIABLE} are skipped."""
    value = to_value(source) if source.is_yaml else None
    named = value.get("rules") if isinstance(value, dict) else None
    if config is not None:
        paths = dict(enumerate(config.rules))
    else:
        texts = enumerate(named if isinstance(named, list) else ())
        paths = {index: str(folder / text) for index, text in texts if isinstance(text, str) and "${" not in text}
    missing = {index for index, path in paths.items() if not os.path.exists(path)}
    for index in missing:
        source.note(("rules", index), f'there is no file or folder "{paths[index]}"')
    return [path for index, path in paths.items() if index not in missing]


HAS_WORKERS = HAS_EPOLL and HAS_HAND_OVER and HAS_FORKS
NO_WORKERS = "several workers need Linux, because they pass connections between processes"


# Settings that need a feature of some systems: valid in any document, and refused where kproxy is to run.
#
# `kproxy check` does not ask for this: a config may be written and checked on a laptop, for servers.
def system_needs(config: Config) -> Iterator[Wrong]:
    """Yield the settings that cannot be used on this system, with the reason."""
    if config.workers > 1 and not HAS_WORKERS:
        yield ("workers",), NO_WORKERS
    for index, listener in enumerate(config.listeners):
        if listener.transparent is not None and not HAS_DIVERSION:
            yield ("listeners", index, "transparent"), "transparent needs Linux, because its kernel diverts connections"
    for name, cluster in config.clusters.items():
        if cluster.mark and not HAS_MARK:
            yield ("clusters", name, "mark"), "mark needs Linux, because its firewall matches it; 0: none"
        if UNIX < 0:
            for number, server in enumerate(cluster.bootstrap):
                yield from _no_unix(("clusters", name, "bootstrap", number), server)
            for target, server in cluster.dial.items():
                yield from _no_unix(("clusters", name, "dial", str(target)), server)
    if config.audit is not None and config.audit.dir is not None and not HAS_LOCKS:
        text = "event files need locks that go with their process, which Windows does not have; audit.kafka needs none"
        yield ("audit", "dir"), text


def _no_unix(where: tuple[str | int, ...], server: Address) -> Iterator[Wrong]:
    if server.host.startswith("/"):
        yield where, f"{server} is a socket with a path, which this system does not have"
