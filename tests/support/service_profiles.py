"""The profiles of deploy/profiles before one cluster: a listener for each, with its rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kproxy.testing.process import HOST, ROOM, free_port_with_room

PROFILES = Path(__file__).parents[2] / "deploy" / "profiles"
NAMES = sorted(path.stem for path in PROFILES.glob("*.yaml"))


def rules_of(name: str) -> list[dict[str, Any]]:
    """Return the rules of a profile for connections of the listener with its name."""
    rules = yaml.safe_load((PROFILES / f"{name}.yaml").read_text())["rules"]
    return [rule | {"match": rule.get("match", {}) | {"listener": name}} for rule in rules]


def options(bootstrap: str) -> dict[str, Any]:
    """Return the config and the rules of a proxy with a listener for each profile, as arguments of `Proxy`."""
    listeners = []
    for name in NAMES:
        port = free_port_with_room(ROOM)
        advertise = {"ports": f"{port + 1}-{port + ROOM}"}
        listeners.append({"name": name, "bind": f"{HOST}:{port}", "cluster": "main", "advertise": advertise})
    config = {"clusters": {"main": {"bootstrap": bootstrap.split(",")}}, "listeners": listeners}
    return {"config": config, "rules": [rule for name in NAMES for rule in rules_of(name)]}


def addresses(made: dict[str, Any]) -> dict[str, str]:
    """Return the address of each profile's listener in such arguments."""
    return {one["name"]: one["bind"] for one in made["config"]["listeners"]}
