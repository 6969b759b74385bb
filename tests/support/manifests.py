"""Checks of Kubernetes manifests, wherever they come from: files, the Helm chart or Kustomize."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from kproxy.cli.check import command as check_command

from .built_programs import built
from .certificates import Authority

KUBERNETES = "1.33"
CUSTOM = ("monitoring.coreos.com/", "gateway.networking.k8s.io/")
"""APIs of custom resources, whose schemas are not Kubernetes' own."""


def follow_schema(objects: Iterable[dict[str, Any]]) -> None:
    """Check objects against the schemas that Kubernetes publishes, in which no unknown field is allowed. Raises
    ValidationError."""
    for one in objects:
        if not one["apiVersion"].startswith(CUSTOM):
            kubernetes_validate.validate(one, KUBERNETES, strict=True)


def follow_custom_schema(objects: Iterable[dict[str, Any]]) -> int:
    """Check custom resources against the definitions that their projects publish, and return how many there were."""
    count = 0
    for one in objects:
        if one["apiVersion"].startswith(CUSTOM):
            Draft202012Validator(_custom_schemas()[one["apiVersion"], one["kind"]]).validate(one)
            count += 1
    return count


@functools.cache
def _custom_schemas() -> dict[tuple[str, str], Any]:
    """Return the schema by API version and kind."""
    schemas = {}
    for path in built("crds").glob("*.yaml"):
        spec = yaml.load(path.read_text(), yaml.CSafeLoader)["spec"]
        for version in spec["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}  # Kubernetes' own
            schemas[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return schemas


def _strict(schema: Any) -> Any:
    """Return a schema of a definition in which no field is allowed that it does not name."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def named(objects: Iterable[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in objects if one["kind"] == kind]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the containers of a pod, those that begin first in front."""
    return [*pod.get("initContainers", ()), *pod["containers"]]


def are_restricted(pod: dict[str, Any]) -> None:
    """Check the strictest of the pod security standards: not root, nothing gained, a root file system that is only
    read."""
    for container in containers(pod):
        security = {**pod.get("securityContext", {}), **container["securityContext"]}
        assert security["runAsNonRoot"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}


def is_whole(objects: list[dict[str, Any]]) -> None:
    """Check what objects of central kproxys name of each other: services select the pods, monitors and probes name
    ports that containers have, volumes are there and mounted, and pods have time to end."""
    (stateful,) = named(objects, "StatefulSet")
    template = stateful["spec"]["template"]
    labels, pod = template["metadata"]["labels"], template["spec"]
    (container,) = pod["containers"]
    ports = {port["name"] for port in container["ports"]}
    services = named(objects, "Service")
    templates = [template, *(one["spec"]["template"] for one in named(objects, "Deployment"))]
    assert stateful["spec"]["serviceName"] in {one["metadata"]["name"] for one in services}
    for service in services:
        (selected,) = selected_by(service["spec"]["selector"], templates)["spec"]["containers"]
        asked = {port["targetPort"] for port in service["spec"]["ports"] if isinstance(port["targetPort"], str)}
        assert asked <= {port["name"] for port in selected["ports"]}
    for one in (*named(objects, "PodDisruptionBudget"), *named(objects, "Deployment"), stateful):
        selected_by(one["spec"]["selector"]["matchLabels"], templates)
    for one in named(objects, "Deployment"):
        are_restricted(one["spec"]["template"]["spec"])
    for policy in named(objects, "NetworkPolicy"):
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    for monitor in named(objects, "PodMonitor"):
        assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= ports
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
        assert container[probe]["httpGet"]["path"] == ("/readyz" if probe == "readinessProbe" else "/livez")
    for spread in pod["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"].items() <= labels.items()
    volumes = {one["name"] for one in pod["volumes"]}
    volumes |= {one["metadata"]["name"] for one in stateful["spec"].get("volumeClaimTemplates", ())}
    assert {one["name"] for one in container["volumeMounts"]} == volumes


def selected_by(labels: dict[str, str], templates: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the one template of pods that a selector is about. Raises ValueError where it is about none or several."""
    (found,) = (one for one in templates if labels.items() <= one["metadata"]["labels"].items())
    return found


def pause_and_grace(objects: Iterable[dict[str, Any]]) -> tuple[int, int]:
    """Return for how many seconds pods still accept when they end, and after how many they are killed."""
    (stateful,) = named(objects, "StatefulSet")
    pod = stateful["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    word, pause = container["lifecycle"]["preStop"]["exec"]["command"]
    assert word == "sleep"
    return int(pause), pod["terminationGracePeriodSeconds"]


def checked_config(
    config: dict[str, str], rules: dict[str, str], container: dict[str, Any], folder: Path, patch: pytest.MonkeyPatch
) -> str:
    """Return what `kproxy check` says of the config of a container, with what is mounted into it.

    `config` and `rules` are the data of ConfigMaps; each file in a mounted folder that the config names is there, and
    each variable is set that the container has, and no other.
    """
    mounts = [one["mountPath"] for one in container["volumeMounts"]]
    for variable in container.get("env", ()):
        patch.setenv(variable["name"], f"the-{variable['name'].lower().replace('_', '-')}")
    for mount in mounts:
        (folder / mount[1:]).mkdir(parents=True, exist_ok=True)
    said = {"users": "", "token": "a-token\n"}
    certificate = Authority(folder).issue("kafka.example.com", "*.kafka.example.com").read_text()
    for name, text in config.items():
        for path in re.findall(r"/etc/kproxy-[\w./-]+", text):
            mounted = any(path.startswith(f"{mount}/") for mount in mounts)
            if mounted:
                (folder / path[1:]).write_text(said.get(Path(path).name, certificate))
        there = re.sub(r"(/etc/kproxy-|/var/lib/kproxy)", rf"{folder}\1", text)
        (folder / "etc/kproxy" / name).write_text(there)
    for name, text in rules.items():
        (folder / "etc/kproxy-rules" / name).write_text(text)
    result = CliRunner().invoke(check_command, [str(folder / "etc/kproxy/kproxy.yaml")])
    assert result.exit_code == 0, result.output
    return result.output
