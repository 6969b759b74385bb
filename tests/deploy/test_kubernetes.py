"""The manifests in deploy/kubernetes are what Kubernetes accepts, and hold a config that kproxy accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from kproxy.config.limits import Limits
from kproxy.config.reader import load_config

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
KUBERNETES = "1.33"
FILES = sorted(FOLDER.glob("*.yaml"))
OUR_OWN_API = "monitoring.coreos.com/"


def objects(name: str = "*.yaml") -> Iterator[dict[str, Any]]:
    for path in sorted(FOLDER.glob(name)):
        yield from yaml.safe_load_all(path.read_text())


def named(kind: str, name: str = "*.yaml") -> Iterator[dict[str, Any]]:
    return (one for one in objects(name) if one["kind"] == kind)


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_object_follows_the_published_schema(path: Path) -> None:
    """No field that Kubernetes does not know, and none that it misses. PodMonitor is not of Kubernetes' own."""
    for one in yaml.safe_load_all(path.read_text()):
        if not one["apiVersion"].startswith(OUR_OWN_API):
            kubernetes_validate.validate(one, KUBERNETES, strict=True)


def test_a_field_that_kubernetes_does_not_know_would_be_found() -> None:
    wrong = next(named("Service"))
    wrong["spec"]["replicas"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


@pytest.mark.parametrize("file", ["sidecar.yaml", "central.yaml"])
def test_the_config_in_a_config_map_is_one(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As kproxy reads it in the pod, with the variables that its container has, and the files that are mounted."""
    (tmp_path / "token").write_text("secret")
    for name in ("POD_NAME", "POD_NAMESPACE"):
        monkeypatch.setenv(name, "kproxy-0")
    (config_map,) = named("ConfigMap", file)
    for name, text in config_map["data"].items():
        (tmp_path / name).write_text(text.replace("/etc/kproxy-token", str(tmp_path)))
    config = load_config(tmp_path / "kproxy.yaml")
    assert config.listeners[0].bind.port == 9092


def test_ports_of_nodes_leave_the_admin_port_alone() -> None:
    """And the network policy lets clients through to all of them, and to no other."""
    (policy,) = named("NetworkPolicy")
    clients, prometheus = policy["spec"]["ingress"]
    for config_map in named("ConfigMap"):
        config = yaml.safe_load(config_map["data"]["kproxy.yaml"])
        first, last = map(int, config["listeners"][0]["advertise"]["ports"].split("-"))
        assert (9092, last) == (clients["ports"][0]["port"], clients["ports"][0]["endPort"])
        admin = int(config["admin"]["bind"].rsplit(":", 1)[1])
        assert not first <= admin <= last
        assert prometheus["ports"][0]["port"] == admin


def test_what_an_object_names_is_there() -> None:
    """Services select the pods, monitors and probes name ports that containers have, volumes are there and mounted."""
    (stateful,) = named("StatefulSet")
    template = stateful["spec"]["template"]
    labels, pod = template["metadata"]["labels"], template["spec"]
    (container,) = pod["containers"]
    ports = {port["name"] for port in container["ports"]}
    for service in named("Service", "central.yaml"):
        assert service["spec"]["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    (monitor,) = named("PodMonitor")
    assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= ports
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
        assert container[probe]["httpGet"]["path"] == ("/readyz" if probe == "readinessProbe" else "/livez")
    volumes = {one["name"] for one in pod["volumes"]}
    volumes |= {one["metadata"]["name"] for one in stateful["spec"]["volumeClaimTemplates"]}
    assert {one["name"] for one in container["volumeMounts"]} == volumes


def test_the_monitor_gives_the_job_that_alerts_ask_for() -> None:
    """Without `jobLabel` the operator calls the job namespace/name, and "kproxy is down" would never fire."""
    (monitor,), (stateful,) = named("PodMonitor"), named("StatefulSet")
    job = stateful["spec"]["template"]["metadata"]["labels"][monitor["spec"]["jobLabel"]]
    alerts = (FOLDER.parent / "prometheus" / "alerts.yaml").read_text()

    assert set(re.findall(r'job="([^"]+)"', alerts)) == {job}


def test_a_pod_that_ends_leaves_the_service_before_it_stops_accepting() -> None:
    """There is time for the pause, the drain, and the audit's last lines before it is killed."""
    (stateful,) = named("StatefulSet")
    pod = stateful["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    word, pause = container["lifecycle"]["preStop"]["exec"]["command"]

    assert word == "sleep"
    assert int(pause) + Limits().drain_timeout + 10 <= pod["terminationGracePeriodSeconds"]


def test_pods_are_restricted() -> None:
    """Not root, nothing gained, a root file system that is only read: the strictest of the pod security standards."""
    for one in (*named("Deployment"), *named("StatefulSet")):
        pod = one["spec"]["template"]["spec"]
        for container in containers(pod):
            security = {**pod.get("securityContext", {}), **container["securityContext"]}
            assert security["runAsNonRoot"]
            assert security["readOnlyRootFilesystem"]
            assert not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}
