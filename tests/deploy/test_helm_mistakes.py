"""Values that are wrong, and what the Helm chart says of them: each mistake at its place, and no secret."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from kproxy.app.config.document import Config
from kproxy.runtime.config.network import ClusterConfig, ListenerConfig
from tests.support.helm import BROKERS, CHART, EVERYTHING, helm, refused

pytestmark = pytest.mark.tools("helm")
MISTAKES = yaml.safe_load((Path(__file__).parent / "helm_mistakes.yaml").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
NOT_HERE = "secrets are not allowed in values, use file:/etc/kproxy-secrets/NAME/KEY with NAME in `secrets`"


def whole(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with brokers, where they do not say what these are."""
    made = copy.deepcopy(values)
    if made.get("cluster", {}) is not None:
        made.setdefault("cluster", {}).setdefault("bootstrap", ["kafka:9092"])
    return made


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: next(iter(case["values"])))
def test_a_mistake_is_told_at_its_place(case: dict[str, Any]) -> None:
    """In one line, after Helm's own words, and nothing else with it."""
    said = refused(whole(case["values"]))
    found = said.partition("invalid values:\n")[2] or said.partition("kproxy:\n- ")[2]
    assert found.strip() == case["message"], said
    assert "hunter2" not in said


def test_all_mistakes_are_told_at_once() -> None:
    """Those of the schema first, then those that only a template sees."""
    shape = {"replicas": "3", "drain": {"pause": -1}}
    for each in ("at '/replicas'", "at '/drain/pause'"):
        assert each in refused(whole(shape))
    beyond = {"advertise": {"mode": "sni"}, "autoscaling": {"enabled": True, "min": 9, "max": 1}}
    for each in ("advertise.sni.domain", "listener.tls", "autoscaling"):
        assert f"\n{each}: " in refused(whole(beyond))


def keys(values: dict[str, Any], place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield where a value has a default."""
    for key, value in values.items():
        yield (*place, key)
        if isinstance(value, dict):
            yield from keys(value, (*place, key))


@pytest.mark.parametrize("place", list(keys(VALUES)), ids=".".join)
def test_a_key_without_a_value_is_none_or_a_mistake(place: tuple[str, ...]) -> None:
    """People write `config:` and make all below it a comment, which takes the default away. What the chart cannot do
    without is named by the schema, and no template stumbles over it."""
    for mode in ("ports", "nodes", "sni"):
        values: dict[str, Any] = copy.deepcopy(EVERYTHING)
        values["advertise"]["mode"] = mode
        below = values
        for key in place[:-1]:
            below = below.setdefault(key, {})
        below[place[-1]] = None
        done = helm("template", "kproxy", str(CHART), "--values", "-", stdin=json.dumps(values))
        if done.returncode:
            assert "meet the specifications of the schema" in done.stderr or "invalid values:" in done.stderr
            assert "<nil>" not in done.stderr and "nil pointer" not in done.stderr
        else:
            assert "<nil>" not in done.stdout


@pytest.mark.parametrize("release", ["1kproxy", "my.kproxy", "2026"])
def test_a_release_whose_service_could_not_be_made_is_told(release: str) -> None:
    done = helm("template", release, str(CHART), "--values", "-", stdin=json.dumps(BROKERS))
    assert "fullnameOverride: required, since" in done.stderr
    named = {**BROKERS, "fullnameOverride": "kproxy"}
    assert helm("template", release, str(CHART), "--values", "-", stdin=json.dumps(named)).returncode == 0


def secret_places(model: type[BaseModel], place: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield where a part of kproxy's config holds a secret."""
    for name, field in model.model_fields.items():
        for kind in kinds(field):
            if issubclass(kind, SecretStr):
                yield (*place, field.alias or name)
            elif issubclass(kind, BaseModel):
                entry = ("main",) if get_origin(field.annotation) is dict else ()
                yield from secret_places(kind, (*place, field.alias or name, *entry))


def kinds(field: FieldInfo) -> Iterator[type]:
    """Yield the types that a field may have, such as those of `Secret | None`."""
    waiting = [field.annotation]
    while waiting:
        one = waiting.pop()
        if isinstance(one, type):
            yield one
        waiting.extend(get_args(one))


SET_BY_CHART = {"admin", "listeners", "clusters"}
PLACES = [
    *secret_places(ClusterConfig, ("cluster",)),
    *secret_places(ListenerConfig, ("listener",)),
    *(place for place in secret_places(Config, ("config",)) if place[1] not in SET_BY_CHART),
]


def test_secrets_are_found() -> None:
    """The places that kproxy's models say."""
    assert ("cluster", "sasl", "password") in PLACES
    assert len(PLACES) >= 4


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_a_secret_in_the_values_is_refused_and_not_printed(place: tuple[str, ...]) -> None:
    """Wherever kproxy's config may have one."""
    values: dict[str, Any] = whole({})
    part = values
    for name in place[:-1]:
        part = part.setdefault(name, {})
    needed = {"sasl": {"mechanism": "PLAIN"}, "kafka": {"bootstrap": "b"}, "tls": {"cert": "c"}}
    many = place[-1] == "headers"  # each of which may be one
    part |= {place[-1]: {"authorization": "hunter2"} if many else "hunter2", **needed.get(place[-2], {})}
    if place[:2] == ("config", "otlp"):
        values["config"]["otlp"]["endpoint"] = "http://collector:4318"
    if place[:2] == ("config", "registries"):
        values["config"]["registries"]["main"] |= {"url": "https://schemas:8081", "username": "kproxy"}
    said = refused(values)
    assert f"{'.'.join(place)}{'.authorization' * many}: {NOT_HERE}" in said, said
    assert "hunter2" not in said
