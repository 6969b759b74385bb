"""Definitions of kproxy's config in the schema of the Helm chart's values, made from the models.

Strategy. `deploy/helm/kproxy/values.schema.json` is written by hand but for `$defs`: what the chart hands on to kproxy
may say what kproxy's config says, without the keys that the chart sets itself. Definitions are made plain on the way:
Helm drops a null before it looks, so that only what else is allowed is left, and a mistake is told in one line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kproxy.app.config.document import Config

FILE = Path(__file__).parents[1] / "deploy" / "helm" / "kproxy" / "values.schema.json"
SET_BY_CHART = {
    "Config": {"admin", "clusters", "instance", "listeners", "rules", "state"},
    "Limits": {"drain_timeout", "shutdown_delay"},
    "ListenerConfig": {"advertise", "bind", "cluster", "hosts", "name", "transparent"},
}
"""Keys of kproxy's config by model that the values must not have."""
NOT_IN_DRAFT = {"ge", "gt", "le", "lt"}
"""Bounds of values with units, such as 10s: a schema cannot say them, kproxy does."""
NULL = {"type": "null"}


def chart_schema() -> str:
    """Return the text of the schema, with definitions made anew."""
    schema = json.loads(FILE.read_text())
    schema["$defs"] = definitions()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def definitions() -> dict[str, Any]:
    """Return what the values may say of kproxy's config, by name of the model."""
    models = Config.model_json_schema()
    found = models.pop("$defs") | {"Config": models}
    for name, keys in SET_BY_CHART.items():
        for key in keys:
            del found[name]["properties"][key]
        found[name]["required"] = [key for key in found[name].get("required", ()) if key not in keys]
    used: dict[str, Any] = {}
    for name in ("ClusterConfig", "ListenerConfig", "Config"):
        _take(name, found, used)
    return dict(sorted(used.items()))


def _take(name: str, found: dict[str, Any], used: dict[str, Any]) -> None:
    """Put a definition into `used`, made plain, and those that it refers to."""
    if name not in used:
        used[name] = {}
        used[name] = _plain(found[name])
        for other in set(found) - set(used):
            if f'"#/$defs/{other}"' in json.dumps(used[name]):
                _take(other, found, used)


def _plain(schema: Any) -> Any:
    """Return a schema without titles of fields, nulls and bounds that it cannot hold."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: {name: _plain(one) for name, one in value.items()} if key == "properties" else _plain(value)
        for key, value in schema.items()
        if key not in NOT_IN_DRAFT and not (key in ("title", "default") and not isinstance(value, dict))
    }
    options = [one for one in kept.get("anyOf", ()) if one != NULL]
    if "anyOf" not in kept:
        return {key: value for key, value in kept.items() if key != "required" or value}
    del kept["anyOf"]
    if len(options) == 1:
        return {**options[0], **kept}
    if all(set(one) == {"type"} for one in options):
        return {"type": [one["type"] for one in options], **kept}
    return {"anyOf": options, **kept}
