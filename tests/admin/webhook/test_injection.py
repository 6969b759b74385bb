"""The sidecar that the webhook puts into a pod: that of deploy/, whole or not at all, and once."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kproxy.admin.webhook import injection
from kproxy.admin.webhook.annotations import ANNOTATIONS, SidecarOptions
from kproxy.admin.webhook.injection import MOST_REASONS, inject
from kproxy.admin.webhook.server import answer_review
from kproxy.runtime.config.network import Limits
from tests.support import manifests
from tests.support.admission import RECORDED, apply_patch, patched, review_of, review_with
from tests.support.stretches import BY_COST, Cost

ROOT = Path(__file__).parents[3]
KUSTOMIZE = ROOT / "deploy" / "kustomize"
DEFAULTS = SidecarOptions("kproxy:0.1.0")
NATIVE = SidecarOptions("kproxy:0.1.0", native=True)
REVIEWS = sorted(path.stem for path in RECORDED.glob("*.json"))


def answer(review: bytes, defaults: SidecarOptions = DEFAULTS) -> dict[str, Any]:
    return answer_review(review, defaults).body()


def refusal(review: bytes, defaults: SidecarOptions = DEFAULTS) -> str:
    response = answer(review, defaults)["response"]
    assert response["allowed"] is False and "patch" not in response
    assert response["status"]["code"] == 422
    return str(response["status"]["message"])


def bare(pod: dict[str, Any]) -> dict[str, Any]:
    """The spec of a pod without what the API server and other parts of Kubernetes have put there."""
    spec = copy.deepcopy(pod["spec"])
    return {
        "initContainers": [one for one in spec.get("initContainers", ()) if one["name"] == "kproxy"],
        "volumes": [one for one in spec.get("volumes", ()) if one["name"].startswith("kproxy")],
        "terminationGracePeriodSeconds": spec["terminationGracePeriodSeconds"],
        "securityContext": spec.get("securityContext", {}),
    }


def overlay(*files: str) -> dict[str, Any]:
    """What the Kustomize component, and patches of overlays beside it, make of a pod that has nothing of that."""
    made: dict[str, Any] = {"initContainers": [{"name": "kproxy"}], "volumes": [], "securityContext": {}}
    for file in ("sidecar/container.yaml", *files):
        part = yaml.safe_load((KUSTOMIZE / file).read_text())["spec"]["template"]["spec"]
        (container,) = part.pop("initContainers")
        ours = made["initContainers"][0]
        ours["volumeMounts"] = ours.get("volumeMounts", []) + container.pop("volumeMounts")
        ours |= container
        made["volumes"] += part.pop("volumes")
        made |= part
    return made


@pytest.mark.parametrize(
    ("annotations", "files"),
    [
        ({}, ()),
        ({"files": "1Gi"}, ("overlays/audited/files.yaml",)),
        (
            {"secrets": "brokers=kafka-login", "secret-env": "KAFKA_USERNAME=kafka-login/username"},
            ("overlays/secured/login.yaml",),
        ),
    ],
    ids=["plain", "audited", "secured"],
)
def test_the_native_sidecar_is_that_of_the_overlay(annotations: dict[str, str], files: tuple[str, ...]) -> None:
    """Probes, resources, mounts, volumes and the time to end: two parts say them, and neither may fall behind."""
    review = review_with({"inject": "true", "native": "true", **annotations})
    assert bare(patched(review, answer(review))) == overlay(*files)


def test_a_container_beside_the_application_goes_on_while_that_ends() -> None:
    """All else is as in a native sidecar; the pause is that of central pods, and there is time for both."""
    review = review_with({"inject": "true"})
    spec = patched(review, answer(review))["spec"]
    app, kproxy = spec["containers"]
    native = injection.container(NATIVE)
    assert app["name"] == "app" and "initContainers" not in spec
    assert kproxy.pop("lifecycle") == {"preStop": {"exec": {"command": ["sleep", "5"]}}}
    assert native.pop("restartPolicy") == "Always" and kproxy == native
    assert spec["terminationGracePeriodSeconds"] == 50
    values = yaml.safe_load((ROOT / "deploy/helm/kproxy/values.yaml").read_text())
    assert values["drain"]["pause"] == injection.PAUSE
    assert injection.GRACE - 10 >= Limits().drain_timeout


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("name", REVIEWS)
def test_what_comes_out_is_a_pod_for_kubernetes(name: str, native: bool) -> None:
    """By its own schema, in which no field is unknown; the rest of the pod is as it was, and nothing comes twice."""
    review = review_of(name)
    if native is False:
        review["request"]["object"]["spec"]["restartPolicy"] = "Always"
        review["request"]["object"]["metadata"]["annotations"].pop("kproxy.io/native", None)
    review["request"]["object"]["metadata"]["annotations"] |= {"kproxy.io/files": "1Gi", "kproxy.io/secrets": "a=b,c=d"}
    before = review["request"]["object"]
    after = patched(review, answer(json.dumps(review).encode(), NATIVE if native else DEFAULTS))
    checked = {**after, "metadata": {**after["metadata"], "creationTimestamp": "2026-11-20T09:12:44Z"}}
    kubernetes_validate.validate(checked, manifests.KUBERNETES, strict=True)
    (kproxy,) = (one for one in manifests.containers(after["spec"]) if one["name"] == "kproxy")
    manifests.are_restricted({"containers": [kproxy]})
    assert {one["name"] for one in kproxy["volumeMounts"]} <= {one["name"] for one in after["spec"]["volumes"]}
    for part in ("initContainers", "containers", "volumes"):
        there = [one for one in after["spec"].get(part, ()) if not one["name"].startswith("kproxy")]
        assert there == before["spec"].get(part, [])
    if native:
        assert after["spec"]["initContainers"][0] == kproxy
    review["request"]["object"] = after
    again = answer(json.dumps(review).encode())["response"]
    assert again == {"uid": review["request"]["uid"], "allowed": True}


def test_a_pod_that_takes_longer_to_end_keeps_its_time_and_its_group() -> None:
    """Neither is made less; kproxy's user is in the group of the volumes, whichever it is."""
    review = review_with({"inject": "true", "native": "true", "files": "2Gi"}, name="job")
    spec = patched(review, answer(review))["spec"]
    assert spec["terminationGracePeriodSeconds"] == 120
    assert spec["securityContext"] == {"fsGroup": 2000}


def test_a_pod_that_wants_to_end_sooner_gets_the_time_and_a_warning() -> None:
    """The 30 seconds that Kubernetes writes into every pod are nobody's wish, and raise none."""
    review = review_with({"inject": "true"}, {"terminationGracePeriodSeconds": 3})
    response = answer(review)["response"]
    assert response["warnings"] == [
        "kproxy: spec.terminationGracePeriodSeconds: 3 became 50, in which kproxy ends in order"
    ]
    assert "warnings" not in answer(review_with({"inject": "true"}))["response"]


@pytest.mark.parametrize(
    ("annotations", "warnings"),
    [
        ({}, []),
        ({"inject": "false"}, []),
        ({"config-map": "other"},
         ['kproxy: annotations without effect, since kproxy.io/inject is not "true": kproxy.io/config-map']),
    ],
)  # fmt: skip
def test_a_pod_that_does_not_ask_is_left(annotations: dict[str, str], warnings: list[str]) -> None:
    """Annotations that say how, without the one that says so, are told of."""
    response = answer(review_with(annotations))["response"]
    assert response.pop("warnings", []) == warnings
    assert response == {"uid": review_of()["request"]["uid"], "allowed": True}


def test_annotations_change_what_they_name() -> None:
    """And nothing else."""
    review = review_with({
        "inject": "true", "config-map": "shop.kafka", "requests": "cpu=1,memory=1Gi", "limits": "memory=1.5Gi",
        "ports": "19092, 19093-19100",
    }, {"containers": [{"name": "a", "ports": [{"containerPort": 9092}]}]})  # fmt: skip
    spec = patched(review, answer(review))["spec"]
    (kproxy,) = (one for one in spec["containers"] if one["name"] == "kproxy")
    assert kproxy["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1.5Gi"}}
    assert {"name": "kproxy-config", "configMap": {"name": "shop.kafka"}} in spec["volumes"]
    assert {**kproxy, "resources": 0} == {**injection.container(DEFAULTS), "resources": 0}


PLACE = 'metadata.annotations["kproxy.io/{}"]: {}'
WRONG = [
    ("inject", "yes", 'expected "true" or "false", got "yes"'),
    ("inject", True, "expected text, got true"),
    ("inject", "true\u202e", 'expected "true" or "false", got "true\\u202e"'),
    ("native", "1", 'expected "true" or "false", got "1"'),
    ("config-map", "", 'expected a name of small letters, digits, - and ., got ""'),
    ("config-map", "../../etc", 'expected a name of small letters, digits, - and ., got "../../etc"'),
    ("config-map", None, "expected text, got nothing"),
    ("secrets", "kafka-login", 'expected FOLDER=SECRET, got "kafka-login"'),
    ("secrets", "a=b,a=c", 'duplicate "a"'),
    ("secrets", "..=b", 'expected a folder of up to 48 small letters, digits and -, got ".."'),
    ("secrets", f"{'a' * 49}=b", f'expected a folder of up to 48 small letters, digits and -, got "{"a" * 49}"'),
    ("secrets", ",".join(f"a{n}=b" for n in range(33)), "at most 32 items are taken"),
    ("secret-env", "A=b", 'expected VARIABLE=SECRET/KEY, got "A=b"'),
    ("secret-env", "POD_NAME=b/c", "POD_NAME is set by the webhook itself"),
    ("files", "1 GB", 'expected a quantity such as 512Mi or 50m, got "1 GB"'),
    ("files", "0", 'expected a quantity such as 512Mi or 50m, got "0"'),
    ("limits", "memroy=1Gi",
     'unknown resource "memroy", did you mean "memory"? allowed: cpu, ephemeral-storage, memory'),
    ("requests", "cpu=-1", 'expected a quantity such as 512Mi or 50m, got "-1"'),
    ("ports", "9092-", 'expected a port from 1 to 65535 or FIRST-LAST, got "9092-"'),
    ("ports", "70000", 'expected a port from 1 to 65535 or FIRST-LAST, got "70000"'),
    ("ports", "9-1", 'expected a port from 1 to 65535 or FIRST-LAST, got "9-1"'),
    ("inejct", "true",
     'unknown annotation "kproxy.io/inejct", did you mean "kproxy.io/inject"? allowed: kproxy.io/inject, '
     + ", ".join(f"kproxy.io/{name}" for name in ANNOTATIONS)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_a_wrong_annotation_is_refused_at_its_place(name: str, value: Any, message: str) -> None:
    """Whether the sidecar is asked for or not: after a typing error in that a pod must not start without."""
    said = refusal(review_with({"inject": "true", name: value}))
    assert said == f"no kproxy sidecar: {PLACE.format(name, message)}"


CONFLICTS: list[tuple[dict[str, Any], str]] = [
    ({"hostNetwork": True},
     "spec.hostNetwork: kproxy would listen on the node's own loopback, for all pods of the node"),
    ({"os": {"name": "windows"}}, "spec.os: kproxy's image is for Linux"),
    ({"nodeSelector": {"kubernetes.io/os": "windows"}}, "spec.nodeSelector: kproxy's image is for Linux"),
    ({"restartPolicy": "OnFailure"},
     'spec.restartPolicy: what ends by itself would not end beside it, kproxy.io/native: "true" is needed'),
    ({"containers": [{"name": "kproxy"}]},
     'spec.containers[0]: the pod has a container "kproxy" that the webhook has not made'),
    ({"initContainers": [{"name": "a"}, {"name": "kproxy"}]},
     'spec.initContainers[1]: the pod has a container "kproxy" that the webhook has not made'),
    ({"containers": [{"name": "app", "ports": [{"containerPort": 80}, {"containerPort": 9189}]}]},
     'spec.containers[0].ports[1]: port 9189 of container "app" is kproxy\'s own (kproxy.io/ports)'),
    ({"volumes": [{"name": "a"}, {"name": "kproxy-config", "emptyDir": {}}]},
     'spec.volumes[1]: the pod has a volume "kproxy-config", which is kproxy\'s'),
    ({"containers": []}, "spec.containers: there are none"),
    ({"containers": "app"}, 'spec.containers: expected a list, got text "app"'),
    ({"containers": ["app"]}, 'spec.containers[0]: expected a mapping, got text "app"'),
    ({"containers": [{"name": "a", "ports": {}}]}, "spec.containers[0].ports: expected a list, got a mapping"),
    ({"containers": [{"name": "a", "ports": [7]}]},
     "spec.containers[0].ports[0]: expected a mapping, got the number 7"),
    ({"initContainers": 5}, "spec.initContainers: expected a list, got the number 5"),
    ({"volumes": [None]}, "spec.volumes[0]: expected a mapping, got nothing"),
    ({"terminationGracePeriodSeconds": "30"},
     'spec.terminationGracePeriodSeconds: expected seconds, got text "30"'),
    ({"securityContext": []}, "spec.securityContext: expected a mapping, got a list"),
    ({"os": "linux"}, 'spec.os: expected a mapping, got text "linux"'),
    ({"containers": "\x1b[2J\u202e"}, 'spec.containers: expected a list, got text "\\u001b[2J\\u202e"'),
    ({"containers": [{"name": {}, "ports": [{"containerPort": 9190}]}]},
     "spec.containers[0].ports[0]: port 9190 of container a mapping is kproxy's own (kproxy.io/ports)"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), CONFLICTS)
def test_a_pod_that_cannot_have_it_is_refused(spec: dict[str, Any], message: str) -> None:
    """With the place in the pod, and what stands there."""
    assert refusal(review_with({"inject": "true"}, spec)) == f"no kproxy sidecar: {message}"


def test_all_reasons_are_told_at_once_up_to_a_number() -> None:
    """The rest is counted, and a refusal stays short enough for an event."""
    ports = [{"containerPort": 9092} for _ in range(100)]
    said = refusal(
        review_with({"inject": "true"}, {"hostNetwork": True, "containers": [{"name": "x" * 4000, "ports": ports}]})
    )
    assert "spec.hostNetwork" in said and said.endswith("and 81 more") and len(said) < 5000
    assert said.count("; ") == MOST_REASONS


def test_a_pod_that_only_says_that_it_was_injected_is_refused() -> None:
    """It would run without its sidecar."""
    said = refusal(review_with({"inject": "true", "status": "injected"}))
    assert said == 'no kproxy sidecar: kproxy.io/status is the webhook\'s own, and the pod has no container "kproxy"'


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 100_000)
    | st.sampled_from(["", "kproxy", "true", "TCP", "kproxy-config"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "ports", "containerPort", "protocol", "fsGroup", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
PARTS = ["containers", "initContainers", "volumes", "securityContext", "os", "terminationGracePeriodSeconds",
         "hostNetwork", "restartPolicy"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(PARTS), JSON_VALUES, max_size=4), st.booleans())
def test_any_spec_is_refused_or_gets_a_patch_that_applies(spec: dict[str, Any], native: bool) -> None:
    """Whatever is in it, and of whatever type: one container and its volumes come of it, or reasons."""
    pod = json.loads(review_with({"inject": "true", "native": json.dumps(native)}, spec))["request"]["object"]
    done = inject(pod, DEFAULTS)
    if done.reasons:
        assert not done.patch
        return
    made = apply_patch(pod, done.patch)["spec"]
    assert [one["name"] for one in made["initContainers" if native else "containers"] if "args" in one] == ["kproxy"]
    assert "kproxy-config" in {one.get("name") for one in made["volumes"]}
    assert made["terminationGracePeriodSeconds"] >= 45


@pytest.mark.parametrize("pod", [None, 5, "pod", [], {"metadata": 5}, {"metadata": {"annotations": []}}])
def test_an_object_that_is_no_pod_is_refused(pod: Any) -> None:
    """In words, at its place."""
    (reason,) = inject(pod, DEFAULTS).reasons
    assert "expected a mapping, got" in reason


MANY, LONG_NAME = 20_000, "x\x1b" * 200_000
LARGE: dict[str, dict[str, Any]] = {
    "annotations": {"metadata": {"annotations": {f"kproxy.io/unknown-{at}": "true" for at in range(MANY)}}},
    "a long annotation": {"metadata": {"annotations": {f"kproxy.io/{LONG_NAME}": LONG_NAME}}},
    **{
        f"{name} of {what}": {"metadata": {"annotations": {f"kproxy.io/{name}": value}}}
        for name in ("inject", *ANNOTATIONS)
        for what, value in (("items", "a=b/c," * 200_000), ("letters", LONG_NAME), ("digits", "1" * 1_000_000))
    },
    "ports": {"spec": {"containers": [{"name": LONG_NAME, "ports": [{"containerPort": 9092}] * MANY}]}},
    "ports of a list": {"spec": {"containers": [{"name": [LONG_NAME], "ports": [{"containerPort": 9092}] * MANY}]}},
    "containers": {"spec": {"containers": [{"name": LONG_NAME, "ports": [{"containerPort": 9092}]}] * MANY}},
    "sidecars": {"spec": {"initContainers": [{"name": "kproxy"}] * MANY}},
    "volumes": {"spec": {"containers": [{"name": "a"}], "volumes": [{"name": "kproxy-config"}] * MANY}},
    "other volumes": {"spec": {"containers": [{"name": "a"}], "volumes": [{"name": LONG_NAME}] * MANY}},
}  # fmt: skip


@BY_COST
@pytest.mark.parametrize("name", LARGE)
def test_injection_into_a_large_pod_takes_bounded_work(name: str, cost: Cost) -> None:
    """Every client in the cluster can send such a pod to the webhook."""
    large = LARGE[name]
    pod = {
        "metadata": {"annotations": {"kproxy.io/inject": "true", **large.get("metadata", {}).get("annotations", {})}},
        "spec": large.get("spec", {"containers": [{"name": "a"}]}),
    }
    cost.check(lambda: inject(pod, DEFAULTS), lines=600_000, seconds=0.3)
    done = inject(pod, DEFAULTS)
    assert name == "other volumes" or 0 < len("".join(done.reasons)) < 10_000
