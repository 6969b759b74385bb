"""The manifests in deploy/kubernetes are what Kubernetes accepts, and hold a config that kproxy accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from kproxy.app.config.document import load_config
from kproxy.runtime.config.network import Limits
from tests.support import manifests

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))


def objects(name: str = "*.yaml") -> Iterator[dict[str, Any]]:
    for path in sorted(FOLDER.glob(name)):
        yield from yaml.safe_load_all(path.read_text())


def named(kind: str, name: str = "*.yaml") -> list[dict[str, Any]]:
    return manifests.named(objects(name), kind)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_object_follows_the_published_schema(path: Path) -> None:
    """No field that Kubernetes does not know, and none that it misses. PodMonitor is not of Kubernetes' own:
    test_helm.py looks at it."""
    manifests.follow_schema(yaml.safe_load_all(path.read_text()))


def test_a_field_that_kubernetes_does_not_know_would_be_found() -> None:
    wrong = named("Service")[0]
    wrong["spec"]["replicas"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        manifests.follow_schema([wrong])


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
    manifests.is_whole([*objects("central.yaml"), *objects("podmonitor.yaml"), *objects("networkpolicy.yaml")])


def test_the_monitor_gives_the_job_that_alerts_ask_for() -> None:
    """Without `jobLabel` the operator calls the job namespace/name, and "kproxy is down" would never fire."""
    (monitor,), (stateful,) = named("PodMonitor"), named("StatefulSet")
    job = stateful["spec"]["template"]["metadata"]["labels"][monitor["spec"]["jobLabel"]]
    alerts = (FOLDER.parent / "prometheus" / "alerts.yaml").read_text()

    assert set(re.findall(r'job="([^"]+)"', alerts)) == {job}


def test_a_pod_that_ends_leaves_the_service_before_it_stops_accepting() -> None:
    """There is time for the pause, the drain, and the audit's last lines before it is killed."""
    pause, grace = manifests.pause_and_grace(objects("central.yaml"))

    assert pause + Limits().drain_timeout + 10 <= grace


def test_pods_are_restricted() -> None:
    """Not root, nothing gained, a root file system that is only read: the strictest of the pod security standards."""
    for one in (*named("Deployment"), *named("StatefulSet")):
        manifests.are_restricted(one["spec"]["template"]["spec"])
