"""Reading of a Config from a document or from command line flags."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr

from kproxy.base.named_file import PathGuard, reason
from kproxy.rules.kinds.advertise import Advertise
from kproxy.rules.values.address import Address, PortRange, check_host
from kproxy.rules.values.model import found, validate
from kproxy.rules.values.source import Source, Where, raise_mistakes, to_value
from kproxy.rules.values.tls import FileContext
from kproxy.rules.values.yaml_file import Mapping, Scalar, Sequence
from kproxy.runtime.config.network import ClusterConfig, ListenerConfig

from .document import AdminConfig, Config, exposed
from .system_needs import system_needs

DEFAULT_LISTEN = Address("127.0.0.1", 9092)
"""Kafka's usual port, for this machine only: a proxy that is open to others is asked for, never a default."""


def load_config(path: str | Path) -> Config:
    """Read a config document. Raises DocumentError with every mistake; rules are not read (`load_rules`)."""
    source = Source.open(Path(path))
    config = config_from(source, Path(path).parent)
    raise_mistakes([source])
    assert config is not None, "no config and no mistake"
    return config


def usable_config(source: Source, folder: Path, guard: PathGuard | None = None) -> Config:
    """Return the config in a document, which this system can run. `guard`: the document came over the admin API, see
    `config_from`. Raises DocumentError with every error."""
    config = config_from(source, folder, guard=guard)
    for where, message in system_needs(config) if config is not None else ():
        source.note(where, message)
    raise_mistakes([source])
    assert config is not None, "no config and no mistake"
    return config


def config_from(
    source: Source, folder: Path = Path(), environment: dict[str, str] | None = None, guard: PathGuard | None = None
) -> Config | None:
    """Return the config in a document that is already read. None: the document is invalid, and `source` has the errors.

    With a guard the document came over the admin API: the guard checks its file names, and variables are replaced in
    secrets only, which no message, step or response contains.
    """
    if not source.is_yaml:
        return None
    may_replace = is_secret if guard is not None else lambda where: True
    value = to_value(source, variables=True, environment=environment, may_replace=may_replace)
    if not isinstance(value, dict):
        source.note((), f"a config document is a mapping with clusters and listeners, found {found(value)}")
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
    """Return the types that an annotation allows."""
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
    """Return the config of an admin address given as a flag, all else as in `config`. Raises ValueError with what is
    wrong."""
    bind = Address.parse(text)
    if (config is None or config.token is None) and (problem := exposed(bind)) is not None:
        raise ValueError(problem)
    return AdminConfig(bind=bind) if config is None else config.model_copy(update={"bind": bind})


def advertise_from(text: str) -> Advertise:
    """Return how brokers appear, read from `HOST` or `HOST:PORTS`. Raises ValueError with what is wrong."""
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
    """Return the rule files and folders that a config document names, whatever else is wrong in it. Those that do not
    exist are noted as mistakes where they are named; without a config, those with a ${VARIABLE} are left out."""
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
