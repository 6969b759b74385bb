"""Differences between two configs, as steps from one to the other: their names, and the effect on open connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from kproxy.runtime.config.network import ListenerConfig, is_reached_alike

from .document import Config

MOST = 20
"""Maximum number of places by name; the others are only counted."""


class Origin(NamedTuple):
    """Origin of a config: a name for people, the file that it is read from (None: it cannot change), and command-line
    flags that override the file."""

    name: str = "flags"
    path: Path | None = None
    adjust: Callable[[Config], Config] = lambda config: config
    watched: bool = False
    """True if the file is watched, and applied after changes."""


FLAGS = Origin()

StepKind = Literal["added", "removed", "changed", "restart"]


class ConfigStep(NamedTuple):
    """Step from one config to another. `path` leads to it in the document, `name` is the same for people (such as
    `listeners.outside`), `fields` are those that differ, `effect` describes the effect on open connections."""

    kind: StepKind
    path: tuple[Any, ...]
    name: str
    fields: tuple[str, ...]
    effect: str


RESTART: Mapping[str, str] = {
    "workers": "worker processes are started once",
    "seed": "rules have begun with another seed",
    "audit": "its files are open, and events are numbered",
    "otlp.logs": "the destination of events is fixed at the start",
    "captures": "captures are being made",
    "capture_topics": "captures are being made",
    "view.record_from_start": "earlier exchanges were not recorded",
    "state": "the file was read at the start",
    "instance": "events carry the name",
    "log.format": "lines have been written in one format",
    "admin": "its address is open",
}
"""Parts of a config, and fields of parts, that need a restart, with the reason."""

FROM_NEXT_LOOK = "from the next scrape; counts stay, names without a series are counted as other"
FROM_NEXT_ASKING = "at the next push or subscription request of each client"
FROM_NEXT_EXPORT = "from the next export, including pending items"

AT_ONCE: Mapping[str, Mapping[str, str]] = {
    "log": {"level": "from the next line"},
    "admin": {
        "token": "from the next request; streams with another token end",
        "read_token": "from the next request; streams with another token end",
        "ready": "from the next probe",
    },
    "metrics": {"by": FROM_NEXT_LOOK, "series": FROM_NEXT_LOOK, "only": FROM_NEXT_LOOK},
    "telemetry": {
        "serve": "for new connections; clients that lose their subscription are notified",
        "listeners": "for new connections; clients that lose their subscription are notified",
        "metrics": FROM_NEXT_ASKING,
        "interval": FROM_NEXT_ASKING,
        "to": "from the next push",
        "labels": "from the next push; series with other labels end",
    },
    "otlp": {
        "endpoint": FROM_NEXT_EXPORT,
        "headers": FROM_NEXT_EXPORT,
        "tls": FROM_NEXT_EXPORT,
        "encoding": FROM_NEXT_EXPORT,
        "semconv": FROM_NEXT_EXPORT,
        "timeout": FROM_NEXT_EXPORT,
        "metrics": "the next export follows after this interval; if exports end, all numbers are sent a last time",
        "traces": "for new exchanges; pending spans are sent",
    },
    "view": {
        "enabled": "from the next request; streams of views end, and restart if allowed",
        "write": "from the next request; streams of views end, and restart if allowed",
        "records": "from the next request; streams of views end, and restart if allowed",
        "unmasked": "from the next request; tails with originals end",
        "buffer_size": "at once; the oldest exchanges are evicted",
    },
}
"""Fields that change at once, with the effect. A part named in `RESTART` changes at once only if nothing else in it
changes: an old address never asks for a new token, and a new address never asks for the old token."""

COMES_OR_GOES: Mapping[str, tuple[str, str]] = {
    "telemetry": (
        "clients are asked on new connections",
        "clients receive an empty subscription at their next push or request",
    ),
    "otlp": ("from now on", "pending items are sent for some seconds, then exports end"),
}
"""Effects of parts that a reload adds or removes at once."""

PARTS = tuple(dict.fromkeys([*(name.partition(".")[0] for name in RESTART), *AT_ONCE]))
"""Parts with fields that need a restart, or that change as `AT_ONCE` describes."""


def written_paths(config: Config) -> list[str]:
    """Return the files and folders that kproxy writes with this config. All of them hold until a restart."""
    audit = None if config.audit is None else config.audit.dir
    return [path for path in (audit, config.captures, config.state) if path is not None]


def with_parts_of_start(config: Config, in_force: Config) -> Config:
    """Return the config with all fields that need a restart as in force."""
    return config.model_copy(update={name: _without_restart(name, in_force, config) for name in PARTS})


def _without_restart(name: str, before: Config, after: Config) -> Any:
    """Return a part of `after`, with the fields that need a restart taken from `before`."""
    old, new, held = getattr(before, name), getattr(after, name), _held(name, before, after)
    if name in held:
        return old
    return new.model_copy(update={field: getattr(old, field) for field in held}) if held else new


def _held(name: str, before: Config, after: Config) -> dict[str, str]:
    """Return the fields of a part that differ and need a restart, each with the reason; the part's own name means all
    its fields."""
    old, new = getattr(before, name), getattr(after, name)
    if old == new:
        return {}
    if name in RESTART:
        return {} if _is_at_once(name, old, new) else {name: RESTART[name]}
    fields = {field.partition(".")[2]: why for field, why in RESTART.items() if field.startswith(f"{name}.")}
    if old is None or new is None:
        there = new if old is None else old
        usual = {field: type(there).model_fields[field].get_default(call_default_factory=True) for field in fields}
        reasons = [why for field, why in fields.items() if getattr(there, field) != usual[field]]
        return {name: reasons[0]} if reasons else {}
    return {field: why for field, why in fields.items() if getattr(old, field) != getattr(new, field)}


def _is_at_once(name: str, old: Any, new: Any) -> bool:
    """Return True if all differences of a part change without a restart."""
    if name not in AT_ONCE or old is None or new is None:
        return False
    return bool(old.model_copy(update={field: getattr(new, field) for field in AT_ONCE[name]}) == new)


def steps(before: Config, after: Config) -> list[ConfigStep]:
    """Return the steps from one config to another, in the order of the document; steps that need a restart come
    last."""
    found = [*_clusters(before, after), *_listeners(before, after), *_registries(before, after)]
    found += _limits(before, after)
    if before.rules != after.rules:
        found.append(ConfigStep("changed", ("rules",), "rules", (), "the rules of these files, from the next frame"))
    for name in PARTS:
        if name not in _held(name, before, after):
            found += _at_once(name, before, after)
    for name in PARTS:
        found += _restarts(name, before, after)
    return found


def _at_once(name: str, before: Config, after: Config) -> Iterator[ConfigStep]:
    old, new = getattr(before, name), getattr(after, name)
    if old is None or new is None:
        if new is not None:
            yield ConfigStep("added", (name,), name, (), COMES_OR_GOES[name][0])
        elif old is not None:
            yield ConfigStep("removed", (), name, (), COMES_OR_GOES[name][1])
        return
    for field, effect in AT_ONCE.get(name, {}).items():
        if getattr(old, field) != getattr(new, field):
            written = _written(new, field)
            yield ConfigStep("changed", (name, written), f"{name}.{written}", (), effect)


def _restarts(name: str, before: Config, after: Config) -> Iterator[ConfigStep]:
    old, new = getattr(before, name), getattr(after, name)
    for field, why in _held(name, before, after).items():
        effect = f"needs a restart: {why}"
        if field == name:
            yield ConfigStep("restart", (name,), name, tuple(_differences(old, new, name))[:MOST], effect)
        else:
            written = _written(new, field)
            yield ConfigStep("restart", (name, written), f"{name}.{written}", (), effect)


def _written(part: BaseModel, field: str) -> str:
    return type(part).model_fields[field].alias or field


def _clusters(before: Config, after: Config) -> Iterator[ConfigStep]:
    marks, marks_before = after.marks(), before.marks()
    for name, cluster in after.clusters.items():
        path, called = ("clusters", name), f"clusters.{name}"
        old = before.clusters.get(name)
        if old is None:
            yield ConfigStep("added", path, called, (), "is connected to for listeners that lead to it")
        elif (old, marks_before[name]) != (cluster, marks[name]):
            fields = tuple(_differences(old, cluster, called)) or (f"{called}.mark",)
            effect = "for new connections; open ones are outdated"
            if not is_reached_alike(old, cluster):
                effect += "; another cluster id is refused, or with allow_cluster_change closes them"
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


def _registries(before: Config, after: Config) -> Iterator[ConfigStep]:
    for name, one in after.registries.items():
        old, called = before.registries.get(name), f"registries.{name}"
        if old is None:
            yield ConfigStep("added", ("registries", name), called, (), "for the next lookup of a schema")
        elif old != one:
            fields = tuple(_differences(old, one, called))
            yield ConfigStep("changed", ("registries", name), called, fields, "its schemas are requested again")
    for name in before.registries.keys() - after.registries.keys():
        yield ConfigStep("removed", (), f"registries.{name}", (), "its schemas are discarded")


def _changed_listener(old: ListenerConfig, new: ListenerConfig, drained: str) -> str:
    if old.bind != new.bind or old.transparent != new.transparent:
        return f"opens {new.bind}, closes {old.bind}; {drained}"
    ages = {"max_connection_age": None, "max_connection_age_jitter": None}
    if old.model_copy(update=ages) == new.model_copy(update=ages):
        return "for new connections"
    return "keeps its socket; for new connections, open ones are outdated"


def _limits(before: Config, after: Config) -> Iterator[ConfigStep]:
    for name in type(after.limits).model_fields:
        if getattr(before.limits, name) != getattr(after.limits, name):
            new = name in ("max_frame_bytes", "max_in_flight", "max_connection_age", "max_connection_age_jitter")
            effect = "for new connections" if new else "at the next check"
            fields = tuple(_differences(before.limits.content, after.limits.content, "")) if name == "content" else ()
            yield ConfigStep("changed", ("limits", name), f"limits.{name}", fields, effect)


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

    None for a value without such parts.
    """
    if isinstance(value, BaseModel):
        return {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {str(name): part for name, part in value.items()}
    if isinstance(value, list) and value and all(isinstance(one, BaseModel) and hasattr(one, "name") for one in value):
        return {one.name: one for one in value}
    return None
