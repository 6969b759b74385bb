"""The Kustomize overlays: kproxy beside an application, as Kubernetes and kproxy accept it."""

from __future__ import annotations

import copy
import functools
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import manifests
from tests.support.built_programs import built
from tests.support.manifests import named

pytestmark = pytest.mark.tools("kustomize")
DEPLOY = Path(__file__).parents[2] / "deploy"
OVERLAYS = sorted((DEPLOY / "kustomize" / "overlays").iterdir())


@functools.cache
def overlay(folder: Path) -> list[dict[str, Any]]:
    """Return the objects of an overlay; nobody changes them."""
    return built_by_kustomize(folder)


def built_by_kustomize(folder: Path) -> list[dict[str, Any]]:
    """Return the objects of a folder."""
    done = subprocess.run([built("kustomize"), "build", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader))


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (deployment,) = named(objects, "Deployment")
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda folder: folder.name)
def test_an_overlay_is_accepted(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Kubernetes' schemas, and by `kproxy check` with what is mounted. kproxy listens where only its pod reaches it,
    and ends after the application."""
    objects = overlay(folder)
    manifests.follow_schema(objects)
    pod = pod_of(objects)
    manifests.are_restricted(pod)
    (kproxy,) = pod["initContainers"]
    assert kproxy["restartPolicy"] == "Always"
    (config,) = named(objects, "ConfigMap")
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert {one["name"] for one in kproxy["volumeMounts"]} == set(volumes)
    assert volumes["kproxy-config"]["configMap"]["name"] == config["metadata"]["name"]
    assert "mistake" not in manifests.checked_config(config["data"], {}, kproxy, tmp_path, monkeypatch)
    document = yaml.safe_load(config["data"]["kproxy.yaml"])
    for bind in (document["listeners"][0]["bind"], document["admin"]["bind"]):
        assert bind.startswith("127.0.0.1:")


def test_the_plain_overlay_is_the_sidecar_of_the_manifests() -> None:
    """Apart from name and label, by which Kustomize finds things, and from first lines for editors."""
    by_hand = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "sidecar.yaml").read_text()))
    made = copy.deepcopy(overlay(DEPLOY / "kustomize" / "overlays" / "plain"))
    for objects in (by_hand, made):
        (config,), pod = named(objects, "ConfigMap"), pod_of(objects)
        for volume in pod["volumes"]:
            assert volume["configMap"]["name"] == config["metadata"]["name"]
            volume["configMap"]["name"] = ""
        config["metadata"]["name"] = ""
        config["data"] = {name: yaml.safe_load(text) for name, text in config["data"].items()}
        (deployment,) = named(objects, "Deployment")
        deployment["metadata"]["labels"].pop("kproxy", None)
    assert sorted(made, key=lambda one: one["kind"]) == sorted(by_hand, key=lambda one: one["kind"])


def test_an_application_that_has_more_keeps_it(tmp_path: Path) -> None:
    """kproxy comes in front of other init containers, which may want Kafka, too; what has no label stays as it is."""
    app = yaml.safe_load((DEPLOY / "kustomize" / "base" / "app.yaml").read_text())
    spec = app["spec"]["template"]["spec"]
    spec["initContainers"] = [{"name": "migrate", "image": "registry.example.com/migrate:1.0"}]
    spec["volumes"] = [{"name": "cache", "emptyDir": {}}]
    other = yaml.safe_load((DEPLOY / "kustomize" / "base" / "app.yaml").read_text())
    other["metadata"] = {"name": "other"}
    (tmp_path / "app.yaml").write_text(yaml.safe_dump_all([app, other]))
    component = os.path.relpath(DEPLOY / "kustomize" / "sidecar", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["app.yaml"], "components": [component]}))
    objects = built_by_kustomize(tmp_path)
    manifests.follow_schema(objects)
    (made,) = (one for one in named(objects, "Deployment") if one["metadata"]["name"] == "app")
    pod = made["spec"]["template"]["spec"]
    assert [one["name"] for one in manifests.containers(pod)] == ["kproxy", "migrate", "app"]
    assert {one["name"] for one in pod["volumes"]} == {"cache", "kproxy-config"}
    assert other in objects


def test_another_config_starts_pods_anew() -> None:
    """Since its ConfigMap has another name."""
    names = {named(overlay(folder), "ConfigMap")[0]["metadata"]["name"] for folder in OVERLAYS}
    assert len(names) == len(OVERLAYS)
