"""Injection of the sidecar into one pod: conflicts, the container, and the JSON patch (RFC 6902).

A pod that requests the sidecar receives all of it, or is refused with all reasons at once. A pod with a sidecar is left
unchanged. tests/admin/webhook compares the container with the Kustomize component in `deploy/kustomize/sidecar`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from kproxy.base.terminal import in_line
from kproxy.rules.values.model import found

from .annotations import MOST_COUNTED, STATUS, SidecarOptions, own_annotations, read_options, shown

INJECTED = "injected"
MOST_REASONS = 20  # Reasons listed in a refusal; the rest is counted
UNSAID_GRACE = 30  # Seconds that Kubernetes sets as default before it calls a webhook


@dataclass(frozen=True, slots=True)
class Injection:
    """Result for one pod: a patch, or none if the pod is left or refused. `reasons`: of the refusal. `left`: why
    nothing changes. `warnings` are shown to the user who created the pod."""

    patch: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    left: str = ""
    warnings: list[str] = field(default_factory=list)


class PodError(ValueError):
    """Wrong type in a pod; the message names the field and the value found."""


def inject(pod: Any, defaults: SidecarOptions) -> Injection:
    try:
        metadata = mapping_of(mapping(pod, "the object"), "metadata")
        own = own_annotations(mapping_of(metadata, "annotations", "metadata."))
        wanted, options, mistakes = read_options(own, defaults)
        if mistakes:
            return Injection(reasons=told(mistakes))
        if not wanted:
            ignored = [name for name in own if name not in (STATUS, "kproxy.io/inject")]
            warning = f'annotations without effect, since kproxy.io/inject is not "true": {", ".join(sorted(ignored))}'
            return Injection(left="not asked for", warnings=[warning] if ignored else [])
        spec = mapping_of(mapping(pod, "the object"), "spec")
        containers = dict(named_containers(spec))
        own_container = next((place for place, one in containers.items() if one.get("name") == NAME), None)
        if STATUS in own:
            if own_container is not None:
                return Injection(left="injected already")
            return Injection(reasons=[f'{STATUS} is the webhook\'s own, and the pod has no container "{NAME}"'])
        reasons = [*islice(conflicts(spec, containers, own_container, options), MOST_COUNTED)]
        if reasons:
            return Injection(reasons=told(reasons))
        return Injection(patch=patch(spec, options), warnings=grace_warnings(spec, options))
    except PodError as error:
        return Injection(reasons=told([str(error)]))


def told(reasons: list[str]) -> list[str]:
    """Return the first reasons, each in one line of characters that are seen, and one that counts the others if there
    are more."""
    more = len(reasons) - MOST_REASONS
    least = "at least " * (len(reasons) >= MOST_COUNTED)
    return [*map(in_line, reasons[:MOST_REASONS]), *([f"and {least}{more:,} more"] if more > 0 else [])]


def mapping(value: Any, place: str) -> Mapping[Any, Any]:
    """Check that a value is a mapping. Raises PodError."""
    if not isinstance(value, dict):
        raise PodError(f"{place}: expected a mapping, got {found(value)}")
    return value


def mapping_of(parent: Mapping[Any, Any], name: str, before: str = "") -> Mapping[Any, Any]:
    """Return the mapping at this name; empty if absent. Raises PodError."""
    value = parent.get(name)
    return {} if value is None else mapping(value, f"{before}{name}")


def list_of(parent: Mapping[Any, Any], name: str, before: str = "") -> list[Any]:
    """Return the list at this name; empty if absent. Raises PodError."""
    value = parent.get(name)
    if value is not None and not isinstance(value, list):
        raise PodError(f"{before}{name}: expected a list, got {found(value)}")
    return value or []


def named_containers(spec: Mapping[Any, Any]) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """Yield each container with its path in the pod. Raises PodError."""
    for part in ("initContainers", "containers"):
        for index, one in enumerate(list_of(spec, part, "spec.")):
            place = f"spec.{part}[{index}]"
            yield place, mapping(one, place)


def conflicts(
    spec: Mapping[Any, Any], containers: Mapping[str, Mapping[Any, Any]], own_container: str | None,
    options: SidecarOptions,
) -> Iterator[str]:  # fmt: skip
    """Yield the parts of a pod that conflict with the sidecar. Raises PodError."""
    if own_container is not None:
        yield f'{own_container}: the pod has a container "{NAME}" that the webhook has not made'
    if not list_of(spec, "containers", "spec."):
        yield "spec.containers: there are none"
    if spec.get("hostNetwork"):
        yield "spec.hostNetwork: kproxy would listen on the node's own loopback, for all pods of the node"
    if mapping_of(spec, "os", "spec.").get("name") == "windows":
        yield "spec.os: kproxy's image is for Linux"
    if mapping_of(spec, "nodeSelector", "spec.").get("kubernetes.io/os") == "windows":
        yield "spec.nodeSelector: kproxy's image is for Linux"
    if not options.native and spec.get("restartPolicy") in ("Never", "OnFailure"):
        yield 'spec.restartPolicy: what ends by itself would not end beside it, kproxy.io/native: "true" is needed'
    for place, one in containers.items():
        for index, port in enumerate(list_of(one, "ports", f"{place}.")):
            where = f"{place}.ports[{index}]"
            number = mapping(port, where).get("containerPort")
            if port.get("protocol") in (None, "TCP") and is_kproxys(number, options):
                yield f"{where}: port {number} of container {shown(one.get('name'))} is kproxy's own (kproxy.io/ports)"
    ours = {one["name"] for one in volumes(options)}
    for index, volume in enumerate(list_of(spec, "volumes", "spec.")):
        name = mapping(volume, f"spec.volumes[{index}]").get("name")
        if isinstance(name, str) and name in ours:
            yield f"spec.volumes[{index}]: the pod has a volume {shown(name)}, which is kproxy's"
    seconds = spec.get("terminationGracePeriodSeconds")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int)):
        raise PodError(f"spec.terminationGracePeriodSeconds: expected seconds, got {found(seconds)}")
    mapping_of(spec, "securityContext", "spec.")


def is_kproxys(number: Any, options: SidecarOptions) -> bool:
    """True if kproxy listens on this port."""
    return isinstance(number, int) and any(first <= number <= last for first, last in options.ports)


def patch(spec: Mapping[Any, Any], options: SidecarOptions) -> list[dict[str, Any]]:
    """Return the operations that add the sidecar to a pod without conflicts."""
    made = container(options)
    if not options.native:
        operations = [add("/spec/containers/-", made)]
    elif spec.get("initContainers"):
        operations = [add("/spec/initContainers/0", made)]  # before others, which may need Kafka
    else:
        operations = [add("/spec/initContainers", [made])]
    ours = volumes(options)
    operations += [add("/spec/volumes/-", one) for one in ours] if spec.get("volumes") else [add("/spec/volumes", ours)]
    seconds = spec.get("terminationGracePeriodSeconds")
    if seconds is None or seconds < grace(options):
        operations.append(add("/spec/terminationGracePeriodSeconds", grace(options)))
    security = mapping_of(spec, "securityContext", "spec.")
    if options.files is not None and security.get("fsGroup") is None:  # groups in addition to kproxy's own
        whole = not spec.get("securityContext")
        group = add("/spec/securityContext", {"fsGroup": USER}) if whole else add("/spec/securityContext/fsGroup", USER)
        operations.append(group)
    operations.append(add(f"/metadata/annotations/{STATUS.replace('/', '~1')}", INJECTED))
    return operations


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def grace_warnings(spec: Mapping[Any, Any], options: SidecarOptions) -> list[str]:
    """Return a warning if the pod sets a grace period of its own, and the patch extends it."""
    seconds = spec.get("terminationGracePeriodSeconds")
    if seconds is None or seconds == UNSAID_GRACE or seconds >= grace(options):
        return []
    return [f"spec.terminationGracePeriodSeconds: {seconds} became {grace(options)}, in which kproxy ends in order"]


NAME = "kproxy"
USER = 10001  # User and group of kproxy's image
GRACE = 45  # Seconds for a pod to end: limits.drain_timeout of kproxy is 30, and the audit's last lines take some
PAUSE = 5
"""Seconds that an ordinary container continues at shutdown. Kubernetes signals it together with the application, which
still sends requests. A native sidecar is signalled after the application ends."""
LIVE: dict[str, Any] = {"exec": {"command": [NAME, "ready", "--live"]}}
"""The admin address is loopback, which the kubelet cannot reach: probes run in the container."""


def container(options: SidecarOptions) -> dict[str, Any]:
    """Return the container: for `initContainers` if native, otherwise for `containers`."""
    made: dict[str, Any] = {
        "name": NAME,
        "image": options.image,
        "args": ["run", "--config", "/etc/kproxy/kproxy.yaml"],
        "startupProbe": {**LIVE, "periodSeconds": 2, "failureThreshold": 30, "timeoutSeconds": 5},
        "livenessProbe": {**LIVE, "periodSeconds": 20, "timeoutSeconds": 5},
        "resources": {"requests": dict(options.requests), "limits": dict(options.limits)},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": mounts(options),
    }
    if variables := environment(options):
        made["env"] = variables
    if options.native:
        made["restartPolicy"] = "Always"
    else:
        made["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", str(PAUSE)]}}}
    return made


def environment(options: SidecarOptions) -> list[dict[str, Any]]:
    """Return variables from Secrets, and the pod's name if files are kept."""
    made: list[dict[str, Any]] = []
    if options.files is not None:
        made.append({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    for name, (secret, key) in options.secret_env.items():
        made.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    return made


def mounts(options: SidecarOptions) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"name": "kproxy-config", "mountPath": "/etc/kproxy", "readOnly": True}]
    made += [
        {"name": f"kproxy-secret-{folder}", "mountPath": f"/etc/kproxy-secrets/{folder}", "readOnly": True}
        for folder in options.secrets
    ]
    if options.files is not None:
        made.append({"name": "kproxy-files", "mountPath": "/var/lib/kproxy"})
    return made


def volumes(options: SidecarOptions) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"name": "kproxy-config", "configMap": {"name": options.config_map}}]
    for folder, secret in options.secrets.items():
        made.append({"name": f"kproxy-secret-{folder}", "secret": {"secretName": secret}})
    if options.files is not None:
        made.append({"name": "kproxy-files", "emptyDir": {"sizeLimit": options.files}})
    return made


def grace(options: SidecarOptions) -> int:
    """Termination grace period of the pod in seconds."""
    return GRACE if options.native else GRACE + PAUSE
