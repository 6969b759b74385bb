"""Differences between two configs, as the steps from one to the other: what is told of them, and what becomes of that
which is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from .document import Config, ListenerConfig

MOST = 20
"""Places that are named at most; those beyond are only counted."""


class Origin(NamedTuple):
    """Origin of a config: a name for people, the file that it is read from (None: it cannot change), and what flags of
    the command line say in place of the file."""

    name: str = "flags"
    path: Path | None = None
    adjust: Callable[[Config], Config] = lambda config: config
    watched: bool = False
    """True if the file is looked at, and applied when it has changed."""


FLAGS = Origin()

StepKind = Literal["added", "removed", "changed", "restart"]


class ConfigStep(NamedTuple):
    """Step from one config to another. `path` leads to it in the document, `name` is the same for people (such as
    `listeners.outside`), `fields` are those that differ, `effect` says what becomes of what is open."""

    kind: StepKind
    path: tuple[Any, ...]
    name: str
    fields: tuple[str, ...]
    effect: str


RESTART: Mapping[str, str] = {
    "workers": "worker processes are started once",
    "seed": "rules have begun with another seed",
    "audit": "its files are open, and events are numbered",
    "otlp": "exports have begun",
    "captures": "captures are being made",
    "state": "the file was read at the start",
    "instance": "events carry the name",
    "view": "those who look have been told what they may see",
    "metrics": "names have their series",
    "telemetry": "clients have been told what to send",
    "log": "lines have been written in one format",
    "admin": "its address is open",
}
"""Parts of a config that hold until a restart, and why."""

AT_ONCE: Mapping[str, Mapping[str, str]] = {
    "log": {"level": "from the next line on"},
    "admin": {
        "token": "from the next request on; streams that were begun with another token end",
        "read_token": "from the next request on; streams that were begun with another token end",
        "ready": "from the next probe on",
    },
}
"""Fields of such parts that change at once, and what becomes of them, where nothing else of the part changes: a new
token is never asked for at an old address, or an old one no more at a new address."""


def with_parts_of_start(config: Config, in_force: Config) -> Config:
    """Return the config with all that needs a restart as it is in force."""
    return config.model_copy(
        update={name: getattr(in_force, name) for name in RESTART if not changes_at_once(name, in_force, config)}
    )


def changes_at_once(name: str, before: Config, after: Config) -> bool:
    """Return True if all that differs in a part of two configs changes without a restart."""
    old, new = getattr(before, name), getattr(after, name)
    if name not in AT_ONCE or old is None or new is None:
        return False
    same: object = old.model_copy(update={field: getattr(new, field) for field in AT_ONCE[name]})
    return bool(same == new)


def steps(before: Config, after: Config) -> list[ConfigStep]:
    """Return the steps from one config to another, in the order of the document; what needs a restart comes last."""
    found = [*_clusters(before, after), *_listeners(before, after), *_limits(before, after)]
    if before.rules != after.rules:
        found.append(ConfigStep("changed", ("rules",), "rules", (), "the rules of these files, from the next frame on"))
    for name, why in RESTART.items():
        if changes_at_once(name, before, after):
            found += _at_once(name, before, after)
        elif getattr(before, name) != getattr(after, name):
            fields = tuple(_differences(getattr(before, name), getattr(after, name), name))[:MOST]
            found.append(ConfigStep("restart", (name,), name, fields, f"needs a restart: {why}"))
    return found


def _at_once(name: str, before: Config, after: Config) -> Iterator[ConfigStep]:
    old, new = getattr(before, name), getattr(after, name)
    for field, effect in AT_ONCE[name].items():
        if getattr(old, field) != getattr(new, field):
            written = type(new).model_fields[field].alias or field
            yield ConfigStep("changed", (name, written), f"{name}.{written}", (), effect)


def _clusters(before: Config, after: Config) -> Iterator[ConfigStep]:
    marks, marks_before = after.marks(), before.marks()
    for name, cluster in after.clusters.items():
        path, called = ("clusters", name), f"clusters.{name}"
        old = before.clusters.get(name)
        if old is None:
            yield ConfigStep("added", path, called, (), "is connected to for listeners that lead to it")
        elif (old, marks_before[name]) != (cluster, marks[name]):
            fields = tuple(_differences(old, cluster, called)) or (f"{called}.mark",)
            effect = "for connections that open from now on; open ones are outdated"
            if old.bootstrap != cluster.bootstrap or old.dial != cluster.dial:
                effect += ", and are closed if this is another cluster"
            yield ConfigStep("changed", path, called, fields, effect)
    for name in before.clusters:
        if name not in after.clusters:
            yield ConfigStep("removed", (), f"clusters.{name}", (), "ends with its last connection")


def _listeners(before: Config, after: Config) -> Iterator[ConfigStep]:
    known = {one.name: one for one in before.listeners}
    drained = f"its connections answer what is in flight within {after.limits.drain_timeout:g} s, and end"
    for index, one in enumerate(after.listeners):
        path, called = ("listeners", index), f"listeners.{one.name}"
        old = known.pop(one.name, None)
        if old is None:
            yield ConfigStep("added", path, called, (), f"opens {one.bind}")
        elif old != one:
            fields = tuple(_differences(old, one, called))
            yield ConfigStep("changed", path, called, fields, _changed_listener(old, one, drained))
    for name, old in known.items():
        yield ConfigStep("removed", (), f"listeners.{name}", (), f"closes {old.bind}; {drained}")


def _changed_listener(old: ListenerConfig, new: ListenerConfig, drained: str) -> str:
    if old.bind != new.bind or old.transparent != new.transparent:
        return f"opens {new.bind}, closes {old.bind}; {drained}"
    ages = {"max_connection_age": None, "max_connection_age_jitter": None}
    if old.model_copy(update=ages) == new.model_copy(update=ages):
        return "for connections that open from now on"
    return "keeps its socket; for connections that open from now on, open ones are outdated"


def _limits(before: Config, after: Config) -> Iterator[ConfigStep]:
    for name in type(after.limits).model_fields:
        if getattr(before.limits, name) != getattr(after.limits, name):
            new = name in ("max_frame_bytes", "max_in_flight", "max_connection_age", "max_connection_age_jitter")
            effect = "for connections that open from now on" if new else "at the next check"
            yield ConfigStep("changed", ("limits", name), f"limits.{name}", (), effect)


def changed_places(before: Config, after: Config) -> list[str]:
    """Return the places that differ, such as `limits.max_connections` and `listeners.outside.bind`."""
    found = list(dict.fromkeys(_differences(before, after, "")))
    if len(found) > MOST:
        return [*found[:MOST], f"{len(found) - MOST} more"]
    return found


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if before == after:
        return
    one, two = _parts(before), _parts(after)
    if one is None or two is None or (path and type(before) is not type(after)):
        yield path
        return
    for name in dict.fromkeys([*one, *two]):
        where = f"{path}.{name}" if path else name
        if name in one and name in two:
            yield from _differences(one[name], two[name], where)
        else:
            yield where


def _parts(value: Any) -> dict[str, Any] | None:
    """Return the parts of a value by name: fields of a model, values of a mapping, items of a list of named models.

    None for a value that has no such parts.
    """
    if isinstance(value, BaseModel):
        return {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {str(name): part for name, part in value.items()}
    if isinstance(value, list) and value and all(isinstance(one, BaseModel) and hasattr(one, "name") for one in value):
        return {one.name: one for one in value}
    return None
