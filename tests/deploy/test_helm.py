"""The Helm chart: what comes out of it is what Kubernetes accepts, with a config that kproxy accepts."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, ValidationError

from kproxy.runtime.config.network import Limits
from tests.support import manifests
from tests.support.helm import BROKERS, CHART, EVERYTHING, FOLDER, SETS, helm, rendered
from tests.support.manifests import named

pytestmark = pytest.mark.tools("helm", "crds")
DEPLOY = FOLDER.parent
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
every_set = pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)


@functools.cache
def set_of_values(name: str) -> list[dict[str, Any]]:
    """Return what comes out of a documented set; nobody changes it."""
    return rendered("--values", str(FOLDER / "values" / name))


def template(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (stateful,) = named(objects, "StatefulSet")
    pod: dict[str, Any] = stateful["spec"]["template"]
    return pod


def config_map(objects: list[dict[str, Any]], name: str = "kproxy") -> dict[str, str]:
    (found,) = (one["data"] for one in named(objects, "ConfigMap") if one["metadata"]["name"] == name)
    data: dict[str, str] = found
    return data


def config(objects: list[dict[str, Any]]) -> dict[str, Any]:
    name = template(objects)["spec"]["volumes"][0]["configMap"]["name"]
    document: dict[str, Any] = yaml.safe_load(config_map(objects, name)["kproxy.yaml"])
    return document


@every_set
def test_a_documented_set_is_accepted(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the schemas of Kubernetes and of custom resources, and by `kproxy check` with what is mounted. No pod may
    more than it needs, has less time to end than it takes, or names what is not there."""
    objects = set_of_values(path.name)
    manifests.follow_schema(objects)
    manifests.follow_custom_schema(objects)
    manifests.is_whole(objects)
    pod = template(objects)["spec"]
    manifests.are_restricted(pod)
    pause, grace = manifests.pause_and_grace(objects)
    document = config(objects)
    drain = document["limits"]["drain_timeout"]
    assert pause + int(drain.removesuffix("s")) + 10 <= grace
    (container,) = pod["containers"]
    mounted = {one["name"]: one.get("configMap", {}).get("name") for one in pod["volumes"]}
    rules = {one["metadata"]["name"]: one["data"] for one in named(objects, "ConfigMap")}.get(mounted["rules"], {})
    said = manifests.checked_config(
        config_map(objects, str(mounted["config"])), rules, container, tmp_path, monkeypatch
    )  # fmt: skip
    assert all(f"/etc/kproxy-rules/{name}: " in said for name in rules)


def test_sets_of_values_show_each_object_that_there_is() -> None:
    """So that what they are checked for is about all of the chart."""
    kinds = {one["kind"] for path in SETS for one in set_of_values(path.name)}
    templates = "\n".join(path.read_text() for path in CHART.glob("templates/*.yaml"))
    assert kinds == set(re.findall(r"^kind: (\w+)", templates, re.MULTILINE))


def test_custom_resources_are_looked_at() -> None:
    """The definitions that their projects publish know what the chart and deploy/kubernetes say, and nothing more."""
    watched, gateway = (set_of_values(f"{one}.yaml") for one in ("watched", "gateway"))
    by_hand = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "podmonitor.yaml").read_text()))
    assert [manifests.follow_custom_schema(one) for one in (watched, gateway, by_hand)] == [2, 1, 1]
    wrong = copy.deepcopy(by_hand)
    wrong[0]["spec"]["podMetricsEndpoints"][0]["colour"] = "red"
    with pytest.raises(ValidationError):
        manifests.follow_custom_schema(wrong)


def test_routes_are_of_the_api_that_the_cluster_has() -> None:
    """TLSRoute was alpha until Gateway API 1.5."""
    words = ("--values", str(FOLDER / "values" / "gateway.yaml"), "--api-versions")
    alpha, v1 = (f"gateway.networking.k8s.io/{one}" for one in ("v1alpha2", "v1"))
    old = rendered(*words, f"{alpha}/TLSRoute")
    assert [one["apiVersion"] for one in named(old, "TLSRoute")] == [alpha]
    assert manifests.follow_custom_schema(old) == 1
    both = rendered(*words, f"{alpha}/TLSRoute,{v1}/TLSRoute")
    assert [one["apiVersion"] for one in named(both, "TLSRoute")] == [v1]


@pytest.mark.parametrize("name", ["kproxy", "kproxy-shop"])
def test_alerts_are_those_of_the_repository(name: str) -> None:
    """Nobody keeps a second copy; they ask for the job that the monitor gives."""
    on = {"enabled": True}
    objects = rendered(values={**BROKERS, "nameOverride": name, "podMonitor": on, "prometheusRule": on})
    (rule,), (monitor,) = named(objects, "PrometheusRule"), named(objects, "PodMonitor")
    text = yaml.safe_dump(ALERTS).replace('job="kproxy"', f'job="{name}"')
    assert rule["spec"] == yaml.safe_load(text)
    assert template(objects)["metadata"]["labels"][monitor["spec"]["jobLabel"]] == name
    assert set(re.findall(r'job="([^"]+)"', yaml.safe_dump(rule))) == {name}
    assert (CHART / "alerts.yaml").resolve() == DEPLOY / "prometheus" / "alerts.yaml"


def test_the_webhook_is_monitored_where_it_is_there() -> None:
    """By its own port, and under a job of its own, of which the alert about certificates knows, too."""
    path = FOLDER / "values" / "webhook.yaml"
    objects = rendered("--values", str(path), "--set", "podMonitor.enabled=true,admin.tokenSecret.name=t")
    own, monitor = named(objects, "PodMonitor")
    pod = next(one for one in named(objects, "Deployment"))["spec"]["template"]
    labels, (container,) = pod["metadata"]["labels"], pod["spec"]["containers"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert not own["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels[monitor["spec"]["jobLabel"]] == "kproxy-webhook"
    (asked,) = monitor["spec"]["podMetricsEndpoints"]
    assert asked["port"] in {one["name"] for one in container["ports"]}
    assert manifests.follow_custom_schema(objects) == 2


def test_the_pod_is_that_of_the_manifests() -> None:
    """What central.yaml and the chart say of a container agrees, but for where rules are mounted and a volume."""
    central = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "central.yaml").read_text()))
    values = {**BROKERS, "image": {"repository": "kproxy"}}  # `make home` sets another default
    (there,), (here,) = (template(one)["spec"]["containers"] for one in (central, rendered(values=values)))
    own = {"imagePullPolicy", "volumeMounts"}
    assert {key: value for key, value in here.items() if key not in own} == {
        key: value for key, value in there.items() if key not in own
    }
    theirs, ours = config(central), config(rendered(values=BROKERS))
    assert ours["listeners"][0]["advertise"] == theirs["listeners"][0]["advertise"]
    assert ours["admin"] == theirs["admin"]


def test_services_have_the_ports_of_the_way_that_brokers_are_reached() -> None:
    """And a network policy lets clients in by these, and by no other."""
    policy = {"networkPolicy": {"enabled": True}}

    def seen(**values: Any) -> tuple[list[tuple[int, Any]], list[tuple[int, int]]]:
        objects = rendered(values={**BROKERS, **policy, **values})
        (service,) = (one for one in named(objects, "Service") if not one["metadata"]["name"].endswith("-pods"))
        (rules,) = (one["spec"]["ingress"] for one in named(objects, "NetworkPolicy"))
        return (
            [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]],
            [(port["port"], port.get("endPort", port["port"])) for port in rules[0]["ports"]],
        )

    tls = {"listener": {"tls": {"cert": "/etc/kproxy-files/a/cert"}}, "configMaps": {"a": "certs"}}
    nodes = {"mode": "nodes", "nodes": {"host": "kafka.example.com", "ports": {"7": 20007, "8": 20008}}}
    sni = {"mode": "sni", "sni": {"domain": "kafka.example.com", "port": 443}}
    assert seen(advertise={"ports": {"first": 20000, "last": 20099}}) == (
        [(9092, "kafka")],
        [(9092, 9092), (20000, 20099)],
    )
    assert seen(advertise=nodes) == (
        [(9092, "kafka"), (20007, 20007), (20008, 20008)], [(9092, 9092), (20007, 20007), (20008, 20008)]
    )  # fmt: skip
    assert seen(advertise=sni, **tls) == ([(443, "kafka")], [(9092, 9092)])


def test_pods_start_anew_for_another_config_only() -> None:
    """Rules are read while kproxy runs, unless it is asked for that their mistakes stop at the first pod."""

    def annotations(**values: Any) -> dict[str, str]:
        found: dict[str, str] = template(rendered(values={**BROKERS, **values}))["metadata"]["annotations"]
        return found

    rules = {"a.yaml": {"rules": [{"name": "late", "kind": "delay", "delay": "1ms"}]}}
    before = annotations()
    assert annotations(rules=rules) == before != annotations(config={"workers": 2})
    assert annotations(rules=rules, restartOnRules=True) != annotations(restartOnRules=True)


def test_rules_may_come_as_text(tmp_path: Path) -> None:
    """As Helm's --set-file gives them: comments and order stay."""
    file = tmp_path / "names.yaml"
    file.write_text("# what teams call them\nrules:\n  - {name: one, kind: delay, delay: 1ms}\n")
    objects = rendered("--set-file", rf"rules.names\.yaml={file}", values=BROKERS)
    assert config_map(objects, "kproxy-rules") == {"names.yaml": file.read_text()}


def test_text_of_rules_arrives_as_it_is() -> None:
    """However its first line is indented, and whatever it ends with."""
    for text in ("  # indented\nrules: []\n", "\n\n   rules: []", "# \t\rü\nrules: []", "--- |\n x"):
        objects = rendered(values={**BROKERS, "rules": {"a.yaml": text}})
        assert config_map(objects, "kproxy-rules") == {"a.yaml": text}


WORDS = (
    "123",
    "1e3",
    "true",
    "null",
    "~",
    "0x1f",
    "0o17",
    "2026-01-01",
    "on",
    'a"b',
    "a: b #c",
    "x}\n  y: z",
    "{{ .Values }}",
)
NAMES_ONLY = ("123", "1e3", "0x1f", "true", "null", "on", "007", "2026-01-01")


def texts(schema: dict[str, Any], place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield where the chart's own values are text."""
    for name, below in schema.get("properties", {}).items():
        if below.get("type") == "string":
            yield (*place, name)
        yield from texts(below, (*place, name))


def shape(value: Any) -> Any:
    """Return what there is of a document's values without the values of its text."""
    if isinstance(value, dict):
        return {key: shape(below) for key, below in value.items()}
    return [shape(below) for below in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize("place", list(texts(SCHEMA)), ids=".".join)
def test_text_stays_text(place: tuple[str, ...]) -> None:
    """Kubernetes takes no number for a name, and takes `null` for none at all: what the schema lets pass makes objects
    of the same shape, whatever YAML would make of it."""

    def made(text: str) -> Any:
        values: dict[str, Any] = copy.deepcopy(EVERYTHING)
        values["advertise"]["mode"] = "sni" if place[:2] == ("advertise", "sni") else "nodes"
        if place[0] == "service":
            values["service"] = {"type": "LoadBalancer"}
        if place[-1] == "certManager":
            del values["webhook"]["caBundle"]
        if place[0] == "advertise" and place[-1] in ("namespace", "sectionName"):
            values["advertise"]["sni"]["gateway"] = {"name": "a"}
        below = values
        for key in place[:-1]:
            below = below.setdefault(key, {})
        below[place[-1]] = text
        done = helm("template", "kproxy", str(CHART), "--values", "-", stdin=json.dumps(values))
        if "the specifications of the schema" in done.stderr or "invalid values" in done.stderr:
            return None
        assert done.returncode == 0, (text, done.stderr)
        return [shape(one) for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one]

    shapes = [(text, found) for text in ("abc", *WORDS) if (found := made(text)) is not None]
    for text, found in shapes:
        assert found == shapes[0][1], text


@pytest.mark.parametrize("release", NAMES_ONLY)
def test_a_release_may_be_called_what_yaml_takes_for_something_else(release: str) -> None:
    """And a namespace."""
    values = {**EVERYTHING, "fullnameOverride": "kproxy"}
    made = [
        helm("template", name, str(CHART), "--namespace", name, "--values", "-", stdin=json.dumps(values)).stdout
        for name in ("abc", release)
    ]
    plain, other = ([shape(one) for one in yaml.load_all(text, yaml.CSafeLoader) if one] for text in made)
    assert plain == other


def test_a_dollar_that_is_meant_asks_for_no_variable() -> None:
    """`$${` stands for `${` in kproxy's config."""
    objects = rendered(values={**BROKERS, "config": {"captures": "/var/lib/kproxy/$${MONTH}"}})
    assert config(objects)["captures"] == "/var/lib/kproxy/$${MONTH}"


def test_the_adapter_gives_the_metric_that_scaling_asks_for() -> None:
    """Under its own name, and with the labels by which a pod is found."""
    (scaler,) = named(rendered(values={**BROKERS, "autoscaling": {"enabled": True}}), "HorizontalPodAutoscaler")
    (metric,) = scaler["spec"]["metrics"]
    (rule,) = yaml.safe_load((DEPLOY / "prometheus" / "adapter.yaml").read_text())["rules"]["custom"]
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"] == rule["seriesQuery"].partition("{")[0]
    assert f"`{rule['name']['as']}`" in (DEPLOY.parent / "docs" / "metrics.md").read_text()
    assert set(rule["resources"]["overrides"]) == {"namespace", "pod"}


def test_the_drain_is_as_long_as_kproxy_takes_by_itself() -> None:
    """Where nothing else is said."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["drain"]["timeout"] == Limits().drain_timeout


def test_the_schema_knows_every_value_and_no_other() -> None:
    """What it allows has a default to be seen, down to the parts that are kproxy's or Kubernetes'."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    Draft7Validator.check_schema(schema)

    def compare(part: dict[str, Any], values: dict[str, Any], place: str) -> None:
        assert part["additionalProperties"] is False, place
        for key in set(part["properties"]) | set(values):
            below = part["properties"][key]
            if isinstance(values.get(key), dict) and "properties" in below:
                compare(below, values[key], f"{place}.{key}")

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    compare(schema, values, "")
    assert set(schema["properties"]) - set(values) == {"global"}


def test_a_packed_chart_is_whole(tmp_path: Path) -> None:
    """The alerts are in it, not where they lead to; and Helm finds nothing to say against it."""
    assert helm("package", str(CHART), "--destination", str(tmp_path)).returncode == 0
    (archive,) = tmp_path.glob("kproxy-*.tgz")
    done = helm("template", "kproxy", str(archive), "--values", str(FOLDER / "values" / "watched.yaml"))
    assert ALERTS["groups"][0]["rules"][0]["alert"] in done.stdout, done.stderr
    linted = helm("lint", "--strict", str(CHART), "--values", str(FOLDER / "values" / "watched.yaml"))
    assert linted.returncode == 0, linted.stdout
