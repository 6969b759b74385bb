"""Reading of a Config from a document or from command line flags."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kproxy.rules.document.address import Address, PortRange, check_host
from kproxy.rules.document.model import found, validate
from kproxy.rules.document.source import Source, raise_mistakes
from kproxy.rules.document.values import to_value
from kproxy.rules.document.yaml_file import Mapping, Scalar, Sequence

from .document import AdminConfig, Advertise, ClusterConfig, Config, ListenerConfig, exposed
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


def usable_config(source: Source, folder: Path) -> Config:
    """Return the config in a document, which this system can run. Raises DocumentError with every mistake."""
    config = config_from(source, folder)
    for where, message in system_needs(config) if config is not None else ():
        source.note(where, message)
    raise_mistakes([source])
    assert config is not None, "no config and no mistake"
    return config


def config_from(source: Source, folder: Path = Path(), environment: dict[str, str] | None = None) -> Config | None:
    """Return the config in a document that is already read; None if it has mistakes, which the source then holds."""
    if not source.is_yaml:
        return None
    value = to_value(source, variables=True, environment=environment)
    if not isinstance(value, dict):
        source.note((), f"a config document is a mapping with clusters and listeners, found {found(value)}")
        return None
    config = validate(Config, value, source, context={"folder": folder})
    return None if source.lines() else config


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
